//! Bare-metal aarch64 image of the kernel, for QEMU's `virt` machine.
//!
//! One core serves one NPU. The first core sets up translation, checks the launcher's boot block and starts the
//! others; then each runs the kernel over its own window for ever, and every turn of its loop that finds nothing to
//! do yields, or sleeps where the launcher wants that. There is no heap, and no interrupt is taken. What stops a core leaves a record (`wire::boot::CoreRecord`) and a line on the console.
//!
//! Built by `cargo xtask image`; on a host this package is a stand-in, so that the workspace builds there.
#![cfg_attr(aicpu_image, no_std, no_main)]

#[cfg(aicpu_image)]
mod console;
#[cfg(aicpu_image)]
mod core_main;
#[cfg(aicpu_image)]
mod device;
#[cfg(aicpu_image)]
mod doorbell;
#[cfg(aicpu_image)]
mod guest;
#[cfg(aicpu_image)]
mod kernel;
#[cfg(aicpu_image)]
mod log;
#[cfg(aicpu_image)]
mod memory;
#[cfg(aicpu_image)]
mod stacks;
#[cfg(aicpu_image)]
mod start;
#[cfg(aicpu_image)]
mod stop;

#[cfg(not(aicpu_image))]
fn main() {
    eprintln!("this is the stand-in of a bare-metal image: build the image with `cargo xtask image`");
    std::process::exit(2);
}
