//! Host side of aicpu-ts: from a rank table to a finished collective.

pub mod error;

pub use error::{Error, Result};
