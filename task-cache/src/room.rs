//! Limits, what counts towards them, and refusals.

use core::fmt;
use core::ops::Add;

use wire::ErrorCode;

/// An amount of what a directory shares out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Units, as the caller counts them.
    pub units: u64,
    /// Slots.
    pub slots: u64,
}

impl Tally {
    pub(crate) const ZERO: Self = Self { units: 0, slots: 0 };

    pub(crate) fn entry(units: u32) -> Self {
        Self { units: units.into(), slots: 1 }
    }

    /// Returns whether neither amount exceeds the limit.
    pub(crate) fn within(self, limit: Self) -> bool {
        self.units <= limit.units && self.slots <= limit.slots
    }

    pub(crate) fn take(&mut self, other: Self) {
        self.units = self.units.saturating_sub(other.units);
        self.slots = self.slots.saturating_sub(other.slots);
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { units: self.units.saturating_add(other.units), slots: self.slots.saturating_add(other.slots) }
    }
}

/// What is in use, and how much of that may not give way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) used: Tally,
    /// Of entries that are being recorded, pinned or draining.
    pub(crate) held: Tally,
}

impl Usage {
    pub(crate) const NONE: Self = Self { used: Tally::ZERO, held: Tally::ZERO };
}

/// How much a directory may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Units of all entries.
    pub units: u64,
    /// Units of the entries of one communicator.
    pub quota_units: u64,
    /// Entries of one communicator.
    pub quota_slots: u64,
    /// Whether the least recently used entries give way to new ones. The field's never do.
    pub evict: bool,
}

impl Limits {
    /// Nothing.
    pub const NONE: Self = Self { units: 0, quota_units: 0, quota_slots: 0, evict: false };

    /// What one communicator may hold.
    pub(crate) fn quota(&self) -> Tally {
        Tally { units: self.quota_units, slots: self.quota_slots }
    }
}

/// Why an operation is not recorded. It runs all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The same key is being recorded already.
    Busy,
    /// The same key is recorded already.
    Present,
    /// Larger than the whole cache.
    TooLarge,
    /// Larger than the share of one communicator.
    OverQuota,
    /// What would have to give way is pinned, draining, being recorded, or eviction is off.
    Full,
}

impl Refusal {
    /// Every refusal.
    pub const ALL: [Self; 5] = [Self::Busy, Self::Present, Self::TooLarge, Self::OverQuota, Self::Full];

    /// Returns the error code.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Busy => ErrorCode::CACHE_BUSY,
            Self::Present => ErrorCode::CACHE_PRESENT,
            Self::TooLarge => ErrorCode::CACHE_TOO_LARGE,
            Self::OverQuota => ErrorCode::CACHE_QUOTA,
            Self::Full => ErrorCode::CACHE_FULL,
        }
    }
}

impl From<Refusal> for ErrorCode {
    fn from(refusal: Refusal) -> Self {
        refusal.code()
    }
}

/// Prints the sentence of the code.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code().info().map_or("", |info| info.summary))
    }
}
