//! From a shape to chunks: every limit is checked here, before the first task.

use core::num::NonZero;

use task_graph::{RegionKind, TaskSink, ThreadId};
use wire::launch::{Algorithm, ElementRange, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp, Reduction};

use crate::file::Cut;
use crate::levels::{self, Levels};
use crate::schedule;
use crate::skeleton::Emitter;
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

/// The resources a template uses when it gets all it can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Threads, the main one included.
    pub threads: u16,
    /// Notifies of the main thread besides the start notify: two per sub thread.
    pub main_notifies: u16,
    /// Notifies of each sub thread.
    pub sub_notifies: u16,
    /// Least scratch with which it works at all, bytes, for elements of 16 bytes.
    pub least_scratch: u64,
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
        // No algorithm needs 0 threads.
        let useful = cut.map_or_else(|| shape.all_threads(tables), |cut| cut.threads);
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
        let levels = levels_of(shape, tables, ranks)?;
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

impl Shape {
    /// Returns the resources that this operation uses when it gets all it can use.
    #[must_use]
    pub fn needs(&self, tables: &Tables<'_>) -> Needs {
        let all = self.all_threads(tables);
        // Direct work needs no threads of its own: the copies of one rank go to one place, in order. Compositions and
        // rings have several places.
        let family = family(self.op, self.algorithm);
        let own = matches!(family, Some(Family::Composition | Family::Chunk));
        Needs::with(if self.staging == Staging::Direct && !own { 1 } else { all }, self.ranks)
    }

    /// Returns the threads that the algorithm can use.
    fn all_threads(&self, tables: &Tables<'_>) -> u16 {
        let levels = NonZero::new(self.ranks).and_then(|ranks| levels_of(self, tables, ranks).ok());
        match levels {
            Some(levels) if levels::is_composition(self.algorithm) => {
                u16::try_from(levels.mesh).unwrap_or(u16::MAX)
            }
            _ => Needs::of(self.algorithm, self.ranks).threads,
        }
    }
}

impl Needs {
    /// Returns what `algorithm` uses on `ranks` ranks of one server.
    #[must_use]
    pub fn of(algorithm: Algorithm, ranks: u32) -> Self {
        let subs = match algorithm {
            _ if ranks <= 1 => 0,
            // One thread for every ring.
            Algorithm::MultiRing => {
                let rings = NonZero::new(ranks).map_or(1, |ranks| levels::strides(ranks).count());
                u16::try_from(rings).unwrap_or(1) - 1
            }
            // NHR shares its copies between two threads.
            Algorithm::Nhr | Algorithm::Nb => 1,
            // One sub thread per peer, so that each transfer runs on its own link.
            Algorithm::MeshOneShot
            | Algorithm::MeshTwoShot
            | Algorithm::MeshChunk
            | Algorithm::TwoLevel
            | Algorithm::ThreeLevel
            | Algorithm::Pipeline
            | Algorithm::Ahc
            | Algorithm::Strict
            | Algorithm::Star => u16::try_from(ranks - 1).unwrap_or(u16::MAX - 1),
            _ => 0,
        };
        Self::with(subs.saturating_add(1), ranks)
    }

    fn with(threads: u16, ranks: u32) -> Self {
        Self {
            threads,
            main_notifies: (threads - 1).saturating_mul(2),
            sub_notifies: 2,
            least_scratch: 2 * u64::from(ranks) * u64::from(ranks) * CHUNK_ALIGN,
        }
    }
}

/// How an algorithm carries out an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Passes of steps over slices of a work area.
    Steps,
    /// Every rank with every other at once, twice at most, reduced in rank order.
    Mesh,
    /// Blocks that go from one rank straight to another.
    Exchange,
    /// Passes of several groups, level by level or at once.
    Composition,
    /// A mesh whose slices come part by part.
    Chunk,
}

