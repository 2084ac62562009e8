//! What is to be done, and on which bytes.

use core::fmt;
use std::sync::Arc;

use algorithm_file::AlgorithmFile;
use templates::{PlanError, Shape, Tables};
use wire::launch::{Algorithm, Buffer, ElementRange, OpKind, Staging, VectorRow};
use wire::{DataType, ErrorCode, LaunchArgs, ReduceOp};

use super::Vector;
use crate::buffer::SharedBuffer;
use crate::error::{Error, Result};

/// Least scratch that is created, bytes: less saves nothing.
const LEAST_SCRATCH: u64 = 64 << 10;

/// One operation, the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// Operation.
    pub op: OpKind,
    /// Elements per rank: of the whole (all-reduce, reduce, broadcast) or of a rank's block (all others); 0 where a
    /// vector says it.
    pub count: u64,
    /// Root of a rooted operation, 0 elsewhere.
    pub root: u32,
    /// Counts and places, of operations that have them.
    pub vector: Option<Arc<Vector>>,
    /// The algorithm that was loaded as data, with [`Algorithm::File`].
    pub file: Option<Arc<AlgorithmFile>>,
    /// Element type.
    pub dtype: DataType,
    /// Reduction; sum for operations that do not reduce.
    pub reduce: ReduceOp,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Algorithms of a composition's levels from the innermost on; `None` for its own choice.
    pub levels: [Option<Algorithm>; 4],
    /// Where it works.
    pub staging: Staging,
    /// Upper bound of elements per chunk and rank, 0 for none.
    pub chunk: u64,
    /// Longest piece of the direct mesh algorithms, bytes; 0 for the default.
    pub piece: u64,
}

/// An all-reduce of nothing: what a caller need not say.
impl Default for Operation {
    fn default() -> Self {
        Self {
            op: OpKind::AllReduce,
            count: 0,
            root: 0,
            vector: None,
            file: None,
            dtype: DataType::Fp32,
            reduce: ReduceOp::Sum,
            algorithm: Algorithm::Ring,
            levels: [None; 4],
            staging: Staging::Scratch,
            chunk: 0,
            piece: 0,
        }
    }
}

impl Operation {
    /// Returns what the templates make of this operation at one rank. Resources are left open: scratch, threads.
    #[must_use]
    pub fn shape(&self, rank: u32, ranks: u32) -> Shape {
        Shape {
            op: self.op,
            algorithm: self.algorithm,
            levels: self.levels,
            staging: self.staging,
            rank,
            ranks,
            root: self.root,
            count: self.vector.as_ref().map_or(self.count, |vector| vector.largest()),
            dtype: self.dtype,
            reduce: self.reduce,
            scratch_len: 0,
            threads: 1,
            inline_reduce: false,
            in_place: false,
            chunk: self.chunk,
            piece: self.piece,
        }
    }

    /// Returns the bytes of scratch that it gets on each of `ranks` ranks: as many as let it run in one chunk, a power
    /// of two of at most `bound`, or little.
    pub(crate) fn scratch(&self, ranks: u32, groups: &Tables<'_>, bound: u64) -> u64 {
        let wanted = self.scratch_bytes(ranks, groups);
        let bound = bound.max(LEAST_SCRATCH);
        wanted.checked_next_power_of_two().unwrap_or(bound).clamp(LEAST_SCRATCH, bound)
    }

    /// Returns the rows of one rank; empty where the operation has no vector.
    #[must_use]
    pub fn rows(&self, rank: u32) -> &[VectorRow] {
        self.vector.as_ref().map_or(&[], |vector| vector.rows(rank))
    }

    /// Returns the elements of input and output that one rank of `ranks` touches.
    ///
    /// # Errors
    /// What [`Shape::extents`] refuses.
    pub fn elements(&self, rank: u32, ranks: u32) -> Result<[u64; 2]> {
        let tables = Tables { vector: self.rows(rank), ..Tables::default() };
        let extents = self.shape(rank, ranks).extents(&tables).map_err(|error| refused(self, error))?;
        Ok(extents.own)
    }

