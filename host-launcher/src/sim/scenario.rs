//! What a seed means.

use core::fmt;
use core::time::Duration;

use device_model::fault::{FalseCompletion, FalseHead, When};
use fastrand::Rng;
use std::sync::Arc;
use templates::Shape;
use wire::launch::{Algorithm, CacheMode, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp, Reduction};

use crate::communicator::Operation;
use crate::faults::{Argument, Fault, Kind};
use crate::topology::Topology;
use crate::traffic::Traffic;

/// Which faults a scenario has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultPlan {
    /// As many as the seed says, at most this: none in a tenth of the seeds.
    Seeded(u32),
    /// These; the seed places those that say no rank.
    Given(Vec<Fault>),
}

/// What the caller fixes of the operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// What each of them is.
    pub op: Option<OpKind>,
    /// Their algorithm, of those that have it.
    pub algorithm: Option<Algorithm>,
    /// The seed of everything but the schedule: with it a seed says in which order the parties of one life do what they do.
    pub life: Option<u64>,
}

/// What the caller fixes of a scenario; the seed chooses the rest, and chooses it the same whatever is fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ranks.
    pub ranks: Option<u32>,
    /// Operations, at most.
    pub operations: Option<usize>,
    /// Elements per rank, at most.
    pub count: Option<u64>,
    /// What the operations are.
    pub given: Given,
    /// Faults.
    pub faults: FaultPlan,
    /// Deadline of an operation, virtual time.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let faults = FaultPlan::Given(Vec::new());
        let given = Given::default();
        Self { ranks: None, operations: None, count: None, given, faults, timeout: Duration::from_secs(1) }
    }
}

/// One operation and how often it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The operation.
    pub operation: Operation,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// How often.
    pub times: u64,
}

/// A life of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Seed of everything that happens in it.
    pub seed: u64,
    /// What was fixed of it.
    pub given: Given,
    /// Ranks.
    pub ranks: u32,
    /// Devices per server: fewer than ranks means several servers.
    pub devices_per_server: u32,
    /// Entries of each ring.
    pub queue_depth: u32,
    /// Whether kernels keep graphs.
    pub cache: CacheMode,
    /// What is carried out, one part after the other.
    pub parts: Vec<Part>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Deadline of an operation, virtual time.
    pub timeout: Duration,
}

/// What a choice is about: each has dice of its own, so that fixing one choice does not change the others.
#[derive(Clone, Copy)]
enum About {
    World = 1,
    Parts = 2,
    Faults = 3,
    Places = 4,
}

