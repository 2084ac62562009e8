//! Faults as users name them: what, at which rank, at which task.
//!
//! `kill:rank=2@step=1` is a kind, what it needs to know, and the task it happens at. [`Fault::parse`] reads one,
//! [`Fault::apply`] arranges it on a cluster, and what a host does wrong (a rank that launches something else, or
//! nothing) becomes [`Conduct`] of a run. What a fault does to a device is `device_model::fault`. Which faults can strike
//! which operations when is [`cells()`].

mod cells;
mod conduct;
mod kinds;
mod parse;

use core::fmt;
use core::time::Duration;

use device_model::fault::{FalseCompletion, FalseHead, Fault as DeviceFault, Mishap, When};
use fastrand::Rng;
use wire::ErrorCode;

use crate::cluster::Cluster;
use crate::communicator::Operation;
pub use cells::{Cell, cells};
pub use conduct::{Conduct, Moment, Strike};
pub use kinds::{KINDS, KindInfo};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The NPU dies, AI CPU and all.
    Kill,
    /// NPU and AI CPU stand still for a while.
    Pause(Duration),
    /// Every task takes that much longer.
    Slow(Duration),
    /// A signal is lost.
    DropNotify,
    /// A signal comes a second time, that much later.
    DuplicateNotify(Duration),
    /// A doorbell is lost.
    LoseDoorbell,
    /// A task fails.
    Fail(ErrorCode),
    /// A bit is wrong where a task has moved bytes to.
    FlipBit {
        /// Which bit, modulo their number.
        bit: u64,
        /// Nothing on the device notices: the bit is wrong behind the check code of the link.
        silent: bool,
    },
    /// The link to a task's peer is cut.
    CutLink,
    /// The completion that a task reports is wrong.
    Completion(FalseCompletion),
    /// The head of a task's queue is published wrong.
    Head(FalseHead),
    /// A bit of a task's ring entry is wrong, modulo 512.
    Garble(u32),
    /// The rank launches something else than the others.
    Mismatch(Argument),
    /// The rank does not launch.
    Absent,
    /// The host aborts the communicator that long after the launches.
    Abort(Duration),
    /// The host suspends the communicator that long after the launches, resumes it, and repeats the operation.
    Suspend(Duration),
    /// The driver finds no memory at the n-th request from the fault on, counted from 1.
    Exhaust(u64),
}

/// An argument that one rank has wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// One element fewer.
    Count,
    /// Another data type of the same size.
    Dtype,
    /// Another reduction.
    Reduce,
}

/// A fault at a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank; `None` for one that the seed chooses.
    pub rank: Option<u32>,
    /// What goes wrong there.
    pub kind: Kind,
    /// At which of its tasks.
    pub when: When,
    /// At which moment instead, where it needs no task.
    pub at: Option<Moment>,
}

impl Fault {
    /// Returns the fault with a rank, the seed's choice where it has none.
    #[must_use]
    pub fn placed(self, ranks: u32, dice: &mut Rng) -> Self {
        Self { rank: Some(self.rank.unwrap_or_else(|| dice.u32(..ranks.max(1)))), ..self }
    }

    /// Arranges the fault: on the device of its rank, or in the conduct of its host. A fault without a rank, or of a
    /// rank that does not exist, is not arranged; returns whether it was.
    pub fn apply(&self, cluster: &Cluster, conduct: &mut Conduct) -> bool {
        let Some(rank) = self.rank.filter(|rank| *rank < cluster.topology().ranks()) else { return false };
        if let Some(moment) = self.moment() {
            let strike = Strike { rank, kind: self.kind, moment, peer: self.when.peer.map(u32::from) };
            // A host does one thing at a time.
            conduct.moments.retain(|other| !(other.kind.is_of_the_host() && self.kind.is_of_the_host()));
            conduct.moments.push(strike);
            return true;
        }
        let mishap = match self.kind {
            Kind::Mismatch(argument) => {
                conduct.mismatches.push((rank, argument));
                return true;
            }
            Kind::Absent => {
                conduct.absent.push(rank);
                return true;
            }
            Kind::Exhaust(nth) => {
                cluster.npu(rank).exhaust_at(Some(nth));
                return true;
            }
            kind => kind.mishap(),
        };
        let Some(mishap) = mishap else { return false };
        let phase = match self.at {
            Some(Moment::Phase(phase)) => Some(phase),
            _ => None,
        };
        let when = When { phase, ..self.when };
        cluster.machine().inject(cluster.npu(rank).index(), DeviceFault::At(when, mishap));
        true
    }

    /// Returns the moment of what strikes at one, and not at a task.
    fn moment(&self) -> Option<Moment> {
        match self.kind {
            Kind::Abort(after) | Kind::Suspend(after) => Some(self.at.unwrap_or(Moment::After(after))),
            kind => self.at.filter(|_| kind.needs_no_task()),
        }
    }
}

