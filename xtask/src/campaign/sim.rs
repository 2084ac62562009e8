//! `aicpu-ts sim` as part of a campaign: played, judged, added up, printed.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Options;
use crate::{command, workspace};

/// Share of reports on one fault that must name the right rank.
const NAMED: f64 = 0.999;
/// Share of reports on several faults that must name one of theirs.
const NAMED_OF_SEVERAL: f64 = 0.95;
/// Longest time to a report, virtual seconds.
const NOTICED_S: f64 = 2.0;
/// Figures that must be zero.
const ZERO: [&str; 6] = ["failures", "hangs", "silent_corruptions", "unrecovered", "panics", "false_deaths"];

/// Returns the program.
pub(super) fn program() -> Command {
    Command::new(workspace::target().join("release/aicpu-ts"))
}

/// Returns the words of a command line.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Plays seeds, told so, and returns the totals.
pub(super) fn play(options: &Options, seeds: u64, told: &[String]) -> Result<Value> {
    let mut sim = program();
    // A life takes and gives back hundreds of megabytes: the C library may keep them for the next one, which doubles the speed.
    sim.env("MALLOC_TRIM_THRESHOLD_", "2000000000").env("MALLOC_MMAP_THRESHOLD_", "1000000000");
    sim.args(["sim", "--json", "--seed", &options.seed.to_string(), "--seeds", &seeds.to_string()]);
    sim.args(["--jobs", &options.jobs.to_string()]).args(told).stdin(Stdio::null()).stderr(Stdio::inherit());
    let done = sim.output().with_context(|| format!("cannot start `{}`", command::line(&sim)))?;
    let text = String::from_utf8_lossy(&done.stdout);
    let first = text.lines().next().with_context(|| format!("`{}` printed nothing", command::line(&sim)))?;
    serde_json::from_str(first).with_context(|| format!("`{}` printed no JSON", command::line(&sim)))
}

/// Returns what is not as it must be.
pub(super) fn judge(name: &str, totals: &Value, told: &[String]) -> Vec<String> {
    let number = |field: &str| totals[field].as_f64().unwrap_or(f64::NAN);
    let mut faults: Vec<String> = ZERO
        .into_iter()
        .filter(|field| number(field) != 0.0)
        .map(|field| format!("{name} ({}): {field} {}, {}", told.join(" "), totals[field], totals["command"]))
        .collect();
    for (named, reports, goal) in
        [("blamed_right", "blamed", NAMED), ("blamed_one_of_several", "blamed_several", NAMED_OF_SEVERAL)]
    {
        if number(named) < goal * number(reports) {
            faults.push(format!(
                "{name} ({}): {named} {} of {}",
                told.join(" "),
                totals[named],
                totals[reports]
            ));
        }
    }
    if number("slowest_notice_s") > NOTICED_S {
        faults.push(format!("{name}: a report after {} s", totals["slowest_notice_s"]));
    }
    faults
}

/// Adds the counts of another part of the same leg.
pub(super) fn add(sum: &mut Value, more: &Value) {
    let (Some(fields), Some(more)) = (sum.as_object_mut(), more.as_object()) else { return };
    for (name, value) in more {
        match (fields.get_mut(name), value) {
            (Some(own @ Value::Object(_)), Value::Object(_)) => add(own, value),
            // Of these the greater counts.
            (Some(own), Value::Number(_)) if name.starts_with("slowest") || name.starts_with("seeds_per") => {
                let greater = own.as_f64().unwrap_or(0.0).max(value.as_f64().unwrap_or(0.0));
                *own = greater.into();
            }
            (Some(own), Value::Number(_)) => {
                *own = match (own.as_u64(), value.as_u64()) {
                    (Some(a), Some(b)) => a.wrapping_add(b).into(),
                    _ => (own.as_f64().unwrap_or(0.0) + value.as_f64().unwrap_or(0.0)).into(),
                };
            }
            (None, _) => {
                fields.insert(name.clone(), value.clone());
            }
            _ => {}
        }
    }
}

/// Prints the totals of a leg, or a part of one.
pub(super) fn print(as_json: bool, name: &str, totals: &Value) {
    if as_json {
        println!("{}", json!({ "leg": name, "totals": totals }));
        return;
    }
    let count = |field: &str| totals[field].as_u64().unwrap_or(0);
    let reported =
        totals["reported"].as_object().map_or(0, |codes| codes.values().filter_map(Value::as_u64).sum());
    println!(
        "{name:<16} {:>9} seeds: {:>9} right, {reported:>8} reported, {} failed; culprit named in {} of {} on one \
         fault, {} of {} on several; slow called dead {}; slowest report {:.3} s; {:.0} seeds/s and thread",
        count("seeds"),
        count("right"),
        count("failures"),
        count("blamed_right"),
        count("blamed"),
        count("blamed_one_of_several"),
        count("blamed_several"),
        count("false_deaths"),
        totals["slowest_notice_s"].as_f64().unwrap_or(0.0),
        totals["seeds_per_second"].as_f64().unwrap_or(0.0),
    );
}
