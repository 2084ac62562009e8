//! Sets up, then runs every test; those that need the aarch64 image find it through the environment.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::{command, image, setup, shared_object, workspace};

/// Name of the variable that tells tests where the image is.
pub(crate) const IMAGE_VARIABLE: &str = "AICPU_IMAGE_ELF";

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Arguments for `cargo test`, after `--`; with any, neither the models of memory orderings nor the
    /// tests with a constant hash are run
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the tests. Where the image cannot be built the host tests run all the same.
///
/// # Errors
/// When a test fails, or when those of an aarch64 kernel could not run.
pub(crate) fn run(options: &Options) -> Result<()> {
    let ready = setup::run();
    let (image, objects) = (image::build(), shared_object::build());
    let mut tests = tests(image.as_deref().ok(), objects.as_deref().ok());
    command::run(tests.args(&options.arguments))?;
    if options.arguments.is_empty() {
        command::run(&mut one_bucket())?;
        command::run(&mut models())?;
    }
    let missing: Vec<_> = [ready.err(), image.err(), objects.err()].into_iter().flatten().collect();
    if let Some(first) = missing.first() {
        bail!("host tests passed; not all tests of the aarch64 kernels ran: {first:#}");
    }
    Ok(())
}

/// Returns the command for all tests, those on the image and on the shared objects included where there are any.
pub(crate) fn tests(image: Option<&Path>, objects: Option<&Path>) -> Command {
    let mut tests = command::cargo("test");
    tests.arg("--workspace");
    if let Some(image) = image {
        tests.env(IMAGE_VARIABLE, image);
    }
    if let Some(objects) = objects {
        tests.env(shared_object::DIR_VARIABLE, objects);
    }
    if let Some(library) = setup::find_libclang() {
        // The bindings are made anew and compared; without libclang that test says that it was skipped.
        tests.env("LIBCLANG_PATH", library).env("AICPU_BINDGEN_REQUIRED", "1");
    }
    tests
}

/// Returns the command that runs the tests of whatever uses the task cache with every key of it in one bucket.
pub(crate) fn one_bucket() -> Command {
    let mut tests = command::cargo("test");
    for package in ["task-cache", "aicpu-kernel", "host-launcher", "aicpu-tests"] {
        tests.args(["--package", package]);
    }
    tests.args(["--features", "task-cache/constant-hash"]);
    // The full product of replays takes a minute, and looks up one key at a time.
    tests.args(["--", "--skip", "t28_"]);
    tests
}

/// Returns the command that tries every interleaving of the ring protocol, on both sides, and of the cache with those
/// who take from it.
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
        "--package",
        "task-cache",
        "--package",
        "aicpu-kernel",
    ]);
    // A directory of its own: these flags rebuild everything.
    models.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", workspace::target().join("loom"));
    models
}
