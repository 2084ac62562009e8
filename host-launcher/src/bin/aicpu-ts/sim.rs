//! `aicpu-ts sim`: one seed or many, and the shortest command for one that fails. `aicpu-ts faults`: what there is.

use core::time::Duration;

use comfy_table::{Table, presets};
use host_launcher::faults::{KINDS, cells};
use host_launcher::sim::{FaultPlan, Given, Limits, Scenario, Totals, at_each_event, many, minimized, play};
use host_launcher::{Error, Result};
use serde_json::json;
use wire::ErrorCode;

use crate::args::SimArgs;
use crate::output::Output;

pub(crate) fn sim(args: &SimArgs, output: &mut Output) -> Result<()> {
    let faults = if args.fault.is_empty() {
        FaultPlan::Seeded(args.faults)
    } else {
        FaultPlan::Given(args.fault.clone())
    };
    let limits = Limits {
        ranks: args.ranks,
        operations: args.operations,
        count: args.count,
        given: Given { op: args.op, algorithm: args.algo, life: args.life },
        faults,
        timeout: Duration::from_millis(args.timeout),
    };
    // A panic in a scenario is a result; its text is printed with it.
    std::panic::set_hook(Box::new(|_| {}));
    match args.seeds {
        Some(seeds) => run_many(args, &limits, seeds, output),
        None => run_one(&Scenario::new(args.seed, &limits), output),
    }
}

fn run_one(scenario: &Scenario, output: &mut Output) -> Result<()> {
    let played = play(scenario);
    let verdict = &played.verdict;
    if output.is_json() {
        output.line(&json!({
            "seed": scenario.seed, "verdict": verdict.name(), "detail": verdict.detail(),
            "report": played.report, "blame": played.blame, "noticed_s": played.course.noticed.as_secs_f64(),
            "lasted_s": played.lasted.as_secs_f64(), "digest": format!("{:016x}", played.digest),
            "cells": played.course.cells.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "command": scenario.to_string(),
        }));
    } else {
        let lasted = played.lasted.as_secs_f64();
        let digest = played.digest;
        output.text(&format!("{scenario}\n{}, {lasted:.6} s, digest {digest:016x}\n", verdict.name()));
        for text in [verdict.detail(), &played.report].into_iter().filter(|text| !text.is_empty()) {
            output.text(&format!("{text}\n"));
        }
    }
    if verdict.is_failure() { Err(failure(scenario, verdict.name(), verdict.detail())) } else { Ok(()) }
}

fn run_many(args: &SimArgs, limits: &Limits, seeds: u64, output: &mut Output) -> Result<()> {
    let range = args.seed..args.seed.saturating_add(seeds);
    let totals = if args.each_event {
        at_each_event(range, limits, args.jobs)
    } else {
        many(range, limits, args.jobs, None, &|_| {})
    };
    let first = totals.first_failed.as_ref().map(minimized).zip(totals.first_failures.first());
    if output.is_json() {
        let mut line = serde_json::to_value(&totals).unwrap_or_default();
        for cell in cells().map(|cell| cell.to_string()) {
            let hits = totals.cells.get(&cell).copied().unwrap_or(0);
            line["cells"][cell] = hits.into();
        }
        line["command"] = first.as_ref().map(|(scenario, _)| scenario.to_string()).into();
        output.line(&line);
    } else {
        output.text(&format!("{}\n", table(&totals)));
    }
    match first {
        Some((scenario, (_, text))) => Err(failure(&scenario, "the first failure", text)),
        None => Ok(()),
    }
}

fn failure(scenario: &Scenario, what: &str, detail: &str) -> Error {
    let message = format!("seed {}: {what}: {detail}", scenario.seed);
    Error::new(ErrorCode::SIMULATION_FAILED, message).remedy(format!("repeat it with: {scenario}"))
}

fn table(totals: &Totals) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let list = |counts: Vec<String>| if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    let reported = totals.reported.iter().map(|(code, count)| format!("E{code} × {count}")).collect();
    let faults = totals.faults.iter().map(|(kind, count)| format!("{kind} × {count}")).collect();
    let Totals { hangs, silent_corruptions, unrecovered, panics, .. } = totals;
    for (name, value) in [
        ("seeds", totals.seeds.to_string()),
        ("faults", list(faults)),
        ("right", totals.right.to_string()),
        ("reported", list(reported)),
        ("undetectable", totals.undetectable.to_string()),
        (
            "failures",
            format!(
                "{}: {hangs} hangs, {silent_corruptions} silent corruptions, {unrecovered} unrecovered, {panics} panics",
                totals.failures
            ),
        ),
        (
            "culprit",
            format!(
                "right in {} of {} reports on one fault; slow ranks called dead: {}; noticed after at most {:.3} s",
                totals.blamed_right, totals.blamed, totals.false_deaths, totals.slowest_notice_s
            ),
        ),
        (
            "speed",
            format!("{:.1} s, {:.0} seeds per second and thread", totals.elapsed_s, totals.seeds_per_second),
        ),
    ] {
        table.add_row([name, &value]);
    }
    table
}

pub(crate) fn faults(output: &mut Output) -> Result<()> {
    if output.is_json() {
        for kind in KINDS {
            output.line(&serde_json::to_value(kind).unwrap_or_default());
        }
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["fault", "settings", "at a task", "phases", "what happens", "noticed"]);
    for kind in KINDS {
        let at_task = if kind.at_task { "yes" } else { "no" };
        let phases: Vec<&str> = kind.phases.iter().map(|phase| phase.name()).collect();
        table.add_row([kind.name, kind.settings, at_task, &phases.join(" "), kind.what, kind.noticed]);
    }
    output.text(&format!(
        "{table}\n\nKIND[:rank=R,setting=value,…][@operation=…,step=…,task=…,peer=…,nth=…,phase=…]\n\
         without a task, at any moment: kill, pause, slow, cut-link[@phase=… or event=…], abort, suspend[@phase=…]\n"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::failure;
    use host_launcher::sim::{Limits, Scenario};
    use wire::ErrorCode;

    #[test]
    fn a_seed_that_fails_is_told_with_the_command_that_repeats_it() {
        let scenario = Scenario::new(7, &Limits::default());
        let error = failure(&scenario, "hang", "rank 2 waits");
        assert_eq!(error.code(), ErrorCode::SIMULATION_FAILED);
        assert_eq!(error.message(), "seed 7: hang: rank 2 waits");
        assert_eq!(error.advice(), format!("repeat it with: {scenario}"));
        assert!(error.advice().contains("aicpu-ts sim --seed 7"), "{error}");
    }
}
