//! Every byte that two parties of aicpu-ts share, and nothing else.
#![no_std]
#![forbid(unsafe_code)]

pub mod code;

pub use code::{CodeInfo, Effect, ErrorCode};
