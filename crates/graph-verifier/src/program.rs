//! Graphs of all ranks, as templates emit them.

use task_graph::{Caps, Rank, Task, TaskSink, ThreadId};
use wire::{ErrorCode, Phase};

use crate::Goal;

/// A task and where in the template it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labelled {
    /// Thread it is on.
    pub thread: ThreadId,
    /// Phase of the skeleton.
    pub phase: Phase,
    /// Step of the algorithm.
    pub step: u16,
    /// The task.
    pub task: Task,
}

/// The tasks of one rank, in the order they are emitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankTasks {
    /// All tasks.
    pub tasks: Vec<Labelled>,
    /// Where each graph but the last ends: a kernel submits one graph whole before it begins the next.
    pub graph_ends: Vec<usize>,
}

/// One operation of all ranks: what it must do, and the tasks that do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Name for messages.
    pub name: String,
    /// What it must do.
    pub goal: Goal,
    /// The tasks of each rank, in rank order.
    pub ranks: Vec<RankTasks>,
}

impl Operation {
    /// Returns the number of tasks of all ranks.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.ranks.iter().map(|rank| rank.tasks.len()).sum()
    }
}

/// Collects the tasks of one rank.
#[derive(Clone, Debug)]
pub struct Collector<C> {
    caps: C,
    label: (Phase, u16),
    collected: RankTasks,
}

impl<C: Fn(Rank) -> Caps> Collector<C> {
    /// Makes a collector for a rank whose link to a peer can do what `caps` says.
    pub fn new(caps: C) -> Self {
        Self { caps, label: (Phase::Start, 0), collected: RankTasks::default() }
    }

    /// Ends a graph: what follows is submitted after everything so far.
    pub fn end_graph(&mut self) {
        self.collected.graph_ends.push(self.collected.tasks.len());
    }

    /// Returns everything collected.
    #[must_use]
    pub fn into_tasks(self) -> RankTasks {
        self.collected
    }
}

impl<C: Fn(Rank) -> Caps> TaskSink for Collector<C> {
    fn caps(&self, peer: Rank) -> Caps {
        (self.caps)(peer)
    }

    fn mark(&mut self, phase: Phase, step: u16) {
        self.label = (phase, step);
    }

    fn task(&mut self, thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        let (phase, step) = self.label;
        self.collected.tasks.push(Labelled { thread, phase, step, task: *task });
        Ok(())
    }
}

/// What the ranks of a communicator have, besides what an operation brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Threads of each rank, the main one included.
    pub threads: u16,
    /// Notifies of the main thread that its sub threads may set.
    pub main_notifies: u16,
    /// Notifies of each sub thread.
    pub sub_notifies: u16,
    /// Bytes of scratch of each rank.
    pub scratch: u64,
    /// Whether transfers between two ranks go through a queue pair, `ranks × ranks`; empty where none does.
    pub pairs: Vec<bool>,
    /// The rings of the threads.
    pub rings: Rings,
}

/// How tasks reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// Entries of a ring.
    pub depth: u32,
    /// Longest transfer that is one entry, bytes.
    pub longest: u64,
    /// How the rings are filled.
    pub submitter: Submitter,
}

/// How a rank fills its rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitter {
    /// As `aicpu-kernel` does: where a ring is full it goes on with the others; everything written is announced.
    Skipping,
    /// In the order of emission, stopping at a full ring; a ring is announced every `batch` entries and at the end of
    /// a graph.
    InOrder {
        /// Entries per announcement.
        batch: u32,
    },
}
