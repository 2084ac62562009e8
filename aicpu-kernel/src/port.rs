//! The platform of a kernel, and the time it is.

use hal::Platform;
use wire::{DeviceAddr, ErrorCode, TraceEvent};

/// A platform whose clock is read at the acceptance of a launch and after each expansion, submission and completion,
/// no more often: reading it costs as much as ten descriptors.
#[derive(Debug)]
pub(crate) struct Port<P> {
    pub(crate) platform: P,
    /// When the clock was last read.
    pub(crate) now_ns: u64,
}

impl<P: Platform> Port<P> {
    /// Reads the clock; returns how long ago that was last done, ns.
    pub(crate) fn tick(&mut self) -> u64 {
        let before = self.now_ns;
        self.now_ns = self.platform.now_ns();
        self.now_ns.saturating_sub(before)
    }

    /// Records what `event` makes of the time.
    pub(crate) fn event(&mut self, event: impl FnOnce(u64) -> TraceEvent) {
        self.platform.event(event(self.now_ns));
    }

    /// Returns the address at an offset of the window.
    pub(crate) fn at(&self, offset: u64) -> Result<DeviceAddr, ErrorCode> {
        self.platform.window().checked_add(offset).ok_or(ErrorCode::CONTEXT_ADDRESS)
    }

    /// Reads a word of the window.
    pub(crate) fn load(&self, offset: u64) -> Result<u64, ErrorCode> {
        self.platform.load(self.at(offset)?)
    }

    /// Writes a word of the window.
    pub(crate) fn store(&mut self, offset: u64, value: u64) -> Result<(), ErrorCode> {
        let word = self.at(offset)?;
        self.platform.store(word, value)
    }
}
