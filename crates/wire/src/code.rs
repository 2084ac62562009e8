//! The registry of error codes: one stable number per way to fail.
//!
//! A code is what a run book greps for. It never changes its meaning and is never reused. The thousands say where
//! the fault lies: 1 arguments and configuration, 2 context, ABI and image, 3 plan, 4 bindings, 5 queues, DMA and
//! device, 6 synchronization and peers, 7 capacities, 8 numerics, 9 internal. `docs/errors.md` has a page for each;
//! a test keeps the two equal.
//!
//! This module only names failures. Where one happened and what to do is added by whoever reports it.

mod device;
mod host;
mod image;
mod kernel;
mod verifier;

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A stable error number; 0 is success.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct ErrorCode(pub u16);

/// What a failure did to the state of the world, and therefore what the caller may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing was started; the call may be corrected and repeated.
    NoEffect,
    /// The operation failed, its output is undefined, the communicator lives.
    OpFailed,
    /// The communicator is poisoned: destroy it and create another. The process may go on.
    CommPoisoned,
    /// The device stopped executing.
    DeviceLost,
}

impl Effect {
    /// Returns the sentence an error report prints after "effect".
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NoEffect => "nothing was started; correct it and call again",
            Self::OpFailed => "this operation failed; the communicator can go on",
            Self::CommPoisoned => {
                "communicator poisoned: destroy it, then create another; the process may go on"
            }
            Self::DeviceLost => "the device no longer answers; restart it before creating a communicator",
        }
    }
}

/// What is known about a code without knowing where it happened.
#[derive(Clone, Copy, Debug)]
pub struct CodeInfo {
    /// The number.
    pub code: ErrorCode,
    /// Upper-case name, as printed after the number.
    pub name: &'static str,
    /// What the failure did.
    pub effect: Effect,
    /// The nearest `HcclResult` (public number), for callers of that API.
    pub hccl: u8,
    /// The nearest public EI fault family (`EI0004` → 4), 0 when there is none.
    pub ei: u8,
    /// One sentence: what went wrong.
    pub summary: &'static str,
    /// One sentence: the first thing to try.
    pub remedy: &'static str,
}

/// Declares the codes of one area: constants on [`ErrorCode`] and a table with what is known about each.
macro_rules! codes {
    ($($number:literal $name:ident $effect:ident hccl $hccl:literal ei $ei:literal
        $summary:literal $remedy:literal)*) => {
        impl crate::code::ErrorCode {
            $(#[doc = $summary] pub const $name: Self = Self($number);)*
        }
        pub(super) const TABLE: &[crate::code::CodeInfo] = &[$(crate::code::CodeInfo {
            code: crate::code::ErrorCode($number),
            name: stringify!($name),
            effect: crate::code::Effect::$effect,
            hccl: $hccl,
            ei: $ei,
            summary: $summary,
            remedy: $remedy,
        }),*];
    };
}
use codes;

impl ErrorCode {
    /// Success.
    pub const OK: Self = Self(0);

    /// Returns whether this is success.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }

    /// Returns every code there is, area by area.
    pub fn all() -> impl Iterator<Item = &'static CodeInfo> {
        host::TABLE
            .iter()
            .chain(image::TABLE)
            .chain(kernel::TABLE)
            .chain(verifier::TABLE)
            .chain(device::TABLE)
    }

    /// Returns what is known about this code; `None` for success and for numbers this build does not know.
    #[must_use]
    pub fn info(self) -> Option<&'static CodeInfo> {
        Self::all().find(|info| info.code == self)
    }

    /// Returns the upper-case name, or `UNKNOWN` for a number this build does not know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.info() {
            Some(info) => info.name,
            None if self.is_ok() => "OK",
            None => "UNKNOWN",
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Prints `E1201 RANK_TABLE_SYNTAX`.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04} {}", self.0, self.name())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::HashSet;
    use std::vec::Vec;

    use super::ErrorCode;

    #[test]
    fn numbers_and_names_are_unique_and_described() {
        let all: Vec<_> = ErrorCode::all().collect();
        let numbers: HashSet<_> = all.iter().map(|info| info.code).collect();
        let names: HashSet<_> = all.iter().map(|info| info.name).collect();
        assert_eq!((numbers.len(), names.len()), (all.len(), all.len()));
        for info in all {
            assert!((1000..10_000).contains(&info.code.0), "{}", info.code);
            assert!(info.hccl > 0 && info.hccl <= 24, "{}", info.code);
            assert!(!info.summary.is_empty() && !info.remedy.is_empty(), "{}", info.code);
        }
    }

    #[test]
    fn a_code_prints_number_and_name() {
        use std::string::ToString;
        assert_eq!(ErrorCode::CONTEXT_MAGIC.to_string(), "E2001 CONTEXT_MAGIC");
        assert_eq!(ErrorCode(9999).to_string(), "E9999 UNKNOWN");
    }
}
