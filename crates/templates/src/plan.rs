//! From a shape to chunks: every limit is checked here, before the first task.

use core::num::NonZero;

use task_graph::{TaskSink, ThreadId};
use wire::launch::{Algorithm, ElementRange, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp, Reduction};

use crate::family::{Family, exists, family};
use crate::file::Cut;
use crate::levels::{self, Levels};
use crate::schedule;
use crate::skeleton::Emitter;
use crate::space::chunk_elements;
use crate::tables::Tables;

/// Chunks start at multiples of this many bytes (public rule of the field).
pub(crate) const CHUNK_ALIGN: u64 = 128;

/// Most ranks there is a plan for: the steps of a ring are still numbered by 16 bits.
const MAX_RANKS: u32 = 1 << 15;

/// What is to be done, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Operation.
    pub op: OpKind,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Algorithms of a composition's levels from the innermost on; `None` for its own choice.
    pub levels: [Option<Algorithm>; 4],
    /// Work in scratch, or in the users' buffers.
    pub staging: Staging,
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Root of a rooted operation, 0 elsewhere.
    pub root: u32,
    /// Elements per rank: of the whole (all-reduce, reduce, broadcast) or of a rank's block (all others). Of an operation
    /// with a vector, the plan makes it the largest block.
    pub count: u64,
    /// Element type.
    pub dtype: DataType,
    /// Reduction; ignored by operations that do not reduce.
    pub reduce: ReduceOp,
    /// Bytes of the scratch buffer, the same at all ranks.
    pub scratch_len: u64,
    /// Threads there are; a template uses at most as many as it needs.
    pub threads: u16,
    /// Whether every link reduces `dtype` by `reduce` while moving.
    pub inline_reduce: bool,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// Upper bound of elements per chunk and rank, 0 for none.
    pub chunk: u64,
    /// Longest piece that the direct mesh templates work on at once, bytes; 0 for the default.
    pub piece: u64,
}

impl Shape {
    /// Returns whether this operation can work in the users' buffers. Rank, root and sizes do not matter.
    #[must_use]
    pub fn works_directly(&self) -> bool {
        let apart = !self.in_place;
        match (family(self.op, self.algorithm), self.op) {
            (
                Some(Family::Steps | Family::Composition),
                OpKind::AllReduce | OpKind::AllGather | OpKind::Broadcast,
            ) => true,
            // The parts of the own slice come to their places by links that add, or land in scratch.
            (Some(Family::Chunk), OpKind::AllReduce) => true,
            (Some(Family::Mesh), _) => self.algorithm != Algorithm::Strict && self.inline_reduce && apart,
            // What is reduced is read in rank order, by links that add on the way.
            (Some(Family::Exchange), OpKind::ReduceScatter | OpKind::Reduce) => {
                self.algorithm != Algorithm::Strict && self.inline_reduce && apart
            }
            (Some(Family::Exchange), OpKind::AllToAll) => apart,
            (
                Some(Family::Exchange),
                OpKind::AllGather | OpKind::Broadcast | OpKind::Scatter | OpKind::Gather,
            ) => true,
            _ => false,
        }
    }
}

/// Why a shape has no plan: what it needs, and what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// What is wrong.
    pub code: ErrorCode,
    /// What it would need (ranks, bytes, threads), 0 where that says nothing.
    pub need: u64,
    /// What there is.
    pub limit: u64,
}

/// A shape that can be expanded, cut into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    shape: Shape,
    /// Elements per full chunk and rank; 0 when there is nothing to move.
    chunk: u64,
    /// As in the shape.
    ranks: NonZero<u32>,
    threads: NonZero<u16>,
    levels: Levels,
    /// How the script cuts, where the algorithm is one.
    cut: Option<Cut>,
}

impl Plan {
    /// Checks a shape and cuts it into chunks.
    ///
    /// # Errors
    /// Those of [`Shape::extents`]; `PLAN_RANKS` for too many ranks, `PLAN_OP` when the algorithm does not exist for this
    /// operation or a level's for a composition, `SCRIPT_MISMATCH` when the script is for another one, `PLAN_STAGING` when
    /// it cannot work without scratch, `PLAN_SCRATCH` when the scratch buffer is too
    /// small for one element per slice, `PLAN_THREADS` without a thread, `LAUNCH_COUNT` when sizes do not fit 64 bits.
    pub fn new(shape: &Shape, tables: &Tables<'_>) -> Result<Self, PlanError> {
        let fail = |code, need, limit| Err(PlanError { code, need, limit });
        if shape.ranks > MAX_RANKS {
            return fail(ErrorCode::PLAN_RANKS, u64::from(shape.ranks), u64::from(MAX_RANKS));
        }
        shape.extents(tables)?;
        let shape = &Shape { count: shape.largest_block(tables), ..*shape };
        let Some(ranks) = NonZero::new(shape.ranks) else {
            return fail(ErrorCode::PLAN_RANKS, 1, 0);
        };
        let file = shape.algorithm == Algorithm::File;
        let cut = if file { Some(Cut::of(shape, tables.script)?) } else { None };
        let levels = Levels::of(shape, tables, ranks)?;
        // No algorithm needs 0 threads.
        let useful = cut.map_or_else(|| shape.useful_threads(&levels), |cut| cut.threads);
        let threads = shape.threads.min(useful);
        let Some(threads) = NonZero::new(threads) else {
            return fail(ErrorCode::PLAN_THREADS, 1, 0);
        };
        if !file && !exists(shape.op, shape.algorithm) {
            return fail(ErrorCode::PLAN_OP, 0, 0);
        }
        // Every offset and length below is at most this.
        let total = shape
            .count
            .checked_mul(shape.dtype.size_bytes())
            .and_then(|bytes| bytes.checked_next_multiple_of(CHUNK_ALIGN))
            .and_then(|bytes| bytes.checked_mul(u64::from(shape.ranks)));
        if total.is_none() {
            return fail(ErrorCode::LAUNCH_COUNT, shape.count, u64::MAX);
        }
        let chunk = match cut {
            _ if shape.count == 0 || shape.ranks == 1 => shape.count,
            Some(cut) => cut.chunk_elements(shape)?,
            None => chunk_elements(shape, &levels)?,
        };
        Ok(Self { shape: *shape, chunk, ranks, threads, levels, cut })
    }

