//! Which algorithm carries out an operation, and why.

use core::fmt;

use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp, Reduction};

use crate::error::{Error, Result};
use crate::settings::{AlgoName, AlgoOp, Settings};
use crate::topology::Topology;

/// Largest all-reduce for which one exchange of everything beats two of slices, bytes; measured on the device model.
const ONE_SHOT_BYTES: u64 = 32 << 10;

/// What is asked for, before an algorithm has been chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Operation.
    pub op: OpKind,
    /// Elements per rank.
    pub count: u64,
    /// Element type.
    pub dtype: DataType,
    /// Reduction.
    pub reduce: ReduceOp,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// Algorithm demanded by the caller.
    pub algorithm: Option<Algorithm>,
    /// Staging demanded by the caller.
    pub staging: Option<Staging>,
}

/// An algorithm and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Where it works.
    pub staging: Staging,
    /// Why, in one clause.
    pub why: String,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.algorithm, self.staging, self.why)
    }
}

/// Chooses: what the caller demands, else what `HCCL_ALGO` says, else by size and links.
///
/// # Errors
/// `PLAN_OP` when what is demanded cannot carry out the operation.
pub fn choose(question: &Question, topology: &Topology, settings: &Settings) -> Result<Choice> {
    let (algorithm, why) = match (question.algorithm, from_settings(question.op, topology, settings)?) {
        (Some(algorithm), _) => (algorithm, "asked for by --algo".to_owned()),
        (None, Some(algorithm)) => (algorithm, "asked for by HCCL_ALGO".to_owned()),
        (None, None) => by_size(question, topology),
    };
    let possible = direct_possible(question, algorithm, topology);
    let staging = question.staging.unwrap_or(if possible { Staging::Direct } else { Staging::Scratch });
    if question.op != OpKind::AllReduce && !matches!(algorithm, Algorithm::Ring | Algorithm::Nhr) {
        let message = format!("{} is not carried out by {algorithm}; it is by ring and nhr", question.op);
        return Err(Error::new(ErrorCode::PLAN_OP, message));
    }
    Ok(Choice { algorithm, staging, why })
}

fn by_size(question: &Question, topology: &Topology) -> (Algorithm, String) {
    let bytes = question.count.saturating_mul(question.dtype.size_bytes());
    if topology.servers() > 1 {
        return (
            Algorithm::Nhr,
            format!("{} servers: fewest steps for any number of ranks", topology.servers()),
        );
    }
    match question.op {
        OpKind::AllReduce if bytes <= ONE_SHOT_BYTES => {
            (Algorithm::MeshOneShot, format!("one server, {bytes} bytes ≤ {ONE_SHOT_BYTES}: one exchange"))
        }
        OpKind::AllReduce => (
            Algorithm::MeshTwoShot,
            format!("one server, {bytes} bytes > {ONE_SHOT_BYTES}: all links, least bytes"),
        ),
        OpKind::AllGather | OpKind::ReduceScatter => {
            (Algorithm::Nhr, "one server: fewest steps at the ring's volume".to_owned())
        }
    }
}

/// Direct needs links that reduce while moving (mesh), buffers apart (mesh), and an output that holds the work area.
fn direct_possible(question: &Question, algorithm: Algorithm, topology: &Topology) -> bool {
    let mesh = matches!(algorithm, Algorithm::MeshOneShot | Algorithm::MeshTwoShot);
    let reduces = topology.reduces_inline(Reduction { dtype: question.dtype, op: question.reduce });
    match question.op {
        OpKind::ReduceScatter => false,
        OpKind::AllGather => true,
        OpKind::AllReduce if mesh => reduces && !question.in_place,
        OpKind::AllReduce => reduces,
    }
}

fn from_settings(op: OpKind, topology: &Topology, settings: &Settings) -> Result<Option<Algorithm>> {
    let of = match op {
        OpKind::AllReduce => AlgoOp::AllReduce,
        OpKind::AllGather => AlgoOp::AllGather,
        OpKind::ReduceScatter => AlgoOp::ReduceScatter,
    };
    let Some(levels) = settings.algo.value().as_ref().and_then(|algo| algo.levels(of)) else {
        return Ok(None);
    };
    // One flat algorithm runs over all ranks: the level that spans them decides.
    let level = usize::from(topology.servers() > 1);
    let at = |level: usize| levels.get(level).filter(|name| *name != AlgoName::Na);
    let Some(name) = at(level).or_else(|| at(1 - level)) else { return Ok(None) };
    named(name).map(Some).ok_or_else(|| {
        let message =
            format!("HCCL_ALGO asks for {:?} at level {level}, which is not implemented", name.name());
        let remedy = "use ring, H-D_R, NHR or fullmesh, or unset HCCL_ALGO";
        Error::new(ErrorCode::PLAN_OP, message).remedy(remedy)
    })
}

fn named(name: AlgoName) -> Option<Algorithm> {
    match name {
        AlgoName::Ring => Some(Algorithm::Ring),
        AlgoName::HalvingDoubling => Some(Algorithm::HalvingDoubling),
        AlgoName::Nhr => Some(Algorithm::Nhr),
        AlgoName::FullMesh => Some(Algorithm::MeshTwoShot),
        _ => None,
    }
}
