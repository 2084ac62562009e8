//! Exchanges: blocks that go from one rank straight to another, each over its own link.
//!
//! All-to-all and its vector forms, send and receive, and the one-step forms of gather, scatter, broadcast, reduce,
//! all-gather and reduce-scatter are one exchange: which bytes of the input go to a peer, and where what comes from it belongs, is all
//! that differs. Mesh and star serve every peer on a thread of its own; pairwise serves one after the other, in an
//! order in which both ends of a pair meet. A pair without bytes has no task, not even a notify: both ends know.
//!
//! Staged, a block lands in the sender's slot of the receiver's scratch buffer and is copied, or reduced in rank order,
//! from there. Direct, it is written to its place in the output; direct reductions are the mesh's (`mesh`).

use core::num::NonZero;

use task_graph::{ChannelNotify, Rank, RegionKind, TaskSink, ThreadId};
use wire::Phase;
use wire::launch::{Algorithm, OpKind, Staging};

use crate::skeleton::{Boundary, Emitted, Emitter};
use crate::tables::Half;
use crate::tasks::{at, own};

/// One exchange: all of an operation, or one half of it.
#[derive(Clone, Copy)]
struct Exchange {
    /// The pattern of which operation.
    op: OpKind,
    /// Where blocks come from.
    from: RegionKind,
}

