//! Places: which bytes of which buffer a block, a slice or a share of the chunk at hand is.

use core::num::NonZero;

use task_graph::{Rank, TaskSink};
use wire::launch::{ElementRange, OpKind, Staging};

use crate::group::Group;
use crate::skeleton::Emitter;
use crate::slices::{Lengths, Slices};
use crate::space::Layout;
use crate::tables::{Half, Vector};

impl<'a, S: TaskSink> Emitter<'a, S> {
    /// Returns the ranks, numbered from the root on.
    pub(crate) fn group(&self) -> Group<'a> {
        Group::all(self.plan.ranks(), self.plan.shape().root)
    }

    /// Returns the place of a rank's block in the work area.
    pub(crate) fn position(&self, rank: Rank) -> u32 {
        if self.plan.packs() {
            let levels = self.plan.levels();
            levels.position(levels.digits(rank, 0))
        } else {
            self.group().member(rank)
        }
    }

    /// Returns the half of the vector that has a block per rank, and the chunk's part of those blocks.
    fn lengths(&self) -> Option<Lengths<'a>> {
        let shape = self.plan.shape();
        let half = match shape.op {
            OpKind::AllGatherV => Half::Receive,
            OpKind::ReduceScatterV => Half::Send,
            _ => return None,
        };
        let vector = Vector { rows: self.tables.vector, half };
        Some(Lengths { vector, chunk: self.chunk, element: self.element })
    }

    /// Returns whether the operation has one block per rank, instead of the same elements at all ranks.
    pub(crate) fn has_blocks(&self) -> bool {
        let op = self.plan.shape().op;
        !matches!(op, OpKind::AllReduce | OpKind::Broadcast | OpKind::Reduce | OpKind::Barrier)
    }

    /// Returns the chunk's slices of the work area, by member.
    pub(crate) fn slices(&self, parts: NonZero<u32>) -> Slices<'a> {
        let direct = self.plan.shape().staging == Staging::Direct;
        let first = self.chunk.first * self.element;
        match self.lengths() {
            _ if !self.has_blocks() => {
                Slices::cut(if direct { first } else { 0 }, self.chunk.count, parts, self.element)
            }
            Some(lengths) => Slices::uneven(0, self.layout.area, lengths, parts),
            None => {
                let (base, stride) = if direct {
                    (first, self.plan.shape().count * self.element)
                } else if self.plan.packs() {
                    (0, self.chunk.count * self.element)
                } else {
                    (0, self.layout.area)
                };
                Slices::blocks(base, stride, self.chunk.count * self.element, parts)
            }
        }
    }

    /// Returns the landing slices that mirror [`slices`](Self::slices).
    pub(crate) fn landing(&self, parts: NonZero<u32>) -> Slices<'a> {
        let Layout { landing, area, .. } = self.layout;
        match self.lengths() {
            _ if !self.has_blocks() => Slices::cut(landing, self.chunk.count, parts, self.element),
            Some(lengths) => Slices::uneven(landing, area, lengths, parts),
            None => {
                let len = self.chunk.count * self.element;
                Slices::blocks(landing, if self.plan.packs() { len } else { area }, len, parts)
            }
        }
    }

    /// The chunk's part of elements `range` of a user's buffer, bytes.
    pub(crate) fn clip(&self, range: ElementRange) -> (u64, u64) {
        let ElementRange { first, count } = self.chunk;
        let len = range.count.saturating_sub(first).min(count);
        ((range.first + first.min(range.count)) * self.element, len * self.element)
    }

    /// The chunk's part of the block of rank `index` in the buffer that has one per rank: the input where `half` is
    /// what is sent, the output where it is what is received.
    pub(crate) fn block(&self, half: Half, index: Rank) -> (u64, u64) {
        let shape = self.plan.shape();
        let range = if shape.op.has_vector() {
            Vector { rows: self.tables.vector, half }.block(index)
        } else {
            ElementRange { first: u64::from(index) * shape.count, count: shape.count }
        };
        self.clip(range)
    }

    /// The chunk's part of a buffer that is one block: this rank's own.
    pub(crate) fn share(&self) -> (u64, u64) {
        let shape = self.plan.shape();
        let vector = |half| Vector { rows: self.tables.vector, half }.block(shape.rank).count;
        let count = match shape.op {
            OpKind::AllGatherV => vector(Half::Receive),
            OpKind::ReduceScatterV => vector(Half::Send),
            _ => shape.count,
        };
        self.clip(ElementRange { first: 0, count })
    }

    /// The bytes of this rank's input that are a part of its own output, with their place there; `None` where nothing
    /// stays.
    pub(crate) fn own_copy(&self) -> Option<((u64, u64), (u64, u64))> {
        let shape = self.plan.shape();
        let (sent, received) = (self.block(Half::Send, shape.rank), self.block(Half::Receive, shape.rank));
        Some(match shape.op {
            OpKind::AllReduce => (self.share(), self.share()),
            OpKind::AllGather | OpKind::AllGatherV => (self.share(), received),
            OpKind::ReduceScatter | OpKind::ReduceScatterV => (sent, self.share()),
            OpKind::AllToAll | OpKind::AllToAllV | OpKind::SendReceive => (sent, received),
            _ if shape.rank != shape.root => return None,
            OpKind::Broadcast | OpKind::Reduce => (self.share(), self.share()),
            OpKind::Scatter => (sent, self.share()),
            OpKind::Gather => (self.share(), received),
            OpKind::Barrier => return None,
        })
    }
}
