//! Builds the aarch64 kernel image.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::toolchain::{TARGET, Toolchain};
use crate::{command, setup, workspace};

const PACKAGE: &str = "aicpu-image-elf";
const PROFILE: &str = "image";

/// Builds the image and returns its path; installs the compiler for it when that is missing.
///
/// # Errors
/// When there is no compiler for the target, or when the build fails.
pub(crate) fn build() -> Result<PathBuf> {
    let toolchain = setup::toolchain()?;
    command::run(&mut cargo("build", &toolchain))?;

    let built = build_dir().join(TARGET).join(PROFILE).join(PACKAGE);
    let image = workspace::image_elf();
    fs::create_dir_all(workspace::target().join("image"))?;
    // Renamed into place, so that a run that is loading the old image keeps it whole.
    let fresh = image.with_extension("new");
    fs::copy(&built, &fresh).with_context(|| format!("the build left no {}", built.display()))?;
    fs::rename(&fresh, &image)?;
    Ok(image)
}

/// Returns a cargo command on the image's package, with its compiler, target and profile.
pub(crate) fn cargo(task: &str, toolchain: &Toolchain) -> Command {
    let mut cargo = command::cargo(task);
    cargo.args(["--package", PACKAGE, "--profile", PROFILE, "--target", TARGET]);
    cargo.env("AICPU_IMAGE", "1").env("CARGO_TARGET_DIR", build_dir());
    // Places of log texts and defects are paths in the workspace, wherever it lies.
    cargo.env("RUSTFLAGS", format!("--remap-path-prefix={}/=", workspace::root().display()));
    if let Toolchain::Debian { rustc } = toolchain {
        cargo.env("RUSTC", rustc);
    }
    cargo
}

/// A build directory of its own: two compilers in one would rebuild everything at each change.
fn build_dir() -> PathBuf {
    workspace::target().join("fw")
}
