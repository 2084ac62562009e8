//! Capacities where nobody asks for others: the only place they are written down.

use crate::room::Limits;

/// Bytes the field's cache holds for a whole process; its first recordings stay for ever.
pub const FIELD_BYTES: u64 = 10 << 20;

/// Bytes of one unit of [`UNITS`]: a page of 32 descriptors of 64 bytes.
pub const UNIT_BYTES: u64 = 2048;

/// Units of a directory: as many bytes as the field's cache.
pub const UNITS: u64 = FIELD_BYTES / UNIT_BYTES;

/// Slots of a directory: the most graphs it can hold.
pub const SLOTS: usize = 1024;

/// Buffers of one recording of the five calls.
pub const ARGUMENTS: usize = 16;

/// Returns the limits of a directory of `units` and `slots`: one communicator may take half of each, so that one with
/// ever-changing sizes leaves the other half to its neighbours.
#[must_use]
pub const fn limits(units: u64, slots: usize) -> Limits {
    Limits { units, quota_units: half(units), quota_slots: half(slots as u64), evict: true }
}

/// Half of it, rounded up: of one slot, the slot.
const fn half(whole: u64) -> u64 {
    whole.div_ceil(2)
}
