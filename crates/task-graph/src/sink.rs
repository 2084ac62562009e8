//! The seam between templates and everything that takes tasks.

use wire::{ErrorCode, Phase, Reduction};

use crate::{Rank, Task, ThreadId};

/// What the engine on one link can do; what it cannot, the template does in another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Types that can be reduced while moving, bit per data type number.
    pub reduce_types: u32,
    /// Reductions that can be done while moving, bit per reduction number.
    pub reduce_ops: u32,
    /// Whether a write can set a notify at the peer.
    pub write_notify: bool,
}

impl Caps {
    /// Returns whether this reduction can be done while moving.
    #[inline]
    #[must_use]
    pub const fn can_reduce(self, reduction: Reduction) -> bool {
        self.reduce_types >> reduction.dtype as u32 & 1 == 1
            && self.reduce_ops >> reduction.op as u32 & 1 == 1
    }
}

/// Where a template's tasks go.
pub trait TaskSink {
    /// Returns what the link to `peer` can do. The same in both directions of a link.
    fn caps(&self, peer: Rank) -> Caps;

    /// Labels the tasks that follow with the phase of the skeleton and the step within the algorithm.
    fn mark(&mut self, phase: Phase, step: u16);

    /// Takes a task on a thread. Tasks of one thread run in the order they came.
    ///
    /// # Errors
    /// A capacity code when there is no room, `PLAN_INTERNAL` when the task names a thread, notify or peer that the
    /// sink's resources do not have. The graph is useless then.
    fn task(&mut self, thread: ThreadId, task: &Task) -> Result<(), ErrorCode>;
}
