//! `aicpu-ts verify`: proves the graphs of an operation, without a device.

use comfy_table::{Table, presets};
use graph_verifier::{Counterexample, Obligation, Place, Proof};
use host_launcher::communicator::Operation;
use host_launcher::prove::{Case, Verdict, check_size};
use host_launcher::settings::Settings;
use host_launcher::topology::Topology;
use host_launcher::{Error, Result};
use serde_json::{Value, json};
use wire::ErrorCode;
use wire::launch::{Algorithm, Staging};

use crate::args::{DEFAULT_PROFILE, OperationArgs, VerifyArgs};
use crate::output::Output;
use crate::run;
use crate::topo::world;

/// An operation and what came of its proof.
type Proved = (Operation, Verdict);

pub(crate) fn verify(args: &VerifyArgs, output: &mut Output) -> Result<()> {
    let settings = Settings::from_env(std::env::vars_os())?;
    let topology = world(&args.operation.world)?;
    // Before anything is chosen, which takes long for very many ranks.
    check_size(topology.ranks(), 1)?;
    let prove = |what: &OperationArgs| -> Result<Proved> {
        let (operation, _) = run::operation(what, DEFAULT_PROFILE, &topology, &settings)?;
        let operation = Operation { chunk: args.chunk, ..operation };
        let buffer_bytes = *settings.buffer_bytes.value();
        let case = Case::new(operation.clone(), &topology, args.operation.in_place, buffer_bytes);
        Ok((operation, case.prove(&topology)?))
    };
    let proved: Vec<Proved> = if args.all_algos {
        let found = all(args)
            .map(|what| prove(&what))
            .filter(|proved| !matches!(proved, Err(error) if has_no_plan(error)));
        found.collect::<Result<_>>()?
    } else {
        vec![prove(&args.operation)?]
    };
    if proved.is_empty() {
        return Err(Error::new(
            ErrorCode::PLAN_OP,
            format!("no algorithm carries out {}", args.operation.op.op()),
        ));
    }
    if output.is_json() {
        for (operation, verdict) in &proved {
            output.line(&line(args, &topology, operation, verdict));
        }
    } else {
        output.text(&format!("{}\n", table(&proved)));
    }
    match proved.into_iter().find_map(|(operation, verdict)| Some((operation, verdict.proof.err()?))) {
        None => Ok(()),
        Some((operation, refuted)) => {
            Err(Error::new(refuted.code(), refuted.to_string()).at(operation.to_string()))
        }
    }
}

/// Whether an error says that an algorithm cannot do this at all.
fn has_no_plan(error: &Error) -> bool {
    [ErrorCode::PLAN_OP, ErrorCode::PLAN_STAGING].contains(&error.code())
}

/// Every algorithm and staging.
fn all(args: &VerifyArgs) -> impl Iterator<Item = OperationArgs> {
    let what = &args.operation;
    let pairs =
        Algorithm::ALL.iter().flat_map(|one| Staging::ALL.iter().map(move |staging| (*one, *staging)));
    pairs.map(move |(algorithm, staging)| OperationArgs {
        algo: Some(algorithm),
        staging: Some(staging),
        ..what.clone()
    })
}

fn table(proved: &[Proved]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["operation", "proved", "obligations", "tasks", "µs"]);
    for (operation, verdict) in proved {
        let number = |obligation: Option<&Obligation>| obligation.map_or(0, |last| *last as u8);
        let count = verdict.obligations.len();
        let says = match &verdict.proof {
            Ok(_) => format!("{count} of {count}"),
            Err(refuted) => format!("not V{}", number(Some(&refuted.obligation))),
        };
        table.add_row([
            operation.to_string(),
            if verdict.proof.is_ok() { "yes" } else { "no" }.to_owned(),
            says,
            verdict.tasks.to_string(),
            format!("{:.1}", micros(verdict)),
        ]);
    }
    table
}

fn micros(verdict: &Verdict) -> f64 {
    verdict.elapsed.as_secs_f64() * 1e6
}

fn line(args: &VerifyArgs, topology: &Topology, operation: &Operation, verdict: &Verdict) -> Value {
    let names: Vec<String> = verdict.obligations.iter().map(ToString::to_string).collect();
    let (retry, unused_bytes) = match &verdict.proof {
        Ok(Proof { retry, unused_bytes, .. }) => (Some(*retry), Some(*unused_bytes)),
        Err(_) => (None, None),
    };
    json!({
        "op": operation.op.name(), "root": operation.root, "algorithm": operation.algorithm.name(), "staging": operation.staging.name(),
        "ranks": topology.ranks(), "count": operation.count, "dtype": operation.dtype.name(),
        "reduce": operation.op.reduces().then(|| operation.reduce.name()), "in_place": args.operation.in_place,
        "proved": verdict.proof.is_ok(), "obligations": names, "tasks": verdict.tasks, "us": micros(verdict),
        "retry": retry, "unused_bytes": unused_bytes,
        "counterexample": verdict.proof.as_ref().err().map(|refuted| counterexample(refuted)),
    })
}

fn counterexample(refuted: &Counterexample) -> Value {
    let place = |place: &Place| {
        json!({
            "rank": place.rank, "thread": place.thread, "operation": place.operation, "task": place.task,
            "phase": place.phase.name(), "step": place.step, "text": place.text,
        })
    };
    let bytes = refuted.bytes.as_ref().map(|bytes| {
        json!({ "rank": bytes.rank, "buffer": bytes.buffer.name(), "from": bytes.range.start, "to": bytes.range.end })
    });
    json!({
        "obligation": refuted.obligation.to_string(), "code": refuted.code().0, "why": refuted.why,
        "at": refuted.at.as_ref().map(place), "with": refuted.with.as_ref().map(place), "bytes": bytes,
    })
}
