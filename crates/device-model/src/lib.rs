//! Software NPU: what the device does with the bytes and descriptors it is given.
//!
//! A [`fabric::Fabric`] is the memory of all NPUs, which other processes can map. The host reaches one NPU through
//! [`driver::Npu`], a kernel in a host thread through [`platform::ModelPlatform`]. An [`engine::Engine`] executes what
//! both put there, and refuses what silicon would; [`machine::Machine`] runs all engines and the kernels beside them.
//!
//! The device reads rings by its own code ([`queue`]), written from `docs/rings.md` and sharing none with the crate
//! that fills them. It moves real bytes as fast as it can and knows no time: nothing here says how long silicon takes.

pub mod clock;
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
mod rebase;
mod simulation;

pub use counters::Counters;
pub use memory::Window;
