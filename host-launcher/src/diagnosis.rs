//! Why an operation did not end well: the culprit before the victims, and one thing to do.
//!
//! Works from what the device itself holds: its first error, the kernels' answers, and the descriptors in the rings,
//! whose labels say step, task and peer. What is surest comes first: a kernel that has stopped, an error that a device
//! reports, a launch that was refused, and only then who waits for whom (`deadline`).

mod afterwards;
mod deadline;

use core::fmt;
use std::time::Instant;

use device_model::machine::Outcome;
use serde::Serialize;
use wire::npu::Status;
use wire::{Cqe, DeviceAddr, Effect, ErrorCode, Phase, Sqe};

use crate::communicator::{Communicator, InFlight};
use crate::error::Error;
pub(crate) use afterwards::{disagreement, left_over};

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
    /// Where the culprit is: host and device.
    pub culprit_place: String,
    /// What the culprit is doing, where it is not the rank that noticed.
    pub peer_state: String,
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
        write!(
            f,
            "comm {:?} instance {} epoch {}   op {}",
            self.comm, self.instance, self.epoch, self.operation
        )?;
        match self.culprit_rank {
            Some(culprit) => {
                write!(f, "\n  who      rank {culprit} ({})", self.culprit_place)?;
                if !self.peer_state.is_empty() {
                    write!(f, ", {}", self.peer_state)?;
                }
                if culprit != self.rank {
                    write!(f, "; noticed by rank {}", self.rank)?;
                }
            }
            None => write!(f, "\n  who      rank {}", self.rank)?,
        }
        for (name, text) in [
            ("where", &*self.whereabouts),
            ("since", &self.since),
            ("cause", &self.cause),
            ("do", &self.remedy),
            ("effect", self.effect),
        ] {
            if !text.is_empty() {
                write!(f, "\n  {name:<8} {text}")?;
            }
        }
        Ok(())
    }
}

