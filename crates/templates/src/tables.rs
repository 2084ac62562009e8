//! What a shape refers to and does not hold: the vector of an operation that has one, and how the ranks are grouped.

use task_graph::Rank;
use wire::ErrorCode;
use wire::launch::{ElementRange, OpKind, VectorRow};
use wire::script::Script;

use crate::plan::{PlanError, Shape};

/// Tables of one launch, in the caller's memory; the same at planning and at every chunk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tables<'a> {
    /// One row per rank in rank order, where the operation has a vector; empty elsewhere.
    pub vector: &'a [VectorRow],
    /// First rank of every server, ascending from 0; empty for one server.
    pub servers: &'a [Rank],
    /// First rank of every super pod, likewise; each is also the first of a server.
    pub pods: &'a [Rank],
    /// The script of algorithm `file`.
    pub script: Option<Script<'a>>,
}

/// One half of a vector: the blocks of the buffer that has one per rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vector<'a> {
    pub(crate) rows: &'a [VectorRow],
    pub(crate) half: Half,
}

/// Which half of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Send,
    Receive,
}

impl Vector<'_> {
    /// Returns a block; an empty one where there is no row.
    #[inline]
    pub(crate) fn block(&self, index: Rank) -> ElementRange {
        let row = usize::try_from(index).ok().and_then(|index| self.rows.get(index));
        row.map_or(ElementRange::default(), |row| row.half(self.half))
    }
}

trait RowHalf {
    fn half(&self, half: Half) -> ElementRange;
}

impl RowHalf for VectorRow {
    #[inline]
    fn half(&self, half: Half) -> ElementRange {
        match half {
            Half::Send => self.send,
            Half::Receive => self.receive,
        }
    }
}

/// Elements that an operation touches at one rank, and of its peers' buffers where they are touched directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Of this rank's input and output.
    pub own: [u64; 2],
    /// Of the input and output of any peer; of the root alone in a gather, where nobody else has an output.
    pub peer: [u64; 2],
}

impl Extents {
    /// Returns the one rank whose buffers [`peer`](Self::peer) is about; `None` where it is about all.
    #[must_use]
    pub fn only_root(&self, shape: &Shape) -> Option<Rank> {
        (shape.op == OpKind::Gather).then_some(shape.root)
    }

    /// Returns the elements of the input and output of rank `peer` that may be touched.
    #[must_use]
    pub fn of_peer(&self, shape: &Shape, peer: Rank) -> [u64; 2] {
        if self.only_root(shape).is_some_and(|root| root != peer) { [0; 2] } else { self.peer }
    }
}

