//! The kernel as a shared object that an AICPU loads, over the public data plane.
//!
//! One symbol is exported, `AicpuTsLaunch`; the data plane and the four memory functions of C are all it asks of the
//! process. There is no heap, no thread-local storage, no start-up code and no register above EL0. Each call serves
//! one launch whole and returns; what is kept between calls (decoded contexts, recorded launches) is per communicator.
//!
//! Built by `cargo xtask image --so` for aarch64 and for the host; elsewhere this package is empty, so that the
//! workspace builds.
#![cfg_attr(aicpu_image, no_std)]

#[cfg(aicpu_image)]
mod entry;
#[cfg(aicpu_image)]
mod guard;
#[cfg(aicpu_image)]
mod machine;
#[cfg(aicpu_image)]
mod slots;
