//! Counters of a directory. They only go up.

use crate::reason::{Reason, Reasons};
use crate::room::Refusal;

/// What a directory has done since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Lookups that found a recording.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Operations that were not looked up because a policy said so.
    pub bypassed: u64,
    /// Recordings published.
    pub inserted: u64,
    /// Recordings that gave way to others.
    pub evicted: u64,
    /// Entries taken away by a clear or remove, recordings under way included.
    pub cleared: u64,
    /// Recordings given up by their recorder.
    pub abandoned: u64,
    bypassed_by: [u64; Reason::ALL.len()],
    refused_by: [u64; Refusal::ALL.len()],
}

impl Stats {
    pub(crate) const ZERO: Self = Self {
        hits: 0,
        misses: 0,
        bypassed: 0,
        inserted: 0,
        evicted: 0,
        cleared: 0,
        abandoned: 0,
        bypassed_by: [0; Reason::ALL.len()],
        refused_by: [0; Refusal::ALL.len()],
    };

    /// Returns the operations bypassed for this reason, among others or alone.
    #[must_use]
    pub fn bypassed_by(&self, reason: Reason) -> u64 {
        self.bypassed_by.get(reason as usize).copied().unwrap_or(0)
    }

    /// Returns the recordings refused for this reason.
    #[must_use]
    pub fn refused_by(&self, refusal: Refusal) -> u64 {
        self.refused_by.get(refusal as usize).copied().unwrap_or(0)
    }

    /// Returns the recordings refused for any reason.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused_by.iter().sum()
    }

    /// Returns the recordings refused for want of room.
    #[must_use]
    pub fn full(&self) -> u64 {
        [Refusal::TooLarge, Refusal::OverQuota, Refusal::Full]
            .map(|refusal| self.refused_by(refusal))
            .iter()
            .sum()
    }

    pub(crate) fn bypass(&mut self, reasons: Reasons) {
        self.bypassed += u64::from(!reasons.is_empty());
        for reason in reasons.iter() {
            if let Some(count) = self.bypassed_by.get_mut(reason as usize) {
                *count += 1;
            }
        }
    }

    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        if let Some(count) = self.refused_by.get_mut(refusal as usize) {
            *count += 1;
        }
    }
}