impl Shape {
    /// Returns the elements of the buffers that this operation touches.
    ///
    /// # Errors
    /// `LAUNCH_COUNT` when their bytes do not fit 64 bits, `PLAN_RANKS` and `LAUNCH_ROOT` for a rank or root that is none,
    /// `LAUNCH_VECTOR` and the first row at fault for rows that are missing or superfluous, that end beyond 64 bits, or
    /// whose blocks of the output overlap.
    pub fn extents(&self, tables: &Tables<'_>) -> Result<Extents, PlanError> {
        let fail = |code, need, limit| Err(PlanError { code, need, limit });
        if self.rank >= self.ranks {
            return fail(ErrorCode::PLAN_RANKS, u64::from(self.rank) + 1, u64::from(self.ranks));
        }
        if self.root >= self.ranks || (self.root > 0 && !self.op.is_rooted()) {
            return fail(ErrorCode::LAUNCH_ROOT, u64::from(self.root), u64::from(self.ranks));
        }
        let rows = tables.vector;
        if rows.len() as u64 != if self.op.has_vector() { u64::from(self.ranks) } else { 0 } {
            return fail(ErrorCode::LAUNCH_VECTOR, rows.len() as u64, u64::from(self.ranks));
        }
        let share = self.count;
        let Some(whole) = share.checked_mul(u64::from(self.ranks)) else {
            return fail(ErrorCode::LAUNCH_COUNT, share, u64::MAX);
        };
        let at_root = |elements| if self.rank == self.root { elements } else { 0 };
        let (sent, received) = (self.half(tables, Half::Send), self.half(tables, Half::Receive));
        let extents = match self.op {
            OpKind::AllReduce => Extents { own: [share, share], peer: [share, share] },
            OpKind::AllGather => Extents { own: [share, whole], peer: [share, whole] },
            OpKind::ReduceScatter => Extents { own: [whole, share], peer: [whole, share] },
            OpKind::Broadcast => Extents { own: [at_root(share), share], peer: [0, share] },
            OpKind::Reduce => Extents { own: [share, at_root(share)], peer: [share, 0] },
            OpKind::Scatter => Extents { own: [at_root(whole), share], peer: [0, share] },
            OpKind::Gather => Extents { own: [share, at_root(whole)], peer: [0, whole] },
            OpKind::AllToAll => Extents { own: [whole, whole], peer: [whole, whole] },
            OpKind::AllGatherV => {
                Extents { own: [received.block(self.rank).count, received.extent(true)?], peer: [0; 2] }
            }
            OpKind::ReduceScatterV => {
                Extents { own: [sent.extent(false)?, sent.block(self.rank).count], peer: [0; 2] }
            }
            OpKind::AllToAllV | OpKind::SendReceive => {
                Extents { own: [sent.extent(false)?, received.extent(true)?], peer: [0; 2] }
            }
            OpKind::Barrier => Extents { own: [0; 2], peer: [0; 2] },
        };
        let fits = |elements: u64| elements.checked_mul(self.dtype.size_bytes()).is_some();
        let all = extents.own.into_iter().chain(extents.peer).chain([whole]);
        match all.into_iter().find(|&elements| !fits(elements)) {
            // The count as it was given; the end of a vector's blocks where there is none.
            Some(elements) => {
                fail(ErrorCode::LAUNCH_COUNT, share.max(elements * u64::from(share == 0)), u64::MAX)
            }
            None => Ok(extents),
        }
    }

    /// Returns the largest block, elements: the count of operations without a vector.
    pub(crate) fn largest_block(&self, tables: &Tables<'_>) -> u64 {
        let most = |half: Half| tables.vector.iter().map(|row| row.half(half).count).max().unwrap_or(0);
        match self.op {
            OpKind::AllGatherV => most(Half::Receive),
            OpKind::ReduceScatterV => most(Half::Send),
            OpKind::AllToAllV | OpKind::SendReceive => most(Half::Send).max(most(Half::Receive)),
            // Nothing moves, and still there is something to do.
            OpKind::Barrier => 1,
            _ => self.count,
        }
    }

    /// Returns one half of the vector.
    pub(crate) fn half<'a>(&self, tables: &Tables<'a>, half: Half) -> Vector<'a> {
        Vector { rows: tables.vector, half }
    }
}

impl Vector<'_> {
    /// Returns the element behind the last block. Blocks of an output, which are `apart`, may not overlap.
    fn extent(&self, apart: bool) -> Result<u64, PlanError> {
        let fault = |row: usize| PlanError {
            code: ErrorCode::LAUNCH_VECTOR,
            need: row as u64,
            limit: self.rows.len() as u64,
        };
        let mut extent = 0;
        let mut ascending = true;
        for (index, row) in self.rows.iter().enumerate() {
            let range = row.half(self.half);
            let end = range.end().ok_or_else(|| fault(index))?;
            ascending &= range.count == 0 || range.first >= extent;
            extent = extent.max(end);
        }
        // The usual case costs one walk; blocks in another order are compared with each other.
        if apart && !ascending {
            for (index, row) in self.rows.iter().enumerate() {
                let block = row.half(self.half);
                let overlaps = |other: &VectorRow| {
                    let other = other.half(self.half);
                    block.count > 0
                        && other.count > 0
                        && block.first < other.first.saturating_add(other.count)
                        && other.first < block.first.saturating_add(block.count)
                };
                if self.rows.iter().take(index).any(overlaps) {
                    return Err(fault(index));
                }
            }
        }
        Ok(extent)
    }
}
