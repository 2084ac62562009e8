//! The kernel's hardware traits on real aarch64 memory.
//!
//! `Npu` implements `hal::Platform` over the window of one NPU. [`Window`] is its memory, [`LogRing`] its text log;
//! [`PageTables`] describes an address space; [`read_param`] and [`memory_of`] take over what an entry is handed. Those
//! are plain computation on memory and are tested on any host.
//! [`cpu`] holds what a program at any privilege level may execute. What only a bare-metal image at EL1 may touch
//! (translation, exceptions, other cores) is in `el1` and exists only in builds without an operating system, so that
//! it cannot slip into a shared object.
//!
//! No algorithm, no entry point and no panic handler: those belong to the kernel and to the images.
#![no_std]

pub mod cpu;
#[cfg(target_os = "none")]
pub mod el1;
mod log_ring;
#[cfg(target_arch = "aarch64")]
mod npu;
mod pages;
mod param;
pub mod recorder;
mod window;

pub use log_ring::LogRing;
#[cfg(target_arch = "aarch64")]
pub use npu::Npu;
pub use pages::{Access, MapError, PageTables};
pub use param::{memory_of, read_param};
pub use window::Window;