/// Returns how `algorithm` carries out `op`; `None` where it does not.
pub(crate) fn family(op: OpKind, algorithm: Algorithm) -> Option<Family> {
    use Algorithm as A;
    use Family::{Chunk, Composition, Exchange, Mesh, Steps};
    use OpKind as O;
    Some(match (op, algorithm) {
        (O::AllReduce, A::Ring | A::HalvingDoubling | A::Nhr | A::Nb | A::Tree) => Steps,
        (O::AllReduce, A::MeshOneShot | A::MeshTwoShot | A::Strict) => Mesh,
        (O::AllReduce, A::Star) => Exchange,
        (O::AllGather | O::AllGatherV | O::ReduceScatter | O::ReduceScatterV, A::Ring | A::Nhr | A::Nb) => {
            Steps
        }
        (
            O::AllGather | O::AllGatherV | O::ReduceScatter | O::ReduceScatterV,
            A::MeshOneShot | A::Pairwise,
        ) => Exchange,
        (O::ReduceScatter | O::ReduceScatterV, A::Strict) => Exchange,
        (O::Broadcast | O::Reduce, A::Ring | A::Nhr | A::Nb | A::Tree) => Steps,
        (O::Scatter | O::Gather, A::Nhr | A::Tree) => Steps,
        (O::Broadcast | O::Reduce | O::Scatter | O::Gather, A::Star) => Exchange,
        (O::AllToAll | O::AllToAllV | O::SendReceive, A::MeshOneShot | A::Pairwise) => Exchange,
        (O::Barrier, A::Ring | A::Nhr | A::Nb) => Steps,
        (
            O::AllReduce | O::AllGather | O::AllGatherV | O::ReduceScatter | O::ReduceScatterV | O::Broadcast,
            A::TwoLevel | A::ThreeLevel,
        ) => Composition,
        (O::AllReduce | O::AllGather | O::AllGatherV | O::ReduceScatter | O::ReduceScatterV, A::Pipeline) => {
            Composition
        }
        (O::AllReduce | O::AllGather | O::ReduceScatter, A::MultiRing) => Composition,
        (O::AllReduce, A::Ahc) => Composition,
        (O::AllReduce | O::ReduceScatter, A::MeshChunk) => Chunk,
        _ => return None,
    })
}

/// Returns whether an operation can be carried out by an algorithm. What a file can do, only the file knows.
#[must_use]
pub fn exists(op: OpKind, algorithm: Algorithm) -> bool {
    family(op, algorithm).is_some()
}

/// How the scratch buffer of one rank is laid out for a full chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Where the algorithm works.
    pub(crate) work: RegionKind,
    /// First byte of the landing area in scratch, for links that cannot reduce while moving.
    pub(crate) landing: u64,
    /// Bytes between one slot, block or area and the next.
    pub(crate) area: u64,
}

/// Returns the scratch with which a shape runs in one chunk, bytes; its own scratch length does not matter. The count
/// of an operation with a vector is its largest block's.
#[must_use]
pub fn scratch_bytes(shape: &Shape, tables: &Tables<'_>) -> u64 {
    let whole = if shape.chunk == 0 { shape.count } else { shape.chunk.min(shape.count) };
    let levels = NonZero::new(shape.ranks).and_then(|ranks| levels_of(shape, tables, ranks).ok());
    let area = if has_slice_slots(shape) {
        whole / u64::from(shape.ranks) + u64::from(shape.ranks)
    } else {
        whole.saturating_add(
            levels
                .map_or(0, |levels| slack(shape, &levels).min(whole.saturating_mul(u64::from(levels.mesh)))),
        )
    };
    let bytes = area.saturating_mul(shape.dtype.size_bytes()).max(1).saturating_add(CHUNK_ALIGN - 1);
    (bytes / CHUNK_ALIGN * CHUNK_ALIGN).saturating_mul(scratch_areas(shape))
}

/// Returns whether the slots in scratch hold one slice each, instead of a whole chunk.
fn has_slice_slots(shape: &Shape) -> bool {
    family(shape.op, shape.algorithm) == Some(Family::Mesh) && shape.algorithm != Algorithm::MeshOneShot
}

/// Returns the number of scratch areas of one chunk (or one slice) each.
fn scratch_areas(shape: &Shape) -> u64 {
    let ranks = u64::from(shape.ranks);
    let staged = u64::from(shape.staging == Staging::Scratch);
    let lands = !shape.inline_reduce || levels::has_slots(shape);
    let landing = u64::from(shape.op.reduces() && lands);
    match (family(shape.op, shape.algorithm), shape.op) {
        // What is received comes from the root alone.
        (Some(Family::Exchange), OpKind::Broadcast | OpKind::Scatter) => staged,
        (Some(Family::Exchange | Family::Mesh), _) => staged * ranks,
        (_, OpKind::Barrier) => 0,
        _ => (staged + landing) * areas_of_work(shape),
    }
}

