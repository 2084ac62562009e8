//! One NPU as its kernel sees it: window, doorbells, trace ring.

// UNSAFETY: the doorbell registers are device memory, reached through volatile pointers made from raw ones.
#![expect(unsafe_code, reason = "device registers and the window's contract")]

use core::ptr::NonNull;

use hal::{Clock, DmaFence, Doorbell, Platform, Rebase, SharedMemory, Trace};
use volatile::VolatilePtr;
use volatile::access::WriteOnly;
use wire::{Descriptor, DeviceAddr, ErrorCode, TraceEvent, npu};

use crate::{Window, cpu, recorder};

/// The platform of one core: everything `hal::Platform` asks for, over one window.
#[derive(Debug)]
pub struct Npu {
    window: Window,
    counts: bool,
}

impl Npu {
    /// Takes a window; it must be the only one over its memory.
    #[must_use]
    pub const fn new(window: Window) -> Self {
        Self { window, counts: false }
    }

    /// Makes the cycle counter this NPU's clock: where one cycle is one instruction, every time the kernel measures
    /// is a number of instructions, the same in every run.
    #[must_use]
    pub const fn counting(self) -> Self {
        Self { counts: true, ..self }
    }

    /// Returns the doorbell register of a queue, or `None` for a queue the device does not have.
    fn doorbell(&self, queue: u16) -> Option<VolatilePtr<'_, u64, WriteOnly>> {
        if u64::from(queue) >= npu::MAX_QUEUES {
            return None;
        }
        let register = self.window.table_word(npu::DOORBELLS + 8 * u64::from(queue)).ok()?;
        // SAFETY:
        // 1. `table_word` returned 8 aligned bytes that stay mapped.
        // 2. The register is written by this kernel alone; the device only reads it.
        Some(unsafe { VolatilePtr::new_restricted(WriteOnly, NonNull::from(register).cast()) })
    }
}

// SAFETY: every method is the window's own, whose implementation carries the argument.
unsafe impl SharedMemory for Npu {
    #[inline]
    fn read(&self, from: DeviceAddr, into: &mut [u8]) -> Result<(), ErrorCode> {
        self.window.read(from, into)
    }

    #[inline]
    fn write(&mut self, to: DeviceAddr, bytes: &[u8]) -> Result<(), ErrorCode> {
        self.window.write(to, bytes)
    }

    #[inline]
    fn load(&self, word: DeviceAddr) -> Result<u64, ErrorCode> {
        self.window.load(word)
    }

    #[inline]
    fn store(&mut self, word: DeviceAddr, value: u64) -> Result<(), ErrorCode> {
        self.window.store(word, value)
    }

    #[inline]
    unsafe fn entries(&mut self, first: DeviceAddr, count: usize) -> Result<&mut [Descriptor], ErrorCode> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.window.entries(first, count) }
    }
}

impl Doorbell for Npu {
    #[inline]
    fn ring(&mut self, queue: u16, tail: u32) {
        if let Some(doorbell) = self.doorbell(queue) {
            doorbell.write(u64::from(tail));
        }
    }
}

impl DmaFence for Npu {
    #[inline]
    fn publish(&self) {
        cpu::publish();
    }

    #[inline]
    fn observe(&self) {
        cpu::observe();
    }
}

impl Clock for Npu {
    #[inline]
    fn now_ns(&self) -> u64 {
        if self.counts { cpu::cycles() } else { cpu::now_ns() }
    }
}

impl Trace for Npu {
    #[inline]
    fn event(&mut self, event: TraceEvent) {
        recorder::record(&self.window, event);
    }
}

/// Vectors of 128 bits are part of every aarch64 processor.
impl Rebase for Npu {}

impl Platform for Npu {
    #[inline]
    fn window(&self) -> DeviceAddr {
        self.window.device_addr()
    }
}
