//! The device proper: task scheduler, copy engines and queue pairs of one NPU.
//!
//! [`Engine::drain`] runs each thread's ring in order until its next entry waits for something, one ring for as long
//! as it goes on, then the next. A task is executed in full before the next one of its ring is looked at. Every entry
//! is copied out of shared memory once, parsed, checked against the tables of this NPU and its peers, and only then
//! carried out; the first refusal is published and stops the NPU, with all its queues, until it is reset. Only the
//! queue that failed is lost then: no other has a task half done.
//!
//! An engine is driven by one caller at a time. Peers' engines run concurrently: they meet only in notifies, tables
//! and payload, all in shared memory. There are no timeouts here: a wait lasts until its notify comes, and whoever
//! drives the engine decides when that is too long.

mod completion;
mod execute;
mod mishap;
mod queue_pair;
mod slots;
mod state;
pub(crate) mod tables;
mod transfer;

use wire::{Cqe, DeviceAddr, ErrorCode, Sqe};

use crate::counters::Counters;
use crate::fabric::{Fabric, Seat};
use crate::memory::Window;
use completion::Completions;
use execute::Step;
use mishap::{Blow, Mishaps};
use slots::{Queue, Queues, Ring};
use state::State;

/// How much one call of [`Engine::drain`] may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Submission entries.
    pub descriptors: u64,
    /// Payload bytes; the transfer that passes the limit is finished.
    pub bytes: u64,
    /// Bytes of one transfer that are moved at a time, a multiple of every element. A longer one takes several visits.
    pub piece: u64,
}

impl Budget {
    /// No limit.
    pub const UNLIMITED: Self = Self { descriptors: u64::MAX, bytes: u64::MAX, piece: u64::MAX };
}

/// What one call of [`Engine::drain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Submission entries executed.
    pub executed: u64,
    /// Payload bytes moved.
    pub bytes: u64,
    /// Whether a queue has an entry that waits for a notify or for room in the completion ring.
    pub blocked: bool,
}

/// A queue that has an entry left: what it stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Queue.
    pub queue: u16,
    /// Position of the entry since the queue was created.
    pub position: u64,
    /// The entry; its labels say which step of what, and which peer.
    pub sqe: Sqe,
    /// Whether the entry waits for a notify or for room in the completion ring.
    pub blocked: bool,
}

/// Why a task was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    code: ErrorCode,
    /// Device address at fault, 0 where none.
    address: DeviceAddr,
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self { code, address: DeviceAddr(0) }
    }
}

/// The engines of one NPU.
#[derive(Debug)]
pub struct Engine {
    site: Site,
    queues: Queues,
    books: Books,
    state: State,
}

/// Where an engine works: fixed for its life.
#[derive(Debug)]
struct Site {
    fabric: Fabric,
    npu: u32,
    window: Window,
}

impl Site {
    /// Returns this NPU as its peers reach it.
    fn seat(&self) -> &Seat {
        // PANIC: an engine is made of an NPU of its fabric.
        self.fabric.seat(self.npu).expect("the fabric has this NPU")
    }
}

/// What changes with each task.
#[derive(Debug, Default)]
struct Books {
    completions: Completions,
    counters: Counters,
    flip_token: bool,
    mishaps: Mishaps,
    /// Payload bytes moved in the current run of a ring.
    moved: u64,
    /// Bytes of one transfer that are moved at a time.
    piece: u64,
}

/// An engine while it executes tasks: all of it but the thread's own ring.
struct Device<'a> {
    site: &'a Site,
    books: &'a mut Books,
    state: &'a mut State,
    pairs: &'a mut [Queue],
}

impl Engine {
    /// Returns the engine of an NPU. A window has one engine, in one process.
    ///
    /// # Panics
    /// When the fabric has no such NPU.
    #[must_use]
    pub fn new(fabric: &Fabric, npu: u32) -> Self {
        let site = Site { fabric: fabric.clone(), npu, window: fabric.window(npu).clone() };
        Self { site, queues: Queues::default(), books: Books::default(), state: State::Running }
    }

    /// Executes what can be executed, within a budget.
    #[inline]
    pub fn drain(&mut self, budget: Budget) -> Progress {
        let mut progress = Progress::default();
        if self.wake() {
            self.queues.extend(&self.site.window, self.site.fabric.first_position());
            self.sweep(budget, &mut progress);
            if progress.executed == 0 && self.refresh() {
                self.sweep(budget, &mut progress);
            }
        }
        progress.blocked = self.queues.threads.iter().any(|queue| queue.held.is_some());
        progress
    }

    /// As [`drain`](Self::drain) of one queue, the first from the one with index `from` on, going round, that can go
    /// on. Returns that queue as well.
    #[cold]
    pub fn drain_one(&mut self, from: usize, budget: Budget) -> (Progress, Option<u16>) {
        let mut progress = Progress::default();
        if !self.wake() {
            return (progress, None);
        }
        self.refresh();
        let count = self.queues.threads.len();
        for index in (0..count).map(|index| (from + index) % count) {
            let queue = &self.queues.threads[index];
            let (id, before) = (queue.id, queue.moved);
            if queue.may_run(&self.site.window, || self.books.completions.has_room(&self.site.window)) {
                self.run(index, budget, &mut progress);
                let moved = self.queues.threads.get(index).is_some_and(|queue| queue.moved != before);
                if progress.executed > 0 || progress.bytes > 0 || moved || self.state != State::Running {
                    return (progress, Some(id));
                }
            }
        }
        (progress, None)
    }

