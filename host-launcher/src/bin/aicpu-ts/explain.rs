//! `aicpu-ts explain`: every candidate of an operation with its modelled time, and why one is chosen.

mod cache;

use core::fmt::Write;
use std::panic::resume_unwind;
use std::thread;

use comfy_table::{CellAlignment, Table, presets};
use host_launcher::Result;
use host_launcher::select::parts::{Part, Parts, micros};
use host_launcher::select::profile::Profile;
use host_launcher::select::{Candidate, Explanation, Question, Row, Selector};
use host_launcher::settings::Settings;
use host_launcher::topology::Topology;
use serde_json::{Value, json};
use wire::launch::Algorithm;

use crate::args::ExplainArgs;
use crate::output::Output;
use crate::run::{file, question};
use crate::topo::world;

/// Profiles that are shown where none is named: the one `run` chooses by, and a product.
const SHOWN: [&str; 2] = ["software-npu", "atlas-a2"];

pub(crate) fn explain(args: &ExplainArgs, output: &mut Output) -> Result<()> {
    let settings = Settings::from_env(std::env::vars_os())?;
    for warning in settings.warnings() {
        eprintln!("{warning}");
    }
    let topology = world(&args.operation.world)?;
    if args.cache {
        return cache::explain(args, &topology, &settings, output);
    }
    let question = question(&args.operation, &topology)?;
    let file = file(&args.operation)?;
    let named: Vec<&str> = args.profile.iter().map(String::as_str).collect();
    let names = if named.is_empty() { &SHOWN[..] } else { &named };
    let profiles = names.iter().map(|name| Profile::named(name)).collect::<Result<Vec<_>>>()?;
    // Each on a thread of its own: with many ranks one takes a second.
    let explained = thread::scope(|scope| {
        let explain = |profile: Profile| {
            let (topology, settings, question, file) = (&topology, &settings, &question, &file);
            scope.spawn(move || {
                let selector = Selector::new(topology, profile.clone(), settings)?.offering(file.clone());
                Ok((profile, selector.explain(question)?))
            })
        };
        let threads: Vec<_> = profiles.into_iter().map(explain).collect();
        let done =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        done.collect::<Result<Vec<_>>>()
    })?;
    if output.is_json() {
        output.line(&value(&question, &topology, &explained));
    } else {
        for (profile, explanation) in &explained {
            output.text(&text(&question, &topology, profile, explanation));
        }
    }
    // What cannot be carried out at all is a failure, after the reasons.
    explained.iter().try_for_each(|(_, explanation)| explanation.choice().map(|_| ()))
}

