//! The 64-byte descriptor as rings, graphs and replay see it: eight lanes.
//!
//! Everything that changes from launch to launch (task id, addresses, tokens, queue-pair position, timeout) has an
//! aligned 8-byte lane of its own in both descriptor kinds, at the same place. A recorded descriptor holds these
//! lanes with their base removed, so that one 64-byte vector addition rebinds it (`docs/wire-format.md`, section 3).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Size of every ring entry, bytes.
pub const DESCRIPTOR_BYTES: usize = 64;

/// A ring entry before anybody has looked at what it means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Descriptor {
    /// The entry as eight little-endian words.
    pub lanes: [u64; 8],
}
const _: () =
    assert!(size_of::<Descriptor>() == DESCRIPTOR_BYTES && align_of::<Descriptor>() == DESCRIPTOR_BYTES);

impl Descriptor {
    /// Returns this entry with `base` added lane by lane: how a recorded entry becomes one that can run.
    #[inline(always)]
    #[must_use]
    pub fn rebased(&self, base: &[u64; 8]) -> Self {
        let mut lanes = self.lanes;
        for (lane, add) in lanes.iter_mut().zip(base) {
            *lane = lane.wrapping_add(*add);
        }
        Self { lanes }
    }
}

/// Which lane holds what, in both kinds of descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Lane {
    /// Opcode, flags, data type, reduction, phase, step: never rebased.
    Head = 0,
    /// Task id: operation sequence in the high half, index within the operation in the low half.
    Task = 1,
    /// Source address (local address in a WQE).
    Source = 2,
    /// Destination address (remote address in a WQE).
    Destination = 3,
    /// Length in bytes.
    Length = 4,
    /// Source token in the low half, destination token in the high half.
    Tokens = 5,
    /// Notify, channel, peer: fixed by the context.
    Signal = 6,
    /// Timeout in the low half, work-queue position in the high half.
    Launch = 7,
}
