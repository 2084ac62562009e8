//! The program as the pass walks it: tasks by queue, signals and memories by number.

use std::rc::Rc;

use task_graph::{ChannelNotify, Rank, RegionId, RegionKind, Span, Task};

use crate::clocks::Moment;
use crate::counterexample::Place;
use crate::program::{Labelled, Machine, Operation};

/// The tasks of one operation, by queue.
struct Lists {
    /// Indices of tasks of one rank, queue after queue.
    order: Vec<u32>,
    /// Where each queue's begin, and where the last one's end.
    starts: Vec<usize>,
}

/// Operations one after the other on one machine.
pub(crate) struct Layout<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) operations: &'a [&'a Operation],
    pub(crate) ranks: u32,
    /// Threads that have tasks, the same number at every rank.
    pub(crate) threads: u32,
    signals_per_rank: usize,
    lists: Vec<Rc<Lists>>,
}

/// Bytes of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) memory: usize,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// Memories of a rank: the output and what is in place with it, the input, scratch.
pub(crate) const MEMORIES: usize = 3;

impl<'a> Layout<'a> {
    /// Sorts the tasks, whose structure has been checked.
    pub(crate) fn new(machine: &'a Machine, operations: &'a [&'a Operation]) -> Self {
        let tasks = || operations.iter().flat_map(|operation| &operation.ranks);
        let threads = tasks().flat_map(|rank| &rank.tasks).map(|task| u32::from(task.thread.0) + 1).max();
        let ranks = operations.first().map_or(0, |operation| operation.goal.ranks);
        let subs = usize::from(machine.threads.saturating_sub(1)) * usize::from(machine.sub_notifies);
        let signals_per_rank = 3 * ranks as usize + usize::from(machine.main_notifies) + subs;
        let threads = threads.unwrap_or(1);
        let mut layout = Self { machine, operations, ranks, threads, signals_per_rank, lists: Vec::new() };
        for (index, operation) in operations.iter().enumerate() {
            let same = operations[..index].iter().position(|other| core::ptr::eq(*other, *operation));
            let lists = match same {
                Some(known) => Rc::clone(&layout.lists[known]),
                None => Rc::new(Lists::new(operation, layout.threads)),
            };
            layout.lists.push(lists);
        }
        layout
    }

    pub(crate) fn queues(&self) -> u32 {
        self.ranks * self.threads
    }

    /// The rank and thread of a queue.
    pub(crate) fn owner(&self, queue: u32) -> (Rank, u16) {
        // CAST: threads are counted in u16.
        (queue / self.threads, u16::try_from(queue % self.threads).unwrap_or(u16::MAX))
    }

    pub(crate) fn is_main(&self, queue: u32) -> bool {
        queue.is_multiple_of(self.threads)
    }

    /// The tasks of a queue in an operation, as indices among those of its rank.
    #[inline]
    pub(crate) fn list(&self, operation: usize, queue: u32) -> &[u32] {
        let lists = &self.lists[operation];
        &lists.order[lists.starts[queue as usize]..lists.starts[queue as usize + 1]]
    }

    /// The tasks of a rank, which lists count.
    pub(crate) fn tasks(&self, operation: usize, rank: Rank) -> &'a [Labelled] {
        &self.operations[operation].ranks[rank as usize].tasks
    }

