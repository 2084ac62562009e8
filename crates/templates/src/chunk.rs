//! Mesh chunk: a mesh two-shot whose slices go to their owner part by part, and are added on the way.
//!
//! Every slice has one part fewer than there are ranks: as many as there are others. In each sub-step every rank sends
//! one part to every peer, so chosen that no two ranks send the same part of a slice; the owner lets the next sub-step
//! begin when it has all. Where a link cannot add, a part lands in scratch, and the thread of the peer adds it.
//! Afterwards every owner writes its slice to all others.
//!
//! Part c of the slice of rank o comes first from rank o + 1 + c, then from the ones before it, around the circle and
//! past o.

use core::num::NonZero;

use task_graph::{ChannelNotify, Rank, RegionKind, TaskSink, ThreadId};
use wire::Phase;
use wire::launch::{OpKind, Staging};

use crate::division::Division;
use crate::schedule::{Pass, wrapped};
use crate::skeleton::{Boundary, Emitted, Emitter};
use crate::slices::Slices;
use crate::steps::Lane;
use crate::tables::Half;
use crate::tasks::{at, own};

impl<S: TaskSink> Emitter<'_, S> {
    /// Syncs at the communication boundary.
    pub(crate) fn chunk_algorithm(&mut self) -> Emitted {
        let Some(others) = NonZero::new(self.plan.ranks().get() - 1) else { return Ok(()) };
        self.sink.mark(Phase::PreSync, 0);
        self.sink.mark(Phase::PreCopy, 0);
        self.own_slice_to_work(others)?;
        self.sink.mark(Phase::PreSync, 0);
        self.start_subs(Boundary::Communication)?;
        let mut step = 0;
        for turn in 0..others.get() {
            // The owner has all of a sub-step before it lets the next begin.
            if turn > 0 {
                self.join_subs(Boundary::Communication)?;
                self.start_subs(Boundary::Communication)?;
            }
            self.sink.mark(Phase::Run, step);
            self.sub_step(turn, others)?;
            step += 1;
        }
        if self.plan.shape().op == OpKind::AllReduce {
            self.join_subs(Boundary::Communication)?;
            self.start_subs(Boundary::Communication)?;
            self.sink.mark(Phase::Run, step);
            self.exchange_slices(&self.whole_slices(others), Pass::AllGather)?;
            step += 1;
        }
        self.sink.mark(Phase::PostSync, step);
        self.join_subs(Boundary::Communication)?;
        self.sink.mark(Phase::PostCopy, step);
        self.work_to_output()?;
        self.sink.mark(Phase::PostSync, step);
        Ok(())
    }

    /// Sends one part to every peer, and takes one from each.
    fn sub_step(&mut self, turn: u32, others: NonZero<u32>) -> Emitted {
        let (rank, ranks) = (self.plan.shape().rank, self.plan.ranks());
        let peers = (1..ranks.get())
            .zip(0..)
            .map(move |(distance, index)| (distance, index, wrapped(rank + distance, ranks)));
        for (_, index, peer) in peers.clone() {
            self.record(self.plan.thread_of(index), peer, ChannelNotify::Ack)?;
        }
        for (distance, index, peer) in peers.clone() {
            // Seen from the peer, this rank is `ranks − distance` ahead.
            let part = wrapped(ranks.get() - distance - 1 + turn, others);
            self.send_part(self.plan.thread_of(index), peer, part, others)?;
        }
        for (distance, index, peer) in peers {
            let part = wrapped(distance - 1 + turn, others);
            self.take_part(self.plan.thread_of(index), peer, part, others)?;
        }
        Ok(())
    }

    fn send_part(&mut self, thread: ThreadId, peer: Rank, part: u32, others: NonZero<u32>) -> Emitted {
        let input = own(RegionKind::Input, self.part_of_input(peer, part, others));
        let inline = self.sink.caps(peer).can_reduce(self.plan.reduction());
        let (place, len) = self.part_of_slice(peer, part, others);
        let dst = if inline {
            at(peer, self.layout.work, (place, len))
        } else {
            at(peer, RegionKind::Scratch, self.landing_part(peer, part, others))
        };
        self.wait(thread, peer, ChannelNotify::Ack)?;
        let reduction = inline.then(|| self.plan.reduction());
        self.write(thread, peer, dst, input, reduction, Some(ChannelNotify::Data))
    }

    fn take_part(&mut self, thread: ThreadId, peer: Rank, part: u32, others: NonZero<u32>) -> Emitted {
        self.wait(thread, peer, ChannelNotify::Data)?;
        if self.sink.caps(peer).can_reduce(self.plan.reduction()) {
            return Ok(());
        }
        let rank = self.plan.shape().rank;
        let dst = own(self.layout.work, self.part_of_slice(rank, part, others));
        let src = own(RegionKind::Scratch, self.landing_part(rank, part, others));
        self.reduce(thread, dst, src)
    }

    /// All parts, of all slices or of the own, as they lie from `base` on.
    fn all_parts(&self, base: u64) -> Slices<'static> {
        Slices::cut(base, self.chunk.count, self.plan.cuts(), self.element)
    }

    /// The number of a part of the slice of a rank among all parts.
    fn number(&self, owner: Rank, part: u32, others: NonZero<u32>) -> u32 {
        if self.has_blocks() { part } else { owner * others.get() + part }
    }

    fn work_base(&self) -> u64 {
        let direct = self.plan.shape().staging == Staging::Direct;
        if direct { self.chunk.first * self.element } else { 0 }
    }

    /// A part of the slice of a rank, in its work area.
    fn part_of_slice(&self, owner: Rank, part: u32, others: NonZero<u32>) -> (u64, u64) {
        self.all_parts(self.work_base()).get(self.number(owner, part, others))
    }

    fn landing_part(&self, owner: Rank, part: u32, others: NonZero<u32>) -> (u64, u64) {
        self.all_parts(self.layout.landing).get(self.number(owner, part, others))
    }

    /// A part of the slice of a rank, in this rank's input.
    fn part_of_input(&self, owner: Rank, part: u32, others: NonZero<u32>) -> (u64, u64) {
        let base =
            if self.has_blocks() { self.block(Half::Send, owner).0 } else { self.chunk.first * self.element };
        self.all_parts(base).get(self.number(owner, part, others))
    }

    /// Every rank's slice, in the work area.
    fn whole_slices(&self, others: NonZero<u32>) -> Lane<'static> {
        let division = Division::Strided {
            first: 0,
            slice_stride: others.get(),
            block_stride: 1,
            width: others.get(),
            slices: self.plan.ranks(),
        };
        Lane {
            thread: ThreadId::MAIN,
            group: crate::group::Group::all(self.plan.ranks(), 0),
            division,
            work: self.all_parts(self.work_base()),
            landing: self.all_parts(self.layout.landing),
        }
    }

    /// What the own slice begins with is the own input.
    fn own_slice_to_work(&mut self, others: NonZero<u32>) -> Emitted {
        let rank = self.plan.shape().rank;
        let whole = |first: (u64, u64), last: (u64, u64)| (first.0, last.0 + last.1 - first.0);
        let last = others.get() - 1;
        let input = whole(self.part_of_input(rank, 0, others), self.part_of_input(rank, last, others));
        let work = whole(self.part_of_slice(rank, 0, others), self.part_of_slice(rank, last, others));
        let (dst, src) = (own(self.layout.work, work), own(RegionKind::Input, input));
        match self.plan.shape().staging {
            Staging::Direct => self.copy_unless_in_place(ThreadId::MAIN, dst, src),
            Staging::Scratch => self.copy(ThreadId::MAIN, dst, src),
        }
    }

    fn work_to_output(&mut self) -> Emitted {
        if self.plan.shape().staging == Staging::Direct {
            return Ok(());
        }
        let output = self.share();
        let work = own(self.layout.work, (0, output.1));
        self.copy(ThreadId::MAIN, own(RegionKind::Output, output), work)
    }
}