    /// Returns the number of chunks; 0 when there is nothing to move.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        if self.chunk == 0 { 0 } else { self.shape.count.div_ceil(self.chunk) }
    }

    /// Returns the elements per full chunk and rank; 0 when there is nothing to move.
    #[must_use]
    pub fn chunk_elements(&self) -> u64 {
        self.chunk
    }

    /// Returns the threads the template uses.
    #[must_use]
    pub fn threads(&self) -> u16 {
        self.threads.get()
    }

    /// Returns the notifies of the main thread that the template uses, from its first on.
    #[must_use]
    pub fn main_notifies(&self) -> u16 {
        self.cut.map_or_else(|| (self.threads.get() - 1).saturating_mul(2), |cut| cut.main_notifies)
    }

    /// Returns the notifies of each sub thread that the template uses.
    #[must_use]
    pub fn sub_notifies(&self) -> u16 {
        self.cut.map_or(2, |cut| cut.sub_notifies)
    }

    /// How the script cuts, where the algorithm is one.
    pub(crate) fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// The number of threads, as a divisor.
    pub(crate) fn thread_count(&self) -> NonZero<u16> {
        self.threads
    }

    /// The number of ranks, as a divisor.
    pub(crate) fn ranks(&self) -> NonZero<u32> {
        self.ranks
    }

    /// The levels of a composition.
    pub(crate) fn levels(&self) -> &Levels {
        &self.levels
    }

    /// Returns what is being planned.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Writes the tasks of chunk `index` (below [`chunks`](Self::chunks)) to `sink`. The tables are those of planning.
    ///
    /// # Errors
    /// What the sink refuses.
    pub fn emit<S: TaskSink>(&self, index: u64, tables: &Tables<'_>, sink: &mut S) -> Result<(), ErrorCode> {
        let first = index * self.chunk;
        let count =
            if self.shape.op == OpKind::Barrier { 0 } else { self.chunk.min(self.shape.count - first) };
        Emitter::new(self, ElementRange { first, count }, tables, sink).run()
    }

    /// The reduction of this shape.
    pub(crate) fn reduction(&self) -> Reduction {
        Reduction { dtype: self.shape.dtype, op: self.shape.reduce }
    }
}

impl Plan {
    /// Returns the default piece of the direct mesh templates, bytes, a multiple of every element size.
    pub(crate) fn piece(&self) -> NonZero<u64> {
        const DEFAULT: NonZero<u64> = NonZero::new(64 << 10).unwrap();
        const LEAST: NonZero<u64> = NonZero::new(CHUNK_ALIGN).unwrap();
        let asked = NonZero::new(self.shape.piece / CHUNK_ALIGN * CHUNK_ALIGN);
        if self.shape.piece == 0 { DEFAULT } else { asked.unwrap_or(LEAST) }
    }

    /// Returns whether this is a composition.
    pub(crate) fn is_composed(&self) -> bool {
        family(self.shape.op, self.shape.algorithm) == Some(Family::Composition)
    }

    /// Returns whether the blocks of the work area lie one behind the other, in such an order that those of a level's
    /// slice lie together. What is in the users' buffers, and blocks of lengths of their own, keep the order of ranks.
    pub(crate) fn packs(&self) -> bool {
        let Shape { op, algorithm, staging, .. } = self.shape;
        levels::is_composition(algorithm) && staging == Staging::Scratch && !op.has_vector()
    }

    /// Returns the parts that the count is cut into: of the whole, or of a block.
    pub(crate) fn cuts(&self) -> NonZero<u32> {
        self.levels.cuts
    }

    /// Returns the slices that a step algorithm works on.
    pub(crate) fn parts(&self) -> NonZero<u32> {
        schedule::core(self.shape.algorithm, self.ranks)
    }

    /// Returns the thread that serves the `index`-th peer or part.
    pub(crate) fn thread_of(&self, index: u64) -> ThreadId {
        match NonZero::new(u64::from(self.threads.get()) - 1) {
            None => ThreadId::MAIN,
            // CAST: a remainder of a u16.
            Some(subs) => ThreadId(u16::try_from(1 + index % subs).unwrap_or(0)),
        }
    }
}
