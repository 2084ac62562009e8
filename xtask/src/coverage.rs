//! Line coverage: how much of each core crate its tests and those of `tests/` run.
//!
//! The compiler instruments, and a reader of its profiles from the registry (installed once, below the target directory)
//! takes the place of LLVM's own tools, which a stable toolchain does not bring. What only the kernel's shared object runs
//! is not counted: it is built without `std`, where the counters' runtime does not go.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use object::Object;
use serde_json::Value;

use crate::{command, workspace};

/// What runs on a device, what stands for one, and what proves it: folder and package.
const CORE: [(&str, &str); 8] = [
    ("crates/wire", "aicpu-wire"),
    ("crates/ring", "aicpu-ring"),
    ("crates/task-graph", "aicpu-task-graph"),
    ("crates/templates", "aicpu-templates"),
    ("crates/graph-verifier", "aicpu-graph-verifier"),
    ("crates/device-model", "aicpu-device-model"),
    ("task-cache", "task-cache"),
    ("aicpu-kernel", "aicpu-kernel"),
];
/// Run in the shared object alone.
const NOT_COUNTED: &str = "aicpu-kernel/src/calls";
/// Tests through the launcher.
const TESTS: &str = "aicpu-tests";
/// Lines of a hundred that have to be run.
const LEAST: usize = 90;
/// The reader: package, version and program.
const READER: [&str; 3] = ["llvm_profparser", "0.15.0", "cov"];

/// Runs the tests and prints the share of lines of each core crate that they run.
///
/// # Errors
/// When a test fails, or less than [`LEAST`] of a crate's lines are run, with the places.
pub(crate) fn run() -> Result<()> {
    let target = workspace::target().join("coverage");
    let profiles = target.join("profiles");
    if profiles.exists() {
        fs::remove_dir_all(&profiles)?;
    }
    let instrumented = || {
        let mut tests = command::cargo("test");
        tests.args(CORE.iter().flat_map(|(_, package)| ["--package", package])).args(["--package", TESTS]);
        tests.args(["--lib", "--tests"]).env("RUSTFLAGS", "-Cinstrument-coverage");
        // One profile of each program, which its runs add to.
        tests.env("CARGO_TARGET_DIR", &target).env("LLVM_PROFILE_FILE", profiles.join("%m.profraw"));
        tests
    };
    let built = command::output(instrumented().args(["--no-run", "--message-format", "json"]))?;
    command::run(instrumented().arg("--quiet"))?;
    let mut show = Command::new(reader()?);
    show.arg("show");
    for entry in fs::read_dir(&profiles)? {
        show.arg("--instr-profile").arg(entry?.path());
    }
    for program in programs(&built) {
        if has_counters(&program)? {
            show.arg("--object").arg(program);
        }
    }
    judge(&lines(&command::output(&mut show)?))
}

/// Returns the program that reads profiles, installing it where it is not yet.
fn reader() -> Result<PathBuf> {
    let [package, version, program] = READER;
    let root = workspace::target().join("tools");
    let path = root.join("bin").join(program);
    if !path.exists() {
        let mut install = command::cargo("install");
        install.args(["--quiet", "--locked", package, "--version", version, "--root"]).arg(&root);
        command::run(&mut install)?;
    }
    Ok(path)
}

/// The programs among cargo's messages.
fn programs(messages: &str) -> Vec<String> {
    let values = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values.filter_map(|message| message["executable"].as_str().map(str::to_owned)).collect()
}

/// Whether a program has counters: one of a single empty test, as loom models are without their flag, has none.
fn has_counters(program: &str) -> Result<bool> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {program}"))?;
    Ok(object::File::parse(&*bytes)?.section_by_name("__llvm_covfun").is_some())
}

/// Lines of one file: those that could be run, and those that were.
#[derive(Default)]
struct Lines {
    all: usize,
    run: usize,
    missed: Vec<usize>,
}

/// Reads the report: the path of each file, then its lines as `number|hits|text`, without hits where there is no code.
fn lines(report: &str) -> BTreeMap<PathBuf, Lines> {
    let mut files: BTreeMap<PathBuf, Lines> = BTreeMap::new();
    let mut file = None;
    for line in report.lines() {
        let mut fields = line.splitn(3, '|').map(str::trim);
        match (fields.next(), fields.next()) {
            (Some(path), None) if Path::new(path).is_absolute() => file = Some(PathBuf::from(path)),
            (Some(number), Some(hits)) => {
                let (Ok(number), Ok(hits), Some(file)) =
                    (number.parse::<usize>(), hits.parse::<u64>(), &file)
                else {
                    continue;
                };
                let lines = files.entry(file.clone()).or_default();
                lines.all += 1;
                lines.run += usize::from(hits > 0);
                lines.missed.extend((hits == 0).then_some(number));
            }
            _ => {}
        }
    }
    files
}

fn judge(files: &BTreeMap<PathBuf, Lines>) -> Result<()> {
    ensure!(!files.is_empty(), "the report names no file");
    let mut below = Vec::new();
    for (folder, package) in CORE {
        let sources = workspace::root().join(folder).join("src");
        let not_counted = workspace::root().join(NOT_COUNTED);
        let own = |path: &PathBuf| {
            let tests = path.iter().any(|part| part == "tests");
            path.starts_with(&sources) && !tests && !path.with_extension("").starts_with(&not_counted)
        };
        let of_crate: Vec<_> = files.iter().filter(|(path, _)| own(path)).collect();
        let sum = |count: fn(&Lines) -> usize| of_crate.iter().map(|(_, lines)| count(lines)).sum::<usize>();
        let (all, run) = (sum(|lines| lines.all), sum(|lines| lines.run));
        println!("{package:<22} {run:>6} of {all:>6} lines, {:.1} %", 100.0 * run as f64 / all as f64);
        if 100 * run < LEAST * all || all == 0 {
            below.push(package);
            for (path, Lines { missed, .. }) in of_crate.iter().filter(|(_, lines)| !lines.missed.is_empty())
            {
                let path = path.strip_prefix(workspace::root()).context("outside")?;
                println!("    {}: {missed:?}", path.display());
            }
        }
    }
    ensure!(below.is_empty(), "less than {LEAST} % of the lines are run of: {}", below.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{lines, programs};
    use std::path::Path;

    #[test]
    fn a_report_is_read_file_by_file() {
        let report = "/a/b.rs\n    1|       |use c;\n    2|      3|fn f() {\n    3|      0|    a | b\n\n/a/c.rs\n    1|      1|}\n";
        let files = lines(report);
        let of =
            |path: &str| files.get(Path::new(path)).map(|lines| (lines.all, lines.run, &lines.missed[..]));
        assert_eq!(of("/a/b.rs"), Some((2, 1, &[3][..])));
        assert_eq!(of("/a/c.rs"), Some((1, 1, &[][..])));
    }

    #[test]
    fn programs_are_named_by_cargo() {
        let messages =
            "{\"executable\":null}\n{\"executable\":\"/t/a\"}\nnot json\n{\"reason\":\"build-finished\"}";
        assert_eq!(programs(messages), ["/t/a"]);
    }
}
