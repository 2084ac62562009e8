//! What a runtime hands to the entry of the shared object: where the launch arguments lie, and the handles of the data
//! plane for what the context only numbers.
//!
//! Launch arguments and context are the bytes of every other build. A [`KernelParam`] adds what exists only where the
//! public data plane submits the tasks: a handle for each thread and channel, the name of the communicator, and the
//! memory that the kernel may read. [`Param`] is the same with every field checked.

use core::ffi::CStr;
use core::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{ABI_MAJOR, DeviceAddr, ErrorCode};

/// The entry's argument, 256 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelParam {
    /// [`KernelParam::MAGIC`].
    pub magic: u32,
    /// [`ABI_MAJOR`].
    pub abi: u16,
    /// Bytes of this struct: 256.
    pub size: u16,
    /// [`LaunchArgs`](crate::LaunchArgs).
    pub args: DeviceAddr,
    /// Where the [`Status`](crate::npu::Status) goes before the entry returns; 0 for nowhere.
    pub status: DeviceAddr,
    /// A 64-bit handle for each thread of the context, in its order.
    pub threads: DeviceAddr,
    /// A 64-bit handle for each channel of the context, in its order; 0 where there is none.
    pub channels: DeviceAddr,
    /// Number of thread handles.
    pub thread_count: u32,
    /// Number of channel handles.
    pub channel_count: u32,
    /// Handle of the host's thread, on which the done notify is recorded.
    pub host_thread: u64,
    /// Device address of the memory that the kernel may touch: everything named above and in the launch arguments, bar
    /// payload.
    pub memory: DeviceAddr,
    /// Where in this process that memory is mapped; the same number where device addresses are valid pointers.
    pub mapped: u64,
    /// Its bytes.
    pub memory_len: u64,
    /// [`KernelParam::REDUCES_ALL`], [`KernelParam::FENCES`]; the other bits are zero.
    pub flags: u32,
    /// How long to wait for the communicator while it is in use, milliseconds.
    pub acquire_ms: u32,
    /// Name of the communicator at the data plane, NUL-terminated.
    pub comm: [u8; 128],
    /// Zero.
    pub reserved: [u64; 5],
}
const _: () = assert!(size_of::<KernelParam>() == 256 && offset_of!(KernelParam, host_thread) == 48);
const _: () = assert!(offset_of!(KernelParam, flags) == 80 && offset_of!(KernelParam, comm) == 88);

impl Default for KernelParam {
    fn default() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }
}

/// A param whose every field is legal on its own.
#[derive(Clone, Copy, Debug)]
pub struct Param<'a> {
    /// Launch arguments.
    pub args: DeviceAddr,
    /// Handles of threads, and how many.
    pub threads: (DeviceAddr, u32),
    /// Handles of channels, and how many.
    pub channels: (DeviceAddr, u32),
    /// Handle of the host's thread.
    pub host_thread: u64,
    /// Whether a local reduction may be of any type: without it only what the context says the copy engine can do.
    pub reduces_all: bool,
    /// Whether queue pairs keep transfers, notifies and what reads them in order only where a fence says so.
    pub fences: bool,
    /// How long to wait for the communicator, milliseconds.
    pub acquire_ms: u32,
    /// Name of the communicator.
    pub comm: &'a CStr,
}

impl KernelParam {
    /// First four bytes of a param.
    pub const MAGIC: u32 = u32::from_le_bytes(*b"ATSP");
    /// Flag: the data plane's local reduction takes every data type and reduction.
    pub const REDUCES_ALL: u32 = 1;
    /// Flag: on queue pairs a notify may overtake the transfers before it, and a thread its own reads.
    pub const FENCES: u32 = 2;

    /// Checks the fields.
    ///
    /// # Errors
    /// `PARAM_MAGIC`, `PARAM_VERSION`, or `PARAM_FIELD` for a size, flag, reserved field, name or handle that cannot
    /// be.
    pub fn parse(&self) -> Result<Param<'_>, ErrorCode> {
        if self.magic != Self::MAGIC {
            return Err(ErrorCode::PARAM_MAGIC);
        }
        if self.abi != ABI_MAJOR {
            return Err(ErrorCode::PARAM_VERSION);
        }
        let field = ErrorCode::PARAM_FIELD;
        let comm = CStr::from_bytes_until_nul(&self.comm).map_err(|_| field)?;
        let legal = usize::from(self.size) == size_of::<Self>()
            && self.flags & !(Self::REDUCES_ALL | Self::FENCES) == 0
            && self.reserved == [0; 5]
            && self.thread_count > 0
            && (self.channel_count == 0 || self.channels.0 != 0)
            && !comm.is_empty();
        if !legal {
            return Err(field);
        }
        Ok(Param {
            args: self.args,
            threads: (self.threads, self.thread_count),
            channels: (self.channels, self.channel_count),
            host_thread: self.host_thread,
            reduces_all: self.flags & Self::REDUCES_ALL != 0,
            fences: self.flags & Self::FENCES != 0,
            acquire_ms: self.acquire_ms,
            comm,
        })
    }
}
