//! A sink that prints: one line per task, for snapshots, traces and people.

use core::fmt::Write;

use wire::{ErrorCode, Phase};

use crate::{Caps, Rank, Task, TaskSink, ThreadId};

/// Writes `thread phase/step task`, one line per task.
#[derive(Debug)]
pub struct Listing<W> {
    out: W,
    caps: Caps,
    phase: Phase,
    step: u16,
}

impl<W: Write> Listing<W> {
    /// Makes a listing to `out` of a rank whose links all can do `caps`.
    pub fn new(out: W, caps: Caps) -> Self {
        Self { out, caps, phase: Phase::Start, step: 0 }
    }

    /// Returns what has been written to.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl<W: Write> TaskSink for Listing<W> {
    fn caps(&self, _peer: Rank) -> Caps {
        self.caps
    }

    fn mark(&mut self, phase: Phase, step: u16) {
        (self.phase, self.step) = (phase, step);
    }

    fn task(&mut self, thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        writeln!(self.out, "{:>3} {:>9}/{:<3} {task}", thread.0, self.phase.name(), self.step)
            .map_err(|_| ErrorCode::GRAPH_FULL)
    }
}
