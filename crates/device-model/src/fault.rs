//! Faults that tests put into a running NPU.
//!
//! A fault is something silicon does once in a while; each is arranged from outside and happens once, at the place
//! named. The device has no random fault of its own.

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next record of a notify of this NPU is lost on its way, whoever records it.
    DropNotify {
        /// Index into the notify bank.
        notify: u32,
    },
    /// The next transfer of this NPU arrives with a bit of its source token flipped.
    FlipToken,
    /// The NPU stops executing and says nothing.
    Stall,
    /// A queue pair of this NPU goes to its error state.
    BreakQueuePair {
        /// Queue of the queue pair.
        queue: u16,
    },
}
