//! Signals between NPUs that have been sent and have not arrived.

use fastrand::Rng;

/// A record of a notify on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal {
    /// When it arrives, nanoseconds.
    pub(crate) due: u64,
    /// NPU whose notify it is.
    pub(crate) npu: u32,
    /// The notify.
    pub(crate) notify: u32,
}

/// All signals under way; two of them keep no order.
#[derive(Debug, Default)]
pub(crate) struct Air {
    signals: Vec<Signal>,
}

impl Air {
    /// Sends a signal that arrives after a time as links have it: mostly a microsecond, now and then much more.
    pub(crate) fn send(&mut self, now: u64, npu: u32, notify: u32, dice: &mut Rng) {
        let flight = if dice.u8(..) < 240 { dice.u64(100..2_000) } else { dice.u64(2_000..50_000) };
        self.signals.push(Signal { due: now + flight, npu, notify });
    }

    /// Returns whether a record of this notify is under way.
    pub(crate) fn carries(&self, npu: u32, notify: u32) -> bool {
        self.signals.iter().any(|signal| (signal.npu, signal.notify) == (npu, notify))
    }

    /// Takes a signal that has arrived.
    pub(crate) fn arrived(&mut self, now: u64) -> Option<Signal> {
        let index = self.signals.iter().position(|signal| signal.due <= now)?;
        Some(self.signals.swap_remove(index))
    }

    /// Returns when the next signal arrives.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.signals.iter().map(|signal| signal.due).min()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.signals.is_empty()
    }
}
