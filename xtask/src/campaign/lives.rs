//! The legs of simulated lives.

use anyhow::{Context, Result};
use serde_json::Value;

use super::sim::{self, words};
use super::{Options, Size};
use crate::command;

/// Tasks at which the leg of lives kills, one after another.
const KILLS: u64 = 120;
/// Operations and algorithms in which a rank is killed at every event.
const REFERENCES: [(&str, &str); 8] = [
    ("all-reduce", "ring"),
    ("all-reduce", "mesh-two-shot"),
    ("all-reduce", "nhr"),
    ("all-gather", "nhr"),
    ("reduce-scatter", "ring"),
    ("broadcast", "tree"),
    ("all-to-all", "pairwise"),
    ("gather", "star"),
];
/// Ranks of these legs.
const RANKS: u64 = 4;
/// Lives of each operation that are played in many schedules.
const LIVES: usize = 4;
/// Lives that are tried to find these.
const MOST_LIVES: u64 = 1000;

/// Lives whose faults are the seeds' choice.
pub(super) fn seeds(options: &Options) -> Result<Vec<String>> {
    let [none, one, several, slow, kills, twice] = options
        .size
        .of([
            [2_000, 10_000, 6_000, 2_000, 10, 1_000],
            [40_000, 250_000, 100_000, 100_000, 400, 1_000],
            [400_000, 2_500_000, 1_000_000, 1_000_000, 4_000, 10_000],
        ])
        .map(|seeds| options.share(seeds));
    let mut parts = vec![
        ("no fault", none, words("--faults 0")),
        ("one fault", one, words("--faults 1")),
        ("up to 12 faults", several, words("--faults 12")),
        ("a slow rank", slow, words("--fault slow:us=300")),
        ("the same seeds", twice, words("--ranks 4 --faults 3")),
        ("once more", twice, words("--ranks 4 --faults 3")),
    ];
    for nth in 1..=KILLS {
        let told = words(&format!("--ranks {RANKS} --fault kill@operation=1,nth={nth}"));
        parts.push(("a kill", kills, told));
    }
    let Played { sums: all, mut faults, .. } = play(options, parts)?;
    let digest = |name| all.iter().find(|(own, _)| *own == name).map(|(_, totals)| totals["digest"].clone());
    if digest("the same seeds") != digest("once more") {
        faults.push("the same seeds were not the same lives".to_owned());
    }
    faults.extend(rare(&all, options.size.of([200, 5_000, 50_000]) * options.percent / 100)?);
    Ok(faults)
}

/// Every fault in every operation and each of its phases.
pub(super) fn cells(options: &Options) -> Result<Vec<String>> {
    // Not every seed gives a rank in the phase that is wanted: some have nothing to do in an operation.
    let (seeds, least) = options.size.of([(3, 1), (40, 20), (160, 100)]);
    let nothing = sim::play(options, 1, &words("--faults 0"))?;
    let cells = nothing["cells"].as_object().context("`sim` counts cells")?;
    let parts = cells.keys().filter_map(|cell| {
        let (kind, rest) = cell.split_once('/')?;
        let (op, phase) = rest.split_once('/')?;
        let told = words(&format!("--ranks {RANKS} --op {op} --fault {kind}@phase={phase}"));
        Some(("each cell", options.share(seeds), told))
    });
    let Played { sums: all, mut faults, .. } = play(options, parts)?;
    let hits =
        |cell: &String| all.iter().filter_map(|(_, totals)| totals["cells"][cell].as_u64()).sum::<u64>();
    let missed: Vec<&String> = cells.keys().filter(|cell| hits(cell) < least).collect();
    let hit = cells.len() - missed.len();
    let fewest = cells.keys().map(hits).min().unwrap_or(0);
    println!("{hit} of {} cells hit {least} times and more, each at least {fewest} times", cells.len());
    let goal = if options.size == Size::Ci { 80 } else { 100 };
    if hit * 100 < goal * cells.len() {
        faults.push(format!("cells: {hit} of {} hit {least} times, goal {goal} %: {missed:?}", cells.len()));
    }
    let unknown =
        |(_, totals): &(&str, Value)| totals["cells"].as_object().is_none_or(|own| own.len() != cells.len());
    if all.iter().any(unknown) {
        faults.push("cells: one was hit that cannot be hit".to_owned());
    }
    Ok(faults)
}

