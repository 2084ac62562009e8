//! The first thing a visitor runs: an 8-rank all-reduce from a rank table, on the aarch64 image.

use anyhow::Result;

use crate::test::IMAGE_VARIABLE;
use crate::{command, image, setup};

/// A flat rank table of one server with 8 NPUs, one of the samples of the repository.
const RANK_TABLE: &str = "examples/rank-tables/flat_1x8.json";

/// Sets up, builds and runs.
///
/// # Errors
/// When a piece is missing, a build fails, or the result is wrong.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    let image = image::build()?;
    let mut launcher = command::cargo("run");
    launcher.args(["--release", "--package", "host-launcher", "--bin", "aicpu-ts", "--"]);
    launcher.args(["run", "all-reduce", "--rank-table", RANK_TABLE, "--bytes", "1M", "--aicpu", "qemu"]);
    launcher.env(IMAGE_VARIABLE, image);
    println!("$ {}", command::line(&launcher));
    command::run(&mut launcher)
}