/// Areas that the work of a step algorithm takes: one, or one per block.
fn areas_of_work(shape: &Shape) -> u64 {
    match shape.op {
        OpKind::AllReduce | OpKind::Broadcast | OpKind::Reduce | OpKind::Barrier => 1,
        // The other ranks' blocks go from the input.
        _ if shape.algorithm == Algorithm::MeshChunk => 1,
        _ => u64::from(shape.ranks),
    }
}

/// Returns the levels of a composition, and the parts that any algorithm cuts the count into.
fn levels_of(shape: &Shape, tables: &Tables<'_>, ranks: NonZero<u32>) -> Result<Levels, PlanError> {
    const ONE: NonZero<u32> = NonZero::<u32>::MIN;
    if levels::is_composition(shape.algorithm) {
        return Levels::new(shape, tables, ranks);
    }
    if shape.levels.iter().any(Option::is_some) {
        return Err(PlanError { code: ErrorCode::PLAN_OP, need: 0, limit: 0 });
    }
    let whole = matches!(shape.op, OpKind::AllReduce | OpKind::Broadcast | OpKind::Reduce);
    let of_share = match shape.algorithm {
        Algorithm::MultiRing => {
            NonZero::new(u32::try_from(levels::strides(ranks).count()).unwrap_or(1)).unwrap_or(ONE)
        }
        Algorithm::MeshChunk => NonZero::new(ranks.get() - 1).unwrap_or(ONE),
        _ => ONE,
    };
    let shares = if whole { schedule::core(shape.algorithm, ranks) } else { ONE };
    Ok(Levels::none(shares.saturating_mul(of_share)))
}

/// Returns the elements by which the slots of a mesh may be longer than what they hold the slices of: all of the tail
/// may be one slice's.
fn slack(shape: &Shape, levels: &Levels) -> u64 {
    let tail = if shape.op == OpKind::AllReduce { u64::from(levels.cuts.get() - 1) } else { 0 };
    if levels.mesh > 1 { u64::from(levels.mesh) * tail } else { 0 }
}

/// Returns the elements per full chunk and rank: at least 1.
fn chunk_elements(shape: &Shape, levels: &Levels) -> Result<u64, PlanError> {
    let element = shape.dtype.size_bytes();
    let ranks = u64::from(shape.ranks);
    if shape.staging == Staging::Direct && !shape.works_directly() {
        return Err(PlanError { code: ErrorCode::PLAN_STAGING, need: 0, limit: 0 });
    }
    let areas = scratch_areas(shape);
    let area = shape.scratch_len.checked_div(areas).map(|bytes| bytes / CHUNK_ALIGN * CHUNK_ALIGN / element);
    let fits = match area {
        None => shape.count,
        // Slots hold one slice each; the last chunk's tail may make its last slice longer by ranks − 1.
        Some(area) if has_slice_slots(shape) => area.saturating_sub(ranks - 1).saturating_mul(ranks),
        // A slot is at most a chunk long.
        Some(area) if slack(shape, levels) > 0 => {
            let slots = NonZero::new(u64::from(levels.mesh)).unwrap_or(NonZero::<u64>::MIN);
            area.saturating_sub(slack(shape, levels)).max(area / slots)
        }
        Some(area) => area,
    };
    if fits == 0 {
        // One element of each slice; where slots hold slices, the last may be the longest.
        let slots = if slack(shape, levels) > 0 { u64::from(levels.mesh) } else { 1 };
        let elements = if has_slice_slots(shape) { ranks } else { slots };
        let need = areas * (elements * element).next_multiple_of(CHUNK_ALIGN);
        return Err(PlanError { code: ErrorCode::PLAN_SCRATCH, need, limit: shape.scratch_len });
    }
    let wanted = if shape.chunk == 0 { shape.count } else { shape.chunk };
    Ok(fits.min(wanted).min(shape.count))
}

impl Plan {
    /// Returns where things lie in scratch.
    pub(crate) fn layout(&self) -> Layout {
        let shape = &self.shape;
        let direct = shape.staging == Staging::Direct;
        // The whole scratch buffer is shared out, whatever the chunk: a place does not depend on the count.
        let areas = self.cut.map_or_else(|| scratch_areas(shape), |cut| u64::from(cut.slots));
        let areas = NonZero::new(areas);
        let area = areas.map_or(0, |areas| shape.scratch_len / areas / CHUNK_ALIGN * CHUNK_ALIGN);
        let work_areas = if direct { 0 } else { areas_of_work(shape) };
        Layout {
            work: if direct { RegionKind::Output } else { RegionKind::Scratch },
            landing: work_areas * area,
            area,
        }
    }

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
