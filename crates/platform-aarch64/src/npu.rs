//! One NPU as its kernel sees it: window, doorbells, trace ring.

// UNSAFETY: the doorbell registers are device memory, reached through volatile pointers made from raw ones.
#![expect(unsafe_code, reason = "device registers and the window's contract")]

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use hal::{Clock, DmaFence, Doorbell, Platform, Rebase, SharedMemory, Trace};
use volatile::VolatilePtr;
use volatile::access::WriteOnly;
use wire::{Descriptor, DeviceAddr, ErrorCode, TraceEvent, npu};

use crate::{Window, cpu};

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
    fn event(&mut self, event: TraceEvent) {
        let Ok(tail) = self.window.table_word(npu::TRACE_TAIL) else { return };
        // ORDER: this kernel is the only writer. The count lives in the ring, so that one that starts anew goes on
        // behind what an earlier one has recorded.
        let recorded = tail.load(Ordering::Relaxed);
        let offset = npu::TRACE + recorded % npu::TRACE_DEPTH * size_of::<TraceEvent>() as u64;
        let words: [u64; 4] = zerocopy::transmute!(event);
        // Both lie in the tables, so neither is ever refused.
        if let Ok(slot) = self.window.table_words::<4>(offset) {
            slot.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
            // ORDER: pairs with the reader's acquire load: the events below the tail are complete.
            tail.store(recorded.wrapping_add(1), Ordering::Release);
        }
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

#[cfg(test)]
mod tests {
    extern crate std;

    use hal::Trace;
    use wire::{TraceEvent, npu};
    use zerocopy::FromZeros;
    use zerocopy::IntoBytes;

    use super::{Npu, SharedMemory};
    use crate::window::tests::window;

    /// A kernel that starts anew on a window goes on behind what the one before has recorded, also where the ring wraps.
    #[test]
    fn the_flight_recorder_goes_on_behind_what_is_there() {
        let window = window(1);
        let base = window.device_addr();
        let at = |offset: u64| base.checked_add(offset).unwrap();
        let mut first = Npu::new(window);
        for sequence in 0..1023 {
            first.event(TraceEvent { sequence, ..TraceEvent::default() });
        }
        let Npu { window, .. } = first;
        let mut second = Npu::new(window);
        for sequence in 1023..1026 {
            second.event(TraceEvent { sequence, first: 7, second: 8, ..TraceEvent::default() });
        }
        assert_eq!(second.load(at(npu::TRACE_TAIL)), Ok(1026));
        for (slot, sequence) in [(0, 1024), (1, 1025), (2, 2), (1022, 1022), (1023, 1023)] {
            let mut event = TraceEvent::new_zeroed();
            second.read(at(npu::TRACE + 32 * slot), event.as_mut_bytes()).unwrap();
            assert_eq!(event.sequence, sequence, "slot {slot}");
            assert_eq!((event.first, event.second), if sequence < 1023 { (0, 0) } else { (7, 8) });
        }
    }
}
