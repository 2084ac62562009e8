//! Producer side of the rings: reserve, write, publish, announce; and the consumer of completions.
//!
//! The order is the whole point (`docs/rings.md`): entries, then the fence, then the doorbell, then the software
//! tail. Positions are `u64` counts that never go back; the 32-bit words in shared memory are their low halves and
//! are turned back by one function. What the device writes is data to be checked, never an index to be trusted: the
//! truth about what was submitted is the private shadow.
//!
//! The device's side is written separately in the device model and shares nothing with this crate but `wire`.
#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod completion;
mod counter;
mod submission;

pub use completion::Completions;
pub use counter::{Count, widen};
pub use submission::{Announced, SubmissionRing};
