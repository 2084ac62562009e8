//! What each cause of a failure looks like in a report.

use wire::{Cqe, ErrorCode, Sqe, SqeFlags, Wqe};

use super::agreement::Mismatch;
use super::snapshot::Snapshot;
use super::survey::Part;
use super::verdict::{Case, place};
use super::waits::{State, Wait, list};
use super::{Report, known_peer, split_task, summary};

/// What to do about a deadline that was too short.
const SLOW: &str = "set a longer deadline";

impl Case<'_> {
    pub(super) fn device_error(&self, rank: &Snapshot, cqe: &Cqe) -> Report {
        let npu = rank.host.rank;
        if !rank.owns(cqe.queue) {
            return self.error_of_another(rank, cqe);
        }
        let (sequence, task) = split_task(cqe.task);
        let address = if cqe.address == 0 { String::new() } else { format!(", address {:#x}", cqe.address) };
        let (base, bytes) = rank.host.window;
        let is_own = cqe.address.checked_sub(base).is_some_and(|offset| offset < bytes);
        // Memory that is not registered is the fault of the rank whose memory it is.
        let culprit = match known_peer(cqe.peer) {
            Some(peer) if cqe.code == ErrorCode::DMA_UNREGISTERED && !is_own => peer,
            _ => npu,
        };
        let what = format!("queue {} position {}: opcode {}{address}", cqe.queue, cqe.position, cqe.opcode);
        Report {
            step: Some(cqe.step),
            task: Some(task),
            peer: known_peer(cqe.peer),
            whereabouts: place(rank, sequence, (cqe.skeleton, cqe.step), task, &what),
            rank: npu,
            ..self.report(cqe.code, culprit, sequence)
        }
    }

    /// A device has stopped at a task of another communicator. What its labels say is not about this one's operations.
    fn error_of_another(&self, rank: &Snapshot, cqe: &Cqe) -> Report {
        let oldest = rank.host.in_flight.first().map_or(0, |launched| launched.sequence);
        Report {
            cause: format!("a task of another communicator: {}", summary(cqe.code)),
            remedy: "destroy both communicators; what that one reports says more".to_owned(),
            whereabouts: format!("rank {}, queue {} position {}", rank.host.rank, cqe.queue, cqe.position),
            ..self.report(cqe.code, rank.host.rank, oldest)
        }
    }

    /// A kernel has stopped for good. The record of its core says at what, and is not in the window.
    pub(super) fn parked(&self, rank: &Snapshot) -> Report {
        let oldest = rank.host.in_flight.first().map_or(0, |launched| launched.sequence);
        let base = self.report(ErrorCode::KERNEL_PANIC, rank.host.rank, oldest);
        Report { peer_state: "kernel stopped".to_owned(), ..base }
    }

    pub(super) fn peer_lost(&self, culprit: u32) -> Report {
        let victim = self.waits.victim_of(culprit);
        let sequence = victim.map_or(0, |(_, head)| split_task(head.sqe.task).0);
        let cause = format!("nothing is known of rank {culprit}: it left no dump, or cannot be reached.");
        let base = Report {
            cause,
            peer_state: "lost".to_owned(),
            ..self.report(ErrorCode::PEER_LOST, culprit, sequence)
        };
        self.seen_by(victim, base)
    }

    /// Ranks were asked for different things.
    pub(super) fn differs(&self, mismatch: &Mismatch) -> Report {
        let culprit = mismatch.culprit();
        let code =
            if mismatch.is_other_operation() { ErrorCode::PEER_DIFFERS } else { ErrorCode::ARGUMENTS_DIFFER };
        let base = Report {
            cause: format!("{}.", mismatch.sentence()),
            peer_state: "at something else".to_owned(),
            ..self.report(code, culprit, mismatch.sequence)
        };
        self.seen_by(self.waits.victim_of(culprit), base)
    }

    pub(super) fn not_started(&self, culprit: u32, behind: &[u32]) -> Report {
        let launched = self.waits.of(culprit).map_or(0, |snapshot| snapshot.host.launched);
        let last = match launched {
            0 => "it has started none".to_owned(),
            last => format!("the last it started is #{last}"),
        };
        let sequence = launched.wrapping_add(1);
        let cause = format!(
            "rank {culprit} has not started operation #{sequence}; {last}. Ranks behind: {}.",
            list(behind)
        );
        let remedy = format!("look at rank {culprit} first: why did it not call operation #{sequence}?");
        let base = Report {
            cause,
            remedy,
            peer_state: "not started".to_owned(),
            behind: behind.to_vec(),
            ..self.report(ErrorCode::PEER_NOT_STARTED, culprit, sequence)
        };
        self.seen_by(self.waits.victim_of(culprit), base)
    }

    /// Nothing is in the rings of a rank that its device knows of, and yet not everything is done.
    pub(super) fn silent(&self, culprit: u32) -> Report {
        let Some(rank) = self.waits.of(culprit) else { return Report::default() };
        let first = rank.host.in_flight.first().map_or(0, |launched| launched.sequence);
        let (code, cause, peer_state) = if let Some((queue, entries)) = rank.unannounced() {
            let cause = format!(
                "rank {culprit} has {entries} entries in queue {queue} that its doorbell has not announced: \
                 it was lost."
            );
            (ErrorCode::DOORBELL_LOST, cause, "doorbell lost")
        } else if rank.has_submitted_all() {
            let cause =
                format!("the device of rank {culprit} does not execute what its kernel has submitted.");
            (ErrorCode::HOST_NOTIFY_TIMEOUT, cause, "kernel done")
        } else if (self.moves)(culprit, Part::Kernel) == Some(true) {
            let cause = format!(
                "the kernel of rank {culprit} is still at work on operation #{first}: it is only slow."
            );
            (ErrorCode::HOST_NOTIFY_TIMEOUT, cause, "kernel alive")
        } else {
            let cause =
                format!("the kernel of rank {culprit} has not answered the launch of operation #{first}.");
            (ErrorCode::KERNEL_SILENT, cause, "kernel silent")
        };
        let base = Report { cause, peer_state: peer_state.to_owned(), ..self.report(code, culprit, first) };
        self.seen_by(self.waits.victim_of(culprit), base)
    }

    /// A rank has a task that nothing holds: a device that has stopped, or one that is slow.
    pub(super) fn not_executed(&self, culprit: u32) -> Report {
        let states = &self.waits.states;
        let head = states.iter().find_map(|(rank, state)| match state {
            State::Runnable(head) if *rank == culprit => Some(head),
            _ => None,
        });
        let (cause, remedy) = match (self.moves)(culprit, Part::Device) {
            Some(true) => ("the operation is still moving: it is only slow.".to_owned(), SLOW.to_owned()),
            Some(false) => {
                let what = "does not execute a task that nothing holds: it has stopped";
                let remedy =
                    format!("look at the device of rank {culprit} first; a longer deadline does not help");
                (format!("the device of rank {culprit} {what}."), remedy)
            }
            None => {
                let what = "has a task that nothing holds: it has stopped, or is slow";
                (format!("the device of rank {culprit} {what}."), format!("look at rank {culprit} first"))
            }
        };
        let sequence = head.map_or(0, |head| split_task(head.sqe.task).0);
        let base = self.report(ErrorCode::HOST_NOTIFY_TIMEOUT, culprit, sequence);
        self.seen_by(head.map(|head| (culprit, head)), Report { cause, remedy, ..base })
    }

    /// Every rank that is not done waits. One of them waits for a signal that nobody will send any more.
    pub(super) fn lost_signal(&self) -> Report {
        let waits = self.waits.all();
        let lost = waits.iter().find(|wait| self.is_lost(wait)).copied();
        if lost.is_none()
            && self.all_submitted()
            && let Some(circle) = self.waits.circle()
        {
            return self.in_a_circle(&circle);
        }
        // Where not all tasks are in the rings, the rank that has come least far is next to the break.
        let least = || waits.iter().min_by_key(|(_, head)| head.sqe.task).copied();
        let Some(wait @ (rank, head)) = lost.or_else(least) else {
            // It was done a moment after the deadline.
            let newest = self.waits.ranks.first().map_or(0, |rank| rank.host.launched);
            let cause = "the operation was done, but late.".to_owned();
            return Report { cause, ..self.report(ErrorCode::HOST_NOTIFY_TIMEOUT, 0, newest) };
        };
        let (sequence, notify) = (split_task(head.sqe.task).0, head.sqe.notify);
        let (culprit, cause) = match known_peer(head.sqe.peer) {
            Some(peer) if lost.is_some() => (
                peer,
                format!(
                    "rank {peer} has sent notify {notify} to rank {rank}, which has not got it: lost, or taken \
                     twice."
                ),
            ),
            Some(peer) => (
                peer,
                format!("all ranks wait; rank {rank}, which waits for rank {peer}, has come least far."),
            ),
            None => (rank, format!("a signal within rank {rank} did not come: no other rank is to blame.")),
        };
        let is_done = self.waits.of(culprit).is_some_and(Snapshot::is_done);
        let peer_state = if is_done { "alive, done" } else { "alive, waits" };
        let base = Report {
            cause,
            peer_state: peer_state.to_owned(),
            ..self.report(ErrorCode::NOTIFY_TIMEOUT, culprit, sequence)
        };
        self.seen_by(Some(wait), base)
    }

    fn all_submitted(&self) -> bool {
        self.waits.ranks.iter().all(Snapshot::has_submitted_all)
    }

    /// Each waits for the next: no rank is late, the tasks themselves are wrong.
    fn in_a_circle(&self, circle: &[Wait<'_>]) -> Report {
        let link = |(rank, head): &Wait<'_>| {
            format!("rank {rank} task {} notify {}", split_task(head.sqe.task).1, head.sqe.notify)
        };
        let links: Vec<_> = circle.iter().take(6).map(link).collect();
        let more = if circle.len() > links.len() { ", …" } else { "" };
        let first = circle.first().copied();
        let (culprit, sequence) = first.map_or((0, 0), |(rank, head)| (rank, split_task(head.sqe.task).0));
        let cause =
            format!("{} ranks wait for each other in a circle: {}{more}.", circle.len(), links.join(", "));
        let base = Report { cause, ..self.report(ErrorCode::WAIT_CIRCLE, culprit, sequence) };
        self.seen_by(first, base)
    }

    /// Returns whether a signal is gone: its sender has fewer tasks left that set the notify than its receiver has that
    /// wait for it. False where it is not known what the kernel of one of them has still to submit.
    fn is_lost(&self, &(rank, head): &Wait<'_>) -> bool {
        let Sqe { opcode, notify, peer, .. } = head.sqe;
        let from = known_peer(peer).unwrap_or(rank);
        let (Some(to), Some(sender)) = (self.waits.of(rank), self.waits.of(from)) else { return false };
        let (Some(received), Some(sent)) = (to.unexecuted(), sender.unexecuted()) else { return false };
        if opcode != Sqe::WAIT {
            return false;
        }
        let sets = |task: &&Sqe| {
            let flagged = task.flags & SqeFlags::NOTIFY.bits() != 0;
            let records = match task.opcode {
                Sqe::RECORD => from == rank,
                Sqe::RECORD_PEER | Wqe::RECORD => known_peer(task.peer) == Some(rank),
                Sqe::WRITE | Wqe::WRITE => flagged && known_peer(task.peer) == Some(rank),
                _ => false,
            };
            records && task.notify == notify
        };
        let waits = |task: &&Sqe| task.opcode == Sqe::WAIT && task.notify == notify;
        sent.filter(sets).count() < received.filter(waits).count()
    }
}
