//! What a launch does, as messages name it.

use core::fmt;

use super::Operation;

/// What one launch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
