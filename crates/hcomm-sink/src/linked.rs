//! The data plane that this program is linked with.
//!
//! Sixteen calls are ordinary undefined symbols: a loader refuses the object where the process has them not. Fence and
//! drain of a channel and the five of the task cache are weak: where the process has no such symbol its address is null,
//! which is looked at before the call. Addresses of weak symbols are read from the global offset table by an instruction, because the language has
//! no weak declarations.

// UNSAFETY: calls of C functions that get numbers and pointers to strings, and keep neither.
#![expect(unsafe_code, reason = "foreign functions")]

use core::ffi::{CStr, c_char};

use vendor_abi::hcomm;
use wire::{DeviceAddr, Reduction};

use crate::call::{Call, ChannelHandle, DataPlane, ThreadHandle, Transfer};

/// The library that the loader bound this program to.
#[derive(Debug, Default)]
pub struct Linked(());

impl Linked {
    /// Makes a handle on it.
    ///
    /// # Safety
    /// The symbols of `include/aicpu_ts/hcomm.h` that the loader bound have those types and meanings.
    #[inline]
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

type Tagged = unsafe extern "C" fn(*const c_char) -> i32;
type Buffers = unsafe extern "C" fn(*const c_char, *const u64, *const u64, u32) -> i32;
type OnChannel = unsafe extern "C" fn(u64, u64) -> i32;
type Lookup = unsafe extern "C" fn(*const c_char, *mut u32) -> i32;

/// Returns the address of a weak symbol, 0 where the process has none.
macro_rules! weak {
    ($name:literal) => {{
        let address: usize;
        #[cfg(target_arch = "aarch64")]
        // SAFETY: reads one word of the global offset table.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {0}, :got:", $name),
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: reads one word of the global offset table.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {0}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
        {
            address = 0;
        }
        address
    }};
}

#[inline]
fn fence_address() -> usize {
    weak!("HcommChannelFenceOnThread")
}
#[inline]
fn drain_address() -> usize {
    weak!("HcommChannelDrainOnThread")
}
#[inline]
fn lookup_address() -> usize {
    weak!("HcommAicpuTsTaskCacheLookup")
}
#[inline]
fn start_address() -> usize {
    weak!("HcommAicpuTsTaskCacheStart")
}
#[inline]
fn end_address() -> usize {
    weak!("HcommAicpuTsTaskCacheEnd")
}
#[inline]
fn execute_address() -> usize {
    weak!("HcommAicpuTsTaskCacheExecute")
}
#[inline]
fn clear_address() -> usize {
    weak!("HcommAicpuTsTaskCacheClear")
}

/// Calls a function of a channel, if there is such a function.
fn on_channel(address: usize, thread: ThreadHandle, channel: ChannelHandle) -> i32 {
    if address == 0 {
        return hcomm::HCOMM_E_NOT_SUPPORT.cast_signed();
    }
    // SAFETY: not null, so it is the address of the function that has this type (`Linked::new`).
    let function = unsafe { core::mem::transmute::<usize, OnChannel>(address) };
    // SAFETY: as declared; it is given numbers.
    unsafe { function(thread.0, channel.0) }
}

/// Calls a function of one tag, if there is such a function.
fn tagged(address: usize, tag: &CStr) -> i32 {
    if address == 0 {
        return hcomm::HCOMM_E_NOT_SUPPORT.cast_signed();
    }
    // SAFETY: not null, so it is the address of the function that has this type (`Linked::new`).
    let function = unsafe { core::mem::transmute::<usize, Tagged>(address) };
    // SAFETY: the string outlives the call.
    unsafe { function(tag.as_ptr()) }
}

/// Calls a function of a tag and two buffers, if there is such a function.
fn buffers(address: usize, tag: &CStr, addrs: &[DeviceAddr; 2], sizes: &[u64; 2]) -> i32 {
    if address == 0 {
        return hcomm::HCOMM_E_NOT_SUPPORT.cast_signed();
    }
    // SAFETY: as in `tagged`.
    let function = unsafe { core::mem::transmute::<usize, Buffers>(address) };
    // SAFETY: string and arrays outlive the call; a device address is a 64-bit word.
    unsafe { function(tag.as_ptr(), addrs.as_ptr().cast(), sizes.as_ptr(), 2) }
}

/// Pointers for the C side: the numbers are device addresses, which nobody here follows.
#[inline]
fn pointers(transfer: &Transfer) -> (*mut core::ffi::c_void, *const core::ffi::c_void) {
    (transfer.dst.0 as *mut _, transfer.src.0 as *const _) // CAST: 64-bit targets.
}

/// The element count, type and kind of a reduction, as the C side has them.
#[inline]
fn reduced(len: u64, how: Reduction) -> (u64, hcomm::HcommDataType, hcomm::HcommReduceOp) {
    // Sizes of elements are powers of two.
    let count = len >> how.dtype.size_bytes().trailing_zeros();
    (count, how.dtype as hcomm::HcommDataType, how.op as hcomm::HcommReduceOp)
}

impl DataPlane for Linked {
    // Always inlined: where a call is made its kind is known, and nothing is left of the value but the C call.
    #[inline(always)]
    fn call(&mut self, call: &Call<'_>) -> i32 {
        match *call {
            Call::Local { thread, transfer } => {
                let (dst, src) = pointers(&transfer);
                match transfer.reduction {
                    // SAFETY: the function is as declared (`Linked::new`); it is given numbers.
                    None => unsafe { hcomm::HcommLocalCopyOnThread(thread.0, dst, src, transfer.len) },
                    Some(how) => {
                        let (count, dtype, op) = reduced(transfer.len, how);
                        // SAFETY: as above.
                        unsafe { hcomm::HcommLocalReduceOnThread(thread.0, dst, src, count, dtype, op) }
                    }
                }
            }
            Call::Write { thread, channel, transfer, notify } => {
                let (dst, src) = pointers(&transfer);
                let (thread, channel, len) = (thread.0, channel.0, transfer.len);
                match (transfer.reduction.map(|how| reduced(len, how)), notify) {
                    // SAFETY: as above.
                    (None, None) => unsafe { hcomm::HcommWriteOnThread(thread, channel, dst, src, len) },
                    // SAFETY: as above.
                    (None, Some(index)) => unsafe {
                        hcomm::HcommWriteWithNotifyOnThread(thread, channel, dst, src, len, index)
                    },
                    // SAFETY: as above.
                    (Some((count, dtype, op)), None) => unsafe {
                        hcomm::HcommWriteReduceOnThread(thread, channel, dst, src, count, dtype, op)
                    },
                    // SAFETY: as above.
                    (Some((count, dtype, op)), Some(index)) => unsafe {
                        hcomm::HcommWriteReduceWithNotifyOnThread(
                            thread, channel, dst, src, count, dtype, op, index,
                        )
                    },
                }
            }
            Call::Read { thread, channel, transfer } => {
                let (dst, src) = pointers(&transfer);
                let (thread, channel, len) = (thread.0, channel.0, transfer.len);
                match transfer.reduction.map(|how| reduced(len, how)) {
                    // SAFETY: as above.
                    None => unsafe { hcomm::HcommReadOnThread(thread, channel, dst, src, len) },
                    // SAFETY: as above.
                    Some((count, dtype, op)) => unsafe {
                        hcomm::HcommReadReduceOnThread(thread, channel, dst, src, count, dtype, op)
                    },
                }
            }
            // SAFETY: as above.
            Call::ThreadRecord { thread, waiter, index } => unsafe {
                hcomm::HcommThreadNotifyRecordOnThread(thread.0, waiter.0, index)
            },
            // SAFETY: as above.
            Call::ThreadWait { thread, index, timeout } => unsafe {
                hcomm::HcommThreadNotifyWaitOnThread(thread.0, index, timeout)
            },
            // SAFETY: as above.
            Call::ChannelRecord { thread, channel, index } => unsafe {
                hcomm::HcommChannelNotifyRecordOnThread(thread.0, channel.0, index)
            },
            // SAFETY: as above.
            Call::ChannelWait { thread, channel, index, timeout } => unsafe {
                hcomm::HcommChannelNotifyWaitOnThread(thread.0, channel.0, index, timeout)
            },
            // SAFETY: as above; the string outlives the call, here and below.
            Call::BatchStart(tag) => unsafe { hcomm::HcommBatchModeStart(tag.as_ptr()) },
            // SAFETY: as above.
            Call::BatchEnd(tag) => unsafe { hcomm::HcommBatchModeEnd(tag.as_ptr()) },
            // SAFETY: as above.
            Call::Acquire(comm) => unsafe { hcomm::HcommAcquireComm(comm.as_ptr()) },
            // SAFETY: as above.
            Call::Release(comm) => unsafe { hcomm::HcommReleaseComm(comm.as_ptr()) },
            Call::CacheStart { tag, addrs, sizes } => buffers(start_address(), tag, addrs, sizes),
            Call::CacheEnd(tag) => tagged(end_address(), tag),
            Call::CacheExecute { tag, addrs, sizes } => buffers(execute_address(), tag, addrs, sizes),
            Call::CacheClear(tag) => tagged(clear_address(), tag),
            Call::ChannelFence { thread, channel } => on_channel(fence_address(), thread, channel),
            Call::ChannelDrain { thread, channel } => on_channel(drain_address(), thread, channel),
        }
    }

    fn has_cache(&self) -> bool {
        let all = [lookup_address(), start_address(), end_address(), execute_address(), clear_address()];
        all.iter().all(|address| *address != 0)
    }

    fn cache_lookup(&mut self, tag: &CStr) -> Result<bool, i32> {
        let address = lookup_address();
        if address == 0 {
            return Err(hcomm::HCOMM_E_NOT_SUPPORT.cast_signed());
        }
        // SAFETY: as in `tagged`.
        let function = unsafe { core::mem::transmute::<usize, Lookup>(address) };
        let mut hit = 0;
        // SAFETY: string and flag outlive the call.
        match unsafe { function(tag.as_ptr(), &raw mut hit) } {
            0 => Ok(hit != 0),
            result => Err(result),
        }
    }
}
