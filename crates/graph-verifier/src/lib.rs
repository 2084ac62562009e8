//! The graph verifier: proves the task graphs of a collective right before they run.
//!
//! Two parts. [`Local`] looks at one task at a time and needs no heap: what a kernel holds against every task, most
//! often as the sink [`Checked`] before its recorder.
//! With the feature `std`, `verify` takes the tasks of all ranks and what the operation must do (a `Goal`), and
//! proves, for every schedule at once: no race, no deadlock, no notify set twice, no byte read that nothing wrote,
//! every output byte the right reduction of the right inputs in the documented order, and that the next operation may
//! follow. What each [`Obligation`] says, and what is not proved, is in `docs/verifier.md`.
//!
//! Nothing here knows a template: what is right is written from the definitions of the operations.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "std"),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod checked;
mod obligation;
mod structure;

pub use checked::{Checked, Local};
pub use obligation::Obligation;
pub use structure::{Extents, Lengths, Structure};

#[cfg(feature = "std")]
mod clocks;
#[cfg(feature = "std")]
mod contents;
#[cfg(feature = "std")]
mod counterexample;
#[cfg(feature = "std")]
mod goal;
#[cfg(feature = "std")]
mod layout;
#[cfg(feature = "std")]
mod memory;
#[cfg(feature = "std")]
mod order;
#[cfg(feature = "std")]
mod pass;
#[cfg(feature = "std")]
mod program;
#[cfg(feature = "std")]
mod rings;
#[cfg(feature = "std")]
mod value;
#[cfg(feature = "std")]
mod verify;

#[cfg(feature = "std")]
pub use counterexample::{Bytes, Counterexample, Place};
#[cfg(feature = "std")]
pub use goal::{Block, Collective, Goal, Request};
#[cfg(feature = "std")]
pub use order::Order;
#[cfg(feature = "std")]
pub use program::{Collector, Labelled, Machine, Operation, RankTasks, Rings, Submitter};
#[cfg(feature = "std")]
pub use verify::{Proof, verify};
