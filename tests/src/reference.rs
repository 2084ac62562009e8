//! Runs the tasks of all ranks over plain arrays, in a random order that the rules allow.
//!
//! No descriptors, rings, addresses or engines: a task does to byte vectors what its documentation says. Threads run
//! in order, waits block, everything else may interleave, as a seed decides. A graph that cannot go on is reported
//! with what each thread waits for; so is a signal that is sent twice or never taken.

use std::collections::{BTreeMap, BTreeSet};

use task_graph::{Caps, ChannelNotify, Rank, RegionId, RegionKind, Span, Task, TaskSink, ThreadId};
use templates::{Plan, Shape};
use wire::{ErrorCode, Phase, Reduction};

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

/// Collects the tasks and marks of one rank in the order they are emitted.
#[derive(Clone, Debug)]
pub struct Collector {
    caps: Caps,
    /// Every mark, in order.
    pub marks: Vec<(Phase, u16)>,
    /// Every task, in order.
    pub tasks: Vec<Labelled>,
}

impl Collector {
    /// Makes a collector for a rank whose links all can do `caps`.
    #[must_use]
    pub fn new(caps: Caps) -> Self {
        Self { caps, marks: vec![(Phase::Start, 0)], tasks: Vec::new() }
    }
}

impl TaskSink for Collector {
    fn caps(&self, _peer: Rank) -> Caps {
        self.caps
    }

    fn mark(&mut self, phase: Phase, step: u16) {
        self.marks.push((phase, step));
    }

    fn task(&mut self, thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        let (phase, step) = *self.marks.last().expect("starts with one");
        self.tasks.push(Labelled { thread, phase, step, task: *task });
        Ok(())
    }
}

/// Links that reduce everything and fuse notifies.
pub const FULL_CAPS: Caps = Caps { reduce_types: u32::MAX, reduce_ops: u32::MAX, write_notify: true };
/// Links that only move bytes.
pub const PLAIN_CAPS: Caps = Caps { reduce_types: 0, reduce_ops: 0, write_notify: false };

/// Expands all chunks of a shape for one rank.
///
/// # Panics
/// When the shape has no plan or the template fails.
#[must_use]
pub fn expand(shape: &Shape, caps: Caps) -> Collector {
    let plan = Plan::new(shape).unwrap_or_else(|error| panic!("{shape:?}: {error:?}"));
    let mut collector = Collector::new(caps);
    for chunk in 0..plan.chunks() {
        plan.emit(chunk, &mut collector).expect("a collector takes everything");
    }
    collector
}

