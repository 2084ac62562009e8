//! The legs that are tests of other crates, at length.

use std::process::{Command, Stdio};

use super::Size;
use crate::{command, test};

/// The unit tests of a crate, as a target.
const LIB: &str = "lib";

/// Mistakes in graphs that the verifier proves or refutes, each judged by what it does to bytes, and random graphs judged by
/// another verifier too.
pub(super) fn mutants(size: Size) -> Vec<String> {
    let mut found = verifier("mutation::as_many_mutants_as_asked_for", size.of([10_000, 200_000, 1_000_000]));
    if size != Size::Ci {
        found.extend(verifier("naive::both_say_the_same_of_as_many_random_graphs_as_asked_for", 100_000));
    }
    found
}

/// Graphs that the verifier proves.
pub(super) fn graphs(size: Size) -> Vec<String> {
    verifier("grid::as_many_graphs_as_asked_for", size.of([5_000, 50_000, 500_000]))
}

fn verifier(test: &str, number: u64) -> Vec<String> {
    let mut tests = release("aicpu-tests", "verifier", test);
    failed(tests.env("AICPU_TS_CAMPAIGN", number.to_string()))
}

/// Small models in every state; of a release, larger ones.
pub(super) fn models(size: Size) -> Vec<String> {
    let in_order = [
        release("aicpu-ring", LIB, "small_widths"),
        release("aicpu-device-model", LIB, "small_widths"),
        release("task-cache", "cache", "exhaustive"),
        release("aicpu-kernel", "kernel", "cache_lives"),
        release("aicpu-tests", "verifier", "schedules"),
        test::models(),
    ];
    let larger = |mut model: Command| {
        if size == Size::Release {
            model.env("AICPU_TS_LARGER_MODELS", "1");
        }
        model
    };
    in_order.into_iter().flat_map(|model| failed(&mut larger(model))).collect()
}

/// Every pair of 16-bit floating-point numbers, or a sample of them.
pub(super) fn pairs(size: Size) -> Vec<String> {
    let test = size.of(["a_sample_of_all_pairs", "every_pair", "every_pair"]);
    failed(&mut release("aicpu-device-model", "exhaustive", test))
}

/// Returns the command for the tests of that name, the long ones too.
fn release(package: &str, target: &str, test: &str) -> Command {
    let mut tests = command::cargo("test");
    tests.args(["--release", "--package", package]);
    if target == LIB {
        tests.arg("--lib");
    } else {
        tests.args(["--test", target]);
    }
    tests.args(["--", "--include-ignored", "--nocapture", test]);
    tests
}

/// Runs tests; returns why they failed, or that there was none.
fn failed(tests: &mut Command) -> Vec<String> {
    let said = match tests.stderr(Stdio::inherit()).output() {
        Ok(done) if done.status.success() => String::from_utf8_lossy(&done.stdout).into_owned(),
        Ok(done) => {
            return vec![format!(
                "`{}`: {}\n{}",
                command::line(tests),
                done.status,
                String::from_utf8_lossy(&done.stdout)
            )];
        }
        Err(error) => return vec![format!("cannot start `{}`: {error}", command::line(tests))],
    };
    print!("{said}");
    if said.contains(" 0 passed") {
        return vec![format!("`{}`: there is no such test", command::line(tests))];
    }
    Vec::new()
}