/// Explains why the operations of a communicator are not all done, `started` being when the host began to wait.
pub(crate) fn explain(comm: &Communicator<'_>, outcome: Outcome, started: Instant) -> Error {
    let stopped = comm.cluster.check().err();
    let refusal = |rank| comm.refusal_of(rank).map(|refusal| (rank, refusal));
    // A kernel that finds its ring full until the deadline is a victim of whoever its tasks wait for.
    let is_cause = |(_, (_, status)): &(usize, (InFlight, Status))| status.code != ErrorCode::QUEUE_FULL.0;
    let refused = (0..comm.ranks.len()).filter_map(refusal).find(is_cause);
    let failed = match outcome {
        Outcome::DeviceError(npu) => comm.cluster.machine().error(npu).map(|cqe| (npu, cqe)),
        Outcome::Done | Outcome::Deadline => None,
    };
    let (code, report) = match (stopped, failed, refused) {
        (Some(error), ..) => return error,
        (None, Some((npu, cqe)), _) => (cqe.code, device_error(comm, npu, &cqe)),
        (None, None, Some((rank, (launched, status)))) => {
            let code = ErrorCode(status.code);
            let cause = format!("{} (detail {:#x})", summary(code), status.detail);
            (code, Report { cause, ..report(comm, code, rank_number(rank), launched.sequence) })
        }
        (None, None, None) => return deadline::explain(comm, started),
    };
    let since =
        format!("{:.3} s after the host began to wait", comm.cluster.clock().since(started).as_secs_f64());
    finish(code, Report { since, ..report })
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

/// A report with everything that is the same for all causes; the culprit is `rank`.
fn report(comm: &Communicator<'_>, code: ErrorCode, rank: u32, sequence: u32) -> Report {
    let launched =
        comm.ranks.iter().flat_map(|state| &state.in_flight).find(|launched| launched.sequence == sequence);
    let operation = launched.map_or_else(String::new, |launched| format!(" {}", launched.work));
    let info = code.info();
    // Whatever the failure itself did: the peers of a rank that failed wait for it.
    let effect = match info.map(|info| info.effect) {
        Some(Effect::DeviceLost) => Effect::DeviceLost,
        _ => Effect::CommPoisoned,
    };
    Report {
        code: code.0,
        name: code.name(),
        comm: comm.identity.name.clone(),
        instance: format!("{:016x}", comm.identity.instance[0]),
        epoch: comm.identity.epoch,
        operation: format!("#{sequence}{operation}"),
        rank,
        cause: summary(code).to_owned(),
        remedy: info.map_or_else(String::new, |info| info.remedy.to_owned()),
        effect: effect.sentence(),
        ..Report::default()
    }
    .blaming(comm, rank)
}

impl Report {
    /// Names the rank at the root of it.
    fn blaming(self, comm: &Communicator<'_>, culprit: u32) -> Self {
        let place = comm.cluster.topology().whereabouts(culprit).unwrap_or_default();
        Self { culprit_rank: Some(culprit), culprit_place: place, ..self }
    }
}

fn device_error(comm: &Communicator<'_>, npu: u32, cqe: &Cqe) -> Report {
    if !comm.owns(npu, cqe.queue) {
        return error_of_another(comm, npu, cqe);
    }
    let (sequence, task) = split_task(cqe.task);
    let address = if cqe.address == 0 { String::new() } else { format!(", address {:#x}", cqe.address) };
    let own = || comm.cluster.npu(npu).window().offset(DeviceAddr(cqe.address), 1).is_some();
    // Memory that is not registered is the fault of the rank whose memory it is.
    let culprit = match known_peer(cqe.peer) {
        Some(peer) if cqe.code == ErrorCode::DMA_UNREGISTERED && !own() => peer,
        _ => npu,
    };
    let what = format!("queue {} position {}: opcode {}{address}", cqe.queue, cqe.position, cqe.opcode);
    Report {
        step: Some(cqe.step),
        task: Some(task),
        peer: known_peer(cqe.peer),
        whereabouts: place(comm, npu, sequence, (cqe.skeleton, cqe.step), task, &what),
        rank: npu,
        ..report(comm, cqe.code, culprit, sequence)
    }
}

/// A device has stopped at a task of another communicator. What its labels say is not about this one's operations.
fn error_of_another(comm: &Communicator<'_>, npu: u32, cqe: &Cqe) -> Report {
    let oldest = comm.ranks[npu as usize].in_flight.front().map_or(0, |launched| launched.sequence);
    Report {
        cause: format!("a task of another communicator: {}", summary(cqe.code)),
        remedy: "destroy both communicators; what that one reports says more".to_owned(),
        whereabouts: format!("rank {npu}, queue {} position {}", cqe.queue, cqe.position),
        ..report(comm, cqe.code, npu, oldest)
    }
}

/// Says where in its operation a task stands, with the totals where the kernel has told them.
fn place(
    comm: &Communicator<'_>,
    rank: u32,
    sequence: u32,
    (phase, step): (u8, u16),
    task: u32,
    what: &str,
) -> String {
    let phase = Phase::try_from(phase).map_or("?", Phase::name);
    let status = comm.answer_to(rank, sequence);
    let of = |total: u32| if total == 0 { String::new() } else { format!(" of {total}") };
    let (steps, tasks) = status.map_or((0, 0), |status| (status.steps, status.sqes + status.wqes));
    format!("rank {rank}, step {step}{} ({phase}), task {task}{}, {what}", of(u32::from(steps)), of(tasks))
}

/// Operation sequence and index within the operation.
fn split_task(task: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = task.to_le_bytes();
    (u32::from_le_bytes([e, f, g, h]), u32::from_le_bytes([a, b, c, d]))
}

fn known_peer(label: u16) -> Option<u32> {
    (label != Sqe::NO_PEER).then_some(u32::from(label))
}
