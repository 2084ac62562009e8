//! What is to be done, and on which bytes.

use core::fmt;

use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ReduceOp};

use crate::buffer::SharedBuffer;

/// One operation, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// Operation.
    pub op: OpKind,
    /// Elements per rank (all-reduce: of the whole; all-gather: sent; reduce-scatter: received).
    pub count: u64,
    /// Element type.
    pub dtype: DataType,
    /// Reduction; sum for operations that do not reduce.
    pub reduce: ReduceOp,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Where it works.
    pub staging: Staging,
    /// Upper bound of elements per chunk and rank, 0 for none.
    pub chunk: u64,
    /// Longest piece of the direct mesh algorithms, bytes; 0 for the default.
    pub piece: u64,
}

impl Operation {
    /// Returns the bytes of input and output per rank, `None` where they do not fit 64 bits.
    #[must_use]
    pub fn buffer_bytes(&self, ranks: u32) -> Option<(u64, u64)> {
        let share = self.count.checked_mul(self.dtype.size_bytes())?;
        let whole = share.checked_mul(u64::from(ranks))?;
        Some(match self.op {
            OpKind::AllReduce => (share, share),
            OpKind::AllGather => (share, whole),
            OpKind::ReduceScatter => (whole, share),
        })
    }
}

/// Prints `all-reduce fp32 × 1000 sum by ring (scratch)`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, dtype, count, reduce, algorithm, staging, .. } = self;
        write!(f, "{op} {dtype} × {count}")?;
        if *op != OpKind::AllGather {
            write!(f, " {reduce}")?;
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
