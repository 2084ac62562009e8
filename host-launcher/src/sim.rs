//! Deterministic simulation: one seed is one life of a cluster, with everything that can go wrong.
//!
//! A [`Scenario`] is what a seed means: ranks, operations, faults. [`play()`] carries it out with the real launcher,
//! kernels, rings and device model in one thread under virtual time, and judges it: every rank has the right bytes, or
//! a named error came in time; nothing stays taken; a new communicator works. [`many()`] plays many seeds, and makes of
//! one that fails the shortest command that fails in the same way. [`soak()`] lives one life for minutes or hours.
//!
//! What is simulated, and what is chance: `device_model::machine`. The same scenario gives the same events, and so the
//! same [`Played::digest`], on every machine.

mod course;
mod many;
mod play;
mod scenario;
mod soak;
mod verdict;

pub use course::Course;
pub use many::{Totals, at_each_event, many, minimized};
pub use play::play;
pub use scenario::{FaultPlan, Given, Limits, Scenario};
pub use soak::{Endurance, soak};
pub use verdict::{Blame, Played, Verdict};
