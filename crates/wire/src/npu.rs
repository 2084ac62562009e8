//! The window of one NPU: where in shared memory everything lies that host, kernel and device share.
//!
//! A window is a range of device addresses. Its first [`HEAP`] bytes are the fixed tables below, written by exactly
//! one party each; the rest is heap, from which the host takes rings, contexts and user memory. Words that two
//! parties touch are single-writer and 8 bytes wide (notifies: 4), on lines of their own where they are hot.
//! Ownership and ordering of each word: `docs/rings.md`.

use core::mem::offset_of;

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Cqe, ErrorCode, LaunchArgs, TraceEvent};

/// Queues (rings) of one NPU: threads and queue pairs together.
pub const MAX_QUEUES: u64 = 512;
/// Launches that may be posted and not yet answered.
pub const LAUNCH_SLOTS: u64 = 16;
/// Notifies the host can wait for.
pub const HOST_NOTIFIES: u64 = 64;
/// Completion entries; a power of two.
pub const CQ_DEPTH: u64 = 256;
/// Trace events kept; a power of two.
pub const TRACE_DEPTH: u64 = 1024;
/// Notifies of one NPU.
pub const MAX_NOTIFIES: u64 = 8192;
/// Registered regions of one NPU.
pub const MAX_REGIONS: u64 = 1024;
/// Channels of one NPU.
pub const MAX_CHANNELS: u64 = 1024;
/// Bytes of the text log of one NPU's kernel.
pub const LOG_BYTES: u64 = 0x8000;
/// Descriptors that one doorbell may announce (public limit of the field: one tail write per at most 128).
pub const DOORBELL_BATCH: u32 = 128;
/// Long transfers are cut at multiples of this many bytes, a multiple of every element: no engine's limit is below it.
pub const TRANSFER_GRANULE: u64 = 512;
/// Default ring depth (public default of the field).
pub const DEFAULT_DEPTH: u32 = 2048;

/// Launches posted by the host so far (host writes).
pub const LAUNCH_TAIL: u64 = 0x000;
/// First word of the instance of the communicator whose launches the kernel drops, 0 for none (host writes).
pub const ABORTED: u64 = 0x008;
/// The process that has the window, 0 for none, and behind it when that process started, in its system's count (host
/// writes).
pub const OWNER: u64 = 0x010;
/// Launches answered by the kernel so far (kernel writes, after the status slot).
pub const LAUNCH_HEAD: u64 = 0x040;
/// Incremented by the kernel in each turn of its loop.
pub const HEARTBEAT: u64 = 0x080;
/// [`KernelState`] number (kernel writes).
pub const KERNEL_STATE: u64 = 0x0c0;
/// 1 once the device has stopped at an error and [`DEVICE_ERROR`] is complete (device writes).
pub const DEVICE_ERROR_FLAG: u64 = 0x140;
/// The device's first error, a [`Cqe`] (device writes).
pub const DEVICE_ERROR: u64 = 0x180;
/// [`LAUNCH_SLOTS`] × [`LaunchArgs`] (host writes).
pub const LAUNCHES: u64 = 0x1000;
/// [`LAUNCH_SLOTS`] × [`Status`] (kernel writes).
pub const STATUSES: u64 = 0x2000;
/// [`HOST_NOTIFIES`] words: times recorded so far (device writes).
pub const HOST_NOTIFY: u64 = 0x2400;
/// [`MAX_QUEUES`] doorbell words: low 32 bits of the tail announced (kernel writes; device for queue pairs).
pub const DOORBELLS: u64 = 0x3000;
/// [`MAX_QUEUES`] words: low 32 bits of the head (device writes).
pub const HEADS: u64 = 0x4000;
/// [`MAX_QUEUES`] words: software tail, for diagnosis and for a kernel that decodes a context anew (kernel writes,
/// after the doorbell).
pub const TAILS: u64 = 0x5000;
/// [`CQ_DEPTH`] × [`Cqe`] (device writes).
pub const COMPLETIONS: u64 = 0x6000;
/// Completions consumed so far (kernel writes).
pub const CQ_HEAD: u64 = 0x8000;
/// Trace events written so far (kernel writes).
pub const TRACE_TAIL: u64 = 0x9000;
/// [`TRACE_DEPTH`] × [`TraceEvent`] (kernel writes).
pub const TRACE: u64 = 0xa000;
/// [`MAX_NOTIFIES`] × 4 bytes: 0 clear, 1 set (device writes; host for start notifies).
pub const NOTIFIES: u64 = 0x1_2000;
/// [`MAX_REGIONS`] × [`RegionSlot`] (host writes).
pub const REGIONS: u64 = 0x1_a000;
/// [`MAX_CHANNELS`] × [`ChannelSlot`] (host writes).
pub const CHANNELS: u64 = 0x2_2000;
/// [`MAX_QUEUES`] × [`QueueSlot`] (host writes).
pub const QUEUES: u64 = 0x2_a000;
/// Two words, bytes written (kernel) and read (host), then [`LOG_BYTES`] of text log.
pub const LOG: u64 = 0x3_0000;
/// First byte of the heap.
pub const HEAP: u64 = 0x4_0000;