    /// Looks at the slot of every queue again, and returns whether any has changed hands.
    fn refresh(&mut self) -> bool {
        self.queues.refresh(&self.site.window, self.site.fabric.first_position())
    }

    /// Runs all rings, again and again, until none goes on or the budget is used up.
    fn sweep(&mut self, budget: Budget, progress: &mut Progress) {
        loop {
            let before = progress.executed;
            let mut index = 0;
            while let Some(queue) = self.queues.threads.get(index) {
                let window = &self.site.window;
                if !queue.may_run(window, || self.books.completions.has_room(window)) {
                    index += 1;
                } else if !queue.is_current(window) {
                    self.refresh();
                } else {
                    self.run(index, budget, progress);
                    if self.state != State::Running || !budget.allows(progress) {
                        return;
                    }
                    index += 1;
                }
            }
            // A ring that is alone has been run until it waits for others.
            if progress.executed == before || self.queues.threads.len() == 1 {
                return;
            }
        }
    }

    /// Runs one ring until it blocks, is empty or the budget is used up.
    fn run(&mut self, index: usize, budget: Budget, progress: &mut Progress) {
        let Self { site, queues, books, state } = self;
        let queue = &mut queues.threads[index];
        let mut device = Device { site, books, state, pairs: &mut queues.pairs };
        let mut memory = queue.memory(&site.window);
        match queue.consumer.refresh(&memory) {
            Ok(news) => device.books.counters.doorbells += u64::from(news),
            Err(code) => {
                // Of no entry: the one at the head, if there is one, may well be good.
                let cqe = execute::completion_of(&Sqe::default(), queue.place(), code.into());
                device.fail(queue, cqe);
                return;
            }
        }
        (device.books.moved, device.books.piece) = (0, budget.piece);
        let bytes = budget.bytes.saturating_sub(progress.bytes);
        let mut executed = progress.executed;
        while executed < budget.descriptors && device.books.moved < bytes && queue.load(&memory) {
            if device.books.mishaps.is_armed() && queue.held.is_none() {
                if !device.survives(queue, &memory) {
                    break;
                }
                memory = queue.memory(&site.window);
            }
            match device.execute(queue) {
                Step::Done => {}
                Step::Held(hold) => {
                    queue.held = Some(hold);
                    break;
                }
                Step::Stopped => break,
            }
            device.books.counters.count_executed(queue.entry.opcode);
            queue.advance(&memory);
            executed += 1;
            if let Some(until) = device.books.mishaps.drag(&site.fabric) {
                *device.state = State::Busy(until);
                break;
            }
        }
        progress.executed = executed;
        progress.bytes += books.moved;
        queue.publish(&memory);
    }

    /// Returns what the NPU has done so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.books.counters
    }
}

impl Device<'_> {
    /// Returns what is arranged to happen at a task.
    fn strike(&mut self, task: &Sqe) -> Option<Blow> {
        self.books.mishaps.strike(task, &self.site.fabric, self.site.npu)
    }

    /// Lets what is arranged happen to the entry at the head of a ring; returns whether it is executed nevertheless.
    #[cold]
    fn survives(&mut self, queue: &mut Queue, memory: &Ring<'_>) -> bool {
        match self.strike(&queue.entry) {
            None | Some(Blow::Spoilt) => return true,
            Some(Blow::Garbled(bit)) => {
                queue.garble(bit);
                return true;
            }
            Some(Blow::Misled(head)) => {
                queue.misled = Some(head);
                return true;
            }
            Some(Blow::Failed(code)) => _ = self.refuse(queue, code.into()),
            Some(Blow::Unheard) => queue.forget(memory),
            Some(blow) => *self.state = blow.state(),
        }
        false
    }

    /// Stops the NPU at the entry at the head of a thread's ring.
    #[cold]
    fn refuse(&mut self, queue: &mut Queue, refusal: Refusal) -> Step {
        self.fail(queue, execute::completion_of(&queue.entry, queue.place(), refusal))
    }

    /// Publishes the first error, and stops the NPU.
    #[cold]
    fn fail(&mut self, queue: &mut Queue, cqe: Cqe) -> Step {
        let window = &self.site.window;
        if self.books.completions.has_room(window) {
            self.books.completions.write(window, cqe);
        }
        completion::publish_error(window, cqe);
        queue.is_broken = true;
        *self.state = State::Failed(cqe);
        Step::Stopped
    }
}

impl Budget {
    #[inline]
    const fn allows(self, progress: &Progress) -> bool {
        progress.executed < self.descriptors && progress.bytes < self.bytes
    }
}
