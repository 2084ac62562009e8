//! The flight recorder: what the kernel did when, in 32 bytes an event, written without allocation into a bounded ring.
//!
//! The ring ([`npu::TRACE`](crate::npu::TRACE)) lies in shared memory and is written always, so that what happened can be
//! read at any time, by any process that has the memory, after a crash of either side too. Nothing is decided by it:
//! it is read by people and by what explains failures to them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::dtype::wire_enum;
use crate::launch::{CacheOutcome, Launch};
use crate::npu::Status;
use crate::{Cqe, DeviceAddr, ErrorCode, LaunchArgs, digest};

wire_enum! {
    /// Where in the template skeleton a task belongs; tasks carry it so that messages can name it.
    Phase, SQE_FIELD {
        Start = 0 "start", PreSync = 1 "pre-sync", PreCopy = 2 "pre-copy", Run = 3 "run",
        PostSync = 4 "post-sync", PostCopy = 5 "post-copy", Finish = 6 "finish",
    }
}

wire_enum! {
    /// What a trace event reports.
    TraceKind, SQE_FIELD {
        LaunchTaken = 1 "launch taken", ContextDecoded = 2 "context decoded", Expanded = 3 "expanded",
        Doorbell = 4 "doorbell", Submitted = 5 "submitted", Refused = 6 "refused", Completed = 7 "completed",
    }
}

/// One event. `kind` is a [`TraceKind`] number; what `detail`, `queue` and the two values mean depends on it, and is
/// what [`Recorded`] says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub struct TraceEvent {
    /// Clock of the writer, nanoseconds.
    pub time_ns: u64,
    /// Sequence number of the operation it belongs to.
    pub sequence: u32,
    /// A [`TraceKind`] number.
    pub kind: u8,
    /// Submitted: [`CacheOutcome`] number; 0 otherwise.
    pub detail: u8,
    /// Completed: queue; submitted and doorbell: doorbells rung, at most 65,535; 0 otherwise.
    pub queue: u16,
    /// First value: digest of the launch, bytes decoded, descriptors, task, error code.
    pub first: u64,
    /// Second value: communicator, address, nanoseconds, error code, error detail.
    pub second: u64,
}
const _: () = assert!(size_of::<TraceEvent>() == 32);

/// What a rank says it was asked for, so that ranks can be compared: 16 bytes an operation.
///
/// Recorded by the kernel as it takes a launch, before it submits anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signature {
    /// Communicator epoch.
    pub epoch: u32,
    /// Operation sequence within the communicator.
    pub sequence: u32,
    /// Digest of everything that must be the same on all ranks; 0 for launch arguments that mean nothing.
    pub digest: u64,
}

/// What an event says, its numbers taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// A launch was taken out of the mailbox.
    LaunchTaken {
        /// What it asks for.
        signature: Signature,
        /// Low half of the first word of the communicator's instance.
        comm: u32,
    },
    /// A resource context, or program, was read anew.
    ContextDecoded {
        /// Bytes of it.
        bytes: u64,
    },
    /// A graph was recorded.
    Expanded,
    /// The rings had no room for the rest: what was written has been announced.
    Doorbell {
        /// Descriptors written so far.
        descriptors: u64,
        /// Doorbells rung so far.
        doorbells: u16,
    },
    /// Everything was written and announced.
    Submitted {
        /// What the cache did; `None` for a number without meaning.
        cache: Option<CacheOutcome>,
        /// Submission entries.
        sqes: u32,
        /// Work-queue entries.
        wqes: u32,
        /// Doorbells rung.
        doorbells: u16,
        /// Time spent expanding, nanoseconds, at most 2^32 - 1.
        expand_ns: u32,
        /// Time spent binding, copying and announcing, nanoseconds, at most 2^32 - 1.
        submit_ns: u32,
    },
    /// A launch was refused or given up.
    Refused {
        /// Why.
        code: ErrorCode,
        /// The number that says more.
        detail: u64,
    },
    /// The device reported on a task: the last of an operation, or one that failed.
    Completed {
        /// Queue.
        queue: u16,
        /// Index of the task within the operation.
        task: u32,
        /// 0, or why it failed.
        code: ErrorCode,
    },
}

impl TraceEvent {
    /// A launch was taken; its `digest` is that of [`Launch::digest`], or 0.
    #[must_use]
    #[inline]
    pub const fn launch_taken(time_ns: u64, args: &LaunchArgs, digest: u64) -> Self {
        let second = args.instance[0] << 32 | args.epoch as u64;
        Self { first: digest, second, ..Self::new(time_ns, args.sequence, TraceKind::LaunchTaken) }
    }

