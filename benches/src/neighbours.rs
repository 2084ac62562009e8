//! Expansion for more ranks than a context holds: a rank deals with few of them, which are numbered anew.

use task_graph::{Caps, Part, Rank, RegionId, Task, TaskSink, ThreadId, WriteBatch};
use wire::{ErrorCode, Phase};

/// Hands tasks on with other numbers for the peers.
#[derive(Debug)]
pub struct Neighbours<'a, S> {
    /// The new number of every rank.
    numbers: &'a [Rank],
    sink: S,
}

impl<'a, S: TaskSink> Neighbours<'a, S> {
    /// Makes a sink in front of `sink`.
    pub fn new(numbers: &'a [Rank], sink: S) -> Self {
        Self { numbers, sink }
    }

    #[inline(always)]
    fn number(&self, peer: Rank) -> Rank {
        self.numbers.get(peer as usize).copied().unwrap_or(Rank::MAX)
    }

    #[inline(always)]
    fn region(&self, region: RegionId) -> RegionId {
        region.peer().map_or(region, |peer| RegionId::of_peer(self.number(peer), region.kind()))
    }

    #[inline(always)]
    fn batch(&self, batch: &WriteBatch) -> WriteBatch {
        WriteBatch { peer: self.number(batch.peer), ..*batch }
    }
}

impl<S: TaskSink> TaskSink for Neighbours<'_, S> {
    #[inline(always)]
    fn caps(&self, peer: Rank) -> Caps {
        self.sink.caps(self.number(peer))
    }

    fn mark(&mut self, phase: Phase, step: u16) {
        self.sink.mark(phase, step);
    }

    #[inline(always)]
    fn task(&mut self, thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        let mut task = *task;
        match &mut task {
            Task::Write { peer, dst: span, .. } | Task::Read { peer, src: span, .. } => {
                span.region = self.region(span.region);
                *peer = self.number(*peer);
            }
            Task::ChannelRecord { peer, .. } | Task::ChannelWait { peer, .. } => *peer = self.number(*peer),
            _ => {}
        }
        self.sink.task(thread, &task)
    }

    #[inline(always)]
    fn write_batch(&mut self, thread: ThreadId, batch: &WriteBatch, parts: &[Part]) -> Result<(), ErrorCode> {
        self.sink.write_batch(thread, &self.batch(batch), parts)
    }

    #[inline(always)]
    fn exchange(
        &mut self,
        thread: ThreadId,
        from: Option<Rank>,
        batch: &WriteBatch,
        parts: &[Part],
    ) -> Result<(), ErrorCode> {
        let from = from.map(|from| self.number(from));
        self.sink.exchange(thread, from, &self.batch(batch), parts)
    }
}

/// Finds out which ranks a rank deals with.
#[derive(Debug, Default)]
pub struct Acquaintance {
    /// Those ranks, in the order of the first task.
    pub peers: Vec<Rank>,
}

impl TaskSink for Acquaintance {
    fn caps(&self, _peer: Rank) -> Caps {
        Caps { reduce_types: u32::MAX, reduce_ops: u32::MAX, write_notify: true }
    }

    fn mark(&mut self, _phase: Phase, _step: u16) {}

    fn task(&mut self, _thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        if let Task::ChannelRecord { peer, .. } | Task::ChannelWait { peer, .. } = *task
            && !self.peers.contains(&peer)
        {
            self.peers.push(peer);
        }
        Ok(())
    }
}
