//! The wait for everything in flight: until it is done, or known not to be.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::time::Instant;

use device_model::machine::Outcome;
use wire::ErrorCode;

use super::{Communicator, Compare, Completed, RankState, Work};
use crate::cluster::Cluster;
use crate::diagnosis::{self, Warning};
use crate::error::{Error, Result};
use crate::stream;

/// After how much waiting doorbells that were lost are rung once more; after half the deadline where that is earlier.
const RING_AGAIN: Duration = Duration::from_secs(1);
/// How long tasks and signals may be under way when all ranks are done.
const SETTLE: Duration = Duration::from_millis(1);
/// For how long no task of any NPU is carried out before operations that are behind each other are called stuck.
const STANDSTILL: Duration = Duration::from_millis(100);

impl Communicator<'_> {
    /// Waits until everything in flight is done, on all ranks.
    ///
    /// # Errors
    /// The first cause, with rank, step, task and peer: a launch that was refused, a device that stopped at an
    /// error, also at one of another communicator's, a deadline that passed; ranks that were not all asked for the same,
    /// or a signal that nobody waited for, although all is done. `COMM_ABORTED` when an [`Aborter`](super::Aborter) was
    /// used. The communicator is poisoned then.
    ///
    /// What is done after the deadline, but before it was noticed, is no error.
    pub fn synchronize(&mut self) -> Result<Vec<Completed>> {
        let started = self.cluster.clock().now();
        let deadline = started.checked_add(self.config.timeout);
        let (outcome, is_agreed, done) = self.wait(started, deadline);
        if self.aborter.is_aborted() {
            self.abort()?;
            return Err(Error::new(ErrorCode::COMM_ABORTED, "its host aborted it while it was waited for"));
        }
        // A helper may have carried out the last task after this thread looked at the clock.
        let settled = (done..self.ranks.len()).all(|rank| self.is_done(rank));
        let done = settled && matches!(outcome, Outcome::Done | Outcome::Deadline);
        let completed = self.completed();
        let failure = if done && is_agreed && completed.iter().all(|own| own.status.code == 0) {
            // All ranks are done with the same, and may still have done it too early: a signal too many may even have
            // ended an operation before all its threads were done. Once nothing is under way any more, none may be left.
            if !self.is_at_rest() {
                let until = self.cluster.clock().now().checked_add(SETTLE);
                self.cluster.machine().run_until(|| self.is_at_rest(), until);
            }
            diagnosis::left_over(self, started)
        } else {
            Some(diagnosis::explain(self, started))
        };
        match failure {
            None => {
                self.ranks.iter_mut().for_each(|state| state.in_flight.clear());
                Ok(completed)
            }
            Some(error) => {
                self.poisoned = true;
                Err(error)
            }
        }
    }

    /// Runs the machine until everything is done, or it is known that it will not be: at the deadline, at an error,
    /// at a refusal, or when ranks were asked for different things, which the second value denies. The third is how many
    /// ranks, from the first on, are known to be done. Warns meanwhile.
    fn wait(&mut self, started: Instant, deadline: Option<Instant>) -> (Outcome, bool, usize) {
        let mut again = started.checked_add(RING_AGAIN.min(self.config.timeout / 2));
        let (mut news, mut stage, mut executed) = (self.news(), 0, None);
        let is_new = !news.is_empty();
        let (mut turns, mut past_errors) = (0_u32, false);
        // Ranks below are done, and stay so: nothing is launched meanwhile.
        let mut done = 0;
        let (outcome, is_agreed) = loop {
            let next = self.config.warn_after.get(stage).and_then(|after| started.checked_add(*after));
            let until = [next, again, deadline].into_iter().flatten().min();
            let mut is_agreed = true;
            // A rank that was refused never signals its peers: waiting for those would only delay the message.
            let over = || {
                turns = turns.wrapping_add(1);
                self.cluster.advance();
                if self.aborter.is_aborted() {
                    return true;
                }
                while done < self.ranks.len() && self.is_done(done) {
                    done += 1;
                }
                let settled = done == self.ranks.len();
                if settled || turns.is_multiple_of(64) {
                    is_agreed = self.agree(&mut news);
                    return settled || !is_agreed || self.is_refused() || (past_errors && self.has_stopped());
                }
                false
            };
            let machine = self.cluster.machine();
            let outcome = match past_errors {
                false => machine.run_until(over, until),
                true if machine.run_past_errors(over, until) => Outcome::Done,
                true => Outcome::Deadline,
            };
            if let Outcome::DeviceError(npu) = outcome
                && self.cluster.rank_on(npu).is_none()
            {
                // An NPU of the machine that is none of this communicator's.
                past_errors = true;
                continue;
            }
            if outcome == Outcome::Deadline && again.is_some() && until == again {
                again = None;
                self.ring_again();
                continue;
            }
            let early = next.filter(|next| deadline.is_none_or(|deadline| *next < deadline));
            if outcome != Outcome::Deadline || early.is_none() || self.is_in_a_circle() {
                break (outcome, is_agreed);
            }
            let total = (0..self.size()).map(|rank| self.executed(rank)).sum();
            let since = total - executed.replace(total).unwrap_or(0_u64);
            self.config.on_warning.warn(&Warning::of(self, self.cluster.clock().since(started), since));
            stage += 1;
        };
        if outcome == Outcome::Done && is_agreed && is_new {
            // All ranks are done with it: they were asked for the same.
            let works = self.ranks.iter().flat_map(|state| &state.in_flight).map(|own| own.work.clone());
            self.last_agreed = works.clone().next_back();
            self.agreed.extend(works);
        }
        (outcome, is_agreed, done)
    }

    /// Returns whether communicators wait for each other: nothing moves, and operations are behind each other in a circle.
    fn is_in_a_circle(&self) -> bool {
        let cluster = self.cluster;
        if stream::circle(&cluster.behind()).is_none() {
            return false;
        }
        let executed = cluster.executed();
        let until = cluster.clock().now().checked_add(STANDSTILL);
        cluster.machine().run_past_errors(|| cluster.executed() != executed, until);
        cluster.executed() == executed && stream::circle(&cluster.behind()).is_some()
    }

    /// Rings once more for queues that are idle although entries wait in them that no doorbell has announced: it was lost.
    /// A doorbell says where the queue ends, so that one too many does nothing.
    fn ring_again(&mut self) {
        for rank in 0..self.size() {
            let npu = self.cluster.npu(rank);
            let found = self.resources_on(rank).map(|resources| resources.ring_again(npu)).sum::<u64>();
            if found > 0 {
                self.repeated_doorbells += found;
                self.cluster.wake(rank);
            }
        }
    }

    /// Returns how many doorbells had to be rung a second time.
    #[must_use]
    pub fn repeated_doorbells(&self) -> u64 {
        self.repeated_doorbells
    }

    /// Tasks that the device of a rank has carried out.
    fn executed(&self, rank: u32) -> u64 {
        self.cluster.machine().snapshot(self.cluster.npu(rank).index()).executed_total()
    }

    /// Returns the sequences in flight that must be compared: at which ranks were not all asked for the same, or some for
    /// what has never been done before. As a rule there are none, and nothing of the devices is read.
    fn news(&self) -> Vec<u32> {
        let Some((first, others)) = self.ranks.split_first() else { return Vec::new() };
        let compare = self.config.compare;
        if compare == Compare::Off {
            return Vec::new();
        }
        let is_known = |work: &Work| self.last_agreed.as_ref() == Some(work) || self.agreed.contains(work);
        let is_alike = others.iter().all(|other| works(other).eq(works(first)));
        let mut news: Vec<u32> = if compare == Compare::First && is_alike {
            works(first).filter(|(_, work)| !is_known(work)).map(|(sequence, _)| sequence).collect()
        } else {
            self.ranks.iter().flat_map(works).map(|(sequence, _)| sequence).collect()
        };
        news.sort_unstable();
        news.dedup();
        news
    }

    /// Compares what the kernels have recorded of the launches with these sequences; forgets those that all ranks
    /// have taken. Returns whether all that are known of each are equal.
    fn agree(&self, news: &mut Vec<u32>) -> bool {
        let mut is_agreed = true;
        news.retain(|sequence| {
            let (mut found, mut vector) = (None, None);
            let mut is_known = true;
            for (rank, state) in (0..).zip(&self.ranks) {
                let own = works(state).find(|(own, _)| own == sequence);
                if let Some(own) = own.map(|(_, work)| work.tables_digest()) {
                    is_agreed &= *vector.get_or_insert(own) == own;
                }
                let events = self.cluster.npu(rank).trace();
                match diagnosis::signature(&events, self.identity.instance, *sequence) {
                    // What could not be read is refused, and that says more.
                    Some(signature) if signature.digest != 0 => {
                        is_agreed &= *found.get_or_insert(signature) == signature;
                    }
                    Some(_) => {}
                    None => is_known = false,
                }
            }
            !is_known
        });
        is_agreed
    }

    /// Returns whether no task of this communicator is left, and no signal under way.
    fn is_at_rest(&self) -> bool {
        let drained = |rank: u32| {
            let npu = self.cluster.npu(rank);
            self.resources_on(rank).all(|resources| resources.is_drained(npu))
        };
        (0..self.size()).all(drained) && self.cluster.machine().is_quiet()
    }

    /// Returns whether everything a rank has in flight is done.
    pub(crate) fn is_done(&self, rank: usize) -> bool {
        is_settled(self.cluster, rank, &self.ranks[rank])
    }

    /// Returns whether one of its devices has stopped at an error.
    fn has_stopped(&self) -> bool {
        (0..self.size()).any(|rank| self.cluster.npu(rank).device_error().is_some())
    }

    /// Returns whether a kernel has refused something in flight.
    fn is_refused(&self) -> bool {
        self.ranks.iter().enumerate().any(|(rank, state)| refusal(self.cluster, rank, state))
    }

    /// Writes a dump of every rank to a folder, at any time: what `aicpu-ts diagnose` reads.
    ///
    /// # Errors
    /// `DUMP_WRITE`.
    pub fn dump(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let snapshots = diagnosis::survey(self, Duration::ZERO);
        snapshots.iter().map(|snapshot| snapshot.write_to(folder)).collect()
    }

    /// Returns the kernels' answers to what is in flight.
    fn completed(&self) -> Vec<Completed> {
        let mut completed = Vec::with_capacity(self.ranks.iter().map(|state| state.in_flight.len()).sum());
        for rank in 0..self.size() {
            completed.extend(self.answers(rank).flatten().map(|status| Completed { rank, status }));
        }
        completed
    }
}

/// What a rank has in flight, by sequence.
fn works(state: &RankState) -> impl Iterator<Item = (u32, &Work)> {
    state.in_flight.iter().map(|launched| (launched.sequence, &launched.work))
}

fn is_settled(cluster: &Cluster, rank: usize, state: &RankState) -> bool {
    let Some(last) = state.in_flight.back() else { return true };
    // CAST: ranks are counted in u32.
    let npu = cluster.npu(u32::try_from(rank).unwrap_or(u32::MAX));
    let is_answered = || last.ticket.number().is_some_and(|ticket| npu.has_answered(ticket));
    npu.host_notify_count(state.done_notify) >= last.done_at && is_answered()
}

fn refusal(cluster: &Cluster, rank: usize, state: &RankState) -> bool {
    // CAST: ranks are counted in u32.
    let npu = cluster.npu(u32::try_from(rank).unwrap_or(u32::MAX));
    let mut answers = state.in_flight.iter().filter_map(|launched| npu.status(launched.ticket.number()?));
    answers.any(|status| status.code != 0)
}
