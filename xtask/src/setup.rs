//! Installs what is missing on this machine, and says what it costs.
//!
//! Four pieces are not part of a plain Rust toolchain: a `core` for the aarch64 targets, QEMU's machine, what loads an
//! aarch64 shared object (a C compiler and QEMU for programs), and libclang for the test of the bindings. When none is
//! to be had, everything that runs on the host still works, and the report says which command installs the rest.

pub(crate) mod apt;
mod sysroot;

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

pub(crate) use sysroot::linker;

use crate::command;
use crate::shared_object::CROSS_CC;
use crate::toolchain::{self, Preference, Toolchain};

/// Name of the emulator.
pub(crate) const QEMU: &str = "qemu-system-aarch64";

/// Name of the emulator for programs.
pub(crate) const QEMU_USER: &str = "qemu-aarch64";

/// Sets everything up; prints one line for each piece.
///
/// # Errors
/// When a piece is missing and cannot be installed; the other pieces are set up all the same.
pub(crate) fn run() -> Result<()> {
    let pieces = [
        ("aarch64 target", toolchain().map(|found| found.to_string())),
        ("emulator", emulator()),
        ("program loader", program_loader()),
        ("libclang", libclang()),
    ];
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
            "no {}: not all kernels can be built and run; everything on the host works (`cargo test`)",
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
    println!("rustup: adding targets {} (about 45 MB)", toolchain::TARGETS.join(" and "));
    command::output(Command::new("rustup").args(["target", "add"]).args(toolchain::TARGETS)).context(
        "rustup cannot add the target; with AICPU_TOOLCHAIN=debian the distribution's compiler is used",
    )?;
    toolchain::find()?.context("rustup added the targets, but rustc does not see them")
}

/// Returns the emulator's version line, installing the emulator when it is missing.
fn emulator() -> Result<String> {
    if let Some(version) = emulator_version() {
        return Ok(version);
    }
    apt::install(&["qemu-system-arm"], "the emulator")?;
    emulator_version().with_context(|| format!("the package is installed, but `{QEMU}` does not run"))
}

/// Returns the version line of QEMU for programs, installing it and the C compiler for them when one is missing.
fn program_loader() -> Result<String> {
    let version = || {
        first_line(Command::new(CROSS_CC).arg("--version"))?;
        first_line(Command::new(QEMU_USER).arg("--version"))
    };
    if let Some(version) = version() {
        return Ok(version);
    }
    let packages = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"];
    apt::install(&packages, "loading aarch64 shared objects")?;
    version().with_context(|| {
        format!("the packages are installed, but `{CROSS_CC}` or `{QEMU_USER}` does not run")
    })
}

/// Returns where libclang is, installing it when it is missing.
fn libclang() -> Result<String> {
    if let Some(found) = find_libclang() {
        return Ok(found);
    }
    apt::install(&["libclang1-14", "libclang-common-14-dev"], "the test of the bindings")
        .or_else(|_| apt::install(&["libclang-dev"], "the test of the bindings"))?;
    find_libclang().context("the package is installed, but no libclang.so is found under /usr/lib")
}

/// Returns the path of libclang's library, where a Debian-like system has it.
pub(crate) fn find_libclang() -> Option<String> {
    let versions = fs::read_dir("/usr/lib").ok()?.flatten();
    let versions = versions.filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm-"));
    let libraries =
        versions.filter_map(|entry| fs::read_dir(entry.path().join("lib")).ok()).flatten().flatten();
    let found = libraries.map(|entry| entry.path()).find(|path| {
        path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name.starts_with("libclang.so")
                || name.starts_with("libclang-1")
                || name.starts_with("libclang-2")
        })
    });
    found.map(|path| path.display().to_string())
}

/// Returns the first line of `qemu-system-aarch64 --version`, or `None` when it is not installed.
pub(crate) fn emulator_version() -> Option<String> {
    first_line(Command::new(QEMU).arg("--version"))
}

fn first_line(command: &mut Command) -> Option<String> {
    command::output(command).ok()?.lines().next().map(str::to_owned)
}
