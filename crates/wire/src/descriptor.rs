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

/// Bases that one graph may use: the size of every table of them.
pub const BASES: usize = 512;

/// What a launch adds to a recorded descriptor, lane by lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Base(pub [u64; 8]);

impl Descriptor {
    /// Returns this entry with `base` added lane by lane: how a recorded entry becomes one that can run.
    #[inline(always)]
    #[must_use]
    pub fn rebased(&self, base: &Base) -> Self {
        let mut lanes = self.lanes;
        for (lane, add) in lanes.iter_mut().zip(&base.0) {
            *lane = lane.wrapping_add(*add);
        }
        Self { lanes }
    }
}

/// Copies entries, adding to each the base that its number selects (modulo the size of the table). Stops at the end
/// of the shortest slice.
#[inline(always)]
pub fn rebase(into: &mut [Descriptor], from: &[Descriptor], numbers: &[u16], bases: &[Base; BASES]) {
    let len = into.len().min(from.len()).min(numbers.len());
    let (Some(into), Some(from), Some(numbers)) = (into.get_mut(..len), from.get(..len), numbers.get(..len))
    else {
        return;
    };
    // Four at a time: the loop around an entry would cost a tenth of it.
    let (into, last) = into.as_chunks_mut::<4>();
    let ((from, last_from), (numbers, last_numbers)) = (from.as_chunks::<4>(), numbers.as_chunks::<4>());
    for ((into, from), numbers) in into.iter_mut().zip(from).zip(numbers) {
        rebase_each(into, from, numbers, bases);
    }
    rebase_each(last, last_from, last_numbers, bases);
}

/// The same for few.
#[inline(always)]
fn rebase_each(into: &mut [Descriptor], from: &[Descriptor], numbers: &[u16], bases: &[Base; BASES]) {
    for ((to, from), number) in into.iter_mut().zip(from).zip(numbers) {
        // The mask keeps the index in range, so no check is left in the loop.
        if let Some(base) = bases.get(usize::from(*number) & (BASES - 1)) {
            *to = from.rebased(base);
        }
    }
}
const _: () = assert!(BASES.is_power_of_two());

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
