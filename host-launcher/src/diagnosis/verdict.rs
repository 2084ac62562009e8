//! The root of a failure: of everything that is wrong the surest first, and the culprit before its victims.
//!
//! In this order: an error that a device reports, a launch that was refused or a kernel that stopped, a rank of which
//! nothing is known, ranks that were asked for different things, a rank that has not started, a kernel that is silent, a
//! device that stands still or is slow, a signal that was lost, a circle of waits.

use wire::{Cqe, Effect, ErrorCode, Phase, Sqe, SqeFlags, Wqe};

use super::agreement::{self, Mismatch};
use super::snapshot::Snapshot;
use super::survey::Part;
use super::waits::{State, Wait, Waits, list, what};
use super::{Edge, Report, known_peer, split_task, summary};

/// What to do about a deadline that was too short.
const SLOW: &str = "set a longer deadline";

/// Everything a verdict is made from.
pub(super) struct Case<'a> {
    pub(super) waits: Waits<'a>,
    /// Whether part of a rank goes on while it is watched; `None` where it cannot be.
    pub(super) moves: &'a dyn Fn(u32, Part) -> Option<bool>,
}

impl<'a> Case<'a> {
    pub(super) fn new(ranks: &'a [Snapshot], moves: &'a dyn Fn(u32, Part) -> Option<bool>) -> Self {
        Self { waits: Waits::new(ranks), moves }
    }

    /// Finds what is wrong, whether or not a deadline has passed; `None` where nothing is but time.
    pub(super) fn fault(&self) -> Option<Report> {
        let ranks = self.waits.ranks;
        let errors = || ranks.iter().filter_map(|rank| Some((rank, rank.device_error()?)));
        if let Some((rank, cqe)) = errors().next() {
            return Some(self.device_error(rank, &cqe));
        }
        // A kernel that finds its ring full until the deadline is a victim of whoever its tasks wait for.
        let refused = ranks.iter().find_map(|rank| {
            rank.refusal()
                .filter(|(_, status)| status.code != ErrorCode::QUEUE_FULL.0)
                .map(|found| (rank, found))
        });
        if let Some((rank, (launched, status))) = refused {
            let code = ErrorCode(status.code);
            let cause = format!("{} (detail {:#x})", summary(code), status.detail);
            return Some(Report { cause, ..self.report(code, rank.host.rank, launched.sequence) });
        }
        ranks.iter().find(|rank| rank.is_parked()).map(|rank| self.parked(rank))
    }

    /// Explains why operations in flight are not done although time is up.
    pub(super) fn overdue(&self) -> Report {
        let report = self.mismatched().unwrap_or_else(|| self.stuck());
        self.with_victims(report)
    }

    /// Explains that ranks were asked for different things, if they were.
    pub(super) fn mismatched(&self) -> Option<Report> {
        agreement::mismatch(self.waits.ranks).map(|mismatch| self.differs(&mismatch))
    }

    fn stuck(&self) -> Report {
        let waits = &self.waits;
        let behind = waits.ranks(|state| matches!(state, State::Behind));
        let silent = waits.ranks(|state| matches!(state, State::Silent));
        let runnable = waits.ranks(|state| matches!(state, State::Runnable(_)));
        if let Some(culprit) = waits.most_awaited(&self.lost()) {
            self.peer_lost(culprit)
        } else if let Some(culprit) = self.least_launched(&behind) {
            self.not_started(culprit, &behind)
        } else if let Some(culprit) = waits.most_awaited(&silent) {
            self.silent(culprit)
        } else if let Some(rank) = waits.most_awaited(&runnable) {
            self.not_executed(rank)
        } else {
            self.lost_signal()
        }
    }

