//! Lints of the image's own code, which the host's lints never see.

use std::path::Path;

use anyhow::Result;

use crate::toolchain::Toolchain;
use crate::{command, image, setup};

/// The lints that fit the distribution's compiler (Debian: `rust-web-clippy`).
const DEBIAN_CLIPPY: &str = "/usr/bin/clippy-driver";

/// Runs the lints on the image and what it links; says so where its compiler came without them.
///
/// # Errors
/// When a lint finds something.
pub(crate) fn lint() -> Result<()> {
    let toolchain = setup::toolchain()?;
    let mut cargo = match &toolchain {
        Toolchain::Rustup => {
            let mut cargo = image::cargo("clippy", &toolchain);
            cargo.args(["--", "-D", "warnings"]);
            cargo
        }
        Toolchain::Debian { rustc } if Path::new(DEBIAN_CLIPPY).exists() => {
            let mut cargo = image::cargo("check", &toolchain);
            cargo.env("RUSTC_WORKSPACE_WRAPPER", DEBIAN_CLIPPY);
            // What cargo's own command does for `-- -D warnings`, and what it finds out by asking the compiler.
            cargo.env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
            cargo.envs(rustc.ancestors().nth(2).map(|sysroot| ("SYSROOT", sysroot)));
            cargo
        }
        Toolchain::Debian { .. } => {
            println!(
                "not run: the distribution's compiler is here without its lints, package rust-web-clippy"
            );
            return Ok(());
        }
    };
    command::run(&mut cargo)
}
