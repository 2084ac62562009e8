//! What one rank's device holds at one moment, and what its host knows: all that a diagnosis is made from.
//!
//! Of the device: the fixed tables of the window, which have the mailbox, the answers, the heads of the rings, the
//! notifies, the first error and the flight recorder; the ends of the communicator's rings; the programs in flight. The
//! same snapshot is taken of a running device and read from a dump, so that there is one diagnosis for both. Nothing is
//! concluded here.

use serde::{Deserialize, Serialize};
use wire::npu::{
    DEVICE_ERROR, DEVICE_ERROR_FLAG, DOORBELLS, HOST_NOTIFY, KERNEL_STATE, KernelState, LAUNCH_HEAD,
    LAUNCH_SLOTS, LAUNCH_TAIL, LAUNCHES, NOTIFIES, STATUSES, Status, TAILS, TRACE, TRACE_DEPTH, TRACE_TAIL,
};
use wire::program::ProgramEntry;
use wire::{Cqe, LaunchArgs, Sqe, TraceEvent};
use zerocopy::FromBytes;

use crate::stream::Behind;

/// What the host knows about a rank of a communicator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostView {
    /// Name of the communicator.
    pub comm: String,
    /// Its instance.
    pub instance: [u64; 2],
    /// Its epoch.
    pub epoch: u32,
    /// This rank.
    pub rank: u32,
    /// Its NPU.
    #[serde(default)]
    pub npu: u32,
    /// How many ranks there are.
    pub ranks: u32,
    /// Host and device of the rank.
    pub place: String,
    /// Sequence of the operation launched last, 0 for none.
    pub launched: u32,
    /// What has been launched and not been waited for, oldest first.
    pub in_flight: Vec<Launched>,
    /// The threads of the communicator on this device.
    pub threads: Vec<Thread>,
    /// The queues of its queue pairs.
    pub pairs: Vec<u16>,
    /// Device address and bytes of the window.
    pub window: (u64, u64),
    /// How long an operation may take, milliseconds.
    pub timeout_ms: u64,
    /// Which setting says so.
    pub timeout_source: String,
    /// How long the host has been waiting, microseconds.
    pub waited_us: u64,
    /// Whether the device or its kernel went on while it was watched; `None` where it was not.
    pub moves: Option<bool>,
    /// Operations that are behind others on an NPU of the machine, of whatever communicator.
    #[serde(default)]
    pub behind: Vec<Behind>,
}

/// An operation in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    /// Its sequence.
    pub sequence: u32,
    /// How many launches were posted on this NPU before it; [`HELD`](Self::HELD) for one that is not posted yet.
    pub ticket: u64,
    /// What it is, in words.
    pub what: String,
    /// Digest of the counts and places that all ranks exchange and of the algorithm's file, 0 where there is neither.
    pub tables: u64,
    /// Host notify that tells that it is done, and its count then.
    pub done: (u32, u64),
}

impl Launched {
    /// The ticket of a launch that waits for others.
    pub const HELD: u64 = u64::MAX;

    /// Returns whether it waits for what was launched before it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.ticket == Self::HELD
    }
}

/// A thread of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Number among the threads of its context.
    pub index: u32,
    /// Its queue.
    pub queue: u16,
    /// First of its notifies.
    pub notify_base: u32,
    /// How many it has.
    pub notify_count: u32,
}

/// The end of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Its queue.
    pub queue: u16,
    /// Low half of the position of the first entry that is not executed.
    pub head: u32,
    /// Entries executed last, oldest first.
    pub executed: Vec<Sqe>,
    /// Entries written and not executed. Of a queue pair too: the fields that matter lie at the same places.
    pub left: Vec<Sqe>,
    /// How many of these a doorbell has announced.
    pub announced: usize,
}

impl Ring {
    /// Returns the task of the entry written last.
    pub(super) fn last(&self) -> Option<u64> {
        self.left.last().or(self.executed.last()).map(|sqe| sqe.task)
    }
}

/// A program in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCopy {
    /// Sequence of its replay.
    pub sequence: u32,
    /// Its operations.
    pub entries: Vec<ProgramEntry>,
}

/// The next entry of a thread's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Queue.
    pub queue: u16,
    /// The entry.
    pub sqe: Sqe,
    /// Whether it waits for a notify that is not set.
    pub waits: bool,
}

/// What one rank's device holds and its host knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// What the host knows.
    pub host: HostView,
    /// The fixed tables of the window.
    pub(super) tables: Vec<u8>,
    /// The ends of the communicator's rings.
    pub(super) rings: Vec<Ring>,
    /// The programs in flight.
    pub(super) programs: Vec<ProgramCopy>,
    /// What the kernel has still to write, `None` where that is not known.
    pub(super) unwritten: Option<Vec<Sqe>>,
}

impl Snapshot {
    /// Returns the value at an offset of the tables; zero beyond their end.
    fn get<T: FromBytes>(&self, offset: u64) -> T {
        let bytes = usize::try_from(offset).ok().and_then(|offset| self.tables.get(offset..));
        let value = bytes.and_then(|bytes| T::read_from_prefix(bytes).ok());
        value.map_or_else(T::new_zeroed, |(value, _)| value)
    }

    pub(super) fn word(&self, offset: u64) -> u64 {
        self.get(offset)
    }

    /// Returns the number of a launch in flight, if its slot of the mailbox is still its own.
    fn ticket(&self, sequence: u32) -> Option<u64> {
        let launched = self.host.in_flight.iter().find(|launched| launched.sequence == sequence)?;
        let age = self.word(LAUNCH_TAIL).checked_sub(launched.ticket)?;
        (1..=LAUNCH_SLOTS).contains(&age).then_some(launched.ticket)
    }

