//! Why an operation did not end well: the culprit before the victims, and one thing to do.
//!
//! Works from what the device itself holds: its first error, the kernels' answers, and the descriptor at the head of
//! each ring, whose labels say step, task and peer. A wait points from the rank that waits to the rank it waits for;
//! following those pointers ends at the rank that caused it.

use core::fmt;
use std::collections::BTreeMap;

use device_model::engine::Pending;
use device_model::machine::Outcome;
use serde::Serialize;
use wire::{Cqe, ErrorCode, Phase, Sqe};

use crate::communicator::{Communicator, InFlight, Operation};
use crate::error::Error;

/// What is known about a failed operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Stable number.
    pub code: u16,
    /// Name of the code.
    pub name: &'static str,
    /// Communicator name.
    pub comm: String,
    /// Communicator instance, first 64 bits in hexadecimal.
    pub instance: String,
    /// Communicator epoch.
    pub epoch: u32,
    /// Operation: sequence, name, type, count, reduction.
    pub operation: String,
    /// Rank at the root of it, where one can be named.
    pub culprit_rank: Option<u32>,
    /// Rank on which it was noticed.
    pub rank: u32,
    /// Step of the algorithm.
    pub step: Option<u16>,
    /// Task within the operation.
    pub task: Option<u32>,
    /// Peer of the task.
    pub peer: Option<u32>,
    /// Where in the operation, in words.
    pub whereabouts: String,
    /// How long, and which deadline.
    pub since: String,
    /// The cause, in words.
    pub cause: String,
    /// What to do.
    pub remedy: String,
    /// What it did to the communicator.
    pub effect: &'static str,
}

/// Prints the error block without its code: operation, then one line per fact.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "comm {:?} instance {} epoch {}  {}", self.comm, self.instance, self.epoch, self.operation)?;
        let culprit = match self.culprit_rank {
            Some(culprit) if culprit != self.rank => format!("rank {culprit}, noticed by rank {}", self.rank),
            _ => format!("rank {}", self.rank),
        };
        write!(f, "\n  who      {culprit}")?;
        if !self.whereabouts.is_empty() {
            write!(f, "\n  where    {}", self.whereabouts)?;
        }
        if !self.since.is_empty() {
            write!(f, "\n  since    {}", self.since)?;
        }
        write!(f, "\n  cause    {}\n  do       {}\n  effect   {}", self.cause, self.remedy, self.effect)
    }
}

/// Explains why the operations of a communicator are not all done.
pub(crate) fn explain(comm: &Communicator<'_>, outcome: Outcome) -> Error {
    let refused = (0..comm.ranks.len()).find_map(|rank| Some((rank, comm.refusal_of(rank)?)));
    let guest = comm.cluster.check();
    match (outcome, refused, guest) {
        (Outcome::DeviceError(npu), ..) => match comm.cluster.machine().error(npu) {
            Some(cqe) => device_error(comm, npu, &cqe),
            None => deadline(comm),
        },
        (_, Some((rank, (launched, status))), _) => {
            let code = ErrorCode(status.code);
            let cause = format!("{} (detail {:#x})", summary(code), status.detail);
            let report = Report { cause, ..report(comm, code, rank_number(rank), launched.sequence) };
            finish(code, report)
        }
        (_, None, Err(error)) => error,
        (_, None, Ok(())) => deadline(comm),
    }
}

fn rank_number(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}

fn summary(code: ErrorCode) -> &'static str {
    code.info().map_or("unknown code", |info| info.summary)
}

fn finish(code: ErrorCode, report: Report) -> Error {
    Error::new(code, report.cause.clone()).report(report)
}

