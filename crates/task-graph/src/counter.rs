//! A sink that only counts: what-if questions for thousands of ranks without memory.

use wire::{ErrorCode, Phase};

use crate::{Caps, Rank, Task, TaskSink, ThreadId};

/// How many tasks of which kind, and how many bytes they move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Local copies.
    pub copies: u64,
    /// Local reductions.
    pub reduces: u64,
    /// Writes to and reads from peers.
    pub transfers: u64,
    /// Notifies set, those fused into a write not counted.
    pub records: u64,
    /// Notifies waited for.
    pub waits: u64,
    /// Bytes of local copies and reductions.
    pub local_bytes: u64,
    /// Bytes written to peers.
    pub sent_bytes: u64,
    /// Bytes read from peers.
    pub read_bytes: u64,
    /// Most steps of any chunk.
    pub steps: u64,
    /// Bytes of the first transfer, 0 where there is none.
    pub first_transfer: u64,
}

/// Counts the tasks of a rank whose links all can do `caps`.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    caps: Caps,
    counts: Counts,
}

impl Counter {
    /// Makes a counter at zero.
    #[must_use]
    pub fn new(caps: Caps) -> Self {
        Self { caps, counts: Counts::default() }
    }

    /// Returns what has been counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn transfer(&mut self, len: u64) {
        self.counts.transfers += 1;
        if self.counts.first_transfer == 0 {
            self.counts.first_transfer = len;
        }
    }
}

impl TaskSink for Counter {
    fn caps(&self, _peer: Rank) -> Caps {
        self.caps
    }

    fn mark(&mut self, phase: Phase, step: u16) {
        if phase == Phase::Run {
            self.counts.steps = self.counts.steps.max(u64::from(step) + 1);
        }
    }

    fn task(&mut self, _thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        match task {
            Task::LocalCopy { src, .. } => {
                self.counts.copies += 1;
                self.counts.local_bytes += src.len;
            }
            Task::LocalReduce { src, .. } => {
                self.counts.reduces += 1;
                self.counts.local_bytes += src.len;
            }
            Task::Write { src, .. } => {
                self.counts.sent_bytes += src.len;
                self.transfer(src.len);
            }
            Task::Read { src, .. } => {
                self.counts.read_bytes += src.len;
                self.transfer(src.len);
            }
            Task::ThreadRecord { .. } | Task::ChannelRecord { .. } | Task::RecordDone | Task::RecordNext => {
                self.counts.records += 1
            }
            Task::ThreadWait { .. } | Task::ChannelWait { .. } | Task::WaitStart => self.counts.waits += 1,
        }
        Ok(())
    }
}
