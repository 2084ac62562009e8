//! The pass: one schedule of all tasks, in which everything is proved for all schedules (V4 to V12).
//!
//! Queues run as far as they can; a wait holds its queue until its signal is set. That one schedule stands for all of
//! them because pairing (which wait takes which record) and every conflict are checked against the order that queues
//! and signals alone give: each access is compared with the last write and the reads since, so by induction all
//! conflicting pairs are ordered, and then every schedule computes the same.

use task_graph::{RegionKind, Task};

use crate::clocks::{Carried, Clocks, Moment};
use crate::contents::Expected;
use crate::counterexample::{Bytes, Counterexample};
use crate::layout::{Layout, MEMORIES, Spot, is_input, transfer};
use crate::memory::{Fragment, Memory, ReadList, Reads};
use crate::obligation::Obligation;
use crate::value::{Value, Values};

/// Why a pass stops.
pub(crate) type Refuted = Box<Counterexample>;

/// Where a queue is.
#[derive(Clone, Copy)]
struct Progress {
    operation: usize,
    next: usize,
    position: u32,
}

/// A notify.
#[derive(Clone, Copy)]
struct Signal {
    set: Option<(Carried, Moment)>,
    /// The last wait that was over.
    taken: Moment,
    /// The queue that is blocked on it.
    waiter: Option<u32>,
}

/// Bytes on their way, with places relative to the destination.
#[derive(Clone, Copy)]
struct Moved {
    /// One behind the last byte at the destination.
    end: u64,
    value: Value,
    shift: i64,
}

