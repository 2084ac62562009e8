//! What strikes at a moment, not at a task: the host looks where an operation stands, and strikes then.

use core::time::Duration;
use std::time::Instant;

use device_model::fault::{Fault, Phase};
use wire::Sqe;

use super::Run;
use crate::error::Result;
use crate::faults::{Kind, Moment, Strike};

/// How long a phase is waited for at most.
pub(crate) const REACH: Duration = Duration::from_millis(10);
/// How long after a phase has begun it may strike, nanoseconds: before the first doorbell, a kernel may just be expanding.
const LINGER_NS: u64 = 4_000;

impl Run<'_> {
    /// Notes where the operation begins, to know later how far it is.
    pub(super) fn mark(&mut self) {
        if !self.conduct.moments.is_empty() {
            self.executed = (0..self.comm.size()).map(|rank| self.executed_on(rank)).collect();
            self.first_event = self.cluster.npu(0).fabric().events();
        }
    }

    fn executed_on(&self, rank: u32) -> u64 {
        self.cluster.machine().snapshot(self.cluster.npu(rank).index()).executed_total()
    }

    /// Returns where the operation that has been launched last stands on a rank.
    fn phase(&self, rank: u32) -> Phase {
        let (npu, state) = (self.cluster.npu(rank), &self.comm.ranks[rank as usize]);
        let Some(launched) = state.in_flight.back() else { return Phase::BeforeDoorbell };
        let pending = self.cluster.machine().pending(npu.index());
        let last = pending.iter().any(|pending| pending.sqe.opcode == Sqe::RECORD_HOST);
        let before = self.executed.get(rank as usize).copied().unwrap_or(0);
        if last || npu.host_notify_count(state.done_notify) >= launched.done_at {
            Phase::Completing
        } else if !pending.is_empty() || self.executed_on(rank) > before {
            Phase::InFlight
        } else {
            Phase::BeforeDoorbell
        }
    }

    /// Lets time pass until then, with what strikes at the events meanwhile.
    pub(super) fn pass(&mut self, until: Option<Instant>) -> Result<()> {
        loop {
            let over = || self.due().is_some();
            self.cluster.machine().run_past_errors(over, until);
            let Some(index) = self.due() else { return Ok(()) };
            self.strike(index, None)?;
        }
    }

    /// Returns what strikes at an event that has happened.
    fn due(&self) -> Option<usize> {
        let event = self.cluster.npu(0).fabric().events() - self.first_event;
        let is_due = |strike: &Strike| matches!(strike.moment, Moment::Event(at) if at <= event);
        self.conduct.moments.iter().position(is_due)
    }

    /// Strikes a rank that has been launched and of whose operation its NPU knows nothing yet.
    pub(super) fn strike_launched(&mut self, rank: u32) -> Result<()> {
        let early = |strike: &Strike| strike.rank == rank && is_in(strike, Phase::BeforeDoorbell);
        while let Some(index) = self.conduct.moments.iter().position(early) {
            self.linger(rank, Phase::BeforeDoorbell);
            self.strike(index, None)?;
        }
        Ok(())
    }

    /// Strikes what all ranks have been launched for and the host has not collected.
    pub(super) fn strike_running(&mut self) -> Result<()> {
        let limit = |run: &Self| run.cluster.clock().now().checked_add(REACH);
        let running = |strike: &Strike| {
            matches!(strike.moment, Moment::After(_))
                || is_in(strike, Phase::InFlight)
                || is_in(strike, Phase::Completing)
        };
        while let Some(index) = self.conduct.moments.iter().position(running) {
            let Strike { rank, moment, .. } = self.conduct.moments[index];
            match moment {
                Moment::After(time) => {
                    let until = self.cluster.clock().now().checked_add(time);
                    self.cluster.machine().run_past_errors(|| false, until);
                }
                Moment::Phase(phase) => {
                    self.cluster.machine().run_past_errors(|| self.phase(rank) >= phase, limit(self));
                    self.linger(rank, phase);
                }
                Moment::Event(_) => {}
            }
            self.strike(index, None)?;
        }
        while self.conduct.moments.iter().any(|strike| matches!(strike.moment, Moment::Event(_))) {
            // Until it is due, or too late.
            let all = |run: &Self| (0..run.comm.size()).all(|rank| run.phase(rank) == Phase::Completing);
            let over = || self.due().is_some() || all(self);
            self.cluster.machine().run_past_errors(over, limit(self));
            match self.due() {
                Some(index) => self.strike(index, None)?,
                None => self.conduct.moments.retain(|strike| !matches!(strike.moment, Moment::Event(_))),
            }
        }
        Ok(())
    }

    /// Strikes what the host has collected.
    pub(super) fn strike_collected(&mut self) -> Result<()> {
        let late = |strike: &Strike| is_in(strike, Phase::Teardown);
        while let Some(index) = self.conduct.moments.iter().position(late) {
            self.strike(index, Some(Phase::Teardown))?;
        }
        Ok(())
    }

    /// Stays in a phase for a while that is left to chance.
    fn linger(&mut self, rank: u32, phase: Phase) {
        let Some(dice) = &mut self.conduct.dice else { return };
        let time = Duration::from_nanos(dice.u64(..LINGER_NS));
        let until = self.cluster.clock().now().checked_add(time);
        self.cluster.machine().run_past_errors(|| self.phase(rank) > phase, until);
    }

    /// Strikes, and notes where the operation of the rank stands: there where the caller says, or looks.
    fn strike(&mut self, index: usize, phase: Option<Phase>) -> Result<()> {
        let Strike { rank, kind, peer, .. } = self.conduct.moments.remove(index);
        let phase = phase.unwrap_or_else(|| self.phase(rank));
        self.conduct.struck.push((kind, phase));
        let npu = |rank: u32| self.cluster.npu(rank).index();
        let fault = match kind {
            Kind::Kill => Fault::Kill,
            Kind::Pause(time) => Fault::Pause(time),
            Kind::Slow(time) => Fault::Slow(time),
            Kind::CutLink => {
                let ranks = self.comm.size();
                let peer = peer.filter(|peer| *peer < ranks).unwrap_or((rank + 1) % ranks);
                Fault::CutLink { peer: npu(peer) }
            }
            Kind::Abort(_) => {
                self.comm.aborter().abort();
                return Ok(());
            }
            Kind::Suspend(_) => return self.suspend(phase),
            _ => return Ok(()),
        };
        self.cluster.machine().inject(npu(rank), fault);
        Ok(())
    }

    /// Suspends the communicator, resumes it, and repeats the operation where it has not been collected.
    fn suspend(&mut self, phase: Phase) -> Result<()> {
        self.comm.suspend()?;
        self.comm.resume()?;
        if phase == Phase::Teardown {
            return Ok(());
        }
        self.fill()?;
        self.launch()
    }
}

fn is_in(strike: &Strike, phase: Phase) -> bool {
    strike.moment == Moment::Phase(phase)
}