const _: () = {
    assert!(size_of::<LaunchArgs>() as u64 * LAUNCH_SLOTS <= STATUSES - LAUNCHES);
    assert!(size_of::<Status>() as u64 * LAUNCH_SLOTS <= HOST_NOTIFY - STATUSES);
    assert!(8 * HOST_NOTIFIES <= DOORBELLS - HOST_NOTIFY);
    assert!(8 * MAX_QUEUES <= HEADS - DOORBELLS && 8 * MAX_QUEUES <= TAILS - HEADS);
    assert!(8 * MAX_QUEUES <= COMPLETIONS - TAILS);
    assert!(size_of::<Cqe>() as u64 * CQ_DEPTH <= CQ_HEAD - COMPLETIONS && CQ_DEPTH.is_power_of_two());
    assert!(
        size_of::<TraceEvent>() as u64 * TRACE_DEPTH <= NOTIFIES - TRACE && TRACE_DEPTH.is_power_of_two()
    );
    assert!(4 * MAX_NOTIFIES <= REGIONS - NOTIFIES);
    assert!(size_of::<RegionSlot>() as u64 * MAX_REGIONS <= CHANNELS - REGIONS);
    assert!(size_of::<ChannelSlot>() as u64 * MAX_CHANNELS <= QUEUES - CHANNELS);
    assert!(size_of::<QueueSlot>() as u64 * MAX_QUEUES <= LOG - QUEUES);
    assert!(LOG + 16 + LOG_BYTES <= HEAP);
};

/// What the kernel of an NPU is doing: the numbers in [`KERNEL_STATE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum KernelState {
    /// No kernel has started here.
    Absent = 0,
    /// The kernel takes launches.
    Ready = 1,
    /// The kernel met an exception or a defect and stopped for good; its record is in the newest status slot.
    Parked = 2,
}

/// The kernel's answer to one launch, 64 bytes, in the slot of the launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Status {
    /// Launch sequence it answers (`LaunchArgs::sequence`).
    pub sequence: u32,
    /// 0, or an error code.
    pub code: u16,
    /// Chunks the operation was cut into.
    pub chunks: u16,
    /// Submission entries written.
    pub sqes: u32,
    /// Work-queue entries written.
    pub wqes: u32,
    /// Doorbells rung.
    pub doorbells: u32,
    /// Most steps of one chunk.
    pub steps: u16,
    /// [`CacheOutcome`](crate::launch::CacheOutcome) number.
    pub cache: u8,
    /// Zero.
    pub reserved: u8,
    /// With an error: byte offset in the context, or the value at fault.
    pub detail: u64,
    /// Time spent expanding (0 for a hit), ticks of the kernel's clock in nanoseconds.
    pub expand_ns: u64,
    /// Time spent rebinding, writing and announcing descriptors, nanoseconds.
    pub submit_ns: u64,
    /// Submission entries by kind: copies, reductions, peer transfers, signals (record and wait).
    pub kinds: [u32; 4],
}
const _: () = assert!(size_of::<Status>() == 64 && offset_of!(Status, kinds) == 48);

bitflags! {
    /// What a registered region may be used for.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u32 {
        /// This device may read.
        const READ = 1;
        /// This device may write.
        const WRITE = 1 << 1;
        /// Peers may read.
        const PEER_READ = 1 << 2;
        /// Peers may write.
        const PEER_WRITE = 1 << 3;
    }
}

/// A registered region: what the device checks every transfer against. The low bits of a token name the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub struct RegionSlot {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Token; 0 while the slot is free.
    pub token: u32,
    /// [`Access`] bits.
    pub access: u32,
    /// Bumped at each registration and deregistration of the slot.
    pub generation: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<RegionSlot>() == 32);

impl RegionSlot {
    /// Returns the slot that `token` names, always below [`MAX_REGIONS`].
    #[inline]
    #[must_use]
    pub const fn index(token: u32) -> u64 {
        token as u64 & (MAX_REGIONS - 1)
    }
}
const _: () = assert!(MAX_REGIONS.is_power_of_two());