    /// Returns the arguments of a launch in flight, as they lie in the mailbox.
    #[must_use]
    pub fn launch(&self, sequence: u32) -> Option<LaunchArgs> {
        let slot = self.ticket(sequence)? % LAUNCH_SLOTS;
        Some(self.get(LAUNCHES + slot * size_of::<LaunchArgs>() as u64))
    }

    /// Returns the kernel's answer to a launch in flight.
    #[must_use]
    pub fn status(&self, sequence: u32) -> Option<Status> {
        let ticket = self.ticket(sequence)?;
        let slot = STATUSES + ticket % LAUNCH_SLOTS * size_of::<Status>() as u64;
        (self.word(LAUNCH_HEAD) > ticket).then(|| self.get(slot))
    }

    /// Returns the error that stopped the device.
    #[must_use]
    pub fn device_error(&self) -> Option<Cqe> {
        let bytes = usize::try_from(DEVICE_ERROR).ok().and_then(|at| self.tables.get(at..))?;
        let (cqe, _) = Cqe::read_from_prefix(bytes).ok()?;
        (self.word(DEVICE_ERROR_FLAG) != 0).then_some(cqe)
    }

    /// Returns whether the kernel has stopped for good.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.word(KERNEL_STATE) == KernelState::Parked as u64
    }

    /// Returns whether a queue is the communicator's.
    pub(super) fn owns(&self, queue: u16) -> bool {
        self.host.threads.iter().any(|thread| thread.queue == queue) || self.host.pairs.contains(&queue)
    }

    /// Returns the number of a thread, by its queue.
    pub(super) fn thread_of(&self, queue: u16) -> Option<u32> {
        self.host.threads.iter().find(|thread| thread.queue == queue).map(|thread| thread.index)
    }

    /// Returns whether everything launched is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.host.in_flight.last().is_none_or(|last| {
            let (notify, count) = last.done;
            self.done_count(notify) >= count && self.status(last.sequence).is_some()
        })
    }

    /// Returns how often a host notify has been recorded.
    pub(crate) fn done_count(&self, notify: u32) -> u64 {
        self.word(HOST_NOTIFY + 8 * u64::from(notify))
    }

    /// Returns whether the kernel has submitted all tasks of everything in flight.
    pub(super) fn has_submitted_all(&self) -> bool {
        let submitted = |launched: &Launched| self.status(launched.sequence).is_some_and(|s| s.code == 0);
        self.host.in_flight.iter().all(submitted)
    }

    /// Returns the oldest operation in flight that the kernel has refused, and its answer.
    pub(super) fn refusal(&self) -> Option<(&Launched, Status)> {
        let answers = self.host.in_flight.iter().filter_map(|launched| {
            let status = self.status(launched.sequence)?;
            Some((launched, status))
        });
        answers.into_iter().find(|(_, status)| status.code != 0)
    }

    fn is_set(&self, notify: u32) -> bool {
        self.get::<u32>(NOTIFIES + 4 * u64::from(notify)) != 0
    }

    /// Returns the next entry of every thread that has one announced.
    #[must_use]
    pub fn heads(&self) -> Vec<Head> {
        let threads = self.rings.iter().filter(|ring| self.thread_of(ring.queue).is_some());
        let head = |ring: &Ring| {
            let sqe = *ring.left.first().filter(|_| ring.announced > 0)?;
            let waits = sqe.opcode == Sqe::WAIT && !self.is_set(sqe.notify);
            Some(Head { queue: ring.queue, sqe, waits })
        };
        threads.filter_map(head).collect()
    }

    /// Returns everything that is not executed, also what is not written yet; `None` where that is not known.
    pub(super) fn unexecuted(&self) -> Option<impl Iterator<Item = &Sqe>> {
        let unwritten = self.unwritten.as_ref()?;
        Some(self.rings.iter().flat_map(|ring| &ring.left).chain(unwritten))
    }

    /// Returns the thread whose ring has entries that its doorbell has not announced, and how many.
    pub(super) fn unannounced(&self) -> Option<(u16, usize)> {
        let threads = self.rings.iter().filter(|ring| self.thread_of(ring.queue).is_some());
        let short = |ring: &Ring| {
            let rung = self.word(TAILS + 8 * u64::from(ring.queue)) & u64::from(u32::MAX)
                == self.word(DOORBELLS + 8 * u64::from(ring.queue)) & u64::from(u32::MAX);
            (!rung && ring.announced < ring.left.len())
                .then(|| (ring.queue, ring.left.len() - ring.announced))
        };
        threads.into_iter().find_map(short)
    }

    /// Returns which thread sets a notify of another of this rank, as far as the rings still hold it.
    pub(super) fn recorder_of(&self, notify: u32) -> Option<u32> {
        let sets = |sqe: &&Sqe| sqe.opcode == Sqe::RECORD && sqe.notify == notify;
        let ring =
            self.rings.iter().find(|ring| ring.executed.iter().chain(&ring.left).any(|sqe| sets(&sqe)));
        self.thread_of(ring?.queue)
    }

    /// Returns the flight recorder, oldest event first.
    #[must_use]
    pub fn events(&self) -> Vec<TraceEvent> {
        let tail = self.word(TRACE_TAIL);
        let slot = |position: u64| self.get(TRACE + position % TRACE_DEPTH * size_of::<TraceEvent>() as u64);
        (tail.saturating_sub(TRACE_DEPTH)..tail).map(slot).collect()
    }
}
