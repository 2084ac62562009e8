//! Compares whole collectives with Open MPI's, point by point, each pair back to back.
//!
//! A program of our own measures MPI; it is built here with the compiler wrapper, from a source in the benches.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use crate::{command, workspace};

const SOURCE: &str = "benches/mpi/collectives.c";
/// The example that measures ours the same way.
const OURS: &str = "collective";
const OPERATIONS: [&str; 4] = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"];
const RANKS: [u32; 3] = [2, 4, 8];
/// Bytes of the larger buffer of a rank.
const SIZES: [u64; 6] = [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20];
/// How long each side measures a point, besides starting and calibrating.
const SECONDS: &str = "0.5";

/// Measures all points, or says what is missing.
///
/// # Errors
/// When a program cannot be built, fails, or has a wrong result.
pub(crate) fn bench(json: bool) -> Result<()> {
    let (Some(compiler), Some(launcher)) = (find("mpicc"), find("mpirun")) else {
        let wanted = "mpirun and mpicc on PATH, as in Debian's openmpi-bin and libopenmpi-dev";
        eprintln!("mpi: skipped, since it needs {wanted}");
        return Ok(());
    };
    let theirs = build_theirs(&compiler)?;
    let ours = build_ours()?;
    for operation in OPERATIONS {
        for ranks in RANKS {
            for bytes in SIZES {
                let size = bytes.to_string();
                let (theirs, _) =
                    measure(launch(&launcher, ranks, &theirs).args([operation, &size, SECONDS]))?;
                let (own, runs) =
                    measure(Command::new(&ours).args([operation, &ranks.to_string(), &size, SECONDS]))?;
                let (name, ratio) = (format!("mpi/{operation}-{ranks}-{bytes}"), own / theirs);
                if json {
                    let line = json!({
                        "name": name, "median_ns": own, "floor_ns": theirs, "ratio": ratio, "runs": runs,
                    });
                    println!("{line}");
                } else {
                    let (own, theirs) = (own / 1e3, theirs / 1e3);
                    println!("{name:28} {own:12.2} µs   MPI {theirs:12.2} µs   ratio {ratio:.2}");
                }
            }
        }
    }
    Ok(())
}

/// Returns the first program of that name on `PATH`.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn build_theirs(compiler: &Path) -> Result<PathBuf> {
    let program = workspace::target().join("mpi-collectives");
    let mut compile = Command::new(compiler);
    compile.args(["-O2", "-std=gnu11", "-o"]).arg(&program).arg(workspace::root().join(SOURCE));
    command::run(&mut compile)?;
    Ok(program)
}

fn build_ours() -> Result<PathBuf> {
    let mut build = command::cargo("build");
    build.args(["--quiet", "--release", "--package", "aicpu-benches", "--example", OURS]);
    command::run(&mut build)?;
    Ok(workspace::target().join("release/examples").join(OURS))
}

/// Starts as many ranks as asked for, whatever the number of processors and whoever asks. The program chooses its processors.
fn launch(launcher: &Path, ranks: u32, program: &Path) -> Command {
    let mut launch = Command::new(launcher);
    launch.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    launch.args(["--oversubscribe", "--bind-to", "none", "-np", &ranks.to_string()]).arg(program);
    launch
}

/// Returns the median in nanoseconds and the number of runs behind it, as both programs print them.
fn measure(program: &mut Command) -> Result<(f64, u64)> {
    let said = command::output(program)?;
    parse(&said).with_context(|| format!("`{}` printed {said:?}", command::line(program)))
}

fn parse(said: &str) -> Option<(f64, u64)> {
    let (median, runs) = said.trim().split_once(' ')?;
    Some((median.parse().ok().filter(|median| *median > 0.0)?, runs.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_median_and_its_runs_are_read_and_nothing_else() {
        assert_eq!(parse("1250.5 3000\n"), Some((1250.5, 3000)));
        for wrong in ["", "12.5", "0 5", "NaN 5", "1 2 3", "fast 5"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