/// How two NPUs are connected; the numbers are those of the public protocol list where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// In-server link: SDMA moves the bytes.
    Hccs = 0,
    /// RDMA over Ethernet: a queue pair moves the bytes.
    Roce = 1,
    /// Unified bus between servers: a queue pair moves the bytes, and can reduce.
    Ub = 4,
}

impl Protocol {
    /// Returns whether transfers go through a queue pair.
    #[must_use]
    pub const fn uses_queue_pair(self) -> bool {
        !matches!(self, Self::Hccs)
    }

    /// Returns the name users read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hccs => "HCCS",
            Self::Roce => "RoCE",
            Self::Ub => "UB",
        }
    }
}

impl TryFrom<u8> for Protocol {
    type Error = ErrorCode;

    fn try_from(number: u8) -> Result<Self, ErrorCode> {
        match number {
            0 => Ok(Self::Hccs),
            1 => Ok(Self::Roce),
            4 => Ok(Self::Ub),
            _ => Err(ErrorCode::CONTEXT_FIELD),
        }
    }
}

/// One end of a connection, as the device sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub struct ChannelSlot {
    /// NPU at the other end (index in the fabric).
    pub peer_npu: u32,
    /// 1 while connected.
    pub connected: u8,
    /// [`Protocol`] number.
    pub protocol: u8,
    /// Queue of the queue pair, when the protocol uses one.
    pub queue: u16,
    /// Link reductions: bit per [`DataType`](crate::DataType) number, 0 where the link cannot reduce.
    pub reduce_types: u32,
    /// Link reductions: bit per [`ReduceOp`](crate::ReduceOp) number.
    pub reduce_ops: u32,
    /// Longest single transfer, bytes.
    pub max_len: u64,
    /// Zero.
    pub reserved: u64,
}
const _: () = assert!(size_of::<ChannelSlot>() == 32);

/// A ring, as the device sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub struct QueueSlot {
    /// First entry.
    pub ring: u64,
    /// Entries, a power of two; 0 while the slot is free.
    pub depth: u32,
    /// [`QueueKind`] number.
    pub kind: u8,
    /// Zero.
    pub reserved: u8,
    /// Channel of a queue pair; 0 for a thread.
    pub channel: u16,
    /// Bumped each time the slot is taken, so that a device that knew the old ring starts over at position 0.
    pub generation: u32,
    /// Zero.
    pub reserved1: u32,
    /// Zero.
    pub reserved2: u64,
}
const _: () = assert!(size_of::<QueueSlot>() == 32);

/// What a ring carries: the numbers in [`QueueSlot::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QueueKind {
    /// Submission entries of a thread.
    Thread = 1,
    /// Work-queue entries of a queue pair.
    QueuePair = 2,
}

/// SDMA's own limits (public numbers: reductions of `algorithms.md` section 3, length field of 32 bits).
pub mod sdma {
    use crate::DataType;

    /// Types SDMA reduces inline, bit per data type number.
    pub const REDUCE_TYPES: u32 = 1 << DataType::Int8 as u32
        | 1 << DataType::Int16 as u32
        | 1 << DataType::Int32 as u32
        | 1 << DataType::Fp16 as u32
        | 1 << DataType::Fp32 as u32
        | 1 << DataType::Bf16 as u32;
    /// Reductions SDMA does inline, bit per reduction number: sum, max, min.
    pub const REDUCE_OPS: u32 = 0b1101;
    /// Longest single transfer: the 32-bit length field less one 512-byte granule, never 2^32 itself.
    pub const MAX_LEN: u64 = (1 << 32) - 512;
}

/// UB's limits (public numbers: unsigned types beside SDMA's, 256 MiB per work request).
pub mod ub {
    use crate::DataType;

    /// Types UB reduces, bit per data type number.
    pub const REDUCE_TYPES: u32 = super::sdma::REDUCE_TYPES
        | 1 << DataType::Uint8 as u32
        | 1 << DataType::Uint16 as u32
        | 1 << DataType::Uint32 as u32;
    /// Reductions UB does: sum, max, min.
    pub const REDUCE_OPS: u32 = super::sdma::REDUCE_OPS;
    /// Longest single work request.
    pub const MAX_LEN: u64 = 256 << 20;
}

/// RoCE's limits: no reduction (the profile of the field's first parts), 1 GiB per work request.
pub mod roce {
    /// RoCE reduces nothing.
    pub const REDUCE_TYPES: u32 = 0;
    /// RoCE reduces nothing.
    pub const REDUCE_OPS: u32 = 0;
    /// Longest single work request.
    pub const MAX_LEN: u64 = 1 << 30;
}
