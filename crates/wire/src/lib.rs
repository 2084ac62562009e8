//! Every byte that two parties of aicpu-ts share, and nothing else.
//!
//! Host launcher, kernel and device read and write these structures in one shared memory. Each is a plain
//! `repr(C)` struct of little-endian integers with explicit padding; its size and offsets are asserted beside it.
//! Raw bytes and legal values are two types: a [`Descriptor`] is what lies in a ring, a [`Command`] is something
//! that makes sense; parsing never panics, emitting never fails, and the two are inverse.
//!
//! The layouts are our own: no permissively licensed description of the real ones exists. They are specified in
//! `docs/wire-format.md`. No algorithm, no memory access and no `unsafe` lives here.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the wire format is little-endian and shared by reference");

pub mod boot;
pub mod code;
pub mod context;
mod control;
mod cqe;
mod descriptor;
pub mod digest;
mod dtype;
pub mod image_note;
pub mod launch;
pub mod npu;
pub mod param;
pub mod program;
pub mod script;
mod sqe;
pub mod trace;
mod wqe;

pub use code::{CodeInfo, Effect, ErrorCode};
pub use control::Control;
pub use cqe::Cqe;
pub use descriptor::{BASES, Base, DESCRIPTOR_BYTES, Descriptor, Lane, rebase};
pub use dtype::{DataType, ReduceOp, Reduction};
pub use launch::LaunchArgs;
pub use sqe::{Command, Engine, Labels, Operand, Sqe, SqeFlags, Transfer, TransferKind};
pub use trace::{Phase, Recorded, Signature, TraceEvent, TraceKind};
pub use wqe::{WorkRequest, Wqe};

/// Version of everything in this crate; host, kernel and device refuse each other when the major part differs.
pub const ABI_MAJOR: u16 = if cfg!(aicpu_test_next_abi) { 2 } else { 1 };
/// Minor version: fields added where reserved ones were.
pub const ABI_MINOR: u16 = 0;

/// CRC-32C (Castagnoli), the checksum of resource contexts.
pub(crate) const CRC32C: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);

/// An address in a device's memory. Never a host pointer: the two differ by a base on purpose.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable,
    zerocopy::KnownLayout,
)]
#[repr(transparent)]
pub struct DeviceAddr(pub u64);

impl DeviceAddr {
    /// Returns the address `bytes` further on, or `None` where that wraps.
    #[must_use]
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}
