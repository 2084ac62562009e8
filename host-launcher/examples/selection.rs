//! `cargo xtask bench selection`: how much slower what is chosen is than the best candidate, both modelled.
//!
//! What is chosen is chosen as in a run: from a table, by the class of the size. The best is the best of all candidates
//! at the very size, where there are few ranks by the naive simulation of the tests, which shares only the list of tasks
//! with the model, elsewhere by the model. The worst of the grid may be 1.05.

#[path = "../tests/selection/naive.rs"]
mod naive;

use core::error::Error;
use std::process::ExitCode;

use host_launcher::rank_table::RankTable;
use host_launcher::select::profile::Profile;
use host_launcher::select::{Candidate, Question, Selector, operation};
use host_launcher::settings::Settings;
use host_launcher::topology::Topology;
use serde_json::json;
use wire::launch::OpKind;

/// Servers and devices in each.
const WORLDS: [(u32, u32); 8] = [(1, 2), (1, 4), (1, 8), (2, 2), (2, 8), (8, 1), (3, 5), (4, 8)];
/// Bytes per rank: powers of two, and sizes between them.
const SIZES: [u64; 10] =
    [8, 1 << 10, 5_000, 16 << 10, 40_000, 100_000, 256 << 10, 1 << 20, 10_000_000, 64 << 20];
/// Most ranks that the naive simulation is used for.
const NAIVE_RANKS: u32 = 5;
/// The worst ratio that is allowed.
const LIMIT: f64 = 1.05;

/// Chosen and best.
struct Case {
    name: String,
    chosen: (Candidate, u64),
    best: (Candidate, u64),
    naive: bool,
}

impl Case {
    fn ratio(&self) -> f64 {
        self.chosen.1 as f64 / self.best.1.max(1) as f64
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let json = std::env::args().any(|argument| argument == "--json");
    let (mut worst, mut sum) = (None::<Case>, 0.0);
    let (mut cases, mut naive_cases) = (0_u32, 0_u32);
    for name in Profile::names() {
        for (servers, devices) in WORLDS {
            let topology = Topology::new(&RankTable::uniform(servers * devices, devices)?);
            let profile = Profile::named(name)?;
            let mut selector =
                Selector::new(&topology, profile.clone(), &Settings::default()).expect("few ranks");
            for &op in OpKind::ALL {
                // A barrier has one size.
                let sizes = if op == OpKind::Barrier { &SIZES[..1] } else { &SIZES[..] };
                // In place, where that is something else: neither with a vector nor without data.
                let places = if op.has_vector() || op == OpKind::Barrier { 1 } else { 2 };
                let all = sizes.iter().flat_map(|&bytes| {
                    [false, true].into_iter().take(places).map(move |place| (bytes, place))
                });
                for (bytes, in_place) in all {
                    let question = Question { op, count: bytes / 4, in_place, ..Question::default() };
                    let place = if in_place { "/in-place" } else { "" };
                    let case_name = format!("selection/{name}/{op}/{servers}x{devices}/{bytes}{place}");
                    let case = case(&mut selector, &profile, &question, case_name)?;
                    cases += 1;
                    sum += case.ratio();
                    naive_cases += u32::from(case.naive);
                    if json {
                        println!("{}", line(&case));
                    }
                    if worst.as_ref().is_none_or(|worst| worst.ratio() < case.ratio()) {
                        worst = Some(case);
                    }
                }
            }
        }
    }
    let worst = worst.ok_or("no case")?;
    let (ratio, mean) = (worst.ratio(), sum / f64::from(cases));
    if json {
        let summary = json!({
            "name": "selection", "ratio": ratio, "mean": mean, "limit": LIMIT, "cases": cases, "naive_cases": naive_cases,
            "worst": worst.name,
        });
        println!("{summary}");
    } else {
        println!("{cases} cases, {naive_cases} of them against the naive simulation");
        println!("mean   {mean:.4}");
        println!("worst  {ratio:.4} (at most {LIMIT})  {}", worst.name);
        println!("chosen {}, best {}", worst.chosen.0, worst.best.0);
    }
    Ok(if ratio <= LIMIT { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn case(
    selector: &mut Selector<'_>,
    profile: &Profile,
    question: &Question,
    name: String,
) -> Result<Case, Box<dyn Error>> {
    let chosen = selector.choose(question)?.candidate();
    let explanation = selector.explain(question)?;
    let ranks = selector.machine().topology().ranks();
    let naive = ranks <= NAIVE_RANKS;
    let mut times = Vec::new();
    for row in explanation.rows.iter().filter(|row| row.rejected.is_none()) {
        let modelled = row.time.map_or(u64::MAX, |time| time.total());
        let time = if naive {
            let operation = operation(question, ranks, row.candidate);
            let chunks = selector
                .machine()
                .tasks(&operation, question.in_place)
                .map_err(|error| format!("{error:?}"))?;
            let time = chunks
                .into_iter()
                .try_fold(0_u64, |sum, chunk| Some(sum + naive::time(profile, &chunk.tasks)? * chunk.times));
            time.ok_or_else(|| format!("{name}: {} never ends", row.candidate))?
        } else {
            modelled
        };
        times.push((row.candidate, time));
    }
    let find = |wanted| times.iter().find(|(candidate, _)| *candidate == wanted).copied();
    let chosen = find(chosen).ok_or_else(|| format!("{name}: {chosen} was chosen and is no candidate"))?;
    let best = times.iter().min_by_key(|(_, time)| *time).copied().ok_or("no candidate")?;
    Ok(Case { name, chosen, best, naive })
}

fn line(case: &Case) -> serde_json::Value {
    let micros = |time: u64| time as f64 / 1e9;
    json!({
        "name": case.name,
        "chosen": case.chosen.0.to_string(),
        "best": case.best.0.to_string(),
        "chosen_us": micros(case.chosen.1),
        "best_us": micros(case.best.1),
        "ratio": case.ratio(),
        "oracle": if case.naive { "naive simulation" } else { "model" },
    })
}
