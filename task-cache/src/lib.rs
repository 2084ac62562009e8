//! Which recorded task graph serves a launch.
//!
//! A [`Key`] holds everything a recorded graph depends on. The [`Directory`] maps keys to handles of recorded graphs:
//! only an entry that was recorded, verified and published hits, what it holds is accounted for exactly, the least
//! recently used entry gives way, and no communicator takes more than its quota. [`Policy`] says which operations
//! may be recorded at all, and every reason why not; [`Explanation`] says why a launch missed. [`Calls`] is the same
//! for callers that name recordings by a tag.
//!
//! Not here: the recorded descriptors (the directory hands out a `Copy` handle and counts abstract units), replay,
//! and checks of a launch's buffers.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod account;
mod calls;
pub mod defaults;
mod directory;
mod explain;
mod field;
mod hash;
mod index;
mod key;
mod policy;
mod reason;
mod room;
mod slot;
mod stats;

pub use calls::{CallError, Calls, Communicator, MAX_TAG};
pub use directory::Directory;
pub use explain::{Explanation, Near};
pub use field::{Difference, Field, Value};
pub use hash::{Constant, KeyHash, Mixed};
pub use key::{Alias, Determinism, Facts, Form, Key};
pub use policy::{FIELD_CAPACITY, Mode, Policy, Product, Protocol, Protocols, Request, field_bytes};
pub use reason::{Reason, Reasons};
pub use room::{Limits, Refusal, Tally};
pub use slot::{Hit, SlotId, State};
pub use stats::Stats;
