//! The tasks of all ranks on a virtual clock: when the last one ends, and what that time is made of.
//!
//! The rules, all of them:
//! - A thread carries its tasks out in order, each for as long as it occupies the thread: a copy, a reduction, a
//!   transfer `max(least task, task + bytes)`, a transfer its link's `task` and, where it reduces, the reduction of its
//!   bytes more; a notify that is set or seen, `notify`.
//! - A transfer occupies its link too, and where links share a port, the sender's port and the receiver's. Where there
//!   are workers, every task occupies one of them. Who is ready first is served first; of several the lowest rank and
//!   thread.
//! - What was transferred is there `latency` after it left, with the notify that goes with it. A bare notify is there
//!   `signal` after it was set, and not before what its link carries. A thread goes on reading at once, and does
//!   anything else only when what it read is there.
//!
//! Each instant knows the chain of causes that led to it, as a sum of parts: of two that must both have come, the later
//! one's. So the parts of the last instant add up to it.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use super::parts::{Part, Parts};
use super::profile::{Costs, Time};
use super::tasks::{How, Step};

/// An instant and the chain of causes that led to it.
#[derive(Clone, Copy, Debug, Default)]
struct Instant {
    at: Time,
    parts: Parts,
}

impl Instant {
    fn after(self, cost: Parts) -> Self {
        Self { at: self.at.saturating_add(cost.total()), parts: self.parts + cost }
    }

    fn or_later(self, other: Self) -> Self {
        if other.at > self.at { other } else { self }
    }
}

/// A notify.
#[derive(Clone, Debug, Default)]
enum Notify {
    #[default]
    Clear,
    /// It has been set at this place of the instants.
    Set(u32),
    /// A thread of the rank waits for it.
    Awaited(u16),
}

/// Instants that notifies refer to: most notifies are clear most of the time, and an instant is long.
#[derive(Debug, Default)]
struct Instants {
    list: Vec<Instant>,
    free: Vec<u32>,
}

impl Instants {
    fn keep(&mut self, instant: Instant) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.list[place as usize] = instant;
                place
            }
            None => {
                self.list.push(instant);
                u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX)
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Thread {
    steps: Vec<Step>,
    next: usize,
    now: Instant,
    /// When everything that was read is there.
    read: Instant,
}

/// How a thread fares.
enum Turn {
    /// It has carried out a task, or its next one is ready later.
    On,
    /// It waits for a notify that has not been set.
    Waits,
}

/// A machine at work.
struct Clock<'a> {
    costs: &'a Costs,
    ranks: usize,
    threads: Vec<Vec<Thread>>,
    /// Thread notifies by rank, thread and index.
    own: Vec<Vec<Vec<Notify>>>,
    /// Channel notifies by waiting rank, peer and notify.
    channels: Vec<Notify>,
    instants: Instants,
    /// When each link is free, by sender and receiver; `None` for one that has not been used.
    links: Vec<Option<Box<Instant>>>,
    /// When each rank's ports are free, of each class: out, then in.
    ports: Vec<[[Instant; 2]; 3]>,
    workers: Vec<Instant>,
    /// Threads that can go on: when, rank, thread.
    ready: BinaryHeap<Reverse<(Time, u32, u32)>>,
}

/// Returns how long the tasks of all ranks take, each rank's by thread; `None` when they wait for each other for ever.
#[must_use]
pub fn run(costs: &Costs, tasks: Vec<Vec<Vec<Step>>>) -> Option<Parts> {
    let ranks = tasks.len();
    let threads: Vec<Vec<Thread>> = tasks
        .into_iter()
        .map(|threads| threads.into_iter().map(|steps| Thread { steps, ..Thread::default() }).collect())
        .collect();
    let mut clock = Clock {
        costs,
        ranks,
        own: threads.iter().map(|threads: &Vec<_>| vec![Vec::new(); threads.len()]).collect(),
        channels: vec![Notify::Clear; ranks * ranks * 3],
        instants: Instants::default(),
        links: vec![None; ranks * ranks],
        ports: vec![<[[Instant; 2]; 3]>::default(); ranks],
        workers: vec![Instant::default(); costs.workers as usize],
        ready: BinaryHeap::new(),
        threads,
    };
    for (rank, threads) in clock.threads.iter().enumerate() {
        clock.ready.extend((0..threads.len()).map(|thread| ready(0, rank, thread)));
    }
    clock.run();
    clock.end()
}

