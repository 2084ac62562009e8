//! AHC: servers of any size.
//!
//! Every server reduces and scatters among its own ranks, so that each of its ranks holds a share of the parts of the
//! data; the ranks that hold the same part, one of every server, reduce it among themselves; every server gathers.
//! The parts are as many as the least common multiple of the servers' sizes, so that equal shares end where parts do.
//! Where that is more than 1,024, there are so many parts that shares differ by little. Parts that the same ranks hold
//! travel together.

use core::num::NonZero;

use task_graph::{TaskSink, ThreadId};
use wire::ErrorCode;

use crate::division::Division;
use crate::group::{Group, Owners, Servers, first_part, owner};
use crate::schedule::{Pass, core};
use crate::skeleton::Emitter;
use crate::slices::Slices;
use crate::steps::Lane;

impl<'a, S: TaskSink> Emitter<'a, S> {
    /// Emits all steps; returns their number.
    pub(crate) fn servers_of_any_size(&mut self) -> Result<u16, ErrorCode> {
        let (work, landing) = (self.blocks_of_work(), self.blocks_of_landing());
        let [inside, across, _] = self.plan.levels().list;
        let servers = Servers::new(self.tables.servers, self.plan.ranks());
        let (first, size) = servers.get(servers.of(self.plan.shape().rank));
        let sharing = core(inside.algorithm, size);
        let division =
            Division::Shares { width: across.core.get(), parts: self.plan.levels().parts, owners: sharing };
        let server = Group::Spaced { first, stride: NonZero::<u32>::MIN, root: 0, members: size };
        let lane = Lane { thread: ThreadId::MAIN, group: server, division, work, landing };
        let folds = sharing < size;
        let fold = |pass| folds.then_some(pass);
        let mut step = 0;
        for pass in [fold(Pass::FoldIn), Some(Pass::ReduceScatter)].into_iter().flatten() {
            step = self.server_pass(&lane, pass, step)?;
        }
        step = self.across_servers(servers, [work, landing], step)?;
        for pass in [Some(Pass::AllGather), fold(Pass::FoldOut)].into_iter().flatten() {
            step = self.server_pass(&lane, pass, step)?;
        }
        Ok(step)
    }

    fn server_pass(&mut self, lane: &Lane<'a>, pass: Pass, step: u16) -> Result<u16, ErrorCode> {
        let [inside, ..] = self.plan.levels().list;
        if lane.group.members().get() == 1 {
            return Ok(step);
        }
        self.group_pass(lane, inside.algorithm, pass, step)
    }

    /// All-reduces each run of parts of this rank among its owners, in the order of parts: every rank waits only for
    /// runs before its own, so that all come to an end.
    fn across_servers(
        &mut self,
        servers: Servers<'a>,
        [work, landing]: [Slices<'a>; 2],
        mut step: u16,
    ) -> Result<u16, ErrorCode> {
        let [inside, across, _] = self.plan.levels().list;
        let (rank, parts) = (self.plan.shape().rank, self.plan.levels().parts);
        let (first, size) = servers.get(servers.of(rank));
        let sharing = core(inside.algorithm, size);
        let place = rank - first;
        if place >= sharing.get() || across.members.get() == 1 {
            return Ok(step);
        }
        let end = first_part(place + 1, parts, sharing);
        let mut part = first_part(place, parts, sharing);
        while part < end {
            let until = self.end_of_run(servers, part).min(end);
            let division = Division::Strided {
                first: part * across.core.get(),
                slice_stride: until - part,
                block_stride: 1,
                width: until - part,
                slices: across.core,
            };
            let owners = Owners { servers, part, parts, algorithm: inside.algorithm };
            let lane = Lane { thread: ThreadId::MAIN, group: Group::Owners(owners), division, work, landing };
            let fold = |pass| (across.core < across.members).then_some(pass);
            let passes =
                [fold(Pass::FoldIn), Some(Pass::ReduceScatter), Some(Pass::AllGather), fold(Pass::FoldOut)];
            for pass in passes.into_iter().flatten() {
                step = self.group_pass(&lane, across.algorithm, pass, step)?;
            }
            part = until;
        }
        Ok(step)
    }

    /// The first part behind `part` that some server's next rank holds.
    fn end_of_run(&self, servers: Servers<'a>, part: u32) -> u32 {
        let (parts, [inside, ..]) = (self.plan.levels().parts, self.plan.levels().list);
        let ends = servers.sizes().map(|size| {
            let sharing = core(inside.algorithm, size);
            first_part(owner(part, parts, sharing) + 1, parts, sharing)
        });
        ends.min().unwrap_or(parts.get())
    }
}
