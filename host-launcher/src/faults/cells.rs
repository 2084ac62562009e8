//! Which faults can strike which operations, and when.

use core::fmt;

use device_model::fault::Phase;
use wire::launch::OpKind;

use super::{KINDS, Kind};

/// A kind of fault that strikes a kind of operation in one of its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Name of the fault.
    pub kind: &'static str,
    /// Name of the operation.
    pub op: &'static str,
    /// Where the operation stands on the rank that is struck.
    pub phase: Phase,
}

impl Cell {
    /// Returns the cell of what has struck.
    #[must_use]
    pub const fn new(kind: Kind, op: OpKind, phase: Phase) -> Self {
        Self { kind: kind.name(), op: op.name(), phase }
    }

    /// Returns whether it can be hit, where the kind strikes in that phase at all.
    fn exists(&self) -> bool {
        // A barrier moves no bytes.
        self.op != OpKind::Barrier.name() || self.kind != "flip-bit"
    }
}

/// Prints it as `kill/all-reduce/in-flight`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind, self.op, self.phase.name())
    }
}

/// Returns every cell that can be hit.
pub fn cells() -> impl Iterator<Item = Cell> {
    KINDS.iter().flat_map(|info| {
        let of = move |phase: Phase| {
            OpKind::ALL.iter().map(move |op| Cell { kind: info.name, op: op.name(), phase })
        };
        info.phases.iter().copied().flat_map(of).filter(Cell::exists)
    })
}
