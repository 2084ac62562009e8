//! Why a launch is not served: the nearest recording and what differs, or the reasons of a bypass.

use core::fmt;

use crate::directory::Directory;
use crate::field::Difference;
use crate::hash::KeyHash;
use crate::key::Key;
use crate::reason::Reasons;
use crate::slot::State;

/// The recording with the fewest differing fields; of several, the most recently used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// What was asked for.
    pub wanted: Key,
    /// What is recorded.
    pub stored: Key,
}

impl Near {
    /// Returns the fields that differ: at least one.
    pub fn differences(&self) -> impl Iterator<Item = Difference> {
        self.wanted.differences(self.stored)
    }
}

/// How a launch fares at the cache, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// It would hit.
    Hits,
    /// It is not looked up, for these reasons.
    Bypassed(Reasons),
    /// It would hit, were the recording finished.
    Recording,
    /// Nothing is recorded.
    Nothing,
    /// Nothing recorded has this key; this comes nearest.
    Misses(Near),
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hits => f.write_str("hit"),
            Self::Bypassed(reasons) => write!(f, "bypassed: {reasons}"),
            Self::Recording => f.write_str("miss: this operation is being recorded"),
            Self::Nothing => f.write_str("miss: nothing is recorded"),
            Self::Misses(near) => {
                f.write_str("miss: the nearest recording differs in ")?;
                let mut separator = "";
                for difference in near.differences() {
                    write!(f, "{separator}{difference}")?;
                    separator = "; ";
                }
                Ok(())
            }
        }
    }
}

impl<P: Copy, const SLOTS: usize, H: KeyHash> Directory<P, SLOTS, H> {
    /// Returns how a launch with this key, and these reasons against recording it, would fare. Looks at every entry;
    /// changes and counts nothing.
    #[must_use]
    pub fn explain(&self, key: &Key, reasons: Reasons) -> Explanation {
        if !reasons.is_empty() {
            return Explanation::Bypassed(reasons);
        }
        match self.state_of(key) {
            Some(State::Live) => Explanation::Hits,
            Some(_) => Explanation::Recording,
            None => self.nearest(key).map_or(Explanation::Nothing, Explanation::Misses),
        }
    }

    fn nearest(&self, key: &Key) -> Option<Near> {
        self.live()
            .min_by_key(|(stored, stamp)| (key.differences(*stored).count(), u64::MAX - stamp))
            .map(|(stored, _)| Near { wanted: *key, stored })
    }
}