fn text(question: &Question, topology: &Topology, profile: &Profile, explanation: &Explanation) -> String {
    let bytes = question.count.saturating_mul(question.dtype.size_bytes());
    let Question { op, dtype, count, reduce, .. } = question;
    let reduce = if op.reduces() { format!(" {reduce}") } else { String::new() };
    let (ranks, servers) = (topology.ranks(), topology.servers());
    let mut text = format!(
        "{op} {dtype} × {count} ({bytes} bytes){reduce} on {ranks} ranks of {servers} server(s), modelled on {}\n\n",
        profile.name
    );
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["candidate", "µs", "latency", "bandwidth", "reduce", "× bound", "limited by"]);
    let possible = || explanation.rows.iter().filter(|row| row.rejected.is_none());
    for row in possible() {
        let Some(time) = row.time else { continue };
        let [total, latency, bandwidth, reduce] =
            [time.total(), time.latency(), time.bandwidth(), time.reduce()].map(micros);
        table.add_row([
            row.candidate.to_string(),
            format!("{total:.2}"),
            format!("{latency:.2}"),
            format!("{bandwidth:.2}"),
            format!("{reduce:.2}"),
            ratio(explanation, &time).map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")),
            time.limit().map_or("nothing", Part::name).to_owned(),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut line = |line: String| text.write_str(&line).expect("a String takes any text");
    line(format!("{table}\n\n"));
    if let Ok(choice) = explanation.choice() {
        line(format!("chosen       {}: {}\n", choice.candidate(), choice.why));
    }
    let bound = explanation.bound;
    line(format!(
        "lower bound  {:.2} µs = {:.2} latency + {:.2} bandwidth\n",
        micros(bound.total()),
        micros(bound.latency),
        micros(bound.bandwidth)
    ));
    for Row { candidate, rejected, .. } in &explanation.rows {
        if let Some(reason) = rejected {
            line(format!("rejected     {candidate}: {reason}\n"));
        }
    }
    for algorithm in &explanation.missing {
        line(format!("rejected     {algorithm}: {}\n", missing(question, *algorithm)));
    }
    line("\n".to_owned());
    text
}

fn missing(question: &Question, algorithm: Algorithm) -> String {
    format!("does not carry out {}", question.op)
        + if algorithm == Algorithm::HalvingDoubling { ": it halves the whole" } else { "" }
}

/// How many times the lower bound a time is; `None` without a bound.
fn ratio(explanation: &Explanation, time: &Parts) -> Option<f64> {
    let bound = explanation.bound.total();
    (bound > 0).then(|| micros(time.total()) / micros(bound))
}

fn value(question: &Question, topology: &Topology, explained: &[(Profile, Explanation)]) -> Value {
    let profiles: Vec<Value> = explained
        .iter()
        .map(|(profile, explanation)| profile_value(question, profile, explanation))
        .collect();
    let first = profiles.first().cloned().unwrap_or_default();
    json!({
        "op": question.op.name(),
        "dtype": question.dtype.name(),
        "count": question.count,
        "bytes": question.count.saturating_mul(question.dtype.size_bytes()),
        "reduce": question.op.reduces().then(|| question.reduce.name()),
        "ranks": topology.ranks(),
        "servers": topology.servers(),
        "chosen": first["chosen"],
        "why": first["why"],
        "profiles": profiles,
    })
}

fn profile_value(question: &Question, profile: &Profile, explanation: &Explanation) -> Value {
    let possible = explanation.rows.iter().filter(|row| row.rejected.is_none());
    let candidates: Vec<Value> = possible
        .filter_map(|row| {
            let time = row.time?;
            let mut value = named(row.candidate);
            value["modelled_us"] = micros(time.total()).into();
            value["latency_us"] = micros(time.latency()).into();
            value["bandwidth_us"] = micros(time.bandwidth()).into();
            value["reduce_us"] = micros(time.reduce()).into();
            value["parts_us"] = serde_json::to_value(time).unwrap_or_default();
            value["limit"] = time.limit().map(Part::name).into();
            value["ratio_to_bound"] = ratio(explanation, &time).into();
            Some(value)
        })
        .collect();
    let unwanted = explanation.rows.iter().filter_map(|row| {
        let mut value = named(row.candidate);
        value["reason"] = row.rejected.clone()?.into();
        Some(value)
    });
    let missing = explanation
        .missing
        .iter()
        .map(|algorithm| json!({ "algorithm": algorithm.name(), "reason": missing(question, *algorithm) }));
    let choice = explanation.choice().ok();
    json!({
        "profile": profile.name,
        "about": profile.about,
        "chosen": choice.as_ref().map(|choice| named(choice.candidate())),
        "why": choice.map(|choice| choice.why),
        "limit": candidates.first().map(|first| first["limit"].clone()),
        "lower_bound_us": micros(explanation.bound.total()),
        "lower_bound_latency_us": micros(explanation.bound.latency),
        "lower_bound_bandwidth_us": micros(explanation.bound.bandwidth),
        "candidates": candidates,
        "rejected": unwanted.chain(missing).collect::<Vec<_>>(),
    })
}

fn named(candidate: Candidate) -> Value {
    let levels: Vec<_> = candidate.levels.iter().flatten().map(|level| level.name()).collect();
    json!({
        "algorithm": candidate.algorithm.name(), "levels": levels, "staging": candidate.staging.name(),
    })
}
