//! The pipeline: a ring across servers and a mesh inside them, at the same time.
//!
//! Gathering, the main thread passes blocks around the ring while the sub threads spread inside the server what came
//! in the step before. Reducing, the sub threads exchange inside the server what the ring will send in the next step.
//! Both have one step more than the ring. The order of reduction is that of two levels, mesh and ring.

use task_graph::{ChannelNotify, Part, RegionKind, TaskSink, ThreadId, WriteBatch};
use wire::launch::OpKind;
use wire::{ErrorCode, Phase};

use crate::division::Division;
use crate::group::Group;
use crate::schedule::{Pass, wrapped};
use crate::skeleton::{Boundary, Emitted, Emitter};
use crate::slices::{SliceSet, Slices};
use crate::steps::Lane;
use crate::tasks::own;

/// Where a rank stands.
#[derive(Clone, Copy)]
struct Stand<'a> {
    /// The ranks of this place in all servers.
    ring: Group<'a>,
    /// The blocks of the work area, and which of them this place has of each server.
    work: Slices<'a>,
    division: Division,
    /// The server's number.
    server: u32,
    servers: u32,
}

impl<'a, S: TaskSink> Emitter<'a, S> {
    /// Emits all steps; returns their number.
    pub(crate) fn pipeline(&mut self) -> Result<u16, ErrorCode> {
        let (rank, levels) = (self.plan.shape().rank, self.plan.levels());
        let digits = levels.digits(rank, 0);
        let [_, server, _] = digits;
        let ring = levels.group(1, rank, 0);
        let (work, division) = (self.blocks_of_work(), self.nested(1, digits));
        let stand = Stand { ring, work, division, server, servers: ring.members().get() };
        let mut step = 0;
        if self.plan.shape().op.reduces() {
            step = self.reduce_in_pipeline(&stand, step)?;
        }
        if !matches!(self.plan.shape().op, OpKind::ReduceScatter | OpKind::ReduceScatterV) {
            step = self.gather_in_pipeline(&stand, step)?;
        }
        Ok(step)
    }

    fn gather_in_pipeline(&mut self, stand: &Stand<'a>, mut step: u16) -> Result<u16, ErrorCode> {
        for hop in 0..stand.servers {
            self.sink.mark(Phase::Run, step);
            self.start_subs(Boundary::Communication)?;
            self.exchange_slices(&self.inside(stand.back(hop)), Pass::AllGather)?;
            if hop + 1 < stand.servers {
                self.pass_on(stand, stand.back(hop), None)?;
            }
            self.join_subs(Boundary::Communication)?;
            step += 1;
        }
        Ok(step)
    }

    fn reduce_in_pipeline(&mut self, stand: &Stand<'a>, mut step: u16) -> Result<u16, ErrorCode> {
        for hop in 0..stand.servers {
            self.sink.mark(Phase::Run, step);
            // The block that this server sends in the next step, at last its own.
            let (sent, next) = (stand.back(hop), self.inside(stand.back(hop + 1)));
            let landing = self.ring_slot(stand, stand.back(hop + 1));
            self.start_subs(Boundary::Communication)?;
            self.exchange_slices(&next, Pass::ReduceScatter)?;
            if hop > 0 {
                self.pass_on(stand, sent, Some(self.ring_slot(stand, sent)))?;
            }
            self.join_subs(Boundary::Communication)?;
            self.reduce_landed(&next)?;
            if hop > 0 {
                let block = own(self.layout.work, stand.block(stand.back(hop + 1)));
                self.reduce(ThreadId::MAIN, block, own(RegionKind::Scratch, (landing, block.len)))?;
            }
            step += 1;
        }
        Ok(step)
    }

    /// One step of the ring: sends the block of a server on, to its place or to where it lands.
    fn pass_on(&mut self, stand: &Stand<'a>, block: u32, landing: Option<u64>) -> Emitted {
        let to = stand.ring.rank(wrapped(stand.server + 1, stand.ring.members()));
        let from = stand.ring.rank(wrapped(stand.server + stand.servers - 1, stand.ring.members()));
        let (src, len) = stand.block(block);
        let kind = if landing.is_some() { RegionKind::Scratch } else { self.layout.work };
        let batch = WriteBatch {
            peer: to,
            dst: kind,
            src: self.layout.work,
            reduction: None,
            then: Some(ChannelNotify::Data),
        };
        let part = Part { dst: landing.unwrap_or(src), src, len };
        self.sink.exchange(ThreadId::MAIN, Some(from), &batch, &[part])
    }

    /// The server's ranks, with the blocks that their places have of one server.
    fn inside(&self, server: u32) -> Lane<'a> {
        let (rank, levels) = (self.plan.shape().rank, self.plan.levels());
        Lane {
            thread: ThreadId::MAIN,
            group: levels.group(0, rank, 0),
            division: self.nested(0, [0; 3]).block(server),
            work: self.blocks_of_work(),
            landing: self.blocks_of_landing(),
        }
    }

    /// Where a block of the ring lands, behind the slots of the server.
    fn ring_slot(&self, stand: &Stand<'a>, block: u32) -> u64 {
        let [inside, ..] = self.plan.levels().list;
        self.layout.landing + u64::from(inside.members.get() - 1) * stand.block(block).1
    }
}

impl Stand<'_> {
    /// The server `hops` back.
    fn back(&self, hops: u32) -> u32 {
        (self.server + self.servers - hops % self.ring.members()) % self.ring.members()
    }

    /// Offset and length of the block that this place has of a server.
    fn block(&self, server: u32) -> (u64, u64) {
        let mut runs = self.division.runs(SliceSet::single(server), self.work.is_contiguous());
        runs.next().map_or((0, 0), |(first, count)| self.work.range(first, count))
    }
}