fn dice(seed: u64, about: About) -> Rng {
    Rng::with_seed(seed.rotate_left(17) ^ (about as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl Scenario {
    /// Returns what a seed means within limits.
    #[must_use]
    pub fn new(seed: u64, limits: &Limits) -> Self {
        let given = limits.given;
        let life = given.life.unwrap_or(seed);
        let mut world = dice(life, About::World);
        let (seeded, several) = (world.u32(2..=6), world.u8(..4) == 0);
        let ranks = limits.ranks.unwrap_or(seeded);
        let devices_per_server = if several { ranks.div_ceil(2).max(1) } else { ranks };
        let cache = if world.u8(..4) == 0 { CacheMode::Off } else { CacheMode::On };
        let queue_depth = 1 << world.u32(2..=8);
        let mut choice = dice(life, About::Parts);
        let mut parts: Vec<Part> = (0..choice.usize(1..=3)).map(|_| part(&mut choice, limits)).collect();
        parts.truncate(limits.operations.unwrap_or(usize::MAX).max(1));
        let mut places = dice(seed, About::Places);
        let faults = match &limits.faults {
            FaultPlan::Given(faults) => faults.iter().map(|fault| fault.placed(ranks, &mut places)).collect(),
            FaultPlan::Seeded(most) => faults(&mut dice(seed, About::Faults), *most, ranks),
        };
        let timeout = limits.timeout;
        Self { seed, given, ranks, devices_per_server, queue_depth, cache, parts, faults, timeout }
    }

    /// Returns the seed of what the ranks bring along.
    #[must_use]
    pub fn payload(&self) -> u64 {
        self.given.life.unwrap_or(self.seed)
    }

    /// Makes of all parts what the ranks, their links and the operations allow: roots, counts, staging.
    pub(super) fn fit(&mut self, topology: &Topology) {
        let payload = self.payload();
        for Part { operation, in_place, .. } in &mut self.parts {
            let op = operation.op;
            let traffic = Traffic::named(op.name());
            let vector = traffic.and_then(|traffic| traffic.vector(payload, operation.count, self.ranks));
            if vector.is_some() || op == OpKind::Barrier {
                operation.count = 0;
            }
            operation.vector = vector.map(Arc::new);
            operation.root = if op.is_rooted() { operation.root % self.ranks } else { 0 };
            // Blocks that are exchanged between places of their own have no place in common.
            *in_place &= !matches!(op, OpKind::SendReceive | OpKind::AllToAllV);
            let reduction = Reduction { dtype: operation.dtype, op: operation.reduce };
            let shape = Shape {
                inline_reduce: topology.reduces_inline(reduction),
                in_place: *in_place,
                ..operation.shape(0, self.ranks)
            };
            if !shape.works_directly() {
                operation.staging = Staging::Scratch;
            }
        }
    }
}

/// Returns an operation with everything about it; every other one is an all-reduce.
fn part(dice: &mut Rng, limits: &Limits) -> Part {
    let Limits { count: most, given, .. } = limits;
    let op = if dice.bool() { OpKind::AllReduce } else { pick(dice, OpKind::ALL) };
    let op = given.op.unwrap_or(op);
    let known: Vec<Algorithm> =
        Algorithm::ALL.iter().copied().filter(|algorithm| templates::exists(op, *algorithm)).collect();
    let algorithm = pick(dice, &known);
    let algorithm = given.algorithm.filter(|algorithm| known.contains(algorithm)).unwrap_or(algorithm);
    let dtype =
        pick(dice, &[DataType::Fp32, DataType::Int32, DataType::Bf16, DataType::Int8, DataType::Int64]);
    let reduce = if op.reduces() { pick(dice, ReduceOp::ALL) } else { ReduceOp::Sum };
    // As many small counts as large ones, by their length in bits.
    let bits = dice.u32(0..=9);
    let count = dice.u64(1 << bits >> 1..=1 << bits);
    let count = most.map_or(count, |most| count.min(most));
    let chunk = if dice.u8(..5) == 0 { count.div_ceil(2) } else { 0 };
    let staging = if dice.bool() { Staging::Direct } else { Staging::Scratch };
    let in_place = dice.u8(..4) == 0;
    let root = dice.u32(..1 << 16);
    let operation =
        Operation { op, count, root, dtype, reduce, algorithm, staging, chunk, ..Operation::default() };
    Part { operation, in_place, times: dice.u64(1..=3) }
}

fn pick<T: Copy>(dice: &mut Rng, from: &[T]) -> T {
    from[dice.usize(..from.len())]
}

/// Returns faults: none in a tenth of the seeds, else one most often, and up to `most`.
fn faults(dice: &mut Rng, most: u32, ranks: u32) -> Vec<Fault> {
    if most == 0 || dice.u8(..10) == 0 {
        return Vec::new();
    }
    let mut count = 1;
    while count < most && dice.u8(..3) == 0 {
        count += 1;
    }
    (0..count).map(|_| fault(dice, ranks)).collect()
}

fn fault(dice: &mut Rng, ranks: u32) -> Fault {
    let micros = |dice: &mut Rng| Duration::from_micros(1 << dice.u32(0..14));
    let kind = match dice.u8(..34) {
        0..3 => Kind::Kill,
        3..5 => Kind::Pause(micros(dice)),
        5..7 => Kind::Slow(Duration::from_micros(1 << dice.u32(0..10))),
        7..10 => Kind::DropNotify,
        10..12 => Kind::DuplicateNotify(micros(dice)),
        12..14 => Kind::LoseDoorbell,
        14..16 => Kind::Fail(pick(dice, &[ErrorCode::DMA_TOKEN, ErrorCode::QP_ERROR, ErrorCode::DMA_BOUNDS])),
        16..18 => Kind::FlipBit { bit: dice.u64(..1 << 14), silent: false },
        18..20 => Kind::CutLink,
        20..22 => Kind::Mismatch(pick(dice, &Argument::ALL)),
        22 => Kind::Absent,
        23..25 => Kind::Abort(Duration::from_micros(dice.u64(..200))),
        25..27 => Kind::Suspend(Duration::from_micros(dice.u64(..200))),
        27 => Kind::Exhaust(dice.u64(1..40)),
        28..30 => {
            use FalseCompletion::{Bogus, Lost, Old, Twice};
            Kind::Completion(pick(dice, &[Lost, Twice, Old, Bogus]))
        }
        30..32 => Kind::Head(pick(dice, &[FalseHead::Frozen, FalseHead::Beyond, FalseHead::Back])),
        // The tokens of both operands: any other bit may make an entry mean something else.
        _ => Kind::Garble(dice.u32(320..384)),
    };
    // Any task of the first operations, those near the start more often.
    let when = match kind {
        Kind::Mismatch(_) | Kind::Absent | Kind::Abort(_) | Kind::Suspend(_) | Kind::Exhaust(_) => {
            When::default()
        }
        // One is reported by each operation.
        Kind::Completion(_) => When { spared: dice.u32(..4), ..When::default() },
        _ => {
            let reach = 1 << dice.u32(0..7);
            When { spared: dice.u32(..reach), ..When::default() }
        }
    };
    Fault { rank: Some(dice.u32(..ranks)), kind, when, at: None }
}

/// Prints the command that plays it.
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.parts.iter().map(|part| part.operation.count).max().unwrap_or(0);
        let Self { seed, given, ranks, parts, timeout, .. } = self;
        write!(f, "aicpu-ts sim --seed {seed} --ranks {ranks} --operations {} --count {count}", parts.len())?;
        let Given { op, algorithm, life } = given;
        op.iter().try_for_each(|op| write!(f, " --op {op}"))?;
        algorithm.iter().try_for_each(|algorithm| write!(f, " --algo {algorithm}"))?;
        life.iter().try_for_each(|life| write!(f, " --life {life}"))?;
        if timeout.as_millis() != 1000 {
            write!(f, " --timeout {}", timeout.as_millis())?;
        }
        self.faults.iter().try_for_each(|fault| write!(f, " --fault {fault}"))
    }
}