    /// Ranks that others wait for, and of which nothing is known.
    fn lost(&self) -> Vec<u32> {
        let mut lost: Vec<u32> = self
            .waits
            .all()
            .iter()
            .filter_map(|(_, head)| known_peer(head.sqe.peer))
            .filter(|peer| self.waits.of(*peer).is_none())
            .collect();
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    /// Of the ranks that are behind, the one that most others wait for among those that are furthest behind.
    fn least_launched(&self, behind: &[u32]) -> Option<u32> {
        let launched = |rank: u32| self.waits.of(rank).map_or(0, |snapshot| snapshot.host.launched);
        let least = behind.iter().map(|rank| launched(*rank)).min()?;
        let last: Vec<u32> = behind.iter().copied().filter(|rank| launched(*rank) == least).collect();
        self.waits.most_awaited(&last)
    }

    /// A report with everything that is the same for all causes; the culprit is `rank`.
    fn report(&self, code: ErrorCode, rank: u32, sequence: u32) -> Report {
        let ranks = self.waits.ranks;
        let of = self.waits.of(rank).or(ranks.first());
        let launched =
            ranks.iter().flat_map(|rank| &rank.host.in_flight).find(|own| own.sequence == sequence);
        let operation = launched.map_or_else(String::new, |launched| format!(" {}", launched.what));
        let info = code.info();
        // Whatever the failure itself did: the peers of a rank that failed wait for it.
        let effect = match info.map(|info| info.effect) {
            Some(Effect::DeviceLost) => Effect::DeviceLost,
            _ => Effect::CommPoisoned,
        };
        let report = Report {
            code: code.0,
            name: code.name(),
            operation: format!("#{sequence}{operation}"),
            sequence,
            rank,
            cause: summary(code).to_owned(),
            remedy: info.map_or_else(String::new, |info| info.remedy.to_owned()),
            effect: effect.sentence(),
            culprit_rank: Some(rank),
            culprit_place: self.waits.of(rank).map_or_else(String::new, |own| own.host.place.clone()),
            ..Report::default()
        };
        let Some(host) = of.map(|snapshot| &snapshot.host) else { return report };
        Report {
            comm: host.comm.clone(),
            instance: format!("{:016x}", host.instance[0]),
            epoch: host.epoch,
            deadline_ms: host.timeout_ms,
            deadline_source: host.timeout_source.clone(),
            ..report
        }
    }

    fn device_error(&self, rank: &Snapshot, cqe: &Cqe) -> Report {
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
    fn parked(&self, rank: &Snapshot) -> Report {
        let oldest = rank.host.in_flight.first().map_or(0, |launched| launched.sequence);
        let base = self.report(ErrorCode::KERNEL_PANIC, rank.host.rank, oldest);
        Report { peer_state: "kernel stopped".to_owned(), ..base }
    }

    fn peer_lost(&self, culprit: u32) -> Report {
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
    fn differs(&self, mismatch: &Mismatch) -> Report {
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

    fn not_started(&self, culprit: u32, behind: &[u32]) -> Report {
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
    fn silent(&self, culprit: u32) -> Report {
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
    fn not_executed(&self, culprit: u32) -> Report {
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
    fn lost_signal(&self) -> Report {
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

    /// Adds where the wait, or other entry, of a rank stands.
    fn seen_by(&self, wait: Option<Wait<'_>>, report: Report) -> Report {
        let Some((rank, head)) = wait else { return report };
        let Some(snapshot) = self.waits.of(rank) else { return report };
        let Sqe { step, phase, peer, .. } = head.sqe;
        let (sequence, task) = split_task(head.sqe.task);
        let whereabouts = place(snapshot, sequence, (phase, step), task, &what(snapshot, head));
        Report { rank, step: Some(step), task: Some(task), peer: known_peer(peer), whereabouts, ..report }
    }

    /// Adds who waits for the culprit, who for those, and the whole graph.
    fn with_victims(&self, report: Report) -> Report {
        let mut roots: Vec<u32> = report.culprit_rank.into_iter().collect();
        if report.code == ErrorCode::NOTIFY_TIMEOUT.0 {
            // Who lost the signal is the last link before the culprit.
            roots.push(report.rank);
        }
        let layers = self.waits.layers(&roots);
        let waiting = self.waits.ranks(|state| matches!(state, State::Waits(_)));
        let named = |rank: &u32| roots.contains(rank) || layers.iter().flatten().any(|other| other == rank);
        let others: Vec<u32> = waiting.iter().copied().filter(|rank| !named(rank)).collect();
        let mut victims = String::new();
        for (index, layer) in layers.iter().take(3).enumerate() {
            let whom = if index == 0 { " Waiting for it" } else { "; for those" };
            victims.push_str(&format!("{whom}: {}", list(layer)));
        }
        if layers.len() > 3 {
            let rest: Vec<u32> = {
                let mut rest = layers[3..].concat();
                rest.sort_unstable();
                rest
            };
            victims.push_str(&format!("; further on: {}", list(&rest)));
        }
        if !layers.is_empty() {
            victims.push('.');
        }
        if !others.is_empty() {
            victims.push_str(&format!(" Also waiting: {}.", list(&others)));
        }
        let edge = |(rank, head): Wait<'_>| {
            let (sequence, task) = split_task(head.sqe.task);
            let Sqe { step, notify, peer, .. } = head.sqe;
            Edge { rank, peer: known_peer(peer), notify, sequence, step, task, queue: head.queue }
        };
        let waits = self.waits.all().into_iter().map(edge).collect();
        Report { cause: format!("{}{victims}", report.cause), waiting: layers, waits, ..report }
    }

    /// Returns whether a signal is gone: its sender has fewer tasks left that set the notify than its receiver has that
    /// wait for it. False where the kernel of one of them has not submitted everything.
    fn is_lost(&self, &(rank, head): &Wait<'_>) -> bool {
        let Sqe { opcode, notify, peer, .. } = head.sqe;
        let from = known_peer(peer).unwrap_or(rank);
        let (Some(to), Some(sender)) = (self.waits.of(rank), self.waits.of(from)) else { return false };
        if opcode != Sqe::WAIT || !to.has_submitted_all() || !sender.has_submitted_all() {
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
        sender.unexecuted().filter(sets).count() < to.unexecuted().filter(waits).count()
    }
}

/// Says where in its operation a task stands, with the totals where the kernel has told them.
fn place(rank: &Snapshot, sequence: u32, (phase, step): (u8, u16), task: u32, what: &str) -> String {
    let phase = Phase::try_from(phase).map_or("?", Phase::name);
    let of = |total: u32| if total == 0 { String::new() } else { format!(" of {total}") };
    let status = rank.status(sequence);
    let (steps, tasks) = status.map_or((0, 0), |status| (status.steps, status.sqes + status.wqes));
    let rank = rank.host.rank;
    format!("rank {rank}, step {step}{} ({phase}), task {task}{}, {what}", of(u32::from(steps)), of(tasks))
}
