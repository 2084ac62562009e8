//! The step algorithms: passes over the ranks, step by step on one thread.
//!
//! One step, in write form: ACK to the peer I receive from ("you may write"), wait for the ACK of the peer I send
//! to, write my slices with DATA on the last, wait for DATA. Links that cannot reduce while moving write to a
//! landing area, from which the receiver reduces. A slice without bytes is skipped, its notifies are not.

use task_graph::{ChannelNotify, Part, Rank, RegionId, RegionKind, TaskSink, ThreadId, WriteBatch};
use wire::launch::OpKind;
use wire::{ErrorCode, Phase};

use crate::areas::Area;
use crate::group::Group;
use crate::schedule::{Leg, Pass, Schedule};
use crate::skeleton::{Emitted, Emitter, own};
use crate::slices::SliceSet;

/// Where a pass runs: on which thread, among whom, on what.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'a, A> {
    pub(crate) thread: ThreadId,
    pub(crate) group: Group<'a>,
    /// The work area of every rank, by member.
    pub(crate) work: A,
    /// The landing area that mirrors it.
    pub(crate) landing: A,
}

impl<'a, S: TaskSink> Emitter<'a, S> {
    /// Emits all steps; returns their number.
    pub(crate) fn run_steps(&mut self) -> Result<u16, ErrorCode> {
        let shape = self.plan.shape();
        // Halving-doubling works on a power of two; the ranks above it are folded in first and out last.
        let parts = self.plan.parts();
        let lane = Lane {
            thread: ThreadId::MAIN,
            group: self.group(),
            work: self.slices(parts),
            landing: self.landing(parts),
        };
        let overlap = self.overlap();
        let mut step = 0;
        for pass in Pass::of(shape.op, shape.algorithm, parts < self.plan.ranks()).into_iter().flatten() {
            let member = lane.group.member(shape.rank);
            let schedule = Schedule::new(shape.algorithm, pass, member, lane.group.members());
            let schedule = if shape.op == OpKind::AllReduce { schedule.of_free_slices() } else { schedule };
            // What is copied out meanwhile is all there before the last step of the last pass.
            let early = overlap.filter(|_| pass == Pass::AllGather).map(|overlap| overlap.early);
            step = self.run_pass(&lane, schedule, (pass.reduces(), early), step)?;
        }
        Ok(step)
    }

    /// Emits the steps of one pass, numbered from `step` on; returns the number after the last. The slices `early` are
    /// copied out during the last.
    pub(crate) fn run_pass<A: Area>(
        &mut self,
        lane: &Lane<'a, A>,
        schedule: Schedule,
        (reducing, early): (bool, Option<SliceSet>),
        mut step: u16,
    ) -> Result<u16, ErrorCode> {
        for index in 0..schedule.steps() {
            if let Some(early) = early.filter(|_| index + 1 == schedule.steps()) {
                self.copy_early(early, step)?;
            }
            self.sink.mark(Phase::Run, step);
            let legs = schedule.step(index);
            let from = legs.receive.map(|leg| (lane.group.rank(leg.member), leg.set));
            if let Some((from, _)) = from {
                self.record(lane.thread, from, ChannelNotify::Ack)?;
            }
            if let Some(leg) = legs.send {
                self.send(lane, leg, reducing)?;
            }
            if let Some(from) = from {
                self.receive(lane, from, reducing)?;
            }
            step += 1;
        }
        Ok(step)
    }

    /// Writes slices to a member once it allows, and says so with the last.
    #[inline]
    fn send<A: Area>(&mut self, lane: &Lane<'a, A>, leg: Leg, reducing: bool) -> Emitted {
        let to = lane.group.rank(leg.member);
        self.wait(lane.thread, to, ChannelNotify::Ack)?;
        let inline = reducing && self.sink.caps(to).can_reduce(self.plan.reduction());
        let reduction = inline.then(|| self.plan.reduction());
        let (kind, target) = if reducing && !inline {
            (RegionKind::Scratch, lane.landing)
        } else {
            (self.layout.work, lane.work)
        };
        let batch = WriteBatch {
            peer: to,
            dst: RegionId::of_peer(to, kind),
            src: RegionId::own(self.layout.work),
            reduction,
            then: ChannelNotify::Data,
        };
        let parts = lane.work.runs(leg.set).map(|(first, count)| {
            let (src, len) = lane.work.range(first, count);
            Part { dst: target.range(first, count).0, src, len }
        });
        self.sink.write_batch(lane.thread, &batch, parts)
    }

    /// Waits until the slices of a member have landed, and reduces them where the link could not.
    #[inline]
    fn receive<A: Area>(
        &mut self,
        lane: &Lane<'a, A>,
        (from, set): (Rank, SliceSet),
        reducing: bool,
    ) -> Emitted {
        self.wait(lane.thread, from, ChannelNotify::Data)?;
        if !reducing || self.sink.caps(from).can_reduce(self.plan.reduction()) {
            return Ok(());
        }
        for (first, count) in lane.work.runs(set) {
            let dst = own(self.layout.work, lane.work.range(first, count));
            let src = own(RegionKind::Scratch, lane.landing.range(first, count));
            self.reduce(lane.thread, dst, src)?;
        }
        Ok(())
    }
}