impl Clock<'_> {
    fn run(&mut self) {
        while let Some(Reverse((_, rank, thread))) = self.ready.pop() {
            let (rank, thread) = (rank as usize, thread as usize);
            loop {
                let state = &self.threads[rank][thread];
                let Some(&step) = state.steps.get(state.next) else { break };
                let mine = ready(state.now.at, rank, thread);
                if self.ready.peek().is_some_and(|first| first.0 < mine.0) {
                    self.ready.push(mine);
                    break;
                }
                match self.turn(rank, thread, step) {
                    Turn::On => {}
                    Turn::Waits => break,
                }
            }
        }
    }

    fn end(&self) -> Option<Parts> {
        let threads = || self.threads.iter().flatten();
        let done = threads().all(|thread| thread.next == thread.steps.len());
        let last = threads()
            .fold(Instant::default(), |last, thread| last.or_later(thread.now).or_later(thread.read));
        done.then_some(last.parts)
    }

    /// Carries out a task of a thread, or finds out when it can be.
    fn turn(&mut self, rank: usize, thread: usize, step: Step) -> Turn {
        let reads = matches!(step, Step::Move { how: How::Read, .. });
        let state = &mut self.threads[rank][thread];
        if !reads && state.read.at > state.now.at {
            state.now = state.read;
            return Turn::On;
        }
        let now = state.now;
        let end = match step {
            Step::Copy { len } => self.work(now, self.task(Part::Copies, self.costs.copy, len)),
            Step::Reduce { len, processor } => {
                let byte = if processor { self.costs.processor_reduce } else { self.costs.reduce };
                self.work(now, self.task(Part::Reductions, byte, len))
            }
            Step::Move { peer, link, len, reduces, how } => {
                self.transfer((rank, thread), peer as usize, link, len, reduces, how)
            }
            Step::Set { thread, index } => {
                let end = self.work(now, self.notify());
                let place = own(&mut self.own[rank], thread, index);
                let woken = set(place, &mut self.instants, end);
                self.wake(rank, woken, end);
                end
            }
            Step::Tell { peer, link, notify } => {
                let (peer, costs) = (peer as usize, self.costs.links[usize::from(link)]);
                let latency = |time| Parts::default().with(Part::latency(link), time);
                let end = self.work(now, self.notify());
                let alone = end.after(latency(costs.signal));
                let carried = self.links[rank * self.ranks + peer].as_deref();
                let there = carried.map_or(alone, |free| alone.or_later(free.after(latency(costs.latency))));
                self.tell(peer, rank, notify, there);
                end
            }
            Step::Wait { index } => {
                let thread_number = u16::try_from(thread).unwrap_or(u16::MAX);
                let place = own(&mut self.own[rank], thread_number, index);
                match awaited(place, &mut self.instants, thread_number, now.at) {
                    Some(Awaited::Ready) => self.work(now, self.notify()),
                    Some(Awaited::At(instant)) => return self.later(rank, thread, instant),
                    None => return Turn::Waits,
                }
            }
            Step::Hear { peer, notify } => {
                let thread_number = u16::try_from(thread).unwrap_or(u16::MAX);
                let place = &mut self.channels[(rank * self.ranks + peer as usize) * 3 + usize::from(notify)];
                match awaited(place, &mut self.instants, thread_number, now.at) {
                    Some(Awaited::Ready) => self.work(now, self.notify()),
                    Some(Awaited::At(instant)) => return self.later(rank, thread, instant),
                    None => return Turn::Waits,
                }
            }
        };
        let state = &mut self.threads[rank][thread];
        (state.now, state.next) = (end, state.next + 1);
        Turn::On
    }

    fn later(&mut self, rank: usize, thread: usize, instant: Instant) -> Turn {
        self.threads[rank][thread].now = instant;
        Turn::On
    }

    /// The cost of a task with so many bytes.
    fn task(&self, part: Part, byte: Time, len: u64) -> Parts {
        let bytes = byte.saturating_mul(len);
        let whole = bytes.saturating_add(self.costs.task).max(self.costs.least_task);
        Parts::default().with(part, bytes).with(Part::Tasks, whole - bytes)
    }

    fn notify(&self) -> Parts {
        Parts::default().with(Part::Tasks, self.costs.notify)
    }

    /// Occupies a worker, where there are any.
    fn work(&mut self, start: Instant, cost: Parts) -> Instant {
        match self.workers.iter_mut().min_by_key(|worker| worker.at) {
            None => start.after(cost),
            Some(worker) => {
                *worker = start.or_later(*worker).after(cost);
                *worker
            }
        }
    }

    fn transfer(
        &mut self,
        (rank, thread): (usize, usize),
        peer: usize,
        link: u8,
        len: u64,
        reduces: bool,
        how: How,
    ) -> Instant {
        let class = usize::from(link);
        let costs = self.costs.links[class];
        let (from, to) = if how == How::Read { (peer, rank) } else { (rank, peer) };
        let mut start = self.threads[rank][thread].now;
        let pair = from * self.ranks + to;
        start = start.or_later(self.links[pair].as_deref().copied().unwrap_or_default());
        if costs.port {
            start = start.or_later(self.ports[from][class][0]).or_later(self.ports[to][class][1]);
        }
        let reduced = if reduces { self.costs.link_reduce.saturating_mul(len) } else { 0 };
        let moved = self.task(Part::bytes(link), costs.byte, len);
        let cost = moved.with(Part::Tasks, costs.task).with(Part::Reductions, reduced);
        let end = self.work(start, cost);
        match &mut self.links[pair] {
            Some(free) => **free = end,
            unused => *unused = Some(Box::new(end)),
        }
        if costs.port {
            (self.ports[from][class][0], self.ports[to][class][1]) = (end, end);
        }
        let there = end.after(Parts::default().with(Part::latency(link), costs.latency));
        match how {
            How::Read => {
                let read = &mut self.threads[rank][thread].read;
                *read = read.or_later(there);
            }
            How::Write => {}
            How::WriteAndTell(notify) => self.tell(peer, rank, notify, there),
        }
        end
    }

    fn tell(&mut self, waiter: usize, from: usize, notify: u8, there: Instant) {
        let place = &mut self.channels[(waiter * self.ranks + from) * 3 + usize::from(notify)];
        let woken = set(place, &mut self.instants, there);
        self.wake(waiter, woken, there);
    }

    /// Lets a thread go on that waited for what is there now.
    fn wake(&mut self, rank: usize, thread: Option<u16>, there: Instant) {
        if let Some(thread) = thread {
            let at = self.threads[rank][usize::from(thread)].now.at.max(there.at);
            self.ready.push(ready(at, rank, usize::from(thread)));
        }
    }
}

