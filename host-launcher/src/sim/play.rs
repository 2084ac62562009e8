//! Plays a scenario and judges it.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::catch_unwind;

use device_model::driver::Usage;
use device_model::fault::Phase;
use fastrand::Rng;
use wire::ErrorCode;
use wire::launch::CacheMode;

use super::course::Course;
use super::scenario::{Part, Scenario};
use super::verdict::{Blame, Played, Verdict};
use crate::cluster::Cluster;
use crate::communicator::{Communicator, Config};
use crate::error::{Error, Result};
use crate::faults::{Conduct, Fault, Kind};
use crate::rank_table::RankTable;
use crate::run::{REACH, Run, Setup, memory_for};
use crate::topology::Topology;

/// Upper bound of a communicator's scratch per rank, bytes.
pub(super) const SCRATCH: u64 = 64 << 10;
/// How much later than its deadline a call may return: what its report takes to tell slow from stopped, and a step.
const SLACK: Duration = Duration::from_millis(300);

/// Within what time all ranks are out of an operation that is aborted.
const ABORT: Duration = Duration::from_millis(100);

/// Carries a scenario out. Never panics and never takes longer than its operations' deadlines.
#[must_use]
pub fn play(scenario: &Scenario) -> Played {
    let failed = |verdict| Played {
        verdict,
        blame: Blame::None,
        report: String::new(),
        lasted: Duration::ZERO,
        digest: 0,
        course: Course::default(),
    };
    match catch_unwind(AssertUnwindSafe(|| stage(scenario))) {
        Ok(Ok(played)) => played,
        Ok(Err(error)) => failed(Verdict::Unrecovered(error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            failed(Verdict::Panic(text.unwrap_or_default()))
        }
    }
}

fn stage(scenario: &Scenario) -> Result<Played> {
    let mut scenario = scenario.clone();
    let topology = Topology::new(&RankTable::uniform(scenario.ranks, scenario.devices_per_server)?);
    scenario.fit(&topology);
    let memory = |part: &Part| memory_for(&part.operation, scenario.ranks, SCRATCH, 2).unwrap_or(0);
    let memory = scenario.parts.iter().map(memory).max().unwrap_or(0);
    let cluster = Cluster::simulate(topology, memory, scenario.seed)?;
    let start = cluster.clock().now();
    let before = usage(&cluster);
    let (failure, course) = perform(&cluster, &scenario);
    let noticed = course.noticed;
    let failed_at = failure.as_ref();
    let aborted = failed_at.is_some_and(|error| error.code() == ErrorCode::COMM_ABORTED);
    let deadline = if aborted { abort_limit(&scenario.faults) } else { scenario.timeout + SLACK };
    let late = noticed > deadline;
    let mut verdict = match failed_at {
        _ if late => Verdict::Hang(format!("a call that may take {deadline:?} took {noticed:?}")),
        None => Verdict::Right,
        Some(error) if error.code() == ErrorCode::RESULT_WRONG && is_undetectable(&scenario, &cluster) => {
            Verdict::Undetectable
        }
        Some(error) if error.code() == ErrorCode::RESULT_WRONG => Verdict::Silent(error.to_string()),
        Some(error) => Verdict::Reported(error.code()),
    };
    let blame = blame(scenario.ranks, &scenario.faults, failed_at);
    if !verdict.is_failure() {
        (0..scenario.ranks).try_for_each(|rank| cluster.repair(rank))?;
        if let Some(trouble) = aftermath(&cluster, &scenario, before, failed_at.is_some()) {
            verdict = Verdict::Unrecovered(trouble);
        }
    }
    Ok(Played {
        verdict,
        blame,
        report: failure.map(|error| error.to_string()).unwrap_or_default(),
        lasted: cluster.clock().since(start),
        digest: cluster.npu(0).fabric().event_digest(),
        course,
    })
}

/// Returns how long a call that is aborted may take at most, from its launches on.
fn abort_limit(faults: &[Fault]) -> Duration {
    let after = faults.iter().filter_map(|fault| match fault.kind {
        // Of a phase, which is waited for a while.
        Kind::Abort(after) => Some(if fault.at.is_some() { REACH } else { after }),
        _ => None,
    });
    // The launches themselves, one rank after another, come before.
    after.max().unwrap_or_default() + ABORT + Duration::from_millis(1)
}

fn usage(cluster: &Cluster) -> Vec<Usage> {
    (0..cluster.topology().ranks()).map(|rank| cluster.npu(rank).usage()).collect()
}

pub(super) fn config(scenario: &Scenario, cache: CacheMode) -> Config {
    Config {
        name: "sim".to_owned(),
        buffer_bytes: SCRATCH,
        queue_depth: scenario.queue_depth,
        timeout: scenario.timeout,
        timeout_source: "--timeout".to_owned(),
        cache,
        // A life is judged by how it ends; a second of virtual time is nothing to warn of.
        warn_after: Vec::new(),
        ..Config::default()
    }
}

/// Carries the parts out on one communicator, and destroys it. Returns what failed.
fn perform(cluster: &Cluster, scenario: &Scenario) -> (Option<Error>, Course) {
    let mut conduct = Conduct { dice: Some(Rng::with_seed(scenario.seed ^ 0x5eed)), ..Conduct::default() };
    for fault in &scenario.faults {
        fault.apply(cluster, &mut conduct);
    }
    let kinds: Vec<Kind> = scenario.faults.iter().map(|fault| fault.kind).collect();
    let exhaustible = kinds.iter().copied().find(|kind| matches!(kind, Kind::Exhaust(_)));
    let mut course = Course::default();
    let mut go = || -> Result<()> {
        let mut comm = Communicator::create(cluster, config(scenario, scenario.cache))?;
        for (number, part) in scenario.parts.iter().enumerate() {
            let dice = conduct.dice.clone();
            let done =
                carry_out(cluster, comm, (scenario.payload(), number), part, &mut conduct, &mut course);
            let full = |error: &Error| error.code() == ErrorCode::DEVICE_MEMORY_FULL;
            if done.as_ref().is_err_and(full) {
                // The driver has refused it: resources of an operation are made before it is launched.
                conduct.struck.extend(exhaustible.map(|kind| (kind, Phase::BeforeDoorbell)));
            }
            course.note_struck(cluster, part.operation.op, &kinds, &mut conduct);
            comm = done?;
            conduct.dice = dice;
        }
        comm.destroy()
    };
    (go().err(), course)
}

/// Carries one part out and returns the communicator; after a failure it has been destroyed.
pub(super) fn carry_out<'c>(
    cluster: &'c Cluster,
    comm: Communicator<'c>,
    (seed, number): (u64, usize),
    part: &Part,
    conduct: &mut Conduct,
    course: &mut Course,
) -> Result<Communicator<'c>> {
    let Part { operation, in_place, times } = part.clone();
    let chunk = match comm.chunk_elements(&operation, in_place) {
        Ok(chunk) => chunk,
        Err(error) => return comm.destroy().and(Err(error)),
    };
    let setup = Setup { chunk, seed, in_place, buffers: 1, capture: 0 };
    let mut run = Run::prepare(cluster, comm, operation, &setup)?;
    run.behave(core::mem::take(conduct));
    for _ in 0..times {
        let start = cluster.clock().now();
        let step = run.step();
        course.noticed = cluster.clock().since(start);
        match step.and_then(|(_, completed)| Ok((completed, run.outputs()?))) {
            Ok((completed, outputs)) => course.note_step(number, &completed, outputs),
            Err(error) => {
                *conduct = run.conduct().clone();
                // A process that fails here still has to be able to go on: what it gives back first is the communicator.
                return run.abandon().and(Err(error));
            }
        }
    }
    *conduct = run.conduct().clone();
    run.end()
}