/// A report with everything that is the same for all causes.
fn report(comm: &Communicator<'_>, code: ErrorCode, rank: u32, sequence: u32) -> Report {
    let launched = comm.ranks.iter().flat_map(|state| &state.in_flight).find(|launched| launched.sequence == sequence);
    let operation = launched.map_or_else(|| format!("operation #{sequence}"), describe);
    let info = code.info();
    Report {
        code: code.0,
        name: code.name(),
        comm: comm.identity.name.clone(),
        instance: format!("{:016x}", comm.identity.instance[0]),
        epoch: comm.identity.epoch,
        operation,
        culprit_rank: Some(rank),
        rank,
        cause: summary(code).to_owned(),
        remedy: info.map_or_else(String::new, |info| info.remedy.to_owned()),
        effect: info.map_or("", |info| info.effect.sentence()),
        ..Report::default()
    }
}

fn describe(launched: &InFlight) -> String {
    let Operation { op, count, dtype, reduce, algorithm, .. } = launched.operation;
    let reduction = if op == wire::launch::OpKind::AllGather { String::new() } else { format!(" {reduce}") };
    format!("#{} {op} {dtype} × {count}{reduction} by {algorithm}", launched.sequence)
}

fn device_error(comm: &Communicator<'_>, npu: u32, cqe: &Cqe) -> Error {
    let (sequence, task) = split_task(cqe.task);
    let phase = Phase::try_from(cqe.skeleton).map_or("?", Phase::name);
    let whereabouts = format!(
        "step {} ({phase}), task {task}, queue {} position {}: opcode {}{}",
        cqe.step,
        cqe.queue,
        cqe.position,
        cqe.opcode,
        if cqe.address == 0 { String::new() } else { format!(", address {:#x}", cqe.address) },
    );
    let report = Report {
        step: Some(cqe.step),
        task: Some(task),
        peer: known_peer(cqe.peer),
        whereabouts,
        ..report(comm, cqe.code, npu, sequence)
    };
    finish(cqe.code, report)
}

/// Operation sequence and index within the operation.
fn split_task(task: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = task.to_le_bytes();
    (u32::from_le_bytes([e, f, g, h]), u32::from_le_bytes([a, b, c, d]))
}

fn known_peer(label: u16) -> Option<u32> {
    (label != Sqe::NO_PEER).then_some(u32::from(label))
}

/// What a rank that is not done waits for.
#[derive(Clone, Copy)]
struct Waiting {
    queue: u16,
    sqe: Sqe,
}

/// The deadline has passed: follow who waits for whom.
fn deadline(comm: &Communicator<'_>) -> Error {
    let waiting = waits(comm);
    let newest = comm.ranks.iter().map(|state| state.launched).max().unwrap_or(0);
    let behind: Vec<u32> = (0..)
        .zip(&comm.ranks)
        .filter(|(_, state)| state.launched < newest)
        .map(|(rank, _)| rank)
        .collect();
    if let Some(&culprit) = behind.first() {
        return not_started(comm, culprit, &behind, &waiting, newest);
    }
    // A rank that waits for one that itself waits is a victim; the other end of the chain is where it broke.
    let broken = waiting.iter().find(|(_, wait)| {
        known_peer(wait.sqe.peer).is_none_or(|peer| !waiting.contains_key(&peer))
    });
    match broken.or(waiting.iter().next()) {
        Some((&rank, wait)) => lost_signal(comm, rank, wait, &waiting),
        None => silent(comm),
    }
}

fn waits(comm: &Communicator<'_>) -> BTreeMap<u32, Waiting> {
    let mut waiting = BTreeMap::new();
    for rank in 0..comm.size() {
        if comm.is_done(rank as usize) {
            continue;
        }
        let pending = comm.cluster.machine().pending(rank);
        let at_wait = |entry: &&Pending| entry.sqe.opcode == Sqe::WAIT;
        // A wait for a peer says more than a wait for another thread of the same rank.
        let for_peer = pending.iter().filter(at_wait).find(|entry| known_peer(entry.sqe.peer).is_some());
        if let Some(entry) = for_peer.or_else(|| pending.iter().find(at_wait)).or(pending.first()) {
            waiting.insert(rank, Waiting { queue: entry.queue, sqe: entry.sqe });
        }
    }
    waiting
}

fn list(ranks: impl Iterator<Item = u32>) -> String {
    let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    if ranks.is_empty() { "none".to_owned() } else { ranks.join(", ") }
}

