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

/// Full products of the kernel's cases, which take longer here than all other tests together. Others pick from them at random:
/// `t28_replays_at_any_place`, `any_sizes_in_turn_write_what_a_fresh_expansion_writes`.
const PRODUCTS: [&str; 2] =
    ["t28_replays_with_moved_buffers", "sizes_of_a_class_hit_one_graph_from_the_third_on"];

/// Runs the tests of [`PACKAGES`] but for [`PRODUCTS`], and a hundred simulated lives under AddressSanitizer.
///
/// # Errors
/// When a test fails or the sanitizer reports anything.
pub(crate) fn run() -> Result<()> {
    let mut tests = command::cargo("test");
    tests.args(PACKAGES.iter().flat_map(|package| ["--package", package])).args(["--lib", "--tests"]);
    let tests = sanitized(&mut tests, "")?;
    command::run(tests.arg("--").args(PRODUCTS.iter().flat_map(|test| ["--skip", test])))?;
    let mut lives = command::cargo("run");
    let lives = sanitized(lives.args(["--quiet", "--package", "host-launcher"]), "")?;
    command::run(lives.args(["--", "sim", "--seeds", "100", "--faults", "3"]))
}

/// Makes a cargo command build for this host with the sanitizer and `flags`, in a directory of its own. What is behind `--`
/// comes after.
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
