//! Traits of the hardware that the kernel runs on, and their contracts.
//!
//! The kernel is generic over [`Platform`]; what implements it decides which of the three builds it is: the device
//! model in a host thread, real memory under QEMU, or silicon. Nothing is implemented here, and nothing here knows
//! an algorithm. Data path ([`SharedMemory`], [`Doorbell`], [`DmaFence`]) and control path ([`Clock`], [`Trace`])
//! are separate traits, bundled once.
//!
//! Every wait of the kernel is a return to its caller: no trait has a blocking method.
#![no_std]

use wire::{BASES, Base, Descriptor, DeviceAddr, ErrorCode, TraceEvent};

/// The window of shared memory that this kernel may touch.
///
/// All addresses are device addresses. Every method checks that what it is asked for lies inside the window and is
/// aligned, and refuses with `CONTEXT_ADDRESS` where it does not.
///
/// # Implementation safety
/// An implementation upholds, and callers rely on:
/// 1. The window stays mapped and writable for as long as the implementation lives.
/// 2. `read`, `load` and `store` may race with the host and the device: `load` is an acquire load and `store` a
///    release store of an aligned 64-bit word; `read` copies bytes once and makes no reference to them.
/// 3. `entries` returns memory inside the window, aligned for `Descriptor`, and never the same bytes twice while a
///    borrow of `self` lives.
// UNSAFETY: an implementation hands out references into memory that other parties map; only it can promise 1 to 3.
#[expect(unsafe_code, reason = "the contract above cannot be checked by the compiler")]
pub unsafe trait SharedMemory {
    /// Copies bytes out, once.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when the range is not inside the window.
    fn read(&self, from: DeviceAddr, into: &mut [u8]) -> Result<(), ErrorCode>;

    /// Copies bytes in.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when the range is not inside the window.
    fn write(&mut self, to: DeviceAddr, bytes: &[u8]) -> Result<(), ErrorCode>;

    /// Loads a word that another party stores (acquire).
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when the word is not inside the window or not 8-byte aligned.
    fn load(&self, word: DeviceAddr) -> Result<u64, ErrorCode>;

    /// Stores a word that another party loads (release).
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when the word is not inside the window or not 8-byte aligned.
    fn store(&mut self, word: DeviceAddr, value: u64) -> Result<(), ErrorCode>;

    /// Returns `count` ring entries from `first` on for writing.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when they are not inside the window or not 64-byte aligned.
    ///
    /// # Safety
    /// The caller owns these entries: no other party reads or writes them until the caller announces them by a
    /// doorbell, and the returned borrow is gone by then. The ring protocol (`docs/rings.md`) gives a producer the
    /// entries between its tail and the head plus depth.
    unsafe fn entries(&mut self, first: DeviceAddr, count: usize) -> Result<&mut [Descriptor], ErrorCode>;
}

/// The doorbell registers of the device.
pub trait Doorbell {
    /// Announces that `queue` has entries up to `tail` (the low 32 bits of a count that never goes back).
    ///
    /// The caller has called [`DmaFence::publish`] since it wrote the newest entry. Ringing twice with the same tail
    /// does nothing the second time. A queue the device does not have is ignored, as silicon would.
    fn ring(&mut self, queue: u16, tail: u32);
}

/// Ordering between this kernel's memory accesses and the device's.
pub trait DmaFence {
    /// Makes every entry written before visible to the device before anything written after.
    fn publish(&self);

    /// Keeps every read after it from being satisfied with data from before the device's last store that the kernel
    /// has loaded.
    fn observe(&self);
}

/// A clock that never goes back.
pub trait Clock {
    /// Returns nanoseconds since some moment before the kernel started.
    fn now_ns(&self) -> u64;
}

/// Where trace events go: a bounded ring that overwrites its oldest.
pub trait Trace {
    /// Records an event. Never blocks, never fails.
    fn event(&mut self, event: TraceEvent);
}

/// The copy at the heart of submission, with the widest vectors the processor has.
pub trait Rebase {
    /// Copies descriptors, adding to each the base that its number selects (modulo the size of the table), up to the
    /// end of the shortest slice. What is computed is always that of [`wire::rebase`], which is also the default.
    // Not inlined: as a function's own arguments the slices are known not to overlap, and loads and stores go in pairs.
    #[inline(never)]
    fn rebase(into: &mut [Descriptor], from: &[Descriptor], numbers: &[u16], bases: &[Base; BASES]) {
        wire::rebase(into, from, numbers, bases);
    }
}

/// Everything a kernel runs on.
pub trait Platform: SharedMemory + Doorbell + DmaFence + Clock + Trace + Rebase {
    /// Returns the device address of the window's first byte (the fixed tables of `wire::npu`).
    fn window(&self) -> DeviceAddr;
}
