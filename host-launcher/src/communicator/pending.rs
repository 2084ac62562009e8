//! What is in flight, and how far it is, asked at any time.

use core::time::Duration;

use serde::Serialize;
use wire::Sqe;

use super::Communicator;
use crate::diagnosis;
use crate::diagnosis::snapshot::{Head, Launched, Snapshot};

/// How far an operation is on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// It waits for what was launched before it, on its stream or its communicator.
    Held,
    /// The kernel has not taken it out of the mailbox, or is still expanding it.
    Posted,
    /// All its tasks are in the rings, and none of them is next.
    Submitted,
    /// A task of it is next.
    Running,
    /// A task of it waits for a notify that is not set.
    Waiting,
    /// The kernel has refused it.
    Refused,
    /// It is done, and has not been waited for.
    Done,
}

/// An operation in flight on one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingOperation {
    /// Rank.
    pub rank: u32,
    /// Sequence within the communicator, the same on all ranks.
    pub sequence: u32,
    /// What it is, in words.
    pub operation: String,
    /// How far it is.
    pub progress: Progress,
    /// Step of the task that is next.
    pub step: Option<u16>,
    /// Index of the task that is next.
    pub task: Option<u32>,
    /// Rank whose notify that task waits for.
    pub peer: Option<u32>,
}

impl Communicator<'_> {
    /// Returns what has been launched and not been waited for, rank by rank, oldest first: what the devices are at, not
    /// what the host believes.
    #[must_use]
    pub fn pending(&self) -> Vec<PendingOperation> {
        diagnosis::survey(self, Duration::ZERO).iter().flat_map(on_rank).collect()
    }
}

fn on_rank(rank: &Snapshot) -> Vec<PendingOperation> {
    let heads = rank.heads();
    let pending = |launched: &Launched| {
        let own = |head: &&Head| diagnosis::sequence_of(&head.sqe) == launched.sequence;
        let head = heads.iter().filter(own).min_by_key(|head| (head.waits, head.sqe.task));
        let status = rank.status(launched.sequence);
        let (notify, count) = launched.done;
        let progress = match (status, head) {
            (Some(status), _) if status.code != 0 => Progress::Refused,
            (_, Some(head)) if head.waits => Progress::Waiting,
            (_, Some(_)) => Progress::Running,
            (Some(_), None) if rank.done_count(notify) >= count => Progress::Done,
            (Some(_), None) => Progress::Submitted,
            (None, None) if launched.is_held() => Progress::Held,
            (None, None) => Progress::Posted,
        };
        let peer = head.map(|head| head.sqe.peer).filter(|peer| *peer != Sqe::NO_PEER).map(u32::from);
        PendingOperation {
            rank: rank.host.rank,
            sequence: launched.sequence,
            operation: launched.what.clone(),
            progress,
            step: head.map(|head| head.sqe.step),
            task: head.map(|head| diagnosis::task_of(&head.sqe)),
            peer,
        }
    };
    rank.host.in_flight.iter().map(pending).collect()
}
