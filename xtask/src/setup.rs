//! Installs what is missing on this machine, and says what it costs.
//!
//! Two pieces are not part of a plain Rust toolchain: a `core` for the aarch64 target and QEMU. When neither is to
//! be had, everything that runs on the host still works, and the report says which command installs the rest.

pub(crate) mod apt;
mod sysroot;

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::toolchain::{self, Preference, Toolchain};

/// Name of the emulator.
pub(crate) const QEMU: &str = "qemu-system-aarch64";

/// Sets everything up; prints one line for each piece.
///
/// # Errors
/// When a piece is missing and cannot be installed; the other piece is set up all the same.
pub(crate) fn run() -> Result<()> {
    let pieces = [("aarch64 target", toolchain().map(|found| found.to_string())), ("emulator", emulator())];
    let mut missing = Vec::new();
    for (name, outcome) in pieces {
        match outcome {
            Ok(what) => println!("{name:<15} ready    {what}"),
            Err(error) => {
                println!("{name:<15} MISSING  {error:#}");
                missing.push(name);
            }
        }
    }
    if !missing.is_empty() {
        bail!(
            "no {}: the kernel image cannot be built or run; everything on the host works (`cargo test`)",
            missing.join(" and no ")
        );
    }
    Ok(())
}

/// Returns the compiler for the image, installing it when it is missing.
///
/// # Errors
/// When there is none and no way to install one; the message names the command that would.
pub(crate) fn toolchain() -> Result<Toolchain> {
    if let Some(found) = toolchain::find()? {
        return Ok(found);
    }
    match toolchain::preference()? {
        Preference::Rustup => rustup(),
        Preference::Debian => sysroot::install(),
        Preference::Any => rustup().or_else(|first| {
            sysroot::install().with_context(|| format!("neither rustup ({first:#}) nor the distribution"))
        }),
    }
}

fn rustup() -> Result<Toolchain> {
    println!("rustup: adding target {} (about 15 MB)", toolchain::TARGET);
    command::output(Command::new("rustup").args(["target", "add", toolchain::TARGET])).context(
        "rustup cannot add the target; with AICPU_TOOLCHAIN=debian the distribution's compiler is used",
    )?;
    toolchain::find()?.context("rustup added the target, but rustc does not see it")
}

/// Returns the emulator's version line, installing the emulator when it is missing.
fn emulator() -> Result<String> {
    if let Some(version) = emulator_version() {
        return Ok(version);
    }
    apt::install(&["qemu-system-arm"], "the emulator")?;
    emulator_version().with_context(|| format!("the package is installed, but `{QEMU}` does not run"))
}

/// Returns the first line of `qemu-system-aarch64 --version`, or `None` when it is not installed.
pub(crate) fn emulator_version() -> Option<String> {
    let text = command::output(Command::new(QEMU).arg("--version")).ok()?;
    text.lines().next().map(str::to_owned)
}
