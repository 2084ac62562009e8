//! The root of a failure: of everything that is wrong the surest first, and the culprit before its victims.
//!
//! In this order: an error that a device reports, a launch that was refused or a kernel that stopped, a rank of which
//! nothing is known, ranks that were asked for different things, a rank that has not started, a kernel that is silent, a
//! device that stands still or is slow, a signal that was lost, a circle of waits. Operations that are behind those of
//! other communicators come before all but errors and ranks of which nothing is known.

use wire::{Cqe, Effect, ErrorCode, Phase, Sqe};

use super::agreement;
use super::snapshot::Snapshot;
use super::survey::Part;
use super::waits::{State, Wait, Waits, list, what};
use super::{Edge, Report, known_peer, split_task, summary};

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
        // Of several, the one that came first in the operations: what follows from it is further on.
        let errors = ranks.iter().filter_map(|rank| Some((rank, rank.device_error()?)));
        let order = |(rank, cqe): &(&Snapshot, Cqe)| (!rank.owns(cqe.queue), cqe.task >> 32, cqe.step);
        if let Some((rank, cqe)) = errors.min_by_key(order) {
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
        } else if let Some(report) = self.ordered().or_else(|| self.held()) {
            report
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
    pub(super) fn report(&self, code: ErrorCode, rank: u32, sequence: u32) -> Report {
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

    /// Adds where the wait, or other entry, of a rank stands.
    pub(super) fn seen_by(&self, wait: Option<Wait<'_>>, report: Report) -> Report {
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
}

/// Says where in its operation a task stands, with the totals where the kernel has told them.
pub(super) fn place(
    rank: &Snapshot,
    sequence: u32,
    (phase, step): (u8, u16),
    task: u32,
    what: &str,
) -> String {
    let phase = Phase::try_from(phase).map_or("?", Phase::name);
    let of = |total: u64| if total == 0 { String::new() } else { format!(" of {total}") };
    let status = rank.status(sequence);
    // What a device holds, or a dump, need not make sense.
    let tasks = status.map_or(0, |status| u64::from(status.sqes) + u64::from(status.wqes));
    let steps = status.map_or(0, |status| u64::from(status.steps));
    let rank = rank.host.rank;
    format!("rank {rank}, step {step}{} ({phase}), task {task}{}, {what}", of(steps), of(tasks))
}
