//! Passes of a group by mesh: every member with every other at once, each pair on its own link and thread.
//!
//! What is reduced comes to slots in the landing area, one for each peer, and is added to the own slice peer by peer,
//! from the next member on around the group: x_m · x_{m+1} · x_{m+2} …, the same with any link.

use task_graph::{ChannelNotify, Part, RegionKind, TaskSink, WriteBatch};
use wire::Phase;

use crate::schedule::{Pass, wrapped};
use crate::skeleton::{Boundary, Emitted, Emitter};
use crate::slices::SliceSet;
use crate::steps::Lane;
use crate::tasks::own;

/// A peer of a member: how far behind it, and the thread that serves it, by number.
type Peer = (u32, u64);

impl<'a, S: TaskSink> Emitter<'a, S> {
    /// Emits a reduce-scatter, all-gather or scatter of a group, one step, with the sub threads.
    pub(crate) fn mesh_pass(&mut self, lane: &Lane<'a>, pass: Pass, step: u16) -> Emitted {
        self.sink.mark(Phase::Run, step);
        self.start_subs(Boundary::Communication)?;
        self.exchange_slices(lane, pass)?;
        self.join_subs(Boundary::Communication)?;
        if pass == Pass::ReduceScatter { self.reduce_landed(lane) } else { Ok(()) }
    }

    /// Every member writes each peer's slice (or, gathering, its own to each peer) and waits for what is its due, on
    /// the threads of the peers.
    pub(crate) fn exchange_slices(&mut self, lane: &Lane<'a>, pass: Pass) -> Emitted {
        let member = lane.group.member(self.plan.shape().rank);
        // Scattering, all comes from member 0.
        let all = pass != Pass::Scatter;
        let sends = all || member == 0;
        let receives = move |peer| all || peer == 0;
        let members = lane.group.members();
        let peers =
            (1..members.get()).zip(0..).map(move |peer: Peer| (peer, wrapped(member + peer.0, members)));
        for ((_, index), peer) in peers.clone().filter(|&(_, peer)| receives(peer)) {
            self.record(self.plan.thread_of(index), lane.group.rank(peer), ChannelNotify::Ack)?;
        }
        for ((distance, index), peer) in peers.clone().filter(|_| sends) {
            self.send_slice(lane, pass, index, (member, distance, peer))?;
        }
        for ((_, index), peer) in peers.filter(|&(_, peer)| receives(peer)) {
            self.wait(self.plan.thread_of(index), lane.group.rank(peer), ChannelNotify::Data)?;
        }
        Ok(())
    }

    fn send_slice(
        &mut self,
        lane: &Lane<'a>,
        pass: Pass,
        index: u64,
        (member, distance, peer): (u32, u32, u32),
    ) -> Emitted {
        let (thread, to) = (self.plan.thread_of(index), lane.group.rank(peer));
        let slot = pass == Pass::ReduceScatter;
        let slice = if pass == Pass::AllGather { member } else { peer };
        // Counted from the peer on, this rank is as many members behind it as are left of the circle.
        let mut place = self.slot_place(lane, slice, lane.group.members().get() - distance);
        let batch = WriteBatch {
            peer: to,
            dst: if slot { RegionKind::Scratch } else { self.layout.work },
            src: self.layout.work,
            reduction: None,
            then: Some(ChannelNotify::Data),
        };
        let parts = lane.runs(SliceSet::single(slice)).map(|(first, count)| {
            let (src, len) = lane.work.range(first, count);
            let dst = if slot { place } else { src };
            place += len;
            Part { dst, src, len }
        });
        self.exchange(thread, None, &batch, parts)
    }

    /// Where in the landing area what comes for a slice from the member `distance` behind its owner belongs.
    fn slot_place(&self, lane: &Lane<'a>, slice: u32, distance: u32) -> u64 {
        let runs = lane.runs(SliceSet::single(slice));
        let len: u64 = runs.map(|(first, count)| lane.work.range(first, count).1).sum();
        self.layout.landing + u64::from(distance - 1) * len
    }

    /// Adds what has come to the slots to the own slice, on the main thread.
    pub(crate) fn reduce_landed(&mut self, lane: &Lane<'a>) -> Emitted {
        let member = lane.group.member(self.plan.shape().rank);
        for distance in 1..lane.group.members().get() {
            let mut place = self.slot_place(lane, member, distance);
            for (first, count) in lane.runs(SliceSet::single(member)) {
                let dst = own(self.layout.work, lane.work.range(first, count));
                let src = own(RegionKind::Scratch, (place, dst.len));
                place += dst.len;
                self.reduce(lane.thread, dst, src)?;
            }
        }
        Ok(())
    }
}
