//! The soak: one long simulated life, with the figures it must keep.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command;

/// Options of `cargo xtask soak`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long it lives, real time
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// Seed of everything that happens
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
}

/// Growth of resident memory that is allowed after the warm-up, bytes.
const GROWTH: f64 = (1 << 20) as f64;
/// How much slower the last probes may be than the first.
const DRIFT: f64 = 1.05;

/// Lives and judges.
///
/// # Errors
/// When an operation was wrong, something stayed taken, memory grew, or operations got slower.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut soak = command::cargo("run");
    soak.args(["--quiet", "--release", "--package", "host-launcher", "--example", "soak", "--"]);
    soak.args([options.seed.to_string(), options.minutes.to_string()]);
    // By default the C library's threshold follows what is freed, and resident memory jumps by what it keeps.
    soak.env("MALLOC_MMAP_THRESHOLD_", "65536");
    let done = soak.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(done.status.success(), "`{}`: {}", command::line(&soak), done.status);
    let figures: Value = serde_json::from_slice(&done.stdout).context("the soak printed no JSON")?;
    println!("{figures}");
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    ensure!(number(&figures["left_taken"]) == 0.0, "something stayed taken");
    ensure!(number(&figures["wraps"]) > 0.0, "no counter has wrapped: the soak does not do what it is for");
    let [first, last] = [0, 1].map(|at| number(&figures["resident"][at]));
    ensure!(last - first <= GROWTH, "resident memory grew from {first} to {last} bytes");
    let [first, last] = [0, 1].map(|at| number(&figures["probe_ns"][at]));
    ensure!(last <= first * DRIFT, "the probes took {first} ns at first and {last} ns at last");
    Ok(())
}
