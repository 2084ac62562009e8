//! AddressSanitizer: over the tests of the crates with `unsafe` code, and behind every fuzz target.
//!
//! Sanitizers are still unstable in the compiler. `RUSTC_BOOTSTRAP` lets the project's own, stable compiler do it for
//! these runs, which are no part of what is built otherwise: no second toolchain has to be installed and kept in step.

use std::process::Command;

use anyhow::Result;

use crate::{command, shared_object, workspace};

/// The crates with `unsafe` code that a host can run, and those whose bytes it touches.
const PACKAGES: [&str; 5] =
    ["aicpu-ring", "aicpu-device-model", "aicpu-platform-aarch64", "aicpu-task-graph", "aicpu-kernel"];

/// Runs the tests of [`PACKAGES`] and a hundred simulated lives under AddressSanitizer.
///
/// # Errors
/// When a test fails or the sanitizer reports anything.
pub(crate) fn run() -> Result<()> {
    let mut tests = command::cargo("test");
    tests.args(PACKAGES.iter().flat_map(|package| ["--package", package])).args(["--lib", "--tests"]);
    command::run(sanitized(&mut tests, "")?)?;
    let mut lives = command::cargo("run");
    lives.args(["--quiet", "--package", "host-launcher", "--", "sim", "--seeds", "100", "--faults", "3"]);
    command::run(sanitized(&mut lives, "")?)
}

/// Makes a cargo command build for this host with the sanitizer and `flags`, in a directory of its own.
///
/// # Errors
/// When the compiler does not say which host this is.
pub(crate) fn sanitized<'a>(cargo: &'a mut Command, flags: &str) -> Result<&'a mut Command> {
    cargo.args(["--target", &shared_object::rustc_host()?]);
    // What does not come from this allocator (the windows of NPUs) is not watched; leaks of a process that ends are none.
    cargo.env("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=0");
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", format!("-Zsanitizer=address {flags}").trim());
    cargo.env("CARGO_TARGET_DIR", workspace::target().join("asan"));
    Ok(cargo)
}
