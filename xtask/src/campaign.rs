//! The reliability campaign: many simulated lives, with the figures that must be zero.
//!
//! Each leg is one `aicpu-ts sim` command, printed so that it can be repeated by itself. What must be zero is zero or
//! the task fails; what is a share is compared with its goal.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::{command, workspace};

/// Options of `cargo xtask campaign`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How large
    #[arg(value_enum, default_value_t = Size::Ci)]
    size: Size,
    /// Play only so many of a hundred seeds
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100))]
    percent: u64,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Sizes of a campaign, by the seeds of its legs with faults.
#[derive(Clone, Copy, ValueEnum)]
enum Size {
    /// 20,000 seeds
    Ci,
    /// 500,000 seeds
    Nightly,
    /// 5,000,000 seeds
    Release,
}

/// A leg: name, seeds, what `sim` is told.
type Leg = (&'static str, u64, Vec<String>);

/// Tasks at which the leg of kills kills, one after another.
const KILLS: u64 = 120;
/// Share of reports on one fault that must name the right rank.
const NAMED: f64 = 0.999;
/// Share of reports on several faults that must name one of theirs.
const NAMED_OF_SEVERAL: f64 = 0.95;
/// Longest time to a report, virtual seconds.
const NOTICED_S: f64 = 2.0;
/// Figures that must be zero.
const ZERO: [&str; 6] = ["failures", "hangs", "silent_corruptions", "unrecovered", "panics", "false_deaths"];

impl Size {
    /// How often each kind of fault has to be put in.
    const fn each(self) -> u64 {
        match self {
            Self::Ci => 200,
            Self::Nightly => 5_000,
            Self::Release => 50_000,
        }
    }

    /// Seeds of the legs without faults, with one, with up to twelve, with slow ranks; seeds per kill; seeds run twice.
    const fn seeds(self) -> [u64; 6] {
        match self {
            Self::Ci => [2_000, 10_000, 6_000, 2_000, 10, 1_000],
            Self::Nightly => [40_000, 250_000, 100_000, 100_000, 400, 1_000],
            Self::Release => [400_000, 2_500_000, 1_000_000, 1_000_000, 4_000, 10_000],
        }
    }
}

/// Runs a campaign.
///
/// # Errors
/// When a figure is not what it must be, after all legs have run.
pub(crate) fn run(options: &Options) -> Result<()> {
    command::run(command::cargo("build").args(["--release", "--package", "host-launcher"]))?;
    let seeds = options.size.seeds().map(|seeds| (seeds * options.percent / 100).max(1));
    let [none, one, several, slow, kills, twice] = seeds;
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut legs: Vec<Leg> = vec![
        ("no fault", none, words("--faults 0")),
        ("one fault", one, words("--faults 1")),
        ("up to 12 faults", several, words("--faults 12")),
        ("a slow rank", slow, words("--fault slow:us=300")),
        ("the same seeds", twice, words("--ranks 4 --faults 3")),
        ("once more", twice, words("--ranks 4 --faults 3")),
    ];
    for nth in 1..=KILLS {
        legs.push(("a kill", kills, words(&format!("--ranks 4 --fault kill@operation=1,nth={nth}"))));
    }
    let start = Instant::now();
    let mut faults = Vec::new();
    let mut all: Vec<(&str, Value)> = Vec::new();
    for (name, seeds, told) in legs {
        let totals = leg(options, seeds, &told)?;
        faults.extend(judge(name, &totals, &told));
        match all.last_mut() {
            Some((last, sum)) if *last == name => add(sum, &totals),
            _ => all.push((name, totals)),
        }
    }
    let digest = |name| all.iter().find(|(own, _)| *own == name).map(|(_, totals)| totals["digest"].clone());
    if digest("the same seeds") != digest("once more") {
        faults.push("the same seeds were not the same lives".to_owned());
    }
    faults.extend(rare(&all, options.size.each() * options.percent / 100)?);
    all.iter().for_each(|(name, totals)| print(options.json, name, totals));
    println!("{:.0} s", start.elapsed().as_secs_f64());
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    Ok(())
}

fn leg(options: &Options, seeds: u64, told: &[String]) -> Result<Value> {
    let mut sim = std::process::Command::new(workspace::target().join("release/aicpu-ts"));
    // A life takes and gives back hundreds of megabytes: the C library may keep them for the next one, which doubles the speed.
    sim.env("MALLOC_TRIM_THRESHOLD_", "2000000000").env("MALLOC_MMAP_THRESHOLD_", "1000000000");
    sim.args(["sim", "--json", "--seed", &options.seed.to_string(), "--seeds", &seeds.to_string()]);
    sim.args(["--jobs", &options.jobs.to_string()]).args(told).stdin(Stdio::null()).stderr(Stdio::inherit());
    let done = sim.output().with_context(|| format!("cannot start `{}`", command::line(&sim)))?;
    let text = String::from_utf8_lossy(&done.stdout);
    let first = text.lines().next().with_context(|| format!("`{}` printed nothing", command::line(&sim)))?;
    serde_json::from_str(first).with_context(|| format!("`{}` printed no JSON", command::line(&sim)))
}

/// Returns which kinds of faults have been put in less often than that.
fn rare(all: &[(&str, Value)], each: u64) -> Result<Vec<String>> {
    let mut list = std::process::Command::new(workspace::target().join("release/aicpu-ts"));
    let kinds = command::output(list.args(["faults", "--json"]))?;
    let name = |line: &str| Some(serde_json::from_str::<Value>(line).ok()?["name"].as_str()?.to_owned());
    let kinds: Vec<String> = kinds.lines().filter_map(name).collect();
    let count =
        |kind: &str| all.iter().filter_map(|(_, totals)| totals["faults"][kind].as_u64()).sum::<u64>();
    let rare = kinds.iter().map(|kind| (kind, count(kind))).filter(|(_, count)| *count < each);
    Ok(rare.map(|(kind, count)| format!("{kind}: put in {count} times of {each}")).collect())
}

/// Returns what is not as it must be.
fn judge(name: &str, totals: &Value, told: &[String]) -> Vec<String> {
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
fn add(sum: &mut Value, more: &Value) {
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

fn print(as_json: bool, name: &str, totals: &Value) {
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