fn located(comm: &Communicator<'_>, rank: u32, wait: &Waiting, report: Report) -> Report {
    let Sqe { step, notify, .. } = wait.sqe;
    let (_, task) = split_task(wait.sqe.task);
    let phase = Phase::try_from(wait.sqe.phase).map_or("?", Phase::name);
    let what = match (wait.sqe.opcode, known_peer(wait.sqe.peer)) {
        (Sqe::WAIT, Some(peer)) => format!("wait notify {notify} from rank {peer}"),
        (Sqe::WAIT, None) if wait.sqe.phase == Phase::Start as u8 => format!("wait notify {notify} from the host"),
        (Sqe::WAIT, None) => format!("wait notify {notify} from another thread of rank {rank}"),
        (opcode, _) => format!("opcode {opcode} not executed"),
    };
    let timeout = comm.config.timeout;
    Report {
        step: Some(step),
        task: Some(task),
        peer: known_peer(wait.sqe.peer),
        whereabouts: format!("step {step} ({phase}), task {task}, queue {}: {what}", wait.queue),
        since: format!("{:.3} s (deadline set by {})", timeout.as_secs_f64(), comm.config.timeout_source),
        ..report
    }
}

fn not_started(
    comm: &Communicator<'_>,
    culprit: u32,
    behind: &[u32],
    waiting: &BTreeMap<u32, Waiting>,
    sequence: u32,
) -> Error {
    let code = ErrorCode::PEER_NOT_STARTED;
    let victim = waiting.iter().find(|(_, wait)| known_peer(wait.sqe.peer) == Some(culprit));
    let last = comm.ranks[culprit as usize].launched;
    let cause = format!(
        "rank {culprit} has not started operation #{sequence}; the last it started is #{last}. Ranks behind: {}. \
         Ranks waiting: {}.",
        list(behind.iter().copied()),
        list(waiting.keys().copied()),
    );
    let remedy = format!("look at rank {culprit} first: why did it not call operation #{sequence}?");
    let base = Report { cause, remedy, ..report(comm, code, culprit, sequence) };
    let report = match victim.or(waiting.iter().next()) {
        Some((&rank, wait)) => located(comm, rank, wait, Report { rank, ..base }),
        None => base,
    };
    finish(code, report)
}

fn lost_signal(comm: &Communicator<'_>, rank: u32, wait: &Waiting, waiting: &BTreeMap<u32, Waiting>) -> Error {
    let code = ErrorCode::NOTIFY_TIMEOUT;
    let (sequence, _) = split_task(wait.sqe.task);
    let others = list(waiting.keys().copied().filter(|other| *other != rank));
    let peer = known_peer(wait.sqe.peer);
    let (culprit, cause) = match peer {
        Some(peer) if !waiting.contains_key(&peer) => {
            let cause = format!(
                "rank {peer} has done all of operation #{sequence}, so it has sent the signal: it was lost or taken \
                 twice. Ranks waiting: {rank}; victims: {others}."
            );
            (peer, cause)
        }
        Some(peer) => (peer, format!("the ranks wait for each other in a circle: {rank}, {others}.")),
        None => (rank, format!("a signal within rank {rank} did not come. Victims: {others}.")),
    };
    let base = Report { culprit_rank: Some(culprit), rank, cause, ..report(comm, code, rank, sequence) };
    finish(code, located(comm, rank, wait, base))
}

/// Nothing waits on the device, and yet not everything is done: a kernel has not answered.
fn silent(comm: &Communicator<'_>) -> Error {
    let code = ErrorCode::KERNEL_SILENT;
    let rank = (0..comm.ranks.len()).find(|&rank| !comm.is_done(rank)).unwrap_or(0);
    let sequence = comm.ranks.get(rank).and_then(|state| state.in_flight.front()).map_or(0, |first| first.sequence);
    let since = format!("{:.3} s", comm.config.timeout.as_secs_f64());
    finish(code, Report { since, ..report(comm, code, rank_number(rank), sequence) })
}
