//! Capacities where nobody asks for others: the only place they are written down.

use crate::room::Limits;

/// Slots of a kernel that writes rings: the most graphs it keeps.
pub const GRAPHS: usize = 256;

/// Slots of a kernel that makes calls: the most launches it keeps.
pub const LAUNCHES: usize = 64;

/// Buffers of one recording of the five calls.
pub const ARGUMENTS: usize = 16;

/// Returns the limits of a directory of `units` and `slots`: one communicator may take three quarters of each, so that
/// one with ever-changing sizes leaves a quarter to its neighbours.
#[must_use]
pub const fn limits(units: u64, slots: usize) -> Limits {
    Limits { units, quota_units: share(units), quota_slots: share(slots as u64), evict: true }
}

/// Three quarters of it, rounded down.
const fn share(whole: u64) -> u64 {
    whole - whole.div_ceil(4)
}