/// Returns whether nothing but a comparison of the bytes can show the faults: a bit that flips behind every check code,
/// one that makes a ring entry mean something else, all ranks that launch asked for the same other thing, or a signal too
/// many that stood in for one too few.
fn is_undetectable(scenario: &Scenario, cluster: &Cluster) -> bool {
    let flips = |fault: &Fault| match fault.kind {
        Kind::FlipBit { silent, .. } => silent,
        // Another token is never right.
        Kind::Garble(bit) => !(320..384).contains(&(bit % 512)),
        _ => false,
    };
    let mistaken = |fault: &Fault| matches!(fault.kind, Kind::Mismatch(_));
    // A rank that launches nothing is missed by nobody where the others are asked for nothing.
    let astray =
        |fault: &Fault, rank| (mistaken(fault) || fault.kind == Kind::Absent) && fault.rank == Some(rank);
    let all_astray =
        || (0..scenario.ranks).all(|rank| scenario.faults.iter().any(|fault| astray(fault, rank)));
    scenario.faults.iter().any(flips)
        || cluster.npu(0).fabric().has_masked_signals()
        || (scenario.faults.iter().any(mistaken) && all_astray())
}

/// Judges whom a report blames.
fn blame(ranks: u32, faults: &[Fault], failure: Option<&Error>) -> Blame {
    let Some(report) = failure.and_then(Error::diagnosis) else { return Blame::None };
    let only_slow = |fault: &Fault| matches!(fault.kind, Kind::Slow(_) | Kind::Pause(_));
    let said_dead = report.code == ErrorCode::KERNEL_SILENT.0 || report.cause.contains("stopped");
    if !faults.is_empty() && faults.iter().all(only_slow) && said_dead {
        return Blame::FalseDeath;
    }
    let named = |fault: &Fault| match fault.kind {
        // A link has two ends, of two ranks that differ either may be the wrong one, a wait that has been carried out
        // behind a frozen head looks as if its signal had been lost, and an entry with another token as if the peer had
        // taken its memory back.
        Kind::CutLink | Kind::DuplicateNotify(_) | Kind::Head(_) | Kind::Garble(_) => {
            [report.culprit_rank, report.peer, Some(report.rank)].contains(&fault.rank)
        }
        Kind::Mismatch(_) if ranks == 2 => report.culprit_rank.is_some(),
        _ => report.culprit_rank == fault.rank,
    };
    if faults.iter().any(named) { Blame::Right } else { Blame::Wrong }
}

/// Checks that nothing stayed taken, and, after a failure, that a new communicator works.
fn aftermath(cluster: &Cluster, scenario: &Scenario, before: Vec<Usage>, failed: bool) -> Option<String> {
    let after = usage(cluster);
    if let Some((rank, (before, after))) =
        (0..).zip(before.into_iter().zip(after)).find(|(_, (before, after)): &(u32, _)| before != after)
    {
        return Some(format!("rank {rank} had {before:?}, and has {after:?}"));
    }
    if !failed {
        return None;
    }
    let part = Part { times: 1, ..scenario.parts.first()?.clone() };
    let (mut conduct, mut course) = Default::default();
    let again = Communicator::create(cluster, config(scenario, CacheMode::On))
        .and_then(|comm| carry_out(cluster, comm, (!scenario.payload(), 0), &part, &mut conduct, &mut course))
        .and_then(Communicator::destroy);
    again.err().map(|error| format!("a new communicator: {error}"))
}