    #[inline]
    pub(crate) fn task(&self, operation: usize, rank: Rank, index: u32) -> &'a Labelled {
        &self.operations[operation].ranks[rank as usize].tasks[index as usize]
    }

    /// How many signals there are.
    pub(crate) fn signals(&self) -> usize {
        self.signals_per_rank * self.ranks as usize
    }

    #[inline]
    pub(crate) fn channel_signal(&self, owner: Rank, from: Rank, notify: ChannelNotify) -> usize {
        owner as usize * self.signals_per_rank + 3 * from as usize + notify as usize
    }

    #[inline]
    pub(crate) fn thread_signal(&self, owner: Rank, thread: u16, index: u16) -> usize {
        let machine = self.machine;
        let local = match usize::from(thread).checked_sub(1) {
            None => usize::from(index),
            Some(sub) => {
                usize::from(machine.main_notifies)
                    + sub * usize::from(machine.sub_notifies)
                    + usize::from(index)
            }
        };
        owner as usize * self.signals_per_rank + 3 * self.ranks as usize + local
    }

    /// Returns the signal a task of a queue waits for.
    #[inline]
    pub(crate) fn awaited(&self, rank: Rank, thread: u16, task: &Task) -> Option<usize> {
        match *task {
            Task::ThreadWait { index } => Some(self.thread_signal(rank, thread, index)),
            Task::ChannelWait { peer, notify } => Some(self.channel_signal(rank, peer, notify)),
            _ => None,
        }
    }

    /// Returns the signal a task of a rank sets.
    #[inline]
    pub(crate) fn set_by(&self, rank: Rank, task: &Task) -> Option<usize> {
        match *task {
            Task::ThreadRecord { thread, index } => Some(self.thread_signal(rank, thread.0, index)),
            Task::ChannelRecord { peer, notify } | Task::Write { peer, notify: Some(notify), .. } => {
                Some(self.channel_signal(peer, rank, notify))
            }
            _ => None,
        }
    }

    /// Returns the queue pair, numbered by its two ends, through which a task goes.
    #[inline]
    pub(crate) fn pair_of(&self, rank: Rank, task: &Task) -> Option<usize> {
        let (Task::Write { peer, .. } | Task::Read { peer, .. } | Task::ChannelRecord { peer, .. }) = *task
        else {
            return None;
        };
        let pair = rank as usize * self.ranks as usize + peer as usize;
        self.machine.pairs.get(pair).is_some_and(|through| *through).then_some(pair)
    }

    /// Where a span of a rank lies.
    #[inline]
    pub(crate) fn spot(&self, operation: usize, rank: Rank, span: Span) -> Spot {
        let owner = span.region.peer().unwrap_or(rank);
        let (memory, base) = self.buffer(operation, owner, span.region.kind());
        Spot { memory, at: base + span.offset, len: span.len }
    }

    /// The memory of a buffer, and where in it that begins.
    #[inline]
    pub(crate) fn buffer(&self, operation: usize, owner: Rank, kind: RegionKind) -> (usize, u64) {
        let first = owner as usize * MEMORIES;
        match (self.operations[operation].goal.in_place(owner), kind) {
            (_, RegionKind::Scratch) => (first + 2, 0),
            (Some([input, _]), RegionKind::Input) => (first, input),
            (None, RegionKind::Input) => (first + 1, 0),
            (places, RegionKind::Output) => (first, places.map_or(0, |[_, output]| output)),
        }
    }

    /// The buffer of a rank that bytes of a memory belong to, and where it begins.
    pub(crate) fn region(&self, operation: usize, memory: usize, at: u64) -> (Rank, RegionKind, u64) {
        let (owner, which) = (memory / MEMORIES, memory % MEMORIES);
        let owner = Rank::try_from(owner).unwrap_or(Rank::MAX);
        let goal = &self.operations[operation].goal;
        let [_, len] = goal.buffers(owner);
        match (which, goal.in_place(owner)) {
            (1, _) => (owner, RegionKind::Input, 0),
            (2, _) => (owner, RegionKind::Scratch, 0),
            (_, Some([input, output])) if at < output || at >= output + len => {
                (owner, RegionKind::Input, input)
            }
            (_, places) => (owner, RegionKind::Output, places.map_or(0, |[_, output]| output)),
        }
    }

    /// How long a memory must be for all operations.
    pub(crate) fn memory_len(&self, memory: usize) -> u64 {
        let owner = Rank::try_from(memory / MEMORIES).unwrap_or(Rank::MAX);
        let kinds = [RegionKind::Input, RegionKind::Output];
        let ends = self.operations.iter().enumerate().flat_map(|(index, operation)| {
            kinds.map(|kind| {
                let (of, base) = self.buffer(index, owner, kind);
                let len = operation.goal.buffers(owner)[kind as usize];
                if of == memory { base + len } else { 0 }
            })
        });
        if memory % MEMORIES == 2 { self.machine.scratch } else { ends.max().unwrap_or(0) }
    }

    /// Describes a task of a queue by its position there.
    pub(crate) fn place(&self, moment: Moment) -> Place {
        let (rank, thread) = self.owner(moment.queue);
        let mut left = moment.position.saturating_sub(1) as usize;
        for operation in 0..self.operations.len() {
            let list = self.list(operation, moment.queue);
            if let Some(index) = list.get(left) {
                return self.place_of(operation, rank, *index);
            }
            left -= list.len();
            if self.is_main(moment.queue) {
                if left == 0 {
                    return user(rank, thread, operation);
                }
                left -= 1;
            }
        }
        user(rank, thread, self.operations.len())
    }

    /// Describes a task of a rank by its index.
    pub(crate) fn place_of(&self, operation: usize, rank: Rank, index: u32) -> Place {
        let task = self.task(operation, rank, index);
        Place {
            rank,
            thread: task.thread.0,
            operation,
            task: Some(index as usize),
            phase: task.phase,
            step: task.step,
            text: task.task.to_string(),
        }
    }
}

/// What the user does at a rank once an operation is done there.
fn user(rank: Rank, thread: u16, operation: usize) -> Place {
    Place {
        rank,
        thread,
        operation,
        task: None,
        phase: wire::Phase::Finish,
        step: 0,
        text: "the user reads the output and writes the buffers anew".to_owned(),
    }
}

impl Lists {
    /// Sorts the tasks of every rank by thread, each thread's in the order of emission.
    fn new(operation: &Operation, threads: u32) -> Self {
        let threads = threads as usize;
        let mut starts = vec![0; operation.ranks.len() * threads + 1];
        for (rank, tasks) in operation.ranks.iter().enumerate() {
            for task in &tasks.tasks {
                starts[rank * threads + usize::from(task.thread.0) + 1] += 1;
            }
        }
        for queue in 1..starts.len() {
            starts[queue] += starts[queue - 1];
        }
        let mut next = starts.clone();
        let mut order = vec![0; starts.last().copied().unwrap_or(0)];
        for (rank, tasks) in operation.ranks.iter().enumerate() {
            for (index, task) in (0..).zip(&tasks.tasks) {
                let place = &mut next[rank * threads + usize::from(task.thread.0)];
                order[*place] = index;
                *place += 1;
            }
        }
        Self { order, starts }
    }
}

/// The other end of a transfer.
pub(crate) fn transfer(task: &Task) -> Option<(Span, Span, Option<wire::Reduction>)> {
    match *task {
        Task::LocalCopy { dst, src } => Some((dst, src, None)),
        Task::LocalReduce { dst, src, reduction } => Some((dst, src, Some(reduction))),
        Task::Write { dst, src, reduction, .. } | Task::Read { dst, src, reduction, .. } => {
            Some((dst, src, reduction))
        }
        _ => None,
    }
}

/// Whether a span lies in an input, which nothing may write.
pub(crate) fn is_input(region: RegionId) -> bool {
    region.kind() == RegionKind::Input
}