/// Everything the pass knows.
pub(crate) struct Pass<'a> {
    pub(crate) layout: &'a Layout<'a>,
    progress: Vec<Progress>,
    pub(crate) clocks: Clocks,
    signals: Vec<Signal>,
    pub(crate) memories: Vec<Memory>,
    pub(crate) values: Values,
    reads: Reads,
    /// For each queue pair, the index of the last task that went through it, and when.
    pairs: Vec<(usize, u32, Moment)>,
    pub(crate) expected: Vec<Expected>,
    moved: Vec<Moved>,
    fresh: Vec<Fragment>,
    /// Bytes that were written and overwritten without being read.
    pub(crate) unused_bytes: u64,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(layout: &'a Layout<'a>) -> Self {
        let queues = layout.queues() as usize;
        let mut values = Values::new(layout.ranks);
        let expected = layout.operations.iter().map(|one| Expected::new(&one.goal, &mut values)).collect();
        let memories =
            (0..layout.ranks as usize * MEMORIES).map(|memory| Memory::new(layout.memory_len(memory)));
        let mut pass = Self {
            layout,
            progress: vec![Progress { operation: 0, next: 0, position: 0 }; queues],
            clocks: Clocks::new(queues),
            signals: vec![Signal { set: None, taken: Moment::NEVER, waiter: None }; layout.signals()],
            memories: memories.collect(),
            values,
            reads: Reads::new(),
            pairs: vec![(0, 0, Moment::NEVER); layout.machine.pairs.len()],
            expected,
            moved: Vec::new(),
            fresh: Vec::new(),
            unused_bytes: 0,
        };
        for rank in 0..layout.ranks {
            pass.give_input(0, rank, Moment::NEVER);
        }
        pass
    }

    /// Runs all queues to their end.
    pub(crate) fn run(&mut self) -> Result<(), Refuted> {
        let mut ready: Vec<u32> = (0..self.layout.queues()).rev().collect();
        while let Some(queue) = ready.pop() {
            self.run_queue(queue, &mut ready)?;
        }
        self.all_done()
    }

    fn run_queue(&mut self, queue: u32, ready: &mut Vec<u32>) -> Result<(), Refuted> {
        let layout = self.layout;
        let (rank, thread) = layout.owner(queue);
        let Progress { mut operation, mut next, mut position } = self.progress[queue as usize];
        while operation < layout.operations.len() {
            let (tasks, list) = (layout.tasks(operation, rank), layout.list(operation, queue));
            for index in &list[next..] {
                let task = &tasks[*index as usize].task;
                let moment = Moment { queue, position: position + 1 };
                if let Some(signal) = layout.awaited(rank, thread, task) {
                    if !self.take(signal, moment)? {
                        self.progress[queue as usize] = Progress { operation, next, position };
                        return Ok(());
                    }
                } else {
                    if let Some(pair) = layout.pair_of(rank, task) {
                        self.go_through(pair, (operation, *index), moment)?;
                    }
                    self.transfer(operation, rank, task, moment)?;
                    if let Some(signal) = layout.set_by(rank, task) {
                        self.set(signal, moment, ready)?;
                    }
                }
                (next, position) = (next + 1, position + 1);
            }
            if layout.is_main(queue) {
                position += 1;
                self.hand_over(operation, rank, Moment { queue, position })?;
            }
            (operation, next) = (operation + 1, 0);
        }
        self.progress[queue as usize] = Progress { operation, next, position };
        Ok(())
    }

    /// Takes a signal, or notes who waits for it.
    #[inline]
    fn take(&mut self, signal: usize, moment: Moment) -> Result<bool, Refuted> {
        let Signal { set, taken, waiter } = self.signals[signal];
        if !self.clocks.ordered(taken, moment.queue) {
            let why = "two threads wait for one notify, and nothing says which of them first";
            return Err(self.between(Obligation::Pairing, why, moment, taken));
        }
        let Some((carried, setter)) = set else {
            if let Some(other) = waiter.filter(|other| *other != moment.queue) {
                let position = self.progress[other as usize].position + 1;
                let why = "two threads wait for one notify, and nothing says which of them first";
                let other = Moment { queue: other, position };
                return Err(self.between(Obligation::Pairing, why, moment, other));
            }
            self.signals[signal].waiter = Some(moment.queue);
            return Ok(false);
        };
        self.clocks.join(moment.queue, carried, setter);
        self.signals[signal] = Signal { set: None, taken: moment, waiter: None };
        Ok(true)
    }

    /// Sets a signal and wakes who waits for it.
    #[inline]
    fn set(&mut self, signal: usize, moment: Moment, ready: &mut Vec<u32>) -> Result<(), Refuted> {
        let Signal { set, taken, waiter } = self.signals[signal];
        if let Some((_, setter)) = set {
            let why = "a notify is set again although nobody has taken it since";
            return Err(self.between(Obligation::Pairing, why, moment, setter));
        }
        if !self.clocks.ordered(taken, moment.queue) {
            let why = "a notify is set, and nothing orders the wait for the time before ahead of that";
            return Err(self.between(Obligation::Pairing, why, moment, taken));
        }
        let carried = self.clocks.carry(moment);
        self.signals[signal] = Signal { set: Some((carried, moment)), taken, waiter: None };
        ready.extend(waiter);
        Ok(())
    }

    /// A queue pair runs its work requests in the order of emission, at the latest when their own task comes, at the
    /// earliest with a later one's: so the tasks themselves must come in that order.
    fn go_through(
        &mut self,
        pair: usize,
        (operation, index): (usize, u32),
        moment: Moment,
    ) -> Result<(), Refuted> {
        let (last_operation, last_index, last) = self.pairs[pair];
        let after = last.is_never() || (last_operation, last_index) < (operation, index);
        if after && self.clocks.ordered(last, moment.queue) {
            self.pairs[pair] = (operation, index, moment);
            return Ok(());
        }
        let why = "two tasks go through one queue pair, which runs them in the order of emission, and nothing \
                   orders them likewise";
        Err(self.between(Obligation::Race, why, moment, last))
    }

    /// Moves or reduces what a task does.
    #[inline]
    fn transfer(&mut self, operation: usize, rank: u32, task: &Task, moment: Moment) -> Result<(), Refuted> {
        let Some((dst, src, reduction)) = transfer(task) else { return Ok(()) };
        let (into, from) = (self.layout.spot(operation, rank, dst), self.layout.spot(operation, rank, src));
        if is_input(dst.region) {
            let why = "an input is written".to_owned();
            return Err(self.alone(Obligation::Writes, why, moment, Some((operation, into))));
        }
        self.read(operation, from, into.at, moment)?;
        let number = u32::try_from(operation).unwrap_or(u32::MAX);
        let range = self.memories[into.memory].cut(into.at..into.at + into.len);
        self.check_write(operation, into.memory, range.clone(), moment)?;
        let blank = Fragment {
            end: 0,
            shift: 0,
            value: Value::UNDEFINED,
            operation: number,
            writer: moment,
            reads: ReadList::NONE,
        };
        self.fresh.clear();
        let Some(reduction) = reduction else {
            self.count_unused(into, range.clone(), number);
            self.fresh.extend(self.moved.iter().map(|part| Fragment {
                end: part.end,
                shift: part.shift,
                value: part.value,
                ..blank
            }));
            self.memories[into.memory].replace(range, &self.fresh);
            return Ok(());
        };
        let mut parts = self.moved.iter();
        let mut part = parts.next();
        for old in self.memories[into.memory].get(range.clone()) {
            if old.value == Value::UNDEFINED || old.operation != number {
                let why = "a task reduces into bytes that this operation has not written".to_owned();
                return Err(self.alone(Obligation::Undefined, why, moment, Some((operation, into))));
            }
            while let Some(moved) = part {
                let end = moved.end.min(old.end);
                let value = self.values.reduced(reduction, old.value, moved.value, moved.shift - old.shift);
                let fragment = Fragment { end, shift: old.shift, value, ..blank };
                match self.fresh.last_mut() {
                    Some(last) if (last.value, last.shift) == (value, old.shift) => last.end = end,
                    _ => self.fresh.push(fragment),
                }
                if moved.end <= old.end {
                    part = parts.next();
                }
                if end == old.end {
                    break;
                }
            }
        }
        self.memories[into.memory].replace(range, &self.fresh);
        Ok(())
    }

    /// Counts what a copy overwrites that this operation wrote and nobody has read since.
    fn count_unused(&mut self, into: Spot, range: core::ops::Range<usize>, operation: u32) {
        let mut start = into.at;
        for old in self.memories[into.memory].get(range) {
            let unread = old.reads == ReadList::NONE && old.value != Value::UNDEFINED;
            if unread && old.operation == operation && !old.writer.is_never() {
                self.unused_bytes += old.end - start;
            }
            start = old.end;
        }
    }

    /// Reads bytes that are to go to `to` of a memory.
    #[inline]
    fn read(&mut self, operation: usize, from: Spot, to: u64, moment: Moment) -> Result<(), Refuted> {
        let number = u32::try_from(operation).unwrap_or(u32::MAX);
        let range = self.memories[from.memory].cut(from.at..from.at + from.len);
        self.moved.clear();
        // Two's complement: a difference of places below 2^63.
        let ahead = from.at.wrapping_sub(to).cast_signed();
        for fragment in self.memories[from.memory].get(range.clone()) {
            if !self.clocks.ordered(fragment.writer, moment.queue) {
                let why = "a task reads bytes that another writes, and nothing orders the two";
                return Err(self.conflict(why, moment, fragment.writer, (operation, from)));
            }
            if fragment.value == Value::UNDEFINED || fragment.operation != number {
                let why = "a task reads bytes that this operation has not written".to_owned();
                return Err(self.alone(Obligation::Undefined, why, moment, Some((operation, from))));
            }
            let (end, shift) = (fragment.end - from.at + to, fragment.shift + ahead);
            match self.moved.last_mut() {
                Some(last) if (last.value, last.shift) == (fragment.value, shift) => last.end = end,
                _ => self.moved.push(Moved { end, value: fragment.value, shift }),
            }
        }
        self.memories[from.memory].note_read(range, &mut self.reads, moment);
        Ok(())
    }

    /// Checks that everybody who touched some bytes did so before.
    #[inline]
    fn check_write(
        &self,
        operation: usize,
        memory: usize,
        range: core::ops::Range<usize>,
        moment: Moment,
    ) -> Result<(), Refuted> {
        let start = self.memories[memory].start(range.start);
        for fragment in self.memories[memory].get(range) {
            let late = |earlier: Moment| !self.clocks.ordered(earlier, moment.queue);
            let (why, with) = if late(fragment.writer) {
                ("two tasks write the same bytes, and nothing orders them", fragment.writer)
            } else if let Some(reader) = self.reads.find(fragment.reads, late) {
                ("a task writes bytes that another reads, and nothing orders the two", reader)
            } else {
                continue;
            };
            let spot = Spot { memory, at: start, len: fragment.end - start };
            return Err(self.conflict(why, moment, with, (operation, spot)));
        }
        Ok(())
    }

    /// The user of a rank, once an operation is done there, looks at the output and uses all buffers anew.
    fn hand_over(&mut self, operation: usize, rank: u32, moment: Moment) -> Result<(), Refuted> {
        let goal = &self.layout.operations[operation].goal;
        for kind in [RegionKind::Output, RegionKind::Input] {
            let (memory, base) = self.layout.buffer(operation, rank, kind);
            let len = goal.buffers(rank)[kind as usize];
            if len > 0 {
                let range = self.memories[memory].cut(base..base + len);
                self.check_write(operation, memory, range, moment)?;
            }
        }
        self.check_output(operation, rank, moment)?;
        if goal.barrier {
            self.check_barrier(operation, rank, moment)?;
        }
        for kind in [RegionKind::Output, RegionKind::Input] {
            let (memory, base) = self.layout.buffer(operation, rank, kind);
            self.write_anew(memory, base..base + goal.buffers(rank)[kind as usize], operation, moment, None);
        }
        if operation + 1 < self.layout.operations.len() {
            self.give_input(operation + 1, rank, moment);
        }
        Ok(())
    }

    /// The user of a rank fills the input of an operation.
    fn give_input(&mut self, operation: usize, rank: u32, moment: Moment) {
        let (memory, base) = self.layout.buffer(operation, rank, RegionKind::Input);
        let len = self.layout.operations[operation].goal.buffers(rank)[0];
        self.write_anew(memory, base..base + len, operation, moment, Some(rank));
    }

    fn write_anew(
        &mut self,
        memory: usize,
        bytes: core::ops::Range<u64>,
        operation: usize,
        moment: Moment,
        input_of: Option<u32>,
    ) {
        if bytes.is_empty() {
            return;
        }
        let value = input_of.map_or(Value::UNDEFINED, Values::input);
        let range = self.memories[memory].cut(bytes.clone());
        let operation = u32::try_from(operation).unwrap_or(u32::MAX);
        let shift = 0_i64.wrapping_sub(bytes.start.cast_signed());
        let reads = ReadList::NONE;
        let fragment = Fragment { end: bytes.end, shift, value, operation, writer: moment, reads };
        self.memories[memory].replace(range, &[fragment]);
    }

    /// Checks that every queue is done and no signal is left.
    fn all_done(&self) -> Result<(), Refuted> {
        let operations = self.layout.operations.len();
        let blocked = |progress: &Progress| progress.operation < operations;
        if let Some(queue) = self.progress.iter().position(blocked) {
            return Err(self.deadlock(u32::try_from(queue).unwrap_or(0)));
        }
        match self.signals.iter().find_map(|signal| signal.set) {
            None => Ok(()),
            Some((_, setter)) => {
                let why = "a notify is set and never taken: the next operation would take it for its own"
                    .to_owned();
                Err(self.alone(Obligation::Pairing, why, setter, None))
            }
        }
    }

    /// Follows who waits for whom from a blocked queue on, to one that waits for nobody, or in a circle.
    fn deadlock(&self, first: u32) -> Refuted {
        let mut seen = Vec::new();
        let mut queue = first;
        loop {
            let Progress { position, .. } = self.progress[queue as usize];
            let at = Moment { queue, position: position + 1 };
            let Some(setter) = self.setter_of(queue) else {
                let why = "a task waits for a notify that nothing sets any more".to_owned();
                return self.alone(Obligation::Deadlock, why, at, None);
            };
            if seen.contains(&queue) {
                let why = format!("{} threads wait for each other in a circle", seen.len());
                return self.between(Obligation::Deadlock, &why, at, setter);
            }
            seen.push(queue);
            queue = setter.queue;
        }
    }

    /// Returns the task ahead of some queue that sets what a blocked queue waits for.
    fn setter_of(&self, queue: u32) -> Option<Moment> {
        let layout = self.layout;
        let (rank, thread) = layout.owner(queue);
        let Progress { operation, next, .. } = self.progress[queue as usize];
        let index = layout.list(operation, queue).get(next)?;
        let wanted = layout.awaited(rank, thread, &layout.task(operation, rank, *index).task);
        (0..layout.queues()).find_map(|other| {
            let (rank, _) = layout.owner(other);
            let Progress { operation, next, mut position } = self.progress[other as usize];
            let mut skip = next;
            for operation in operation..layout.operations.len() {
                for index in layout.list(operation, other).iter().skip(skip) {
                    position += 1;
                    let task = &layout.task(operation, rank, *index).task;
                    if wanted.is_some() && layout.set_by(rank, task) == wanted {
                        return Some(Moment { queue: other, position });
                    }
                }
                (skip, position) = (0, position + u32::from(layout.is_main(other)));
            }
            None
        })
    }

    /// A counterexample of one task.
    pub(crate) fn alone(
        &self,
        obligation: Obligation,
        why: String,
        at: Moment,
        bytes: Option<(usize, Spot)>,
    ) -> Refuted {
        let bytes = bytes.map(|(operation, spot)| self.bytes(operation, spot));
        Box::new(Counterexample { obligation, why, at: Some(self.layout.place(at)), with: None, bytes })
    }

    /// A counterexample of two tasks that nothing orders. Between operations it is about how they follow each other.
    fn between(&self, obligation: Obligation, why: &str, at: Moment, with: Moment) -> Refuted {
        let (at, with) = (self.layout.place(at), self.layout.place(with));
        let apart = at.operation != with.operation || at.task.is_none() || with.task.is_none();
        let obligation =
            if apart && obligation != Obligation::Deadlock { self.following() } else { obligation };
        let (at, with) = (Some(at), Some(with));
        Box::new(Counterexample { obligation, why: why.to_owned(), at, with, bytes: None })
    }

    fn conflict(&self, why: &str, at: Moment, with: Moment, (operation, spot): (usize, Spot)) -> Refuted {
        let mut refuted = self.between(Obligation::Race, why, at, with);
        refuted.bytes = Some(self.bytes(operation, spot));
        refuted
    }

    /// The obligation about operations that follow each other: the same one, or others.
    fn following(&self) -> Obligation {
        let operations = self.layout.operations;
        let same = operations.windows(2).all(|two| core::ptr::eq(two[0], two[1]));
        if same { Obligation::Exit } else { Obligation::Composition }
    }

    pub(crate) fn bytes(&self, operation: usize, spot: Spot) -> Bytes {
        let (rank, buffer, base) = self.layout.region(operation, spot.memory, spot.at);
        let start = spot.at.saturating_sub(base);
        Bytes { rank, buffer, range: start..start + spot.len }
    }
}