    /// Returns the bytes of input and output that one rank of `ranks` touches.
    ///
    /// # Errors
    /// As [`elements`](Self::elements).
    pub fn buffer_bytes(&self, rank: u32, ranks: u32) -> Result<(u64, u64)> {
        let [input, output] = self.elements(rank, ranks)?;
        // The extents' own check has seen that these products fit.
        Ok((input * self.dtype.size_bytes(), output * self.dtype.size_bytes()))
    }

    /// Returns where input and output of a rank begin in a buffer that is both, bytes: a share lies at its place in the
    /// whole.
    #[must_use]
    pub fn in_place(&self, rank: u32) -> (u64, u64) {
        let size = self.dtype.size_bytes();
        let share = u64::from(rank) * self.count * size;
        let row = self.rows(rank).get(rank as usize).copied().unwrap_or_default();
        // Where an empty block lies does not matter, be it outside.
        let place = |range: ElementRange| if range.count == 0 { 0 } else { range.first * size };
        match self.op {
            // Only the root has two buffers.
            OpKind::Gather | OpKind::Scatter if rank != self.root => (0, 0),
            OpKind::AllGather | OpKind::Gather => (share, 0),
            OpKind::ReduceScatter | OpKind::Scatter => (0, share),
            OpKind::AllGatherV => (place(row.receive), 0),
            OpKind::ReduceScatterV => (0, place(row.send)),
            _ => (0, 0),
        }
    }

    /// Returns whether the buffers of a launch are in place, as the kernel will see it.
    ///
    /// # Errors
    /// `LAUNCH_OVERLAP` where they share memory in another way, or the operation does not work in place.
    pub(crate) fn lies_in_place(&self, rank: u32, ranks: u32, args: &LaunchArgs) -> Result<bool> {
        let bytes = |buffer: &Buffer| (buffer.addr.0, buffer.len);
        let alias =
            self.shape(rank, ranks).lies_in_place(self.rows(rank), bytes(&args.input), bytes(&args.output));
        alias.or_else(|code| {
            self.check_in_place(rank, ranks)?;
            let message = format!("{self}: at rank {rank}, input and output overlap and are not in place");
            Err(Error::new(code, message))
        })
    }

    /// Checks that a rank can carry this out in place.
    ///
    /// # Errors
    /// `LAUNCH_OVERLAP`.
    pub fn check_in_place(&self, rank: u32, ranks: u32) -> Result<()> {
        if self.shape(rank, ranks).stays(self.rows(rank)) {
            return Ok(());
        }
        let message =
            format!("{self}: what comes to rank {rank} does not belong where what goes from there is");
        Err(Error::new(ErrorCode::LAUNCH_OVERLAP, message).remedy("do it from one buffer to another"))
    }

    /// Returns the bytes of the largest input and output of any rank.
    ///
    /// # Errors
    /// As [`elements`](Self::elements).
    pub fn largest_buffers(&self, ranks: u32) -> Result<(u64, u64)> {
        let mut largest = (0, 0);
        for rank in 0..ranks {
            let (input, output) = self.buffer_bytes(rank, ranks)?;
            largest = (input.max(largest.0), output.max(largest.1));
        }
        Ok(largest)
    }
}

/// What the templates refuse, as an error that names the operation.
pub(crate) fn refused(operation: &Operation, error: PlanError) -> Error {
    let summary = error.code.info().map_or("refused", |info| info.summary);
    let sizes = match (error.need, error.limit) {
        (0, 0) => String::new(),
        (need, limit) => format!(" (needs {need}, there is {limit})"),
    };
    Error::new(error.code, format!("{operation}: {summary}{sizes}"))
}

/// Prints `all-reduce fp32 × 1000 sum by ring (scratch)`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, dtype, count, reduce, algorithm, staging, .. } = self;
        let count = self.vector.as_ref().map_or(*count, |vector| vector.largest());
        write!(f, "{op} {dtype} × {}{count}", if self.vector.is_some() { "at most " } else { "" })?;
        if op.reduces() {
            write!(f, " {reduce}")?;
        }
        if op.is_rooted() {
            write!(f, " at rank {}", self.root)?;
        }
        write!(f, " by {algorithm} ({staging})")
    }
}

/// A place in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The buffer.
    pub buffer: &'a SharedBuffer,
    /// First byte; 0 where peers touch the buffer, as direct work lets them.
    pub offset: u64,
}
