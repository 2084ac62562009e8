//! Streams: on each NPU, launches that come one after the other, of whatever communicator.
//!
//! A launch that has to wait is kept here, and posted when what it comes after is done; whoever waits for anything lets
//! the kept ones go (`Order::advance`). It comes after the launch before it on its stream, and after the one before it
//! of its communicator, which may use other rings. Everything else is posted at once and never gets here.
//!
//! Two communicators whose launches come in one order on one NPU and in another order on another wait for each other for
//! ever. Here it is known what comes after what (`Order::behind`); the diagnosis looks for circles.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use device_model::driver::{LaunchTicket, Npu};
use serde::{Deserialize, Serialize};
use wire::LaunchArgs;
use wire::npu::{LAUNCH_HEAD, LAUNCH_SLOTS, LAUNCH_TAIL, LAUNCHES};
use zerocopy::{FromZeros, IntoBytes};

/// One queue of launches on every NPU of a machine. [`Cluster::stream`](crate::cluster::Cluster::stream) makes one.
#[derive(Debug, PartialEq, Eq)]
pub struct Stream(u64);

/// An operation of a communicator, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Number {
    /// Instance of the communicator.
    pub(crate) instance: [u64; 2],
    /// Sequence within it.
    pub(crate) sequence: u32,
}

/// A launch on one NPU, and how to tell that it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) number: Number,
    /// Host notify that is recorded when it is done, and its count then.
    pub(crate) done: (u32, u64),
}

/// A launch that is not posted yet.
#[derive(Debug)]
struct Held {
    npu: u32,
    mark: Mark,
    after: Vec<Mark>,
    args: LaunchArgs,
    ticket: Arc<OnceLock<LaunchTicket>>,
}

#[derive(Debug, Default)]
struct Books {
    /// Oldest first.
    held: Vec<Held>,
    /// The last launch on each stream and NPU.
    last: HashMap<(u64, u32), Mark>,
    streams: u64,
    names: HashMap<[u64; 2], String>,
}

/// What the launches of a machine come after.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// How many are held: as a rule none, and nothing else is looked at.
    held: AtomicUsize,
    books: Mutex<Books>,
}

/// Two operations, one behind the other on one NPU; the first of them is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// The NPU.
    pub npu: u32,
    /// The operation that waits.
    pub waits: Named,
    /// The operation that comes before it.
    pub first: Named,
}

/// An operation of a communicator, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Name of the communicator.
    pub comm: String,
    /// Its instance.
    pub instance: [u64; 2],
    /// Sequence of the operation.
    pub sequence: u32,
}

/// A launch's number in its NPU's mailbox, or where that will be.
#[derive(Clone, Debug)]
pub(crate) enum Ticket {
    /// It has been posted.
    Posted(LaunchTicket),
    /// It is held until others are done.
    Held(Arc<OnceLock<LaunchTicket>>),
}

impl Ticket {
    /// Returns the number, `None` while the launch is held.
    pub(crate) fn number(&self) -> Option<LaunchTicket> {
        match self {
            Self::Posted(ticket) => Some(*ticket),
            Self::Held(ticket) => ticket.get().copied(),
        }
    }
}

impl Mark {
    pub(crate) fn is_done(&self, npu: &Npu) -> bool {
        npu.host_notify_count(self.done.0) >= self.done.1
    }
}

impl Order {
    fn books(&self) -> MutexGuard<'_, Books> {
        // What a thread that panicked has left is as good as before: entries are whole.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a stream.
    pub(crate) fn stream(&self) -> Stream {
        let mut books = self.books();
        books.streams += 1;
        Stream(books.streams)
    }

    /// Notes a communicator's name.
    pub(crate) fn join(&self, instance: [u64; 2], name: &str) {
        self.books().names.insert(instance, name.to_owned());
    }

    /// Forgets a communicator's launches: they are not posted any more, and nothing waits for them.
    pub(crate) fn forget(&self, instance: [u64; 2]) {
        let mut books = self.books();
        let is_other = |mark: &Mark| mark.number.instance != instance;
        books.held.retain(|held| is_other(&held.mark));
        books.held.iter_mut().for_each(|held| held.after.retain(is_other));
        books.last.retain(|_, mark| is_other(mark));
        self.held.store(books.held.len(), Ordering::Relaxed);
    }

    /// Forgets a communicator.
    pub(crate) fn leave(&self, instance: [u64; 2]) {
        self.forget(instance);
        self.books().names.remove(&instance);
    }

    /// Returns the last launch on a stream at an NPU, unless it is done.
    pub(crate) fn last(&self, stream: &Stream, npu: &Npu) -> Option<Mark> {
        let last = self.books().last.get(&(stream.0, npu.index())).copied();
        last.filter(|last| !last.is_done(npu))
    }

    /// Makes a launch the last on a stream at an NPU.
    pub(crate) fn append(&self, stream: &Stream, npu: u32, mark: Mark) {
        self.books().last.insert((stream.0, npu), mark);
    }

    /// Keeps a launch until those that it comes after are done; returns where its ticket will be.
    pub(crate) fn hold(&self, npu: u32, mark: Mark, after: Vec<Mark>, args: LaunchArgs) -> Ticket {
        let ticket = Arc::new(OnceLock::new());
        let mut books = self.books();
        books.held.push(Held { npu, mark, after, args, ticket: Arc::clone(&ticket) });
        self.held.store(books.held.len(), Ordering::Relaxed);
        Ticket::Held(ticket)
    }