/// Why a run stopped before its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Nothing can go on: for each blocked thread its rank, thread and task.
    Deadlock(Vec<(Rank, u16, Task)>),
    /// A signal was sent again before it was taken.
    SentTwice(Rank, Task),
    /// A signal was sent and never taken.
    NeverTaken(Rank, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Signal {
    Thread(u16, u16),
    Channel(Rank, u8),
}

/// All ranks: memory, tasks and signals.
#[derive(Debug)]
pub struct World {
    memory: Vec<[Vec<u8>; 3]>,
    threads: Vec<BTreeMap<u16, Vec<Task>>>,
    at: Vec<BTreeMap<u16, usize>>,
    set: Vec<BTreeSet<Signal>>,
    /// Bytes each rank has written to or read from others.
    pub moved: Vec<u64>,
}

impl World {
    /// Makes a world of `tasks` (per rank) over `memory` (per rank: input, output, scratch).
    #[must_use]
    pub fn new(memory: Vec<[Vec<u8>; 3]>, tasks: &[Vec<Labelled>]) -> Self {
        let threads: Vec<BTreeMap<u16, Vec<Task>>> = tasks
            .iter()
            .map(|tasks| {
                let mut threads = BTreeMap::<u16, Vec<Task>>::new();
                for labelled in tasks {
                    threads.entry(labelled.thread.0).or_default().push(labelled.task);
                }
                threads
            })
            .collect();
        let at = threads.iter().map(|threads| threads.keys().map(|&thread| (thread, 0)).collect()).collect();
        let ranks = memory.len();
        Self { memory, threads, at, set: vec![BTreeSet::new(); ranks], moved: vec![0; ranks] }
    }

    /// Returns a buffer of a rank.
    #[must_use]
    pub fn buffer(&self, rank: usize, kind: RegionKind) -> &[u8] {
        &self.memory[rank][kind as usize]
    }

    /// Runs to the end in an order drawn from `seed`; `reduce` computes dst = dst · src.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn run(&mut self, seed: u64, reduce: &dyn Fn(Reduction, &mut [u8], &[u8])) -> Result<(), Stopped> {
        let mut random = seed;
        loop {
            let mut ready = Vec::new();
            let mut blocked = Vec::new();
            for rank in 0..self.threads.len() {
                for (&thread, tasks) in &self.threads[rank] {
                    let Some(task) = tasks.get(self.at[rank][&thread]) else { continue };
                    // CAST: a test has few ranks.
                    let who = u32::try_from(rank).expect("few ranks");
                    if self.waits_for(thread, task).is_none_or(|signal| self.set[rank].contains(&signal)) {
                        ready.push((rank, thread, *task));
                    } else {
                        blocked.push((who, thread, *task));
                    }
                }
            }
            if ready.is_empty() {
                return if blocked.is_empty() { self.all_taken() } else { Err(Stopped::Deadlock(blocked)) };
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let choice = usize::try_from((random >> 33) % ready.len() as u64).expect("below the length");
            let (rank, thread, task) = ready[choice];
            *self.at[rank].get_mut(&thread).expect("has tasks") += 1;
            self.execute(rank, thread, &task, reduce)?;
        }
    }

    fn all_taken(&self) -> Result<(), Stopped> {
        for (rank, set) in self.set.iter().enumerate() {
            if let Some(signal) = set.first() {
                return Err(Stopped::NeverTaken(u32::try_from(rank).expect("few ranks"), format!("{signal:?}")));
            }
        }
        Ok(())
    }

    fn waits_for(&self, thread: u16, task: &Task) -> Option<Signal> {
        match *task {
            Task::ThreadWait { index } => Some(Signal::Thread(thread, index)),
            Task::ChannelWait { peer, notify } => Some(Signal::Channel(peer, notify as u8)),
            _ => None,
        }
    }

    fn execute(
        &mut self,
        rank: usize,
        thread: u16,
        task: &Task,
        reduce: &dyn Fn(Reduction, &mut [u8], &[u8]),
    ) -> Result<(), Stopped> {
        match *task {
            Task::LocalCopy { dst, src } => self.transfer(rank, dst, src, None, reduce),
            Task::LocalReduce { dst, src, reduction } => self.transfer(rank, dst, src, Some(reduction), reduce),
            Task::Write { peer, dst, src, reduction, notify } => {
                assert_eq!(dst.region.peer(), Some(peer));
                self.moved[rank] += src.len;
                self.transfer(rank, dst, src, reduction, reduce);
                if let Some(notify) = notify {
                    self.send(peer, rank, notify, task)?;
                }
            }
            Task::Read { peer, dst, src, reduction } => {
                assert_eq!(src.region.peer(), Some(peer));
                self.moved[rank] += src.len;
                self.transfer(rank, dst, src, reduction, reduce);
            }
            Task::ThreadRecord { thread: waiter, index } => {
                if !self.set[rank].insert(Signal::Thread(waiter.0, index)) {
                    return Err(Stopped::SentTwice(u32::try_from(rank).expect("few ranks"), *task));
                }
            }
            Task::ChannelRecord { peer, notify } => self.send(peer, rank, notify, task)?,
            Task::ThreadWait { .. } | Task::ChannelWait { .. } => {
                let signal = self.waits_for(thread, task).expect("a wait");
                assert!(self.set[rank].remove(&signal));
            }
            Task::WaitStart | Task::RecordDone => {}
        }
        Ok(())
    }

    fn send(&mut self, peer: Rank, from: usize, notify: ChannelNotify, task: &Task) -> Result<(), Stopped> {
        let from = u32::try_from(from).expect("few ranks");
        let fresh = self.set[peer as usize].insert(Signal::Channel(from, notify as u8));
        if fresh { Ok(()) } else { Err(Stopped::SentTwice(from, *task)) }
    }

    fn transfer(
        &mut self,
        rank: usize,
        dst: Span,
        src: Span,
        reduction: Option<Reduction>,
        reduce: &dyn Fn(Reduction, &mut [u8], &[u8]),
    ) {
        assert_eq!(dst.len, src.len, "both ends are as long");
        assert!(dst.len > 0, "no empty transfers");
        let bytes = self.slice(rank, src).to_vec();
        let target = self.slice_mut(rank, dst);
        match reduction {
            Some(reduction) => reduce(reduction, target, &bytes),
            None => target.copy_from_slice(&bytes),
        }
    }

    fn place(rank: usize, region: RegionId) -> (usize, usize) {
        (region.peer().map_or(rank, |peer| peer as usize), region.kind() as usize)
    }

    fn slice(&self, rank: usize, span: Span) -> &[u8] {
        let (owner, kind) = Self::place(rank, span.region);
        &self.memory[owner][kind][range(span)]
    }

    fn slice_mut(&mut self, rank: usize, span: Span) -> &mut [u8] {
        let (owner, kind) = Self::place(rank, span.region);
        &mut self.memory[owner][kind][range(span)]
    }
}

fn range(span: Span) -> core::ops::Range<usize> {
    let start = usize::try_from(span.offset).expect("fits");
    start..start + usize::try_from(span.len).expect("fits")
}
