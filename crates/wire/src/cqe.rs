//! Completion entries: what the device reports about a task that asked for it or failed.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::ErrorCode;

/// A completion, 32 bytes. `phase` tells a new entry from an old one: it starts at 1 and flips at each wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub struct Cqe {
    /// Task id of the descriptor, as it stood in the ring.
    pub task: u64,
    /// Device address at fault, 0 where none.
    pub address: u64,
    /// 0, or why the task failed.
    pub code: ErrorCode,
    /// Submission queue.
    pub queue: u16,
    /// Step label of the descriptor.
    pub step: u16,
    /// Peer rank of the descriptor, [`Sqe::NO_PEER`](crate::Sqe::NO_PEER) where none.
    pub peer: u16,
    /// Low half of the ring position of the descriptor.
    pub position: u32,
    /// Phase number of the descriptor ([`Phase`](crate::Phase)).
    pub skeleton: u8,
    /// Opcode of the descriptor.
    pub opcode: u8,
    /// Zero.
    pub reserved: u8,
    /// 1 on odd passes over the completion ring, 0 on even ones; written last.
    pub phase: u8,
}
const _: () = assert!(size_of::<Cqe>() == 32 && core::mem::offset_of!(Cqe, phase) == 31);
