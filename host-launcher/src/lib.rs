//! Host side of aicpu-ts: from a rank table to a finished collective.
//!
//! A [`rank_table`] gives a [`topology`]; a [`cluster`] is a software NPU per rank with a kernel on each, in this
//! process or on an emulated aarch64 machine; a [`communicator`] launches operations on it with three interactions
//! each. [`stream`] orders those of several. [`select`] chooses the algorithm, [`diagnosis`] explains failures, [`oracle`] checks results, [`prove`] proves graphs before they run. The command
//! `aicpu-ts` is a thin layer above.

pub mod algorithm_file;
pub mod buffer;
pub mod cluster;
pub mod communicator;
pub mod diagnosis;
pub mod error;
pub mod faults;
pub mod image;
pub mod library;
pub mod oracle;
mod owner;
pub mod payload;
pub mod prove;
pub mod qemu;
mod quote;
pub mod rank_table;
mod resources;
pub mod run;
pub mod select;
pub mod settings;
pub mod sim;
pub mod stream;
pub mod topology;
pub mod traffic;

pub use error::{Error, Result};
