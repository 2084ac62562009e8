//! The header and table entries of a resource context.

use core::mem::offset_of;

use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout};

/// Where a table lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TableRef {
    /// Byte offset of the first entry.
    pub offset: u32,
    /// Number of entries.
    pub count: u32,
    /// Bytes per entry.
    pub stride: u32,
    /// Zero.
    pub reserved: u32,
}

impl TableRef {
    /// Returns a reference to `count` entries of `stride` bytes at `offset`, saturating where it cannot be said.
    pub(super) fn new(offset: usize, count: usize, stride: usize) -> Self {
        let narrow = |value| u32::try_from(value).unwrap_or(u32::MAX);
        Self { offset: narrow(offset), count: narrow(count), stride: narrow(stride), reserved: 0 }
    }
}

/// Identity of the communicator and sizes of the tables, 208 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ContextHeader {
    /// [`MAGIC`](super::MAGIC).
    pub magic: u64,
    /// [`ABI_MAJOR`](crate::ABI_MAJOR).
    pub abi_major: u16,
    /// [`ABI_MINOR`](crate::ABI_MINOR).
    pub abi_minor: u16,
    /// Bytes of the whole context.
    pub total_len: u32,
    /// CRC-32C of the header with this field zero.
    pub header_crc: u32,
    /// CRC-32C of everything behind the header.
    pub body_crc: u32,
    /// Communicator instance: 128 random bits, never reused.
    pub instance: [u64; 2],
    /// Communicator epoch.
    pub epoch: u32,
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// NPU this rank runs on.
    pub device: u32,
    /// Digest of the topology the channels were made from.
    pub topology_digest: u64,
    /// Longest single transfer of this device's copy engine, bytes.
    pub sdma_max_len: u64,
    /// Types the copy engine reduces, bit per data type number.
    pub sdma_reduce_types: u32,
    /// Reductions the copy engine does, bit per reduction number.
    pub sdma_reduce_ops: u32,
    /// Threads.
    pub threads: TableRef,
    /// Regions.
    pub regions: TableRef,
    /// Channels.
    pub channels: TableRef,
    /// Name of the communicator for messages, NUL-terminated UTF-8. It identifies nothing.
    pub name: [u8; 64],
    /// Types that every link of every rank reduces, bit per data type number: the same at all ranks, whose scratch
    /// buffers are laid out by it.
    pub link_reduce_types: u32,
    /// Reductions that every link of every rank does, bit per reduction number.
    pub link_reduce_ops: u32,
    /// Zero.
    pub reserved: u64,
}
const _: () = assert!(size_of::<ContextHeader>() == 208);
const _: () =
    assert!(offset_of!(ContextHeader, header_crc) == 16 && offset_of!(ContextHeader, instance) == 24);
const _: () = assert!(offset_of!(ContextHeader, threads) == 80 && offset_of!(ContextHeader, name) == 128);

impl Default for ContextHeader {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// A thread: an ordered queue of tasks and its notifies, 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ThreadEntry {
    /// First entry of its ring, 64-byte aligned.
    pub ring: u64,
    /// Entries of its ring, a power of two from 4 to 65,536.
    pub depth: u32,
    /// Queue number on the device.
    pub queue: u16,
    /// Zero.
    pub reserved: u16,
    /// First of its notifies in the device's bank.
    pub notify_base: u32,
    /// Number of its notifies.
    pub notify_count: u32,
    /// Zero.
    pub reserved1: u64,
}
const _: () = assert!(size_of::<ThreadEntry>() == 32);

/// The scratch buffer of one rank, 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionEntry {
    /// First byte, in the address space of that rank's device.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Token of the region; never 0.
    pub token: u32,
    /// Generation of the registration.
    pub generation: u32,
    /// Rank it belongs to.
    pub rank: u32,
    /// Server that rank is on: from 0 upwards in rank order, without gaps.
    pub server: u16,
    /// Super pod that rank is in, likewise; a server is in one of them.
    pub pod: u16,
}
const _: () = assert!(size_of::<RegionEntry>() == 32);

/// A channel to one peer, 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ChannelEntry {
    /// Rank at the other end.
    pub peer: u32,
    /// Index in this device's channel table.
    pub index: u16,
    /// [`Protocol`](crate::npu::Protocol) number.
    pub protocol: u8,
    /// Zero.
    pub reserved: u8,
    /// First of the channel's notifies on this device.
    pub local_notify: u32,
    /// First of the channel's notifies on the peer.
    pub remote_notify: u32,
    /// Types the link reduces, bit per data type number.
    pub reduce_types: u32,
    /// Reductions the link does, bit per reduction number.
    pub reduce_ops: u32,
    /// Longest single transfer, bytes.
    pub max_len: u64,
    /// First entry of the queue pair's ring; 0 when the protocol uses none.
    pub ring: u64,
    /// Entries of the queue pair's ring; 0 when the protocol uses none.
    pub depth: u32,
    /// Queue number of the queue pair; 0 when the protocol uses none.
    pub queue: u16,
    /// Zero.
    pub reserved1: u16,
    /// Zero.
    pub reserved2: [u64; 2],
}
const _: () = assert!(size_of::<ChannelEntry>() == 64 && offset_of!(ChannelEntry, max_len) == 24);