    /// A resource context was read anew.
    #[must_use]
    pub const fn context_decoded(time_ns: u64, launch: &Launch) -> Self {
        let (DeviceAddr(address), bytes) = launch.context;
        let event = Self::new(time_ns, launch.sequence, TraceKind::ContextDecoded);
        Self { first: bytes as u64, second: address, ..event }
    }

    /// The rings have no room for the rest.
    #[must_use]
    pub fn held(time_ns: u64, status: &Status) -> Self {
        let descriptors = status.sqes.saturating_add(status.wqes);
        Self {
            queue: at_most(status.doorbells),
            first: u64::from(descriptors),
            ..Self::new(time_ns, status.sequence, TraceKind::Doorbell)
        }
    }

    /// Everything was written and announced.
    #[must_use]
    #[inline]
    pub fn submitted(time_ns: u64, status: &Status) -> Self {
        let nanoseconds = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            detail: status.cache,
            queue: at_most(status.doorbells),
            first: both(status.sqes, status.wqes),
            second: both(nanoseconds(status.submit_ns), nanoseconds(status.expand_ns)),
            ..Self::new(time_ns, status.sequence, TraceKind::Submitted)
        }
    }

    /// A launch was refused or given up.
    #[must_use]
    pub const fn refused(time_ns: u64, status: &Status) -> Self {
        let event = Self::new(time_ns, status.sequence, TraceKind::Refused);
        Self { first: status.code as u64, second: status.detail, ..event }
    }

    /// The device reported on a task.
    #[must_use]
    #[inline]
    pub const fn completed(time_ns: u64, cqe: &Cqe) -> Self {
        let (task, sequence) = halves(cqe.task);
        Self {
            queue: cqe.queue,
            first: task as u64,
            second: cqe.code.0 as u64,
            ..Self::new(time_ns, sequence, TraceKind::Completed)
        }
    }

    #[inline]
    const fn new(time_ns: u64, sequence: u32, kind: TraceKind) -> Self {
        Self { time_ns, sequence, kind: kind as u8, detail: 0, queue: 0, first: 0, second: 0 }
    }

    /// Returns what the event says; `None` for an event that was never written, or half.
    #[must_use]
    pub fn recorded(&self) -> Option<Recorded> {
        let (first, second) = (halves(self.first), halves(self.second));
        let code = |value: u64| ErrorCode(u16::try_from(value).unwrap_or(u16::MAX));
        Some(match TraceKind::try_from(self.kind).ok()? {
            TraceKind::LaunchTaken => Recorded::LaunchTaken {
                signature: Signature { epoch: second.0, sequence: self.sequence, digest: self.first },
                comm: second.1,
            },
            TraceKind::ContextDecoded => Recorded::ContextDecoded { bytes: self.first },
            TraceKind::Expanded => Recorded::Expanded,
            TraceKind::Doorbell => Recorded::Doorbell { descriptors: self.first, doorbells: self.queue },
            TraceKind::Submitted => Recorded::Submitted {
                cache: CacheOutcome::try_from(self.detail).ok(),
                sqes: first.0,
                wqes: first.1,
                doorbells: self.queue,
                submit_ns: second.0,
                expand_ns: second.1,
            },
            TraceKind::Refused => Recorded::Refused { code: code(self.first), detail: self.second },
            TraceKind::Completed => {
                Recorded::Completed { queue: self.queue, task: first.0, code: code(self.second) }
            }
        })
    }
}

fn at_most(count: u32) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

const fn both(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Returns the low and the high half.
const fn halves(value: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

impl Launch {
    /// Returns the digest of everything that must be the same on all ranks: what is to be done with how much, and how.
    /// Buffers, vectors, contexts, notifies, timeouts and the use of the cache are each rank's own.
    #[must_use]
    #[inline]
    pub fn digest(&self) -> u64 {
        let levels = self.levels.map(|level| level.map_or(0, |algorithm| algorithm as u8));
        let root = both(self.root, u32::from_le_bytes(levels));
        let kinds = self.op as u64
            | (self.dtype as u64) << 8
            | (self.reduce as u64) << 16
            | (self.algorithm as u64) << 24
            | (self.staging as u64) << 32;
        [kinds, self.count, self.chunk, self.piece, root].into_iter().fold(digest::START, digest::with)
    }
}
