//! The hardware traits over a window in this process: what a kernel in a host thread runs on.
//!
//! A [`ModelPlatform`] checks every address against its window and never sees a host pointer. Doorbell and fences
//! have the meaning of `docs/rings.md`; on this memory a release store and plain fences are all they need.

// UNSAFETY: `hal::SharedMemory` promises things about shared memory that no compiler can check.
#![expect(unsafe_code, reason = "implements an unsafe trait of hal")]

mod simulated;

use core::sync::atomic::{Ordering, fence};

use hal::{Clock, DmaFence, Doorbell, Platform, Rebase, SharedMemory, Trace};
use wire::{BASES, Base, Descriptor, DeviceAddr, ErrorCode, TraceEvent, npu};
use zerocopy::IntoBytes;

use crate::fabric::Fabric;
use crate::memory::Window;
use crate::rebase;
pub use simulated::SimulatedPlatform;

/// Platform of the kernel of one NPU. A window has one kernel, and so one platform.
#[derive(Debug)]
pub struct ModelPlatform {
    window: Window,
    clock: crate::clock::Clock,
    /// Trace events written so far.
    traced: u64,
}

impl ModelPlatform {
    /// Returns the platform of an NPU's kernel.
    ///
    /// # Panics
    /// When the fabric has no such NPU.
    #[must_use]
    pub fn new(fabric: &Fabric, npu: u32) -> Self {
        let window = fabric.window(npu).clone();
        // ORDER: the kernel is the only writer of its trace; a former one is gone.
        let traced = window.word(npu::TRACE_TAIL).load(Ordering::Acquire);
        Self { window, clock: fabric.clock().clone(), traced }
    }

    #[inline]
    fn word(&self, addr: DeviceAddr) -> Result<u64, ErrorCode> {
        let offset = self.window.offset(addr, 8).filter(|offset| offset.is_multiple_of(8));
        offset.ok_or(ErrorCode::CONTEXT_ADDRESS)
    }
}

// SAFETY:
// 1. A `Window` holds its mapping, which is writable, for as long as it lives.
// 2. `load` and `store` are an acquire load and a release store of an aligned atomic; `read` copies.
// 3. `entries` checks range and alignment; it borrows `self` mutably, so two results never live at once.
unsafe impl SharedMemory for ModelPlatform {
    fn read(&self, from: DeviceAddr, into: &mut [u8]) -> Result<(), ErrorCode> {
        let offset = self.window.offset(from, into.len() as u64).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        self.window.read(offset, into);
        Ok(())
    }

    fn write(&mut self, to: DeviceAddr, bytes: &[u8]) -> Result<(), ErrorCode> {
        let offset = self.window.offset(to, bytes.len() as u64).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        self.window.write(offset, bytes);
        Ok(())
    }

    #[inline]
    fn load(&self, word: DeviceAddr) -> Result<u64, ErrorCode> {
        Ok(self.window.word(self.word(word)?).load(Ordering::Acquire))
    }

    #[inline]
    fn store(&mut self, word: DeviceAddr, value: u64) -> Result<(), ErrorCode> {
        self.window.word(self.word(word)?).store(value, Ordering::Release);
        Ok(())
    }

    #[inline]
    unsafe fn entries(&mut self, first: DeviceAddr, count: usize) -> Result<&mut [Descriptor], ErrorCode> {
        let bytes = (count as u64).checked_mul(size_of::<Descriptor>() as u64);
        let offset = bytes.and_then(|bytes| self.window.offset(first, bytes));
        let offset = offset.filter(|offset| offset.is_multiple_of(size_of::<Descriptor>() as u64));
        let offset = offset.ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        // SAFETY:
        // 1. No other party uses these entries: the caller's promise.
        // 2. No second borrow: `self` is borrowed mutably for as long as the result lives.
        Ok(unsafe { self.window.entries(offset, count) })
    }
}

impl Doorbell for ModelPlatform {
    #[inline]
    fn ring(&mut self, queue: u16, tail: u32) {
        if u64::from(queue) < npu::MAX_QUEUES {
            // ORDER: pairs with the acquire load in `engine::slots`: the entries below the tail come before it.
            self.window.word(npu::DOORBELLS + 8 * u64::from(queue)).store(u64::from(tail), Ordering::Release);
        }
    }
}

impl DmaFence for ModelPlatform {
    #[inline]
    fn publish(&self) {
        fence(Ordering::Release);
    }

    #[inline]
    fn observe(&self) {
        fence(Ordering::Acquire);
    }
}

impl Clock for ModelPlatform {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }
}

impl Trace for ModelPlatform {
    fn event(&mut self, event: TraceEvent) {
        let slot = self.traced % npu::TRACE_DEPTH;
        self.window.write(npu::TRACE + slot * size_of::<TraceEvent>() as u64, event.as_bytes());
        self.traced += 1;
        // ORDER: pairs with the host's acquire load: the event is complete.
        self.window.word(npu::TRACE_TAIL).store(self.traced, Ordering::Release);
    }
}

impl Rebase for ModelPlatform {
    #[inline(always)]
    fn rebase(into: &mut [Descriptor], from: &[Descriptor], numbers: &[u16], bases: &[Base; BASES]) {
        rebase::rebase(into, from, numbers, bases);
    }
}

impl Platform for ModelPlatform {
    fn window(&self) -> DeviceAddr {
        self.window.base()
    }
}
