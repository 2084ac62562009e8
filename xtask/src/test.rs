//! Sets up, then runs every test; those that need the aarch64 image find it through the environment.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::{command, image, setup, workspace};

/// Name of the variable that tells tests where the image is.
pub(crate) const IMAGE_VARIABLE: &str = "AICPU_IMAGE_ELF";

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Arguments for `cargo test`, after `--`; with any, the models of memory orderings are left out
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the tests. Where the image cannot be built the host tests run all the same.
///
/// # Errors
/// When a test fails, or when the tests under QEMU could not run.
pub(crate) fn run(options: &Options) -> Result<()> {
    let image = setup::run().and_then(|()| image::build());
    let mut tests = tests(image.as_deref().ok());
    command::run(tests.args(&options.arguments))?;
    if options.arguments.is_empty() {
        command::run(&mut models())?;
    }
    if let Err(error) = image {
        bail!("host tests passed; tests on the aarch64 image did not run: {error:#}");
    }
    Ok(())
}

/// Returns the command for all tests, those on the image included where there is one.
pub(crate) fn tests(image: Option<&Path>) -> Command {
    let mut tests = command::cargo("test");
    tests.arg("--workspace");
    if let Some(image) = image {
        tests.env(IMAGE_VARIABLE, image);
    }
    tests
}

/// Returns the command that tries every interleaving of the ring protocol, on both sides.
pub(crate) fn models() -> Command {
    let mut models = command::cargo("test");
    models.args([
        "--release",
        "--test",
        "loom",
        "--package",
        "aicpu-ring",
        "--package",
        "aicpu-device-model",
    ]);
    // A directory of its own: these flags rebuild everything.
    models.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", workspace::target().join("loom"));
    models
}
