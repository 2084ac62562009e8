//! Host side of aicpu-ts: from a rank table to a finished collective.

pub mod error;
pub mod image;
pub mod qemu;
mod quote;
pub mod rank_table;
pub mod settings;
pub mod topology;

pub use error::{Error, Result};
