//! Sets up, then runs every test; those that need the aarch64 image find it through the environment.

use anyhow::{Result, bail};

use crate::{command, image, setup};

/// Name of the variable that tells tests where the image is.
pub(crate) const IMAGE_VARIABLE: &str = "AICPU_IMAGE_ELF";

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Arguments for `cargo test`, after `--`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the tests. Where the image cannot be built the host tests run all the same.
///
/// # Errors
/// When a test fails, or when the tests under QEMU could not run.
pub(crate) fn run(options: &Options) -> Result<()> {
    let image = setup::run().and_then(|()| image::build());
    let mut tests = command::cargo("test");
    tests.arg("--workspace").args(&options.arguments);
    if let Ok(image) = &image {
        tests.env(IMAGE_VARIABLE, image);
    }
    command::run(&mut tests)?;
    if let Err(error) = image {
        bail!("host tests passed; tests on the aarch64 image did not run: {error:#}");
    }
    Ok(())
}
