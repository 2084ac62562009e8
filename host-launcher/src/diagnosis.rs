//! Why an operation did not end well: the culprit before the victims, and one thing to do.
//!
//! Works from what the device itself holds: its first error, the kernels' answers, the flight recorder, and the
//! descriptors in the rings, whose labels say step, task and peer. All of it is in a [`snapshot`] per rank, taken of a
//! running device or read from a [`dump`]; [`offline`] explains dumps of all ranks when nothing runs any more.

mod afterwards;
mod agreement;
mod causes;
pub mod dump;
pub mod offline;
mod order;
pub mod recorder;
pub mod snapshot;
mod survey;
mod unwritten;
mod verdict;
mod waits;
mod warning;

use core::fmt;
use core::time::Duration;
use std::time::Instant;

use serde::Serialize;
use wire::{ErrorCode, Sqe};

use crate::communicator::Communicator;
use crate::error::Error;
pub(crate) use afterwards::left_over;
pub(crate) use agreement::signature;
use snapshot::Snapshot;
use survey::Part;
pub(crate) use survey::all as survey;
use verdict::Case;
pub use warning::{OnWarning, Warning};

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
    /// Sequence of the operation.
    pub sequence: u32,
    /// Deadline of the operation, milliseconds.
    pub deadline_ms: u64,
    /// Which setting the deadline is from.
    pub deadline_source: String,
    /// Ranks that have launched less than others.
    pub behind: Vec<u32>,
    /// Ranks that wait for the culprit, ranks that wait for these, and so on.
    pub waiting: Vec<Vec<u32>>,
    /// Who waits for whom.
    pub waits: Vec<Edge>,
    /// Where the dumps of all ranks are, if they were written.
    pub dumps: String,
}

/// A task at the head of a ring that waits for a notify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// Rank that waits.
    pub rank: u32,
    /// Rank that is to set the notify; none for a signal within the rank, or of the host.
    pub peer: Option<u32>,
    /// The notify.
    pub notify: u32,
    /// Operation of the task.
    pub sequence: u32,
    /// Step of the task.
    pub step: u16,
    /// Task within the operation.
    pub task: u32,
    /// Queue it is in.
    pub queue: u16,
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
            ("more", &self.dumps),
        ] {
            if !text.is_empty() {
                write!(f, "\n  {name:<8} {text}")?;
            }
        }
        Ok(())
    }
}

/// Explains why the operations of a communicator are not all done, `started` being when the host began to wait.
pub(crate) fn explain(comm: &Communicator<'_>, started: Instant) -> Error {
    if let Err(stopped) = comm.cluster.check() {
        return stopped;
    }
    let waited = comm.cluster.clock().since(started);
    let mut ranks = survey(comm, waited);
    let watched = core::cell::Cell::new(None);
    let moves = |rank, part| {
        let moves = survey::moves(comm.cluster, rank, part);
        watched.set(Some((rank, moves)));
        Some(moves)
    };
    let report = judge(&ranks, &moves);
    if let Some((rank, moves)) = watched.get()
        && let Some(snapshot) = ranks.iter_mut().find(|snapshot| snapshot.host.rank == rank)
    {
        snapshot.host.moves = Some(moves);
    }
    let dumps = comm.config.dump.as_ref().map_or_else(String::new, |folder| dump::note(folder, &ranks));
    Error::diagnosed(Report { dumps, ..report })
}

/// Explains what snapshots of a failure show.
fn judge(ranks: &[Snapshot], moves: &dyn Fn(u32, Part) -> Option<bool>) -> Report {
    let case = Case::new(ranks, moves);
    let host = ranks.first().map(|rank| &rank.host);
    let (waited, timeout) = host.map_or((0, 0), |host| (host.waited_us, host.timeout_ms));
    let waited = Duration::from_micros(waited);
    let is_overdue = waited >= Duration::from_millis(timeout);
    let early = || case.mismatched().or_else(|| case.ordered()).filter(|_| !is_overdue);
    let waited = waited.as_secs_f64();
    if let Some(report) = case.fault().or_else(early) {
        return Report { since: format!("{waited:.3} s after the host began to wait"), ..report };
    }
    let report = case.overdue();
    let (timeout, source) = (Duration::from_millis(timeout).as_secs_f64(), &report.deadline_source);
    let since = format!("{waited:.3} s (deadline {timeout:.3} s, set by {source})");
    Report { since, ..report }
}

fn summary(code: ErrorCode) -> &'static str {
    code.info().map_or("unknown code", |info| info.summary)
}

/// Operation sequence and index within the operation.
fn split_task(task: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = task.to_le_bytes();
    (u32::from_le_bytes([e, f, g, h]), u32::from_le_bytes([a, b, c, d]))
}

fn known_peer(label: u16) -> Option<u32> {
    (label != Sqe::NO_PEER).then_some(u32::from(label))
}

/// Returns the sequence of the operation that an entry belongs to.
pub(crate) fn sequence_of(sqe: &Sqe) -> u32 {
    split_task(sqe.task).0
}

/// Returns the index of an entry within its operation.
pub(crate) fn task_of(sqe: &Sqe) -> u32 {
    split_task(sqe.task).1
}
