//! Runs the tasks of all ranks over plain arrays, in a random order that the rules allow.
//!
//! No descriptors, rings, addresses or engines: a task does to byte vectors what its documentation says. Threads run
//! in order, waits block, everything else may interleave, as a seed decides. A graph that cannot go on is reported
//! with what each thread waits for; so is a signal that is sent twice or never taken.

use core::hash::{Hash, Hasher};
use core::ops::Range;
use std::collections::HashSet;
use std::hash::DefaultHasher;

pub use graph_verifier::Labelled;
use task_graph::{Caps, ChannelNotify, Rank, RegionKind, Span, Task, TaskSink, ThreadId};
use templates::{Plan, Shape, Tables};
use wire::{ErrorCode, Phase, Reduction};

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
    expand_with(shape, &Tables::default(), caps)
}

/// Expands all chunks of a shape with tables for one rank.
///
/// # Panics
/// As [`expand`].
#[must_use]
pub fn expand_with(shape: &Shape, tables: &Tables<'_>, caps: Caps) -> Collector {
    let plan = Plan::new(shape, tables).unwrap_or_else(|error| panic!("{shape:?}: {error:?}"));
    let mut collector = Collector::new(caps);
    for chunk in 0..plan.chunks() {
        plan.emit(chunk, tables, &mut collector).expect("a collector takes everything");
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

/// Reduces the second slice into the first.
pub type Reduce<'a> = dyn Fn(Reduction, &mut [u8], &[u8]) + 'a;

/// How the input and output of a rank lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aliases {
    /// Two buffers.
    Apart,
    /// One buffer: the shorter is part `rank` of the longer; the same memory where they are as long.
    InPlace,
}

/// What one thread still has to do.
#[derive(Clone, Debug)]
struct Thread {
    rank: usize,
    name: u16,
    tasks: Vec<Task>,
    at: usize,
}

/// A notify: whether it is set, and the thread that is blocked on it.
#[derive(Clone, Copy, Debug, Default)]
struct Signal {
    set: bool,
    waiter: Option<usize>,
}

/// All ranks: memory, threads and signals.
#[derive(Clone, Debug)]
pub struct World {
    /// The buffers of all ranks, one behind the other.
    memory: Vec<u8>,
    /// Where each buffer of each rank lies in `memory`.
    places: Vec<[Range<usize>; 3]>,
    threads: Vec<Thread>,
    /// Of every rank: three per peer, then [`NOTIFIES`](Self::NOTIFIES) per thread.
    signals: Vec<Signal>,
    signals_per_rank: usize,
}

impl World {
    /// Notifies of one thread that tests use at most.
    const NOTIFIES: usize = 64;

    /// Makes a world of `tasks` (per rank) over `buffers` (per rank: input, output, scratch).
    #[must_use]
    pub fn new(buffers: &[[Vec<u8>; 3]], tasks: &[Vec<Labelled>], aliases: Aliases) -> Self {
        let mut world = Self {
            memory: Vec::new(),
            places: Vec::new(),
            threads: Vec::new(),
            signals: Vec::new(),
            signals_per_rank: 0,
        };
        for (rank, buffers) in buffers.iter().enumerate() {
            world.place(rank, buffers, aliases);
        }
        let mut names = 0;
        for (rank, tasks) in tasks.iter().enumerate() {
            let first = world.threads.len();
            for Labelled { thread, task, .. } in tasks {
                let of_rank = &mut world.threads[first..];
                if let Some(thread) = of_rank.iter_mut().find(|known| known.name == thread.0) {
                    thread.tasks.push(*task);
                } else {
                    world.threads.push(Thread { rank, name: thread.0, tasks: vec![*task], at: 0 });
                    names = names.max(usize::from(thread.0) + 1);
                }
            }
        }
        world.signals_per_rank = 3 * buffers.len() + Self::NOTIFIES * names;
        world.signals = vec![Signal::default(); world.signals_per_rank * buffers.len()];
        world
    }

    /// Gives the buffers of one rank their places and contents; the input's bytes win where buffers are one.
    fn place(&mut self, rank: usize, [input, output, scratch]: &[Vec<u8>; 3], aliases: Aliases) {
        let (start, longer) = (self.memory.len(), input.len().max(output.len()));
        let part = |len: usize| if len == longer { 0 } else { rank * len };
        let (input_at, output_at, users) = match aliases {
            Aliases::Apart => (0, input.len(), input.len() + output.len()),
            Aliases::InPlace => (part(input.len()), part(output.len()), longer),
        };
        self.memory.resize(start + users + scratch.len(), 0);
        let place = |at: usize, bytes: &[u8]| start + at..start + at + bytes.len();
        let places = [place(input_at, input), place(output_at, output), place(users, scratch)];
        for (place, bytes) in [(&places[1], output), (&places[0], input), (&places[2], scratch)] {
            self.memory[place.clone()].copy_from_slice(bytes);
        }
        self.places.push(places);
    }

    /// Returns a buffer of a rank.
    #[must_use]
    pub fn buffer(&self, rank: usize, kind: RegionKind) -> &[u8] {
        &self.memory[self.places[rank][kind as usize].clone()]
    }

    /// Runs to the end in an order drawn from `seed`; `reduce` computes dst = dst · src.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn run(&mut self, seed: u64, reduce: &Reduce<'_>) -> Result<(), Stopped> {
        let mut random = seed;
        let mut ready: Vec<usize> = (0..self.threads.len()).collect();
        while !ready.is_empty() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let choice = usize::try_from((random >> 33) % ready.len() as u64).expect("below the length");
            let index = ready[choice];
            let thread = &self.threads[index];
            let (rank, name, task) = (thread.rank, thread.name, thread.tasks[thread.at]);
            if let Some(signal) = self.awaited(rank, name, &task) {
                let signal = &mut self.signals[signal];
                if !signal.set {
                    signal.waiter = Some(index);
                    ready.swap_remove(choice);
                    continue;
                }
                signal.set = false;
            } else if let Some(signal) = self.execute(rank, &task, reduce) {
                // The waiter takes the signal when its turn comes: until then it stays set.
                let signal = &mut self.signals[signal];
                if signal.set {
                    return Err(Stopped::SentTwice(rank_of(rank), task));
                }
                signal.set = true;
                ready.extend(signal.waiter.take());
            }
            let thread = &mut self.threads[index];
            thread.at += 1;
            if thread.at == thread.tasks.len() {
                ready.swap_remove(choice);
            }
        }
        self.finished()
    }

    /// Runs to the end in every order that the rules allow, and lets `end` look at each end; `most` states at most.
    /// Returns how many states there were.
    ///
    /// # Errors
    /// See [`Stopped`]: what the first order that goes wrong ends with.
    ///
    /// # Panics
    /// When there are more than `most` states.
    pub fn run_every_way(
        &self,
        most: usize,
        reduce: &Reduce<'_>,
        mut end: impl FnMut(&Self),
    ) -> Result<usize, Stopped> {
        let mut seen = HashSet::new();
        let mut open = vec![self.clone()];
        while let Some(world) = open.pop() {
            let mut stuck = true;
            for index in 0..world.threads.len() {
                let Some(next) = world.after(index, reduce)? else { continue };
                stuck = false;
                if seen.insert(next.digest()) {
                    assert!(seen.len() <= most, "more than {most} states");
                    open.push(next);
                }
            }
            if stuck {
                world.finished()?;
                end(&world);
            }
        }
        Ok(seen.len())
    }

    /// Returns the world after the next task of a thread; `None` when that is blocked or done.
    fn after(&self, index: usize, reduce: &Reduce<'_>) -> Result<Option<Self>, Stopped> {
        let thread = &self.threads[index];
        let Some(task) = thread.tasks.get(thread.at).copied() else { return Ok(None) };
        let (rank, name) = (thread.rank, thread.name);
        let awaited = self.awaited(rank, name, &task);
        if awaited.is_some_and(|signal| !self.signals[signal].set) {
            return Ok(None);
        }
        let mut next = self.clone();
        if let Some(signal) = awaited {
            next.signals[signal].set = false;
        } else if let Some(signal) = next.execute(rank, &task, reduce) {
            if next.signals[signal].set {
                return Err(Stopped::SentTwice(rank_of(rank), task));
            }
            next.signals[signal].set = true;
        }
        next.threads[index].at += 1;
        Ok(Some(next))
    }

    /// A fingerprint of everything that can differ.
    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.memory.hash(&mut hasher);
        self.threads.iter().for_each(|thread| thread.at.hash(&mut hasher));
        self.signals.iter().for_each(|signal| signal.set.hash(&mut hasher));
        hasher.finish()
    }

    /// Checks that no thread is blocked and no signal is left over.
    fn finished(&self) -> Result<(), Stopped> {
        let blocked: Vec<_> = self.threads.iter().filter(|thread| thread.at < thread.tasks.len()).collect();
        if !blocked.is_empty() {
            let blocked =
                blocked.iter().map(|thread| (rank_of(thread.rank), thread.name, thread.tasks[thread.at]));
            return Err(Stopped::Deadlock(blocked.collect()));
        }
        match self.signals.iter().position(|signal| signal.set) {
            None => Ok(()),
            Some(index) => {
                let (rank, signal) = (index / self.signals_per_rank, index % self.signals_per_rank);
                let channels = 3 * self.places.len();
                let name = match signal.checked_sub(channels) {
                    None => format!("notify {} of peer {}", signal % 3, signal / 3),
                    Some(local) => {
                        format!("notify {} of thread {}", local % Self::NOTIFIES, local / Self::NOTIFIES)
                    }
                };
                Err(Stopped::NeverTaken(rank_of(rank), name))
            }
        }
    }

    fn thread_signal(&self, rank: usize, thread: u16, index: u16) -> usize {
        assert!(usize::from(index) < Self::NOTIFIES, "thread {thread} has no notify {index}");
        let local = usize::from(thread) * Self::NOTIFIES + usize::from(index);
        rank * self.signals_per_rank + 3 * self.places.len() + local
    }

    fn channel_signal(&self, rank: usize, from: usize, notify: ChannelNotify) -> usize {
        rank * self.signals_per_rank + 3 * from + notify as usize
    }

    /// Returns the signal that a task waits for.
    fn awaited(&self, rank: usize, thread: u16, task: &Task) -> Option<usize> {
        match *task {
            Task::ThreadWait { index } => Some(self.thread_signal(rank, thread, index)),
            Task::ChannelWait { peer, notify } => Some(self.channel_signal(rank, peer as usize, notify)),
            _ => None,
        }
    }

    /// Does a task that waits for nothing; returns the signal it sends.
    fn execute(&mut self, rank: usize, task: &Task, reduce: &Reduce<'_>) -> Option<usize> {
        match *task {
            Task::LocalCopy { dst, src } => self.transfer(rank, dst, src, None, reduce),
            Task::LocalReduce { dst, src, reduction } => {
                self.transfer(rank, dst, src, Some(reduction), reduce)
            }
            Task::Write { peer, dst, src, reduction, notify } => {
                assert_eq!(dst.region.peer(), Some(peer));
                self.transfer(rank, dst, src, reduction, reduce);
                return notify.map(|notify| self.channel_signal(peer as usize, rank, notify));
            }
            Task::Read { peer, dst, src, reduction } => {
                assert_eq!(src.region.peer(), Some(peer));
                self.transfer(rank, dst, src, reduction, reduce);
            }
            Task::ThreadRecord { thread, index } => return Some(self.thread_signal(rank, thread.0, index)),
            Task::ChannelRecord { peer, notify } => {
                return Some(self.channel_signal(peer as usize, rank, notify));
            }
            Task::ThreadWait { .. }
            | Task::ChannelWait { .. }
            | Task::WaitStart
            | Task::RecordDone
            | Task::RecordNext => {}
        }
        None
    }

    fn transfer(
        &mut self,
        rank: usize,
        dst: Span,
        src: Span,
        reduction: Option<Reduction>,
        reduce: &Reduce<'_>,
    ) {
        assert_eq!(dst.len, src.len, "both ends are as long");
        assert!(dst.len > 0, "no empty transfers");
        let (dst, src) = (self.range(rank, dst), self.range(rank, src));
        assert!(dst.end <= src.start || src.end <= dst.start, "source and destination overlap");
        let Some(reduction) = reduction else { return self.memory.copy_within(src, dst.start) };
        let (low, high) = self.memory.split_at_mut(dst.start.max(src.start));
        if dst.start < src.start {
            reduce(reduction, &mut low[dst], &high[..src.len()]);
        } else {
            reduce(reduction, &mut high[..dst.len()], &low[src]);
        }
    }

    /// Returns where the bytes of a span lie.
    fn range(&self, rank: usize, span: Span) -> Range<usize> {
        let owner = span.region.peer().map_or(rank, |peer| peer as usize);
        let place = &self.places[owner][span.region.kind() as usize];
        let start = place.start + usize::try_from(span.offset).expect("fits");
        let range = start..start + usize::try_from(span.len).expect("fits");
        assert!(range.end <= place.end, "{span} is outside its region");
        range
    }
}

fn rank_of(index: usize) -> Rank {
    Rank::try_from(index).expect("few ranks")
}
