//! What a launch does, as messages name it.

use core::fmt;
use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

use super::Operation;

/// What one launch does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// One operation.
    Operation(Operation),
    /// The operations of a program.
    Replay {
        /// Number of the program within its communicator.
        program: u32,
        /// How many operations it has.
        operations: usize,
        /// The first of them.
        first: Operation,
    },
}

impl Work {
    /// Returns a digest of the counts and places that all ranks exchange and of the algorithm's file, 0 where there is
    /// neither: kernels see only their own part, so that their signatures leave them out.
    pub(crate) fn tables_digest(&self) -> u64 {
        let Self::Operation(Operation { vector, file, .. }) = self else { return 0 };
        if vector.is_none() && file.is_none() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        (vector, file).hash(&mut hasher);
        hasher.finish()
    }
}

/// Prints the operation, or `replay of program 2 (3 operations, first: all-reduce …)`.
impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(operation) => operation.fmt(f),
            Self::Replay { program, operations, first } => {
                write!(f, "replay of program {program} ({operations} operations, first: {first})")
            }
        }
    }
}