impl<S: TaskSink> Emitter<'_, S> {
    /// Syncs at the communication boundary.
    pub(crate) fn exchange_algorithm(&mut self) -> Emitted {
        let shape = self.plan.shape();
        let direct = shape.staging == Staging::Direct;
        // All-reduce by star: all to the root, and back.
        let both = shape.op == OpKind::AllReduce;
        let op = if both { OpKind::Reduce } else { shape.op };
        let exchange = Exchange { op, from: RegionKind::Input };
        self.sink.mark(Phase::PreSync, 0);
        self.sink.mark(Phase::PreCopy, 0);
        if op.reduces() {
            self.own_to_slot(exchange)?;
        } else {
            self.keep_own()?;
        }
        self.sink.mark(Phase::PreSync, 0);
        self.start_subs(Boundary::Communication)?;
        self.sink.mark(Phase::Run, 0);
        self.write_blocks(exchange, direct)?;
        let mut steps = if shape.algorithm == Algorithm::Pairwise { shape.ranks - 1 } else { 1 };
        if both {
            self.join_subs(Boundary::Communication)?;
            self.reduce_slots_to_output(exchange)?;
            self.start_subs(Boundary::Communication)?;
            self.sink.mark(Phase::Run, 1);
            self.write_blocks(Exchange { op: OpKind::Broadcast, from: RegionKind::Output }, direct)?;
            steps = 2;
        }
        // Plans have fewer ranks.
        let steps = u16::try_from(steps).unwrap_or(u16::MAX);
        self.sink.mark(Phase::PostSync, steps);
        self.join_subs(Boundary::Communication)?;
        self.sink.mark(Phase::PostCopy, steps);
        if op.reduces() && !both {
            self.reduce_slots_to_output(exchange)?;
        }
        self.sink.mark(Phase::PostSync, steps);
        Ok(())
    }

    /// The peers in the order this rank serves them, with their number and the thread that does. The order is one in
    /// which ranks meet: my i-th partner's i-th partner is me.
    fn partners(&self) -> impl Iterator<Item = (u16, ThreadId, Rank)> + use<S> {
        let (rank, ranks) = (self.plan.shape().rank, self.plan.ranks());
        let subs = NonZero::new(self.plan.threads() - 1);
        let order = (1..=ranks.get()).map(move |round| (round + ranks.get() - rank) % ranks);
        (0..).zip(order.filter(move |&partner| partner != rank)).map(move |(number, partner)| {
            let thread = subs.map_or(0, |subs| 1 + number % subs);
            (number, ThreadId(thread), partner)
        })
    }

    /// The bytes that go to a peer; of no length where nothing does.
    fn outgoing(&self, exchange: Exchange, peer: Rank) -> (u64, u64) {
        let shape = self.plan.shape();
        let mine = shape.rank == shape.root;
        match exchange.op {
            OpKind::AllGather | OpKind::AllGatherV => self.share(),
            OpKind::Broadcast if mine => self.share(),
            OpKind::Gather | OpKind::Reduce if peer == shape.root => self.share(),
            OpKind::Scatter if !mine => (0, 0),
            OpKind::Broadcast | OpKind::Gather | OpKind::Reduce => (0, 0),
            _ => self.block(Half::Send, peer),
        }
    }

    /// Where what comes from a peer belongs in the output; of no length where nothing comes.
    fn incoming(&self, exchange: Exchange, peer: Rank) -> (u64, u64) {
        let shape = self.plan.shape();
        let mine = shape.rank == shape.root;
        match exchange.op {
            OpKind::ReduceScatter | OpKind::ReduceScatterV => self.share(),
            OpKind::Broadcast | OpKind::Scatter if peer == shape.root => self.share(),
            OpKind::Reduce if mine => self.share(),
            OpKind::Gather if !mine => (0, 0),
            OpKind::Broadcast | OpKind::Scatter | OpKind::Reduce => (0, 0),
            _ => self.block(Half::Receive, peer),
        }
    }

    /// Where at a peer's output the block of this rank belongs: the same for all peers, since only operations without a
    /// vector work directly.
    fn landing_place(&self, exchange: Exchange) -> (u64, u64) {
        match exchange.op {
            OpKind::Broadcast | OpKind::Scatter => self.share(),
            _ => self.block(Half::Receive, self.plan.shape().rank),
        }
    }

    /// The slot of a rank in scratch, `len` bytes. Only the root sends in a broadcast or scatter: one slot is enough.
    fn slot_of(&self, exchange: Exchange, sender: Rank, len: u64) -> (u64, u64) {
        match exchange.op {
            OpKind::Broadcast | OpKind::Scatter => (0, len),
            _ => (u64::from(sender) * self.layout.area, len),
        }
    }

    /// What of the input stays here goes to its place.
    fn keep_own(&mut self) -> Emitted {
        let Some((input, output)) = self.own_copy() else { return Ok(()) };
        self.copy_unless_in_place(
            ThreadId::MAIN,
            own(RegionKind::Output, output),
            own(RegionKind::Input, input),
        )
    }

    /// What of the input is reduced here goes to this rank's own slot.
    fn own_to_slot(&mut self, exchange: Exchange) -> Emitted {
        let rank = self.plan.shape().rank;
        let part = match exchange.op {
            OpKind::Reduce if rank != self.plan.shape().root => return Ok(()),
            OpKind::Reduce => self.share(),
            _ => self.block(Half::Send, rank),
        };
        let slot = own(RegionKind::Scratch, self.slot_of(exchange, rank, part.1));
        self.copy(ThreadId::MAIN, slot, own(RegionKind::Input, part))
    }

    /// Every block to its slot or place at the peer, and what has come to a slot, unless it is to be reduced, to its
    /// place.
    fn write_blocks(&mut self, exchange: Exchange, direct: bool) -> Emitted {
        let pairwise = self.plan.shape().algorithm == Algorithm::Pairwise;
        // With a thread per peer, all are told first: no rank waits for another's turn.
        if !pairwise {
            for (_, thread, peer) in self.partners() {
                self.allow_block(exchange, thread, peer)?;
            }
        }
        for (number, thread, peer) in self.partners() {
            if pairwise {
                self.sink.mark(Phase::Run, number);
                self.allow_block(exchange, thread, peer)?;
            }
            self.write_block(exchange, direct, thread, peer)?;
            if pairwise {
                self.take_block(exchange, direct, thread, peer)?;
            }
        }
        if !pairwise {
            for (_, thread, peer) in self.partners() {
                self.take_block(exchange, direct, thread, peer)?;
            }
        }
        Ok(())
    }

    /// Tells a peer that it may write.
    fn allow_block(&mut self, exchange: Exchange, thread: ThreadId, peer: Rank) -> Emitted {
        if self.incoming(exchange, peer).1 == 0 {
            return Ok(());
        }
        self.record(thread, peer, ChannelNotify::Ack)
    }

    fn write_block(&mut self, exchange: Exchange, direct: bool, thread: ThreadId, peer: Rank) -> Emitted {
        let src = own(exchange.from, self.outgoing(exchange, peer));
        if src.len == 0 {
            return Ok(());
        }
        let dst = if direct {
            at(peer, RegionKind::Output, self.landing_place(exchange))
        } else {
            at(peer, RegionKind::Scratch, self.slot_of(exchange, self.plan.shape().rank, src.len))
        };
        self.wait(thread, peer, ChannelNotify::Ack)?;
        self.write(thread, peer, dst, src, None, Some(ChannelNotify::Data))
    }

    fn take_block(&mut self, exchange: Exchange, direct: bool, thread: ThreadId, peer: Rank) -> Emitted {
        let place = self.incoming(exchange, peer);
        if place.1 == 0 {
            return Ok(());
        }
        self.wait(thread, peer, ChannelNotify::Data)?;
        if direct || exchange.op.reduces() {
            return Ok(());
        }
        let slot = own(RegionKind::Scratch, self.slot_of(exchange, peer, place.1));
        self.copy(thread, own(RegionKind::Output, place), slot)
    }

    /// Reduces the slots of all ranks, in rank order or along the strict tree, and hands over the result.
    fn reduce_slots_to_output(&mut self, exchange: Exchange) -> Emitted {
        let shape = self.plan.shape();
        if exchange.op == OpKind::Reduce && shape.rank != shape.root {
            return Ok(());
        }
        let part = self.share();
        self.reduce_slots(part.1)?;
        let result = own(RegionKind::Scratch, self.slot(0, part.1));
        self.copy(ThreadId::MAIN, own(RegionKind::Output, part), result)
    }
}
