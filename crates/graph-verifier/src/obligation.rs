//! What must be proved of a graph.

use core::fmt;

use wire::ErrorCode;

/// One obligation; its number is that of `docs/verifier.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Obligation {
    /// Every rank, thread, notify and buffer that a task names is there.
    Structure = 1,
    /// Every span has bytes, whole elements, and lies in its buffer.
    Bounds = 2,
    /// Source and destination of a task are apart.
    Overlap = 3,
    /// Each notify is taken as often as set, and never set twice before it is taken, in any schedule.
    Pairing = 4,
    /// The graph finishes, also through rings of finite depth.
    Deadlock = 5,
    /// Of two tasks that touch the same bytes, one writing, one is ordered before the other.
    Race = 6,
    /// Only bytes that the operation has written, or its input, are read.
    Undefined = 7,
    /// Every output byte is what the operation defines.
    Result = 8,
    /// Inputs stay, and of outputs only what the operation defines is written.
    Writes = 9,
    /// Elements are reduced in the documented order, the same at all ranks that hold the result.
    Order = 10,
    /// When a rank is done, nobody uses its buffers any more, and the same operation may follow.
    Exit = 11,
    /// Another operation of the communicator may follow.
    Composition = 12,
    /// Phases and steps come in their order, so that messages can name them.
    Labels = 13,
}

impl Obligation {
    /// Every obligation, in the order of the numbers.
    pub const ALL: [Self; 13] = [
        Self::Structure,
        Self::Bounds,
        Self::Overlap,
        Self::Pairing,
        Self::Deadlock,
        Self::Race,
        Self::Undefined,
        Self::Result,
        Self::Writes,
        Self::Order,
        Self::Exit,
        Self::Composition,
        Self::Labels,
    ];

    /// Returns the code with which a graph is refused that does not meet it.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Structure => ErrorCode::VERIFY_STRUCTURE,
            Self::Bounds => ErrorCode::VERIFY_BOUNDS,
            Self::Overlap => ErrorCode::VERIFY_OVERLAP,
            Self::Pairing => ErrorCode::VERIFY_PAIRING,
            Self::Deadlock => ErrorCode::VERIFY_DEADLOCK,
            Self::Race => ErrorCode::VERIFY_RACE,
            Self::Undefined => ErrorCode::VERIFY_UNDEFINED,
            Self::Result => ErrorCode::VERIFY_RESULT,
            Self::Writes => ErrorCode::VERIFY_WRITES,
            Self::Order => ErrorCode::VERIFY_ORDER,
            Self::Exit => ErrorCode::VERIFY_EXIT,
            Self::Composition => ErrorCode::VERIFY_COMPOSITION,
            Self::Labels => ErrorCode::VERIFY_LABELS,
        }
    }

    /// Returns the obligation that a code is about; `None` for other codes.
    #[must_use]
    pub fn of(code: ErrorCode) -> Option<Self> {
        Self::ALL.into_iter().find(|obligation| obligation.code() == code)
    }

    /// Returns the name users read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Structure => "structure",
            Self::Bounds => "bounds",
            Self::Overlap => "no overlap",
            Self::Pairing => "notify pairing",
            Self::Deadlock => "deadlock freedom",
            Self::Race => "race freedom",
            Self::Undefined => "defined reads",
            Self::Result => "result",
            Self::Writes => "write discipline",
            Self::Order => "order of reduction",
            Self::Exit => "exit safety",
            Self::Composition => "composition",
            Self::Labels => "labels",
        }
    }
}

/// Prints `V6 race freedom`.
impl fmt::Display for Obligation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "V{} {}", *self as u8, self.name())
    }
}
