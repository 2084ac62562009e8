//! The mesh algorithms: every rank exchanges with every other at once, and reduces in rank order.
//!
//! Staged (through scratch): one-shot writes the whole input into a slot at every peer, two-shot one slice; the
//! owner reduces the slots in rank order; two-shot then reads every peer's reduced slice. The strict form is two-shot
//! with slots reduced along a tree over the ranks. Direct (no scratch, inline
//! reduction on every link, input and output apart): a rank reads its peers' inputs in rank order straight into its
//! output, and two-shot writes its reduced slice into every output; a reduce-scatter reads its block, the root of a reduce
//! everything. Direct work is cut into pieces that stay in cache, one after the other on one thread.

use task_graph::{ChannelNotify, Rank, RegionKind, Span, Task, TaskSink, ThreadId};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{ErrorCode, Phase};

use crate::skeleton::{Boundary, Emitted, Emitter};
use crate::slices::Slices;
use crate::tables::Half;
use crate::tasks::{at, own};

impl<S: TaskSink> Emitter<'_, S> {
    fn direct(&self) -> bool {
        self.plan.shape().staging == Staging::Direct
    }

    fn one_shot(&self) -> bool {
        self.plan.shape().algorithm == Algorithm::MeshOneShot
    }

    /// Whether slices are reduced by their owners and then spread.
    fn two_shot(&self) -> bool {
        self.plan.shape().op == OpKind::AllReduce && !self.one_shot()
    }

    /// Offset and length of this chunk in the user's buffers.
    fn whole(&self) -> (u64, u64) {
        (self.chunk.first * self.element, self.chunk.count * self.element)
    }

    /// The chunk's slices in the users' buffers.
    fn user_slices(&self) -> Slices<'static> {
        Slices::cut(self.chunk.first * self.element, self.chunk.count, self.plan.ranks(), self.element)
    }

    /// Slot `index` of a scratch buffer, `len` bytes.
    pub(crate) fn slot(&self, index: u32, len: u64) -> (u64, u64) {
        (u64::from(index) * self.layout.area, len)
    }

    /// The peers in the order this rank serves them: from the next rank on, so that no rank is everybody's first. In a
    /// reduce the root alone has to do with all.
    fn peers(&self) -> impl Iterator<Item = (u64, Rank)> + use<S> {
        let (shape, ranks) = (self.plan.shape(), self.plan.ranks());
        let (rank, root) = (shape.rank, shape.root);
        let all = shape.op != OpKind::Reduce || rank == root;
        (1..ranks.get())
            .map(move |distance| (u64::from(distance - 1), (rank + distance) % ranks))
            .filter(move |&(_, peer)| all || peer == root)
    }

    /// Direct: every rank's input may be read and its output written from here on.
    pub(crate) fn mesh_ready(&mut self) -> Emitted {
        if self.direct() { self.handshake(ChannelNotify::Ack) } else { Ok(()) }
    }

    /// Direct: every peer is done with this rank's buffers.
    pub(crate) fn mesh_finish(&mut self) -> Emitted {
        if self.direct() { self.handshake(ChannelNotify::Fin) } else { Ok(()) }
    }

    fn handshake(&mut self, notify: ChannelNotify) -> Emitted {
        for (_, peer) in self.peers() {
            self.record(ThreadId::MAIN, peer, notify)?;
        }
        for (_, peer) in self.peers() {
            self.wait(ThreadId::MAIN, peer, notify)?;
        }
        Ok(())
    }

    /// Staged: the own contribution goes to the own slot.
    pub(crate) fn mesh_pre_copy(&mut self) -> Emitted {
        if self.direct() {
            return Ok(());
        }
        let rank = self.plan.shape().rank;
        let own_part = if self.one_shot() { self.whole() } else { self.user_slices().get(rank) };
        let slot = own(RegionKind::Scratch, self.slot(rank, own_part.1));
        self.copy(ThreadId::MAIN, slot, own(RegionKind::Input, own_part))
    }

    /// Emits the exchange; returns the number of steps.
    pub(crate) fn mesh_run(&mut self) -> Result<u16, ErrorCode> {
        self.sink.mark(Phase::Run, 0);
        if self.direct() {
            self.direct_pieces()?;
            return Ok(if self.two_shot() { 2 } else { 1 });
        }
        self.scatter_to_slots()?;
        if self.one_shot() {
            return Ok(1);
        }
        self.join_subs(Boundary::Communication)?;
        let own_slice = self.user_slices().get(self.plan.shape().rank);
        self.reduce_slots(own_slice.1)?;
        self.start_subs(Boundary::Communication)?;
        self.sink.mark(Phase::Run, 1);
        self.read_results()?;
        Ok(2)
    }

    /// Staged: the result goes to the user.
    pub(crate) fn mesh_post_copy(&mut self) -> Emitted {
        if self.direct() {
            return Ok(());
        }
        let rank = self.plan.shape().rank;
        let part = if self.one_shot() { self.whole() } else { self.user_slices().get(rank) };
        let output = own(RegionKind::Output, part);
        self.copy(ThreadId::MAIN, output, own(RegionKind::Scratch, self.slot(0, part.1)))?;
        if self.one_shot() {
            for index in 1..self.plan.shape().ranks {
                self.reduce(ThreadId::MAIN, output, own(RegionKind::Scratch, self.slot(index, part.1)))?;
            }
        }
        Ok(())
    }

    /// Writes the whole input (one-shot) or the peer's slice (two-shot) into this rank's slot at every peer.
    fn scatter_to_slots(&mut self) -> Emitted {
        let rank = self.plan.shape().rank;
        for (index, peer) in self.peers() {
            self.record(self.plan.thread_of(index), peer, ChannelNotify::Ack)?;
        }
        for (index, peer) in self.peers() {
            let thread = self.plan.thread_of(index);
            let src = if self.one_shot() {
                own(RegionKind::Scratch, self.slot(rank, self.whole().1))
            } else {
                own(RegionKind::Input, self.user_slices().get(peer))
            };
            self.wait(thread, peer, ChannelNotify::Ack)?;
            let dst = at(peer, RegionKind::Scratch, self.slot(rank, src.len));
            self.write(thread, peer, dst, src, None, Some(ChannelNotify::Data))?;
        }
        for (index, peer) in self.peers() {
            self.wait(self.plan.thread_of(index), peer, ChannelNotify::Data)?;
        }
        Ok(())
    }

    /// Reduces the slots into slot 0: in rank order, or along the strict tree, which folds the upper half onto the lower
    /// at the largest power of two below what remains. Neither depends on where the elements lie.
    pub(crate) fn reduce_slots(&mut self, len: u64) -> Emitted {
        let ranks = self.plan.shape().ranks;
        if self.plan.shape().algorithm != Algorithm::Strict {
            return (1..ranks).try_for_each(|index| self.reduce_slot(0, index, len));
        }
        let mut remaining = ranks;
        while remaining > 1 {
            let half = remaining.next_power_of_two() / 2;
            (half..remaining).try_for_each(|index| self.reduce_slot(index - half, index, len))?;
            remaining = half;
        }
        Ok(())
    }

    fn reduce_slot(&mut self, into: u32, from: u32, len: u64) -> Emitted {
        let (dst, src) = (self.slot(into, len), self.slot(from, len));
        self.reduce(ThreadId::MAIN, own(RegionKind::Scratch, dst), own(RegionKind::Scratch, src))
    }

    /// Reads every peer's reduced slice into the output.
    fn read_results(&mut self) -> Emitted {
        for (index, peer) in self.peers() {
            self.record(self.plan.thread_of(index), peer, ChannelNotify::Ack)?;
        }
        for (index, peer) in self.peers() {
            let thread = self.plan.thread_of(index);
            self.wait(thread, peer, ChannelNotify::Ack)?;
            let dst = own(RegionKind::Output, self.user_slices().get(peer));
            let src = at(peer, RegionKind::Scratch, self.slot(0, dst.len));
            self.read(thread, peer, dst, src, false)?;
            self.record(thread, peer, ChannelNotify::Fin)?;
        }
        for (index, peer) in self.peers() {
            self.wait(self.plan.thread_of(index), peer, ChannelNotify::Fin)?;
        }
        Ok(())
    }

    /// Direct: each piece is reduced from all inputs in rank order, then (two-shot) written to all outputs.
    fn direct_pieces(&mut self) -> Emitted {
        let shape = self.plan.shape();
        let (input, output) = match shape.op {
            OpKind::ReduceScatter => (self.block(Half::Send, shape.rank).0, self.share()),
            OpKind::Reduce if shape.rank != shape.root => return Ok(()),
            OpKind::AllReduce if self.two_shot() => {
                let slice = self.user_slices().get(shape.rank);
                (slice.0, slice)
            }
            _ => (self.whole().0, self.whole()),
        };
        let (start, len) = output;
        let piece = self.plan.piece();
        let mut done = 0;
        while done < len {
            let length = piece.get().min(len - done);
            self.gather_piece((input + done, length), (start + done, length))?;
            if self.two_shot() {
                self.spread_piece((start + done, length))?;
            }
            done += length;
        }
        Ok(())
    }

    fn gather_piece(&mut self, input: (u64, u64), output: (u64, u64)) -> Emitted {
        self.sink.mark(Phase::Run, 0);
        let output = own(RegionKind::Output, output);
        let rank = self.plan.shape().rank;
        for contributor in 0..self.plan.shape().ranks {
            let first = contributor == 0;
            if contributor != rank {
                let src = at(contributor, RegionKind::Input, input);
                self.read(ThreadId::MAIN, contributor, output, src, !first)?;
            } else if first {
                self.copy(ThreadId::MAIN, output, own(RegionKind::Input, input))?;
            } else {
                self.reduce(ThreadId::MAIN, output, own(RegionKind::Input, input))?;
            }
        }
        Ok(())
    }

    fn spread_piece(&mut self, part: (u64, u64)) -> Emitted {
        self.sink.mark(Phase::Run, 1);
        let output = own(RegionKind::Output, part);
        for (_, peer) in self.peers() {
            self.write(ThreadId::MAIN, peer, at(peer, RegionKind::Output, part), output, None, None)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn read(&mut self, thread: ThreadId, peer: Rank, dst: Span, src: Span, reducing: bool) -> Emitted {
        if src.len == 0 {
            return Ok(());
        }
        let reduction = reducing.then(|| self.plan.reduction());
        self.sink.task(thread, &Task::Read { peer, dst, src, reduction })
    }
}
