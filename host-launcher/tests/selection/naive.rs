//! The rules of the clock once more, as plainly as they can be written: in each round, all threads of all ranks are
//! asked when they could go on, and the first does. It shares the list of tasks with the library, and nothing else.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "constants of profiles are checked, positive and small"
)]

use std::collections::HashMap;

use host_launcher::select::profile::{Link, Profile, Sharing};
use host_launcher::select::tasks::{How, Step};

/// Who waits for a notify, and which it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Notify {
    Thread { rank: usize, thread: u16, index: u16 },
    Channel { rank: usize, peer: usize, notify: u8 },
}

#[derive(Default)]
struct World {
    now: HashMap<(usize, usize), u64>,
    read: HashMap<(usize, usize), u64>,
    next: HashMap<(usize, usize), usize>,
    set: HashMap<Notify, u64>,
    links: HashMap<(usize, usize), u64>,
    /// Of a rank and class, out or in.
    ports: HashMap<(usize, u8, bool), u64>,
    workers: Vec<u64>,
}

fn nanoseconds(value: f64) -> u64 {
    (value * 1e6).round() as u64
}

fn byte(gigabytes_per_second: f64) -> u64 {
    (1e6 / gigabytes_per_second).round() as u64
}

/// Returns when the last task ends, femtoseconds; `None` when some never do.
pub(crate) fn time(profile: &Profile, tasks: &[Vec<Vec<Step>>]) -> Option<u64> {
    let mut world = World { workers: vec![0; profile.engine.workers.value as usize], ..World::default() };
    let threads: Vec<(usize, usize)> =
        (0..tasks.len()).flat_map(|rank| (0..tasks[rank].len()).map(move |thread| (rank, thread))).collect();
    loop {
        let first = threads.iter().filter_map(|&at| Some((world.ready(at, tasks)?, at))).min();
        let Some((start, at)) = first else { break };
        let index = world.next.entry(at).or_default();
        let step = tasks[at.0][at.1][*index];
        *index += 1;
        world.carry_out(profile, at, start, step);
    }
    let done = threads.iter().all(|at| world.next.get(at).copied().unwrap_or(0) == tasks[at.0][at.1].len());
    let last = world.now.values().chain(world.read.values()).max().copied().unwrap_or(0);
    done.then_some(last)
}

impl World {
    fn ready(&self, at: (usize, usize), tasks: &[Vec<Vec<Step>>]) -> Option<u64> {
        let (rank, thread) = at;
        let step = tasks[rank][thread].get(self.next.get(&at).copied().unwrap_or(0))?;
        let now = self.now.get(&at).copied().unwrap_or(0);
        let read = self.read.get(&at).copied().unwrap_or(0);
        let waits = match *step {
            Step::Move { how: How::Read, .. } => return Some(now),
            Step::Wait { index } => Some(Notify::Thread { rank, thread: thread as u16, index }),
            Step::Hear { peer, notify } => Some(Notify::Channel { rank, peer: peer as usize, notify }),
            _ => None,
        };
        let set = match waits {
            Some(notify) => *self.set.get(&notify)?,
            None => 0,
        };
        Some(now.max(read).max(set))
    }

    fn carry_out(&mut self, profile: &Profile, at: (usize, usize), start: u64, step: Step) {
        let (rank, thread) = at;
        let (local, engine) = (&profile.local, &profile.engine);
        let notify_cost = nanoseconds(engine.notify_ns.value);
        let task = |bytes: u64| {
            (nanoseconds(engine.task_ns.value) + bytes).max(nanoseconds(engine.least_task_ns.value))
        };
        let end = match step {
            Step::Copy { len } => self.work(start, task(len * byte(local.copy_gigabytes_per_second.value))),
            Step::Reduce { len, processor } => {
                let rate = if processor {
                    local.processor_reduce_gigabytes_per_second.value
                } else {
                    local.reduce_gigabytes_per_second.value
                };
                self.work(start, task(len * byte(rate)))
            }
            Step::Set { thread, index } => {
                let end = self.work(start, notify_cost);
                self.set.insert(Notify::Thread { rank, thread, index }, end);
                end
            }
            Step::Wait { index } => {
                self.set.remove(&Notify::Thread { rank, thread: thread as u16, index });
                self.work(start, notify_cost)
            }
            Step::Hear { peer, notify } => {
                self.set.remove(&Notify::Channel { rank, peer: peer as usize, notify });
                self.work(start, notify_cost)
            }
            Step::Tell { peer, link, notify } => {
                let (peer, class) = (peer as usize, class(profile, link));
                let end = self.work(start, notify_cost);
                let carried = self
                    .links
                    .get(&(rank, peer))
                    .map_or(0, |free| free + nanoseconds(class.latency_ns.value));
                let there = (end + nanoseconds(class.signal_ns.value)).max(carried);
                self.set.insert(Notify::Channel { rank: peer, peer: rank, notify }, there);
                end
            }
            Step::Move { peer, link, len, reduces, how } => {
                let peer = peer as usize;
                let data = class(profile, link);
                let (from, to) = if how == How::Read { (peer, rank) } else { (rank, peer) };
                let mut begin = start.max(self.links.get(&(from, to)).copied().unwrap_or(0));
                let ports = [(from, link, true), (to, link, false)];
                if data.shared_by == Sharing::Port {
                    for port in ports {
                        begin = begin.max(self.ports.get(&port).copied().unwrap_or(0));
                    }
                }
                let mut cost = task(len * byte(data.gigabytes_per_second.value));
                cost += nanoseconds(data.task_ns.value);
                if reduces {
                    cost += len * byte(local.link_reduce_gigabytes_per_second.value);
                }
                let end = self.work(begin, cost);
                self.links.insert((from, to), end);
                for port in ports {
                    self.ports.insert(port, end);
                }
                let there = end + nanoseconds(data.latency_ns.value);
                match how {
                    How::Read => {
                        let read = self.read.entry(at).or_default();
                        *read = there.max(*read);
                    }
                    How::Write => {}
                    How::WriteAndTell(notify) => {
                        self.set.insert(Notify::Channel { rank: peer, peer: rank, notify }, there);
                    }
                }
                end
            }
        };
        self.now.insert(at, end);
    }

    fn work(&mut self, start: u64, cost: u64) -> u64 {
        match self.workers.iter_mut().min_by_key(|free| **free) {
            None => start + cost,
            Some(free) => {
                *free = start.max(*free) + cost;
                *free
            }
        }
    }
}

fn class(profile: &Profile, link: u8) -> &Link {
    match link {
        0 => &profile.links.hccs,
        1 => &profile.links.roce,
        _ => &profile.links.ub,
    }
}
