//! How a scenario ended.

use core::time::Duration;

use serde::Serialize;
use wire::ErrorCode;

use super::course::Course;

/// The judgement on a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was done, every byte right.
    Right,
    /// A call failed, with a code and in time; nothing stayed taken, and a new communicator worked.
    Reported(ErrorCode),
    /// Bytes were wrong that nothing but their comparison could show: a bit flipped behind every check code, all ranks
    /// were asked for the same other thing, or one notify had a signal too many and, by another fault, one too few.
    Undetectable,
    /// A call reported success, and the bytes were wrong.
    Silent(String),
    /// A call did not return within its deadline.
    Hang(String),
    /// Something stayed taken, or the cluster was of no use any more.
    Unrecovered(String),
    /// Something panicked.
    Panic(String),
}

/// Whom the report of a failed call blames, against where the fault was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Blame {
    /// No rank is to blame, and no failed call blames one wrongly.
    None,
    /// The rank of the fault, or of one of the faults.
    Right,
    /// Another rank, or none.
    Wrong,
    /// A rank that was only slow was said to have stopped.
    FalseDeath,
}

/// A scenario that has been played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    /// The judgement.
    pub verdict: Verdict,
    /// Whom the report blames.
    pub blame: Blame,
    /// Text of the first failure.
    pub report: String,
    /// Virtual time of the whole.
    pub lasted: Duration,
    /// Number that depends on every event and its time.
    pub digest: u64,
    /// How its operations went.
    pub course: Course,
}

impl Verdict {
    /// Returns whether this must never happen.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        !matches!(self, Self::Right | Self::Reported(_) | Self::Undetectable)
    }

    /// Returns one word for it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Reported(_) => "reported",
            Self::Undetectable => "undetectable",
            Self::Silent(_) => "silent corruption",
            Self::Hang(_) => "hang",
            Self::Unrecovered(_) => "unrecovered",
            Self::Panic(_) => "panic",
        }
    }

    /// Returns what is known about a failure.
    #[must_use]
    pub fn detail(&self) -> &str {
        match self {
            Self::Silent(text) | Self::Hang(text) | Self::Unrecovered(text) | Self::Panic(text) => text,
            _ => "",
        }
    }
}
