//! Why a graph is refused: rank, step, task, bytes, and the order that is missing.

use core::fmt;
use core::ops::Range;

use task_graph::{Rank, RegionKind};
use wire::{ErrorCode, Phase};

use crate::Obligation;

/// One task among those of all ranks, or what a user does between two operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Rank.
    pub rank: Rank,
    /// Thread.
    pub thread: u16,
    /// Which operation of those that follow each other, from 0 on.
    pub operation: usize,
    /// Index among the tasks of the rank in this operation, in the order of emission; `None` for the user.
    pub task: Option<usize>,
    /// Phase of the skeleton.
    pub phase: Phase,
    /// Step of the algorithm.
    pub step: u16,
    /// The task as text.
    pub text: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, thread, operation, phase, step, text, .. } = self;
        match self.task {
            Some(task) => write!(
                f,
                "rank {rank}, operation {operation}, {phase:?} step {step}, task {task} on thread {thread}: {text}"
            ),
            None => write!(f, "rank {rank}, after operation {operation}: {text}"),
        }
    }
}

/// Bytes of a buffer of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// Whose.
    pub rank: Rank,
    /// Which buffer.
    pub buffer: RegionKind,
    /// Which bytes.
    pub range: Range<u64>,
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.buffer.name();
        write!(f, "rank {} {name}[{}..{}]", self.rank, self.range.start, self.range.end)
    }
}

/// A proof that failed: what it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// What is not met.
    pub obligation: Obligation,
    /// One sentence.
    pub why: String,
    /// The task at fault.
    pub at: Option<Place>,
    /// The task it collides with, or waits for.
    pub with: Option<Place>,
    /// The bytes concerned.
    pub bytes: Option<Bytes>,
}

impl Counterexample {
    /// Returns the code with which the graph is refused.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.obligation.code()
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.obligation, self.why)?;
        if let Some(at) = &self.at {
            write!(f, "\n  at    {at}")?;
        }
        if let Some(with) = &self.with {
            write!(f, "\n  with  {with}")?;
        }
        match &self.bytes {
            Some(bytes) => write!(f, "\n  bytes {bytes}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for Counterexample {}