/// Every rank killed behind every event of some operations.
pub(super) fn kills(options: &Options) -> Result<Vec<String>> {
    let schedules = options.share(options.size.of([1, 3, 20]));
    let each = "--each-event --life 1 --operations 1 --count 24";
    let parts = REFERENCES.iter().flat_map(|(op, algorithm)| {
        (0..RANKS).map(move |rank| {
            let told =
                format!("--ranks {RANKS} --op {op} --algo {algorithm} {each} --fault kill:rank={rank}");
            ("each event", schedules, words(&told))
        })
    });
    Ok(play(options, parts)?.faults)
}

/// The same lives in many schedules.
pub(super) fn schedules(options: &Options) -> Result<Vec<String>> {
    let schedules = options.share(options.size.of([100, 1_000, 10_000]));
    let nothing = sim::play(options, 1, &words("--faults 0"))?;
    let cells = nothing["cells"].as_object().context("`sim` counts cells")?;
    let ops = cells.keys().filter_map(|cell| cell.strip_prefix("kill/")?.strip_suffix("/in-flight"));
    let (mut parts, mut none) = (Vec::new(), Vec::new());
    for op in ops {
        // Only lives that show both: graphs that are made, and graphs that are replayed.
        let mut lives = 0;
        for life in 1..=MOST_LIVES {
            let told = words(&format!("--op {op} --life {life} --operations 1"));
            let totals = sim::play(options, 1, &told)?;
            let has = |outcome: &str| totals["cache"][outcome].as_u64() > Some(0);
            if has("hit") && has("miss") {
                parts.push(("a schedule", schedules, told));
                lives += 1;
            }
            if lives == LIVES {
                break;
            }
        }
        if lives < LIVES {
            none.push(format!("{op}: only {lives} of {MOST_LIVES} lives have hits and misses"));
        }
    }
    let Played { each, mut faults, .. } = play(options, parts)?;
    faults.extend(none);
    for (told, totals) in each {
        let outputs = totals["outputs"].as_array().map(Vec::len);
        if outputs != Some(1) {
            faults.push(format!("{told}: {outputs:?} different outputs"));
        }
    }
    Ok(faults)
}

/// A part of a leg: the name that parts which belong together have, seeds, what `sim` is told.
type Part = (&'static str, u64, Vec<String>);

/// What became of parts.
#[derive(Default)]
struct Played {
    /// Totals of those of one name, in order.
    sums: Vec<(&'static str, Value)>,
    /// Totals of each, with what `sim` was told.
    each: Vec<(String, Value)>,
    /// What is not as it must be.
    faults: Vec<String>,
}

/// Plays parts, and prints the sums.
fn play(options: &Options, parts: impl IntoIterator<Item = Part>) -> Result<Played> {
    let Played { mut sums, mut each, mut faults } = Played::default();
    for (name, seeds, told) in parts {
        let totals = sim::play(options, seeds, &told)?;
        faults.extend(sim::judge(name, &totals, &told));
        match sums.last_mut() {
            Some((last, sum)) if *last == name => sim::add(sum, &totals),
            _ => sums.push((name, totals.clone())),
        }
        each.push((told.join(" "), totals));
    }
    sums.iter().for_each(|(name, totals)| sim::print(options.json, name, totals));
    Ok(Played { sums, each, faults })
}

/// Returns which kinds of faults have been put in less often than that.
fn rare(all: &[(&str, Value)], each: u64) -> Result<Vec<String>> {
    let kinds = command::output(sim::program().args(["faults", "--json"]))?;
    let name = |line: &str| Some(serde_json::from_str::<Value>(line).ok()?["name"].as_str()?.to_owned());
    let kinds: Vec<String> = kinds.lines().filter_map(name).collect();
    let count =
        |kind: &str| all.iter().filter_map(|(_, totals)| totals["faults"][kind].as_u64()).sum::<u64>();
    let rare = kinds.iter().map(|kind| (kind, count(kind))).filter(|(_, count)| *count < each);
    Ok(rare.map(|(kind, count)| format!("{kind}: put in {count} times of {each}")).collect())
}
