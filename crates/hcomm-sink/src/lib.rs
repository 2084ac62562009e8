//! Tasks as calls of the public HCOMM data plane.
//!
//! A [`CallSink`] is the task sink that has no rings: each task becomes one [`Call`], made at once. Which library the
//! call goes to is a [`DataPlane`]: [`Linked`] is the one that this program is linked with, tests have their own. A
//! result code of the library becomes one of ours by [`code_of`], and the first failure is kept with the task it
//! happened at.
//!
//! Batches, the communicator and the task cache are calls too, made by whoever owns the sink: [`Session`] pairs them.
//! Nothing here knows an algorithm, reads shared memory or waits for the device.
#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

#[cfg(test)]
extern crate std;

mod call;
mod linked;
mod result;
mod session;
mod sink;

pub use call::{Call, ChannelHandle, DataPlane, ThreadHandle, Transfer};
pub use linked::Linked;
pub use result::{Failure, code_of};
pub use session::Session;
pub use sink::{CallSink, Handles, LaunchTime, Tally, Traits};

#[cfg(test)]
mod tests;
