//! Single tasks, as templates hand them over: nothing is moved where there is nothing to move.

use heapless::Vec;
use task_graph::{
    ChannelNotify, Part, Rank, RegionId, RegionKind, Span, Task, TaskSink, ThreadId, WriteBatch,
};
use wire::Reduction;

use crate::skeleton::{Emitted, Emitter};

/// Writes that are handed over at once.
const PARTS: usize = 32;

impl<S: TaskSink> Emitter<'_, S> {
    /// Copies unless there is nothing to copy.
    #[inline(always)]
    pub(crate) fn copy(&mut self, thread: ThreadId, dst: Span, src: Span) -> Emitted {
        if src.len == 0 { Ok(()) } else { self.sink.task(thread, &Task::LocalCopy { dst, src }) }
    }

    /// Copies input to output, unless they are the same memory.
    pub(crate) fn copy_unless_in_place(&mut self, thread: ThreadId, dst: Span, src: Span) -> Emitted {
        if self.plan.shape().in_place { Ok(()) } else { self.copy(thread, dst, src) }
    }

    /// Reduces unless there is nothing to reduce.
    #[inline(always)]
    pub(crate) fn reduce(&mut self, thread: ThreadId, dst: Span, src: Span) -> Emitted {
        if src.len == 0 {
            return Ok(());
        }
        let reduction = self.plan.reduction();
        self.sink.task(thread, &Task::LocalReduce { dst, src, reduction })
    }

    /// Writes to a peer unless there is nothing to write; the notify is set in any case.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        thread: ThreadId,
        peer: Rank,
        dst: Span,
        src: Span,
        reduction: Option<Reduction>,
        then: Option<ChannelNotify>,
    ) -> Emitted {
        let fused = then.filter(|_| src.len > 0 && self.sink.caps(peer).write_notify);
        if src.len > 0 {
            self.sink.task(thread, &Task::Write { peer, dst, src, reduction, notify: fused })?;
        }
        match then {
            Some(notify) if fused.is_none() => self.record(thread, peer, notify),
            _ => Ok(()),
        }
    }

    /// Hands over a step: lets `from` write, and writes to the batch's peer, in as many batches as it takes.
    #[inline]
    pub(crate) fn exchange(
        &mut self,
        thread: ThreadId,
        from: Option<Rank>,
        batch: &WriteBatch,
        parts: impl Iterator<Item = Part>,
    ) -> Emitted {
        let (mut ready, mut begun) = (Vec::<_, PARTS>::new(), false);
        for part in parts {
            if let Err(part) = ready.push(part) {
                self.write_ahead(thread, from, batch, (&ready, begun))?;
                begun = true;
                ready.clear();
                let _ = ready.push(part); // An empty list has room.
            }
        }
        self.write_last(thread, from, batch, (&ready, begun))
    }

    /// Writes the last parts of a batch, which are all of it unless it has `begun`.
    fn write_last(
        &mut self,
        thread: ThreadId,
        from: Option<Rank>,
        batch: &WriteBatch,
        (parts, begun): (&[Part], bool),
    ) -> Emitted {
        if !begun {
            return self.sink.exchange(thread, from, batch, parts);
        }
        self.sink.write_batch(thread, batch, parts)?;
        from.map_or(Ok(()), |from| self.wait(thread, from, ChannelNotify::Data))
    }

    /// Writes parts of a batch that others follow.
    #[cold]
    fn write_ahead(
        &mut self,
        thread: ThreadId,
        from: Option<Rank>,
        batch: &WriteBatch,
        (parts, begun): (&[Part], bool),
    ) -> Emitted {
        if !begun {
            if let Some(from) = from {
                self.record(thread, from, ChannelNotify::Ack)?;
            }
            self.wait(thread, batch.peer, ChannelNotify::Ack)?;
        }
        self.sink.write_batch(thread, &WriteBatch { then: None, ..*batch }, parts)
    }

    #[inline(always)]
    pub(crate) fn record(&mut self, thread: ThreadId, peer: Rank, notify: ChannelNotify) -> Emitted {
        self.sink.task(thread, &Task::ChannelRecord { peer, notify })
    }

    #[inline(always)]
    pub(crate) fn wait(&mut self, thread: ThreadId, peer: Rank, notify: ChannelNotify) -> Emitted {
        self.sink.task(thread, &Task::ChannelWait { peer, notify })
    }
}

/// Bytes `(offset, len)` of one of this rank's buffers.
#[inline]
pub(crate) fn own(kind: RegionKind, (offset, len): (u64, u64)) -> Span {
    Span { region: RegionId::own(kind), offset, len }
}

/// Bytes `(offset, len)` of one of a peer's buffers.
#[inline]
pub(crate) fn at(peer: Rank, kind: RegionKind, (offset, len): (u64, u64)) -> Span {
    Span { region: RegionId::of_peer(peer, kind), offset, len }
}
