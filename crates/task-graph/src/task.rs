//! Tasks: the primitives that templates are written in.

use core::fmt;

use wire::Reduction;

use crate::{Rank, Span};

/// An ordered queue of tasks; 0 is the main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u16);

impl ThreadId {
    /// The main thread.
    pub const MAIN: Self = Self(0);
}

/// The three notifies of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChannelNotify {
    /// "My buffer is free", or "my data may be read".
    Ack = 0,
    /// "Your data has landed".
    Data = 1,
    /// "I have read your data".
    Fin = 2,
}

/// One task. The names and meanings follow the public HCOMM data plane (`HcommLocalCopyOnThread` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Copies between two of this rank's regions; both spans have the same length.
    LocalCopy {
        /// Where to.
        dst: Span,
        /// Where from.
        src: Span,
    },
    /// Reduces `src` into `dst`.
    LocalReduce {
        /// Accumulator.
        dst: Span,
        /// Operand.
        src: Span,
        /// How.
        reduction: Reduction,
    },
    /// Writes to a peer, reducing where asked, and sets a notify there once the data has landed.
    Write {
        /// The peer.
        peer: Rank,
        /// Where to, a region of the peer.
        dst: Span,
        /// Where from.
        src: Span,
        /// Overwrite, or reduce into the destination.
        reduction: Option<Reduction>,
        /// Channel notify to set at the peer.
        notify: Option<ChannelNotify>,
    },
    /// Reads from a peer, reducing where asked.
    Read {
        /// The peer.
        peer: Rank,
        /// Where to.
        dst: Span,
        /// Where from, a region of the peer.
        src: Span,
        /// Overwrite, or reduce into the destination.
        reduction: Option<Reduction>,
    },
    /// Sets notify `index` of another thread of this rank.
    ThreadRecord {
        /// The thread that waits.
        thread: ThreadId,
        /// Its notify.
        index: u16,
    },
    /// Waits for notify `index` of the thread the task is on.
    ThreadWait {
        /// The notify.
        index: u16,
    },
    /// Sets a channel notify at a peer.
    ChannelRecord {
        /// The peer.
        peer: Rank,
        /// The notify.
        notify: ChannelNotify,
    },
    /// Waits for a channel notify that a peer sets.
    ChannelWait {
        /// The peer.
        peer: Rank,
        /// The notify.
        notify: ChannelNotify,
    },
    /// Waits until the host has started the operation; which notify is a launch-time value.
    WaitStart,
    /// Tells the host that the operation is done; which notify is a launch-time value.
    RecordDone,
    /// Starts the operation behind this one in a program; which notify is a launch-time value.
    RecordNext,
}

/// Prints one line, operands as spans.
impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = |f: &mut fmt::Formatter<'_>, reduction: &Option<Reduction>| match reduction {
            Some(Reduction { dtype, op }) => write!(f, " {op} {dtype}"),
            None => Ok(()),
        };
        match self {
            Self::LocalCopy { dst, src } => write!(f, "copy {dst} <- {src}"),
            Self::LocalReduce { dst, src, reduction } => {
                write!(f, "reduce {dst} <- {src}")?;
                how(f, &Some(*reduction))
            }
            Self::Write { dst, src, reduction, notify, .. } => {
                write!(f, "write {dst} <- {src}")?;
                how(f, reduction)?;
                notify.map_or(Ok(()), |notify| write!(f, " then {notify:?}"))
            }
            Self::Read { dst, src, reduction, .. } => {
                write!(f, "read {dst} <- {src}")?;
                how(f, reduction)
            }
            Self::ThreadRecord { thread, index } => write!(f, "record thread {} notify {index}", thread.0),
            Self::ThreadWait { index } => write!(f, "wait notify {index}"),
            Self::ChannelRecord { peer, notify } => write!(f, "record peer {peer} {notify:?}"),
            Self::ChannelWait { peer, notify } => write!(f, "wait peer {peer} {notify:?}"),
            Self::WaitStart => f.write_str("wait start"),
            Self::RecordDone => f.write_str("record done"),
            Self::RecordNext => f.write_str("record next"),
        }
    }
}
