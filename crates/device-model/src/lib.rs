//! Software NPU: what the device does with the bytes and descriptors it is given.

pub mod driver;
pub mod engine;
pub mod fabric;
pub mod fault;
pub mod machine;
pub mod platform;
pub mod queue;
pub mod reduce;

mod counters;
mod memory;
mod vectors;

pub use counters::Counters;
pub use memory::Window;
