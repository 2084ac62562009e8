//! The step algorithms: passes over the ranks, step by step on one thread.
//!
//! One step, in write form: ACK to the peer I receive from ("you may write"), wait for the ACK of the peer I send
//! to, write my slices with DATA on the last, wait for DATA. Links that cannot reduce while moving write to a
//! landing area, from which the receiver reduces. A slice without bytes is skipped, its notifies are not.

use task_graph::{ChannelNotify, Part, RegionId, RegionKind, TaskSink, ThreadId, WriteBatch};
use wire::launch::OpKind;
use wire::{ErrorCode, Phase};

use crate::areas::Area;
use crate::group::Group;
use crate::overlap::Overlap;
use crate::schedule::{Leg, Pass, Schedule, Step};
use crate::skeleton::{Emitted, Emitter};
use crate::slices::SliceSet;
use crate::tasks::own;

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
    pub(crate) fn run_steps(&mut self, overlap: Option<Overlap>) -> Result<u16, ErrorCode> {
        let shape = self.plan.shape();
        // Halving-doubling works on a power of two; the ranks above it are folded in first and out last.
        let parts = self.plan.parts();
        let lane = Lane {
            thread: ThreadId::MAIN,
            group: self.group(),
            work: self.slices(parts),
            landing: self.landing(parts),
        };
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
            let Step { send, receive } = schedule.step(index);
            let from = receive.map(|leg| lane.group.rank(leg.member));
            match (from, send) {
                (from, Some(leg)) => {
                    let (batch, target) = self.batch(lane, leg, reducing);
                    let parts = parts(&lane.work, target, schedule.set(index, leg));
                    self.exchange(lane.thread, from, &batch, parts)?;
                }
                (Some(from), None) => {
                    self.record(lane.thread, from, ChannelNotify::Ack)?;
                    self.wait(lane.thread, from, ChannelNotify::Data)?;
                }
                (None, None) => {}
            }
            if let (Some(from), Some(leg), true) = (from, receive, reducing)
                && !self.sink.caps(from).can_reduce(self.plan.reduction())
            {
                self.reduce_set(lane, schedule.set(index, leg))?;
            }
            step += 1;
        }
        Ok(step)
    }

    /// What is written to a member, and the area of those where it goes: its landing area where the link cannot reduce.
    #[inline]
    fn batch<'l, A: Area>(&self, lane: &'l Lane<'a, A>, leg: Leg, reducing: bool) -> (WriteBatch, &'l A) {
        let peer = lane.group.rank(leg.member);
        let inline = reducing && self.sink.caps(peer).can_reduce(self.plan.reduction());
        let (kind, target) = if reducing && !inline {
            (RegionKind::Scratch, &lane.landing)
        } else {
            (self.layout.work, &lane.work)
        };
        let batch = WriteBatch {
            peer,
            dst: RegionId::of_peer(peer, kind),
            src: RegionId::own(self.layout.work),
            reduction: inline.then(|| self.plan.reduction()),
            then: Some(ChannelNotify::Data),
        };
        (batch, target)
    }

    /// Reduces what has landed and could not be reduced on its way.
    fn reduce_set<A: Area>(&mut self, lane: &Lane<'a, A>, set: SliceSet) -> Emitted {
        for (first, count) in lane.work.runs(set) {
            let dst = own(self.layout.work, lane.work.range(first, count));
            let src = own(RegionKind::Scratch, lane.landing.range(first, count));
            self.reduce(lane.thread, dst, src)?;
        }
        Ok(())
    }
}

/// The slices of a set, from one area to another that is divided in the same way.
#[inline]
fn parts<A: Area>(work: &A, target: &A, set: SliceSet) -> impl Iterator<Item = Part> {
    work.runs(set).map(move |(first, count)| {
        let (src, len) = work.range(first, count);
        Part { dst: target.range(first, count).0, src, len }
    })
}
