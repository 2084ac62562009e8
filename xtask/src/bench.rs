//! Runs benchmarks by name: criterion's, the instructions of the aarch64 image, how well algorithms are selected, and the
//! comparison with MPI.
//!
//! Every criterion group has two halves: `run`, and `floor`, the physical limit measured in the same run.
//! Each half has a directory for each case, or is the only case itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::SystemTime;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{command, image, mpi, workspace};

/// Where the criterion benchmarks are.
const PACKAGES: [&str; 2] = ["aicpu-benches", "task-cache"];
/// Bench targets of a name that is not just one of them: before a replay comes the lookup.
const TARGETS: [(&str, &[&str]); 1] = [("replay", &["replay", "hit"])];
/// The benchmark that counts instead of measuring.
const INSTRUCTIONS: &str = "instructions";
/// The benchmark that models instead of measuring.
const SELECTION: &str = "selection";

/// The one whose floor is another program.
const MPI: &str = "mpi";

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Benchmarks to run: `instructions`, `selection`, `mpi`, expansion, calls, submit, replay, collectives, verify; all
    /// when none is named
    names: Vec<String>,
    /// Print one JSON object a line: name, `median_ns`, `floor_ns`, ratio, runs; of instructions their number, of
    /// selections chosen / best time, of mpi the other's median as floor
    #[arg(long)]
    json: bool,
}

/// Runs the benchmarks.
///
/// # Errors
/// When one of them fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.names.is_empty() {
        instructions(options.json)?;
        selection(options.json)?;
        measure(&["*"], options.json)?;
        return mpi::bench(options.json);
    }
    options.names.iter().try_for_each(|name| match name.as_str() {
        INSTRUCTIONS => instructions(options.json),
        SELECTION => selection(options.json),
        MPI => mpi::bench(options.json),
        name => {
            let own = [name];
            let listed = TARGETS.iter().find(|(listed, _)| *listed == name);
            measure(listed.map_or(&own, |(_, targets)| targets), options.json)
        }
    })
}

fn instructions(json: bool) -> Result<()> {
    let image = image::build()?;
    let mut count = command::cargo("run");
    count.args(["--quiet", "--package", "host-launcher", "--example", INSTRUCTIONS, "--"]).arg(image);
    if json {
        count.arg("--json");
    }
    command::run(&mut count)
}

fn selection(json: bool) -> Result<()> {
    let mut model = command::cargo("run");
    model.args(["--quiet", "--release", "--package", "host-launcher", "--example", SELECTION]);
    if json {
        model.args(["--", "--json"]);
    }
    command::run(&mut model)
}

/// Runs bench targets, given by cargo's patterns.
fn measure(targets: &[&str], json: bool) -> Result<()> {
    let home = workspace::target().join("criterion");
    let mut bench = command::cargo("bench");
    bench.args(PACKAGES.iter().flat_map(|package| ["--package", package])).env("CRITERION_HOME", &home);
    bench.args(targets.iter().flat_map(|target| ["--bench", target]));
    if !json {
        return command::run(&mut bench);
    }
    let start = SystemTime::now();
    command::run(bench.stdout(Stdio::from(io::stderr())))?;
    report(&home, start)
}

/// Prints a line for each benchmark whose both halves have been measured since `start`.
fn report(home: &Path, start: SystemTime) -> Result<()> {
    for group in directories(home)? {
        let run = group.join("run");
        let alone = run.join("new").is_dir();
        let cases = if alone { vec![run] } else { directories(&run).unwrap_or_default() };
        for case in cases {
            let written = fs::metadata(case.join("new/estimates.json")).and_then(|file| file.modified());
            if written.is_ok_and(|written| written >= start) {
                let name = case.strip_prefix(group.join("run")).context("a case lies in its group")?;
                let (median, runs) = measured(&case)?;
                let (floor, _) = measured(&group.join("floor").join(name))?;
                let group_name = group.file_name().context("a directory has a name")?;
                let name = Path::new(group_name).join(name);
                let line = json!({
                    "name": name.iter().collect::<PathBuf>(), "median_ns": median, "floor_ns": floor,
                    "ratio": median / floor, "runs": runs,
                });
                println!("{line}");
            }
        }
    }
    Ok(())
}

/// Returns the median in nanoseconds and the number of runs behind it.
fn measured(case: &Path) -> Result<(f64, f64)> {
    let read = |name: &str| -> Result<Value> {
        let path = case.join("new").join(name);
        let text =
            fs::read_to_string(&path).with_context(|| format!("criterion left no {}", path.display()))?;
        Ok(serde_json::from_str(&text)?)
    };
    let median = read("estimates.json")?["median"]["point_estimate"].as_f64().context("no median")?;
    let iterations =
        read("sample.json")?["iters"].as_array().map(|list| list.iter().filter_map(Value::as_f64).sum());
    Ok((median, iterations.context("no samples")?))
}

/// Returns the directories in `path`, sorted by name.
fn directories(path: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut list: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    list.sort();
    Ok(list)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::measured;

    #[test]
    fn medians_and_runs_are_read_where_criterion_leaves_them() {
        let case = std::env::temp_dir().join(format!("aicpu-ts-bench-{}", std::process::id()));
        fs::create_dir_all(case.join("new")).unwrap();
        fs::write(case.join("new/estimates.json"), r#"{"median":{"point_estimate":12.5}}"#).unwrap();
        fs::write(case.join("new/sample.json"), r#"{"iters":[10.0,20.0],"times":[1.0,2.0]}"#).unwrap();
        let found = measured(&case);
        fs::remove_dir_all(&case).unwrap();
        assert_eq!(found.unwrap(), (12.5, 30.0));
    }
}
