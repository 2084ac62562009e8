//! Fuzzing: every target of `fuzz/` for some minutes or executions, from seeds that unit tests write.
//!
//! The targets are what `cargo fuzz` would build, built by the project's own compiler ([`crate::sanitize`] says how):
//! instrumented, with AddressSanitizer, debug assertions and overflow checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{command, sanitize, shared_object, workspace};

/// Variable that tells the test which folder to write the seeds to.
const SEEDS_VARIABLE: &str = "AICPU_TS_WRITE_FUZZ_SEEDS";
/// What the fuzzer needs to know of each branch, as `cargo fuzz` has it. It is put in after the sanitizer, so that checks of
/// memory are calls: inline ones would be branches and comparisons of the program, to be counted and called for each.
const COVERAGE: &str = "--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-asan-instrumentation-with-call-threshold=0";
/// An input that takes longer, seconds, or more memory, MiB, is a finding.
const LIMITS: [&str; 3] = ["-timeout=20", "-rss_limit_mb=2048", "-malloc_limit_mb=1024"];

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these targets
    targets: Vec<String>,
    /// How long each runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// How many executions each runs, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "minutes", value_parser = clap::value_parser!(u64).range(1..))]
    executions: Option<u64>,
    /// Seed of what is done to the inputs
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seed: u32,
    /// Try this one input instead
    #[arg(long, value_name = "FILE", requires = "targets")]
    input: Option<PathBuf>,
}

/// Fuzzes.
///
/// # Errors
/// When a target finds something, with the command that repeats it, after all have run.
pub(crate) fn run(options: &Options) -> Result<()> {
    let all = targets()?;
    if let Some(unknown) = options.targets.iter().find(|target| !all.contains(target)) {
        bail!("there is no target `{unknown}`; there are: {}", all.join(", "));
    }
    let chosen = if options.targets.is_empty() { &all } else { &options.targets };
    let mut build = command::cargo("build");
    build.args(["--release", "--manifest-path"]).arg(folder().join("Cargo.toml"));
    build.args(chosen.iter().flat_map(|target| ["--bin", target]));
    command::run(sanitize::sanitized(&mut build, COVERAGE)?)?;
    if let (Some(input), [target]) = (&options.input, chosen.as_slice()) {
        return command::run(binary(target)?.args(LIMITS).arg(input));
    }
    write_seeds()?;
    let mut findings = Vec::new();
    for target in chosen {
        findings.extend(fuzz(target, options)?);
    }
    ensure!(findings.is_empty(), "{}", findings.join("\n"));
    Ok(())
}

/// Checks every target as clippy does, without sanitizer or instrumentation.
///
/// # Errors
/// When one does not.
pub(crate) fn check() -> Result<()> {
    let mut check = command::cargo("clippy");
    check.args(["--locked", "--quiet", "--lib", "--bins", "--manifest-path"]);
    check.arg(folder().join("Cargo.toml")).args(["--", "-D", "warnings"]);
    // The fuzzer itself is not linked, so it need not be compiled.
    check.env("CUSTOM_LIBFUZZER_PATH", folder().join("Cargo.toml"));
    command::run(check.env("CARGO_TARGET_DIR", workspace::target().join("fuzz-check")))
}

fn folder() -> PathBuf {
    workspace::root().join("fuzz")
}

/// The names of all targets.
fn targets() -> Result<Vec<String>> {
    let mut metadata = command::cargo("metadata");
    metadata.args(["--format-version", "1", "--no-deps", "--manifest-path"]).arg(folder().join("Cargo.toml"));
    let value: Value = serde_json::from_str(&command::output(&mut metadata)?)?;
    let targets = value["packages"][0]["targets"].as_array().context("cargo metadata names no targets")?;
    let bins = targets.iter().filter(|target| target["kind"][0] == "bin");
    Ok(bins.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect())
}

fn binary(target: &str) -> Result<Command> {
    let path =
        workspace::target().join("asan").join(shared_object::rustc_host()?).join("release").join(target);
    let mut binary = Command::new(path);
    binary.current_dir(folder());
    Ok(binary)
}

/// Has the tests write a seed corpus for each target.
fn write_seeds() -> Result<()> {
    let mut test = command::cargo("test");
    test.args(["--quiet", "--package", "aicpu-tests", "--test", "seeds"]);
    command::run(test.env(SEEDS_VARIABLE, folder().join("corpus")).stdout(Stdio::null()))
}

/// Runs one target and prints what it did; returns what it found.
fn fuzz(target: &str, options: &Options) -> Result<Option<String>> {
    let (corpus, artifacts) = (folder().join("corpus").join(target), folder().join("artifacts").join(target));
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let log = artifacts.join("log");
    let mut fuzzer = binary(target)?;
    let length = match options.executions {
        Some(executions) => format!("-runs={executions}"),
        None => format!("-max_total_time={}", 60 * options.minutes),
    };
    fuzzer.args(LIMITS).args(["-print_final_stats=1", &format!("-seed={}", options.seed), &length]);
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&corpus);
    fuzzer.stdin(Stdio::null()).stderr(fs::File::create(&log)?);
    let status = fuzzer.status().with_context(|| format!("cannot start `{}`", command::line(&fuzzer)))?;
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let statistic = |name: &str| {
        let value = said.lines().rev().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name));
        value.map_or("?", |value| value.trim_start_matches(':').trim()).to_owned()
    };
    let seen = |name: &str| {
        let value = said.lines().rev().find_map(|line| line.split_once(name)?.1.split_whitespace().next());
        value.unwrap_or("?").to_owned()
    };
    println!(
        "{target:<12} {:>10} executions, {:>6} a second, {:>6} branches, peak {} MiB: {}",
        statistic("number_of_executed_units"),
        statistic("average_exec_per_sec"),
        seen(" cov: "),
        statistic("peak_rss_mb"),
        if status.success() { "nothing found" } else { "FOUND" },
    );
    Ok((!status.success()).then(|| finding(target, &said, &log)))
}

fn finding(target: &str, said: &str, log: &Path) -> String {
    let written =
        said.lines().find_map(|line| line.split_once("Test unit written to ").map(|(_, path)| path));
    let panic = said.lines().find(|line| line.contains("panicked at") || line.contains("ERROR: "));
    let repeat = written.map_or_else(
        || format!("see {}", log.display()),
        |path| format!("repeat with `cargo xtask fuzz {target} --input {path}`"),
    );
    format!("{target}: {}; {repeat}", panic.unwrap_or("stopped"))
}
