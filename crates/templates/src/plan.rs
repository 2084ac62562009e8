//! From a shape to chunks: every limit is checked here, before the first task.

use core::num::NonZero;

use task_graph::{RegionKind, TaskSink, ThreadId};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp, Reduction};

use crate::skeleton::Emitter;
use crate::slices::Slices;

/// Chunks start at multiples of this many bytes (public rule of the field).
const CHUNK_ALIGN: u64 = 128;

/// Most ranks there is a plan for: the steps of a ring are still numbered by 16 bits.
const MAX_RANKS: u32 = 1 << 15;

/// What is to be done, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Operation.
    pub op: OpKind,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Work in scratch, or in the users' buffers.
    pub staging: Staging,
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Elements per rank (all-reduce: of the whole; all-gather: sent; reduce-scatter: received).
    pub count: u64,
    /// Element type.
    pub dtype: DataType,
    /// Reduction; ignored by all-gather.
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
}

impl Plan {
    /// Checks a shape and cuts it into chunks.
    ///
    /// # Errors
    /// `PLAN_RANKS` for too many ranks or a rank that is none of them, `PLAN_OP` when the algorithm does not exist
    /// for this operation, `PLAN_STAGING` when it cannot work
    /// without scratch, `PLAN_SCRATCH` when the scratch buffer is too small for one element per slice,
    /// `PLAN_THREADS` without a thread, `LAUNCH_COUNT` when sizes do not fit 64 bits.
    pub fn new(shape: &Shape) -> Result<Self, PlanError> {
        let fail = |code, need, limit| Err(PlanError { code, need, limit });
        if shape.ranks > MAX_RANKS {
            return fail(ErrorCode::PLAN_RANKS, u64::from(shape.ranks), u64::from(MAX_RANKS));
        }
        let Some(ranks) = NonZero::new(shape.ranks).filter(|ranks| shape.rank < ranks.get()) else {
            return fail(ErrorCode::PLAN_RANKS, u64::from(shape.rank) + 1, u64::from(shape.ranks));
        };
        // No algorithm needs 0 threads.
        let threads = shape.threads.min(Needs::of(shape.algorithm, shape.ranks).threads);
        let Some(threads) = NonZero::new(threads) else {
            return fail(ErrorCode::PLAN_THREADS, 1, 0);
        };
        if !exists(shape.op, shape.algorithm) {
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
        let chunk = if shape.count == 0 || shape.ranks == 1 { shape.count } else { chunk_elements(shape)? };
        Ok(Self { shape: *shape, chunk, ranks, threads })
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

    /// The number of threads, as a divisor.
    pub(crate) fn thread_count(&self) -> NonZero<u16> {
        self.threads
    }

    /// The number of ranks, as a divisor.
    pub(crate) fn ranks(&self) -> NonZero<u32> {
        self.ranks
    }

    /// Returns what is being planned.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Writes the tasks of chunk `index` (below [`chunks`](Self::chunks)) to `sink`.
    ///
    /// # Errors
    /// What the sink refuses.
    pub fn emit<S: TaskSink>(&self, index: u64, sink: &mut S) -> Result<(), ErrorCode> {
        let first = index * self.chunk;
        let len = self.chunk.min(self.shape.count - first);
        Emitter::new(self, Chunk { first, len }, sink).run()
    }

    /// The reduction of this shape.
    pub(crate) fn reduction(&self) -> Reduction {
        Reduction { dtype: self.shape.dtype, op: self.shape.reduce }
    }
}

/// Elements `first .. first + len` of each rank's share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) first: u64,
    pub(crate) len: u64,
}

impl Needs {
    /// Returns what `algorithm` uses on `ranks` ranks.
    #[must_use]
    pub fn of(algorithm: Algorithm, ranks: u32) -> Self {
        let subs = match algorithm {
            _ if ranks == 1 => 0,
            Algorithm::Ring | Algorithm::HalvingDoubling => 0,
            // NHR shares its copies between two threads.
            Algorithm::Nhr => 1,
            // Mesh: one sub thread per peer, so that each transfer runs on its own link.
            Algorithm::MeshOneShot | Algorithm::MeshTwoShot => {
                u16::try_from(ranks - 1).unwrap_or(u16::MAX - 1)
            }
        };
        Self {
            threads: subs + 1,
            main_notifies: subs.saturating_mul(2),
            sub_notifies: 2,
            least_scratch: 2 * u64::from(ranks) * u64::from(ranks) * CHUNK_ALIGN,
        }
    }
}

/// Returns whether an operation can be carried out by an algorithm.
fn exists(op: OpKind, algorithm: Algorithm) -> bool {
    op == OpKind::AllReduce || matches!(algorithm, Algorithm::Ring | Algorithm::Nhr)
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

/// Returns the scratch with which a shape runs in one chunk, bytes; its own scratch length does not matter.
#[must_use]
pub fn scratch_bytes(shape: &Shape) -> u64 {
    let whole = if shape.chunk == 0 { shape.count } else { shape.chunk.min(shape.count) };
    let area = match shape.algorithm {
        Algorithm::MeshTwoShot => whole / u64::from(shape.ranks) + u64::from(shape.ranks),
        _ => whole,
    };
    let bytes = area.saturating_mul(shape.dtype.size_bytes()).max(1).saturating_add(CHUNK_ALIGN - 1);
    (bytes / CHUNK_ALIGN * CHUNK_ALIGN).saturating_mul(scratch_areas(shape))
}

/// Returns the number of scratch areas of one chunk (two-shot: of one slice) each.
fn scratch_areas(shape: &Shape) -> u64 {
    let direct = shape.staging == Staging::Direct;
    let ranks = u64::from(shape.ranks);
    let landing = u64::from(shape.op != OpKind::AllGather && !shape.inline_reduce);
    match shape.op {
        _ if is_mesh(shape.algorithm) => {
            if direct {
                0
            } else {
                ranks
            }
        }
        OpKind::AllReduce => landing + u64::from(!direct),
        OpKind::AllGather => {
            if direct {
                0
            } else {
                ranks
            }
        }
        OpKind::ReduceScatter => ranks * (1 + landing),
    }
}

pub(crate) fn is_mesh(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::MeshOneShot | Algorithm::MeshTwoShot)
}

/// Returns the elements per full chunk and rank: at least 1.
fn chunk_elements(shape: &Shape) -> Result<u64, PlanError> {
    let direct = shape.staging == Staging::Direct;
    let element = shape.dtype.size_bytes();
    let ranks = u64::from(shape.ranks);
    let mesh = is_mesh(shape.algorithm);
    if direct && (shape.op == OpKind::ReduceScatter || (mesh && (!shape.inline_reduce || shape.in_place))) {
        return Err(PlanError { code: ErrorCode::PLAN_STAGING, need: 0, limit: 0 });
    }
    let areas = scratch_areas(shape);
    let area = shape.scratch_len.checked_div(areas).map(|bytes| bytes / CHUNK_ALIGN * CHUNK_ALIGN / element);
    let fits = match (area, shape.algorithm) {
        (None, _) => shape.count,
        // Slots hold one slice each; the last chunk's tail may make its last slice longer by ranks − 1.
        (Some(area), Algorithm::MeshTwoShot) => area.saturating_sub(ranks - 1).saturating_mul(ranks),
        (Some(area), _) => area,
    };
    if fits == 0 {
        // One element of each slice; two-shot's last slice may be the longest.
        let elements = if shape.algorithm == Algorithm::MeshTwoShot { ranks } else { 1 };
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
        let ranks = NonZero::<u64>::from(self.ranks);
        // The whole scratch buffer is shared out, whatever the chunk: a place does not depend on the count.
        let areas = NonZero::new(scratch_areas(shape));
        let area = areas.map_or(0, |areas| shape.scratch_len / areas / CHUNK_ALIGN * CHUNK_ALIGN);
        let work_areas = match shape.op {
            _ if direct => 0,
            OpKind::AllReduce => 1,
            OpKind::AllGather | OpKind::ReduceScatter => ranks.get(),
        };
        Layout {
            work: if direct { RegionKind::Output } else { RegionKind::Scratch },
            landing: work_areas * area,
            area,
        }
    }

    /// Returns the slices of the work area for a chunk: one per rank.
    pub(crate) fn slices(&self, chunk: Chunk, parts: NonZero<u32>) -> Slices {
        let shape = &self.shape;
        let element = shape.dtype.size_bytes();
        let direct = shape.staging == Staging::Direct;
        match shape.op {
            OpKind::AllReduce => {
                let base = if direct { chunk.first * element } else { 0 };
                Slices::cut(base, chunk.len, parts, element)
            }
            OpKind::AllGather | OpKind::ReduceScatter => {
                let (base, stride) = if direct {
                    (chunk.first * element, shape.count * element)
                } else {
                    (0, self.layout().area)
                };
                Slices::blocks(base, stride, chunk.len * element, parts)
            }
        }
    }

    /// Returns the landing slices that mirror [`slices`](Self::slices).
    pub(crate) fn landing(&self, chunk: Chunk, parts: NonZero<u32>) -> Slices {
        let element = self.shape.dtype.size_bytes();
        let Layout { landing, area, .. } = self.layout();
        match self.shape.op {
            OpKind::AllReduce => Slices::cut(landing, chunk.len, parts, element),
            OpKind::AllGather | OpKind::ReduceScatter => {
                Slices::blocks(landing, area, chunk.len * element, parts)
            }
        }
    }

    /// Returns the default piece of the direct mesh templates, bytes, a multiple of every element size.
    pub(crate) fn piece(&self) -> NonZero<u64> {
        const DEFAULT: NonZero<u64> = NonZero::new(64 << 10).unwrap();
        const LEAST: NonZero<u64> = NonZero::new(CHUNK_ALIGN).unwrap();
        let asked = NonZero::new(self.shape.piece / CHUNK_ALIGN * CHUNK_ALIGN);
        if self.shape.piece == 0 { DEFAULT } else { asked.unwrap_or(LEAST) }
    }

    /// Returns the slices that an all-reduce works on: one per rank, for halving-doubling one per rank of its core,
    /// the largest power of two; the ranks above that are folded in first and out last.
    pub(crate) fn parts(&self) -> NonZero<u32> {
        match self.shape.algorithm {
            Algorithm::HalvingDoubling => NonZero::new(1 << self.ranks.ilog2()).unwrap_or(self.ranks),
            _ => self.ranks,
        }
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
