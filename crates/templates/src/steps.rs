//! The step algorithms: passes over the ranks, step by step on one thread.
//!
//! One step, in write form: ACK to the peer I receive from ("you may write"), wait for the ACK of the peer I send
//! to, write my slices with DATA on the last, wait for DATA. Links that cannot reduce while moving write to a
//! landing area, from which the receiver reduces. A slice without bytes is skipped, its notifies are not.

use task_graph::{ChannelNotify, Part, RegionKind, TaskSink, ThreadId, WriteBatch};
use wire::launch::OpKind;
use wire::{ErrorCode, Phase};

use crate::division::Division;
use crate::group::Group;
use crate::overlap::Overlap;
use crate::schedule::{Pass, Schedule, Step};
use crate::skeleton::{Emitted, Emitter};
use crate::slices::{SliceSet, Slices};
use crate::tasks::own;

/// Where a pass runs: on which thread, among whom, on what.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'a> {
    pub(crate) thread: ThreadId,
    pub(crate) group: Group<'a>,
    /// Which blocks the slice of each member is.
    pub(crate) division: Division,
    /// The blocks of the work area of every rank.
    pub(crate) work: Slices<'a>,
    /// Those of the landing area that mirrors it.
    pub(crate) landing: Slices<'a>,
}

impl<'a> Lane<'a> {
    /// Returns the slices of a set as the fewest runs of blocks that can be moved as one.
    #[inline]
    pub(crate) fn runs(&self, set: SliceSet) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        self.division.runs(set, self.work.is_contiguous())
    }

    /// Returns the write of a run of blocks to the same place of another area.
    #[inline]
    fn part(&self, target: &Slices<'a>, (first, count): (u32, u32)) -> Part {
        let (src, len) = self.work.range(first, count);
        Part { dst: target.range(first, count).0, src, len }
    }
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
            division: Division::into_blocks(parts),
            work: self.slices(parts),
            landing: self.landing(parts),
        };
        let mut step = 0;
        for &pass in Pass::of(shape.op, shape.algorithm, parts < self.plan.ranks()) {
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
    pub(crate) fn run_pass(
        &mut self,
        lane: &Lane<'a>,
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
            let from = receive.map(|member| lane.group.rank(member));
            match (from, send) {
                (from, Some((member, set))) => {
                    let (batch, target) = self.batch(lane, member, reducing);
                    match lane.division.run(set, lane.work.is_contiguous()) {
                        Some(run) => {
                            self.sink.exchange(lane.thread, from, &batch, &[lane.part(target, run)])?;
                        }
                        None => {
                            let parts = lane.runs(set).map(|run| lane.part(target, run));
                            self.exchange(lane.thread, from, &batch, parts)?;
                        }
                    }
                }
                (Some(from), None) => {
                    self.record(lane.thread, from, ChannelNotify::Ack)?;
                    self.wait(lane.thread, from, ChannelNotify::Data)?;
                }
                (None, None) => {}
            }
            if let (Some(from), true) = (from, reducing)
                && !self.sink.caps(from).can_reduce(self.plan.reduction())
                && let Some(set) = schedule.received(index)
            {
                self.reduce_set(lane, set)?;
            }
            step += 1;
        }
        Ok(step)
    }

    /// What is written to a member, and the area of those where it goes: its landing area where the link cannot reduce.
    #[inline]
    fn batch<'l>(&self, lane: &'l Lane<'a>, member: u32, reducing: bool) -> (WriteBatch, &'l Slices<'a>) {
        let peer = lane.group.rank(member);
        let inline = reducing && self.sink.caps(peer).can_reduce(self.plan.reduction());
        let (kind, target) = if reducing && !inline {
            (RegionKind::Scratch, &lane.landing)
        } else {
            (self.layout.work, &lane.work)
        };
        let batch = WriteBatch {
            peer,
            dst: kind,
            src: self.layout.work,
            reduction: inline.then(|| self.plan.reduction()),
            then: Some(ChannelNotify::Data),
        };
        (batch, target)
    }

    /// Reduces what has landed and could not be reduced on its way.
    fn reduce_set(&mut self, lane: &Lane<'a>, set: SliceSet) -> Emitted {
        for (first, count) in lane.runs(set) {
            let dst = own(self.layout.work, lane.work.range(first, count));
            let src = own(RegionKind::Scratch, lane.landing.range(first, count));
            self.reduce(lane.thread, dst, src)?;
        }
        Ok(())
    }
}