impl Kind {
    /// Returns what happens at a task of the NPU, where the fault is one of an NPU.
    #[must_use]
    pub const fn mishap(self) -> Option<Mishap> {
        Some(match self {
            Self::Kill => Mishap::Kill,
            Self::Pause(time) => Mishap::Pause(time),
            Self::Slow(time) => Mishap::Slow(time),
            Self::DropNotify => Mishap::LoseSignal,
            Self::DuplicateNotify(later) => Mishap::RepeatSignal(later),
            Self::LoseDoorbell => Mishap::LoseDoorbell,
            Self::Fail(code) => Mishap::Fail(code),
            Self::FlipBit { bit, silent } => Mishap::FlipBit { bit, detected: !silent },
            Self::CutLink => Mishap::CutLink,
            Self::Completion(wrong) => Mishap::Completion(wrong),
            Self::Head(wrong) => Mishap::Head(wrong),
            Self::Garble(bit) => Mishap::Garble { bit },
            Self::Mismatch(_) | Self::Absent | Self::Abort(_) | Self::Suspend(_) | Self::Exhaust(_) => {
                return None;
            }
        })
    }

    /// Returns whether the host does it.
    const fn is_of_the_host(self) -> bool {
        matches!(self, Self::Abort(_) | Self::Suspend(_))
    }

    /// Returns whether it can happen at any moment: to a whole NPU, to a link, or by the host.
    const fn needs_no_task(self) -> bool {
        self.is_of_the_host() || matches!(self, Self::Kill | Self::Pause(_) | Self::Slow(_) | Self::CutLink)
    }
}

impl Argument {
    /// Every argument.
    pub const ALL: [Self; 3] = [Self::Count, Self::Dtype, Self::Reduce];

    /// Returns the name users type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Dtype => "dtype",
            Self::Reduce => "reduce",
        }
    }

    /// Returns an operation with this argument wrong, in buffers of the right one.
    fn mistaken(self, operation: &Operation) -> Operation {
        use wire::{DataType, ReduceOp};
        let mut wrong = operation.clone();
        match self {
            // Where there is no count to get wrong, the type is.
            Self::Count if operation.count == 0 => return Self::Dtype.mistaken(operation),
            Self::Count => wrong.count = operation.count - 1,
            Self::Dtype => {
                let size = |dtype: DataType| (dtype.size_bytes(), dtype.can_reduce());
                let other = DataType::ALL
                    .iter()
                    .find(|other| **other != operation.dtype && size(**other) == size(operation.dtype));
                wrong.dtype = other.copied().unwrap_or(operation.dtype);
            }
            // An operation that does not reduce has none to get wrong; its count is.
            Self::Reduce if !operation.op.reduces() => return Self::Count.mistaken(operation),
            Self::Reduce => {
                wrong.reduce = if operation.reduce == ReduceOp::Max { ReduceOp::Min } else { ReduceOp::Max };
            }
        }
        wrong
    }
}

/// What can be wrong with a completion, as users name it.
const COMPLETIONS: [(&str, FalseCompletion); 4] = [
    ("lost", FalseCompletion::Lost),
    ("twice", FalseCompletion::Twice),
    ("old", FalseCompletion::Old),
    ("bogus", FalseCompletion::Bogus),
];

/// What can be wrong with a head, as users name it.
const HEADS: [(&str, FalseHead); 3] =
    [("frozen", FalseHead::Frozen), ("beyond", FalseHead::Beyond), ("back", FalseHead::Back)];

/// Returns the setting that names a value of such a table.
fn name_of<T: Copy + PartialEq>(table: &[(&str, T)], value: T) -> Option<String> {
    let named = table.iter().find(|(_, other)| *other == value);
    named.map(|(name, _)| format!("what={name}"))
}

/// Prints what [`Fault::parse`] reads.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut settings = Vec::new();
        settings.extend(self.rank.map(|rank| format!("rank={rank}")));
        match self.kind {
            Kind::Pause(time)
            | Kind::Slow(time)
            | Kind::DuplicateNotify(time)
            | Kind::Abort(time)
            | Kind::Suspend(time) => {
                settings.push(format!("us={}", time.as_micros()));
            }
            Kind::Fail(code) => settings.push(format!("code={}", code.0)),
            Kind::FlipBit { bit, silent } => {
                settings.push(format!("bit={bit}"));
                settings.extend(silent.then(|| "silent=1".to_owned()));
            }
            Kind::Mismatch(argument) => settings.push(format!("what={}", argument.name())),
            Kind::Completion(wrong) => settings.extend(name_of(&COMPLETIONS, wrong)),
            Kind::Head(wrong) => settings.extend(name_of(&HEADS, wrong)),
            Kind::Garble(bit) => settings.push(format!("bit={bit}")),
            Kind::Exhaust(nth) => settings.push(format!("nth={nth}")),
            _ => {}
        }
        f.write_str(self.kind.name())?;
        if !settings.is_empty() {
            write!(f, ":{}", settings.join(","))?;
        }
        let When { operation, step, task, peer, spared, .. } = self.when;
        let fields = [
            ("operation", operation),
            ("step", step.map(u32::from)),
            ("task", task),
            ("peer", peer.map(u32::from)),
            ("nth", (spared > 0).then_some(spared.saturating_add(1))),
        ];
        let at = |(name, value): (&str, Option<u32>)| value.map(|value| format!("{name}={value}"));
        let mut at: Vec<String> = fields.into_iter().filter_map(at).collect();
        match self.at {
            Some(Moment::Phase(phase)) => at.push(format!("phase={}", phase.name())),
            Some(Moment::Event(event)) => at.push(format!("event={event}")),
            Some(Moment::After(_)) | None => {}
        }
        if at.is_empty() { Ok(()) } else { write!(f, "@{}", at.join(",")) }
    }
}
