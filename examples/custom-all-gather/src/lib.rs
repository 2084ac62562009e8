//! A custom operator: an all-gather of one's own that runs on the AICPU.
//!
//! The shape is that of the field's own example: a host launches one kernel, whose entry acquires the communicator,
//! starts a batch, waits for the host, hands over the tasks, tells the host and ends the batch. The algorithm is the
//! few lines of [`operator`]; everything else comes from the crates, which this package uses from outside.
//!
//! `cargo xtask image --so` builds `libcustom_all_gather.so`; elsewhere this package is only the algorithm.
#![cfg_attr(aicpu_image, no_std)]

#[cfg(aicpu_image)]
mod entry;
pub mod operator;
