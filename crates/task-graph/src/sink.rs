//! The seam between templates and everything that takes tasks.

use wire::{ErrorCode, Phase, Reduction};

use crate::{ChannelNotify, Rank, RegionId, RegionKind, Span, Task, ThreadId};

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

/// Several writes from one buffer of this rank to one of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBatch {
    /// The peer.
    pub peer: Rank,
    /// Where to: a buffer of the peer.
    pub dst: RegionKind,
    /// Where from: a buffer of this rank.
    pub src: RegionKind,
    /// Overwrite, or reduce into the destination.
    pub reduction: Option<Reduction>,
    /// Channel notify to set at the peer once everything has landed; none while more follows.
    pub then: Option<ChannelNotify>,
}

/// One write of a batch, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where to in the destination buffer.
    pub dst: u64,
    /// Where from in the source buffer.
    pub src: u64,
    /// How many; parts without bytes are skipped.
    pub len: u64,
}

impl WriteBatch {
    /// Returns the task that writes one part.
    #[inline(always)]
    #[must_use]
    pub fn task(&self, part: Part, notify: Option<ChannelNotify>) -> Task {
        let (dst, src) = self.spans(part);
        Task::Write { peer: self.peer, dst, src, reduction: self.reduction, notify }
    }

    /// Returns where a part goes, and where it comes from.
    #[inline(always)]
    pub(crate) fn spans(&self, part: Part) -> (Span, Span) {
        let Part { dst, src, len } = part;
        let (to, from) = (RegionId::of_peer(self.peer, self.dst), RegionId::own(self.src));
        (Span { region: to, offset: dst, len }, Span { region: from, offset: src, len })
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

    /// Takes the writes of a batch, then sets its notify: with the last write where the link can, after it elsewhere.
    /// The public data plane has the same as `HcommBatchTransferOnThread`.
    ///
    /// # Errors
    /// As [`task`](Self::task).
    fn write_batch(&mut self, thread: ThreadId, batch: &WriteBatch, parts: &[Part]) -> Result<(), ErrorCode> {
        let last = parts.iter().rposition(|part| part.len > 0);
        let fused = batch.then.filter(|_| last.is_some() && self.caps(batch.peer).write_notify);
        for (index, part) in parts.iter().enumerate().filter(|(_, part)| part.len > 0) {
            self.task(thread, &batch.task(*part, fused.filter(|_| Some(index) == last)))?;
        }
        match batch.then {
            Some(notify) if fused.is_none() => {
                self.task(thread, &Task::ChannelRecord { peer: batch.peer, notify })
            }
            _ => Ok(()),
        }
    }

    /// Takes a step: lets `from` write (`Ack`), waits until the batch's peer allows it (`Ack`), writes the batch, and waits
    /// for what `from` has written (`Data`).
    ///
    /// # Errors
    /// As [`task`](Self::task).
    fn exchange(
        &mut self,
        thread: ThreadId,
        from: Option<Rank>,
        batch: &WriteBatch,
        parts: &[Part],
    ) -> Result<(), ErrorCode> {
        if let Some(peer) = from {
            self.task(thread, &Task::ChannelRecord { peer, notify: ChannelNotify::Ack })?;
        }
        self.task(thread, &Task::ChannelWait { peer: batch.peer, notify: ChannelNotify::Ack })?;
        self.write_batch(thread, batch, parts)?;
        from.map_or(Ok(()), |peer| {
            self.task(thread, &Task::ChannelWait { peer, notify: ChannelNotify::Data })
        })
    }
}