/// A thread that can go on at that time.
fn ready(at: Time, rank: usize, thread: usize) -> Reverse<(Time, u32, u32)> {
    // Both are counted in 32 bits at most.
    let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
    Reverse((at, number(rank), number(thread)))
}

enum Awaited {
    /// It has been set, and is clear again.
    Ready,
    /// It will have been set then.
    At(Instant),
}

/// Takes a notify for a thread at `now`; `None` when it has not been set: the thread is noted.
fn awaited(place: &mut Notify, instants: &mut Instants, thread: u16, now: Time) -> Option<Awaited> {
    match *place {
        Notify::Set(kept) => {
            let instant = instants.list[kept as usize];
            if instant.at > now {
                return Some(Awaited::At(instant));
            }
            instants.free.push(kept);
            *place = Notify::Clear;
            Some(Awaited::Ready)
        }
        Notify::Clear | Notify::Awaited(_) => {
            *place = Notify::Awaited(thread);
            None
        }
    }
}

/// Sets a notify; returns the thread that waits for it.
fn set(place: &mut Notify, instants: &mut Instants, there: Instant) -> Option<u16> {
    match *place {
        Notify::Set(kept) => {
            instants.list[kept as usize] = there;
            None
        }
        Notify::Clear => {
            *place = Notify::Set(instants.keep(there));
            None
        }
        Notify::Awaited(thread) => {
            *place = Notify::Set(instants.keep(there));
            Some(thread)
        }
    }
}

fn own(threads: &mut [Vec<Notify>], thread: u16, index: u16) -> &mut Notify {
    let notifies = &mut threads[usize::from(thread)];
    if notifies.len() <= usize::from(index) {
        notifies.resize(usize::from(index) + 1, Notify::Clear);
    }
    &mut notifies[usize::from(index)]
}