    /// Returns how many launches are kept.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Posts every launch that nothing is before any more; `posted` is told the NPU of each.
    #[inline]
    pub(crate) fn advance(&self, npus: &[Npu], posted: impl Fn(u32)) {
        // ORDER: who holds a launch and who waits for it are one thread, or meet at the lock sooner or later.
        if self.held() > 0 {
            self.post_ready(npus, posted);
        }
    }

    #[cold]
    fn post_ready(&self, npus: &[Npu], posted: impl Fn(u32)) {
        let mut books = self.books();
        books.held.retain_mut(|held| {
            let npu = &npus[held.npu as usize];
            held.after.retain(|mark| !mark.is_done(npu));
            if !held.after.is_empty() {
                return true;
            }
            // A mailbox that is full has room again when the kernel has answered.
            let Ok(ticket) = npu.post_launch(&held.args) else { return true };
            npu.set_notify(held.args.start_notify);
            posted(held.npu);
            // Nobody else sets it.
            let _ = held.ticket.set(ticket);
            false
        });
        self.held.store(books.held.len(), Ordering::Relaxed);
    }

    /// Returns what is behind what that is not done: launches held here, and launches in the mailbox of a kernel that is
    /// still at an earlier one.
    pub(crate) fn behind(&self, npus: &[Npu]) -> Vec<Behind> {
        let books = self.books();
        let named = |number: Number| Named {
            comm: books.names.get(&number.instance).cloned().unwrap_or_default(),
            instance: number.instance,
            sequence: number.sequence,
        };
        let mut all = Vec::new();
        for held in &books.held {
            let npu = &npus[held.npu as usize];
            let open = held.after.iter().filter(|mark| !mark.is_done(npu));
            all.extend(open.map(|mark| (held.npu, held.mark.number, mark.number)));
        }
        for npu in npus {
            let waiting = mailbox(npu);
            let Some((first, others)) = waiting.split_first() else { continue };
            all.extend(others.iter().map(|other| (npu.index(), *other, *first)));
        }
        all.into_iter()
            .map(|(npu, waits, first)| Behind { npu, waits: named(waits), first: named(first) })
            .collect()
    }
}

/// Returns the launches in an NPU's mailbox that its kernel has not answered, the one at hand first.
fn mailbox(npu: &Npu) -> Vec<Number> {
    let window = npu.window();
    // ORDER: pairs with the stores of host and kernel; a slot that is overwritten meanwhile names a newer launch.
    let word = |at: u64| window.word(at).load(Ordering::Acquire);
    let (answered, posted) = (word(LAUNCH_HEAD), word(LAUNCH_TAIL));
    let launch = |number: u64| {
        let mut args = LaunchArgs::new_zeroed();
        let slot = number % LAUNCH_SLOTS;
        window.read(LAUNCHES + slot * size_of::<LaunchArgs>() as u64, args.as_mut_bytes());
        Number { instance: args.instance, sequence: args.sequence }
    };
    (answered..posted.min(answered.saturating_add(LAUNCH_SLOTS))).map(launch).collect()
}

/// Returns operations each of which is behind the next, and the last behind the first: none of them will ever be done.
#[must_use]
pub(crate) fn circle(all: &[Behind]) -> Option<Vec<Behind>> {
    // From each operation along what is before it, until one comes again or nothing is before one.
    let mut over: Vec<&Named> = Vec::new();
    for start in all {
        let mut path = vec![start];
        let mut choices = vec![all.iter()];
        while let (Some(last), Some(next)) = (path.last().copied(), choices.last_mut()) {
            let is_next = |behind: &&Behind| behind.waits == last.first && !over.contains(&&behind.first);
            let Some(found) = next.find(is_next) else {
                over.push(&last.first);
                path.pop();
                choices.pop();
                continue;
            };
            if let Some(first) = path.iter().position(|earlier| earlier.waits == found.first) {
                path.push(found);
                return Some(path.split_off(first).into_iter().cloned().collect());
            }
            path.push(found);
            choices.push(all.iter());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Behind, Named, circle};

    fn behind(pairs: &[(u32, u32, u32)]) -> Vec<Behind> {
        let named = |sequence| Named { comm: String::new(), instance: [1, 1], sequence };
        let behind =
            |&(npu, waits, first): &(u32, u32, u32)| Behind { npu, waits: named(waits), first: named(first) };
        pairs.iter().map(behind).collect()
    }

    fn numbers(circle: Option<Vec<Behind>>) -> Vec<(u32, u32, u32)> {
        let number = |link: Behind| (link.npu, link.waits.sequence, link.first.sequence);
        circle.into_iter().flatten().map(number).collect()
    }

    #[test]
    fn circles_are_found_and_chains_are_not() {
        assert_eq!(circle(&[]), None);
        // A tree, and one operation that is behind another on several NPUs.
        assert_eq!(circle(&behind(&[(0, 1, 2), (0, 2, 3), (1, 4, 3), (2, 1, 3), (3, 1, 2)])), None);
        assert_eq!(numbers(circle(&behind(&[(0, 1, 2), (1, 2, 1)]))), [(0, 1, 2), (1, 2, 1)]);
        // What leads there is no part of it, and dead ends are passed by.
        let long = [(0, 9, 1), (0, 1, 7), (0, 1, 2), (1, 2, 8), (1, 2, 3), (2, 3, 1)];
        assert_eq!(numbers(circle(&behind(&long))), [(0, 1, 2), (1, 2, 3), (2, 3, 1)]);
    }
}
