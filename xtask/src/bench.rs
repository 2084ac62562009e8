//! Runs benchmarks by name.

use anyhow::Result;

use crate::command;

const PACKAGE: &str = "benches";

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Benchmarks to run, by criterion's filter; all when none is named
    names: Vec<String>,
}

/// Runs the benchmarks.
///
/// # Errors
/// When one of them fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut bench = command::cargo("bench");
    bench.args(["--package", PACKAGE, "--"]).args(&options.names);
    command::run(&mut bench)
}
