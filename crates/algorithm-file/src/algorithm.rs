//! What an algorithm file says: ranks, their thread blocks, and the steps of these.
//!
//! Names and meanings are those of the MSCCL XML format. Buffers are counted in chunks: `chunks` of them are the
//! whole operation, the elements of an all-reduce or the blocks of all ranks.

use core::fmt;

use wire::launch::OpKind;

/// A collective algorithm, of which nothing has been checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// Name, for messages.
    pub name: String,
    /// All-reduce, all-gather, reduce-scatter or all-to-all.
    pub op: OpKind,
    /// Chunks of the whole operation (`nchunksperloop`): for all but all-reduce a multiple of the ranks.
    pub chunks: u32,
    /// Whether it works where input and output are the same memory.
    pub in_place: bool,
    /// Whether it works where they are not.
    pub out_of_place: bool,
    /// What each rank does, in rank order.
    pub gpus: Vec<Gpu>,
}

/// One rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Chunks of input, output and scratch that steps may touch.
    pub chunks: [u32; 3],
    /// Thread blocks, each at the place of its number.
    pub blocks: Vec<ThreadBlock>,
    /// Where it stands in the file, bytes.
    pub at: usize,
}

/// Steps that are carried out one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadBlock {
    /// Rank that its sends go to.
    pub send: Option<u32>,
    /// Rank that its receives come from.
    pub receive: Option<u32>,
    /// What is sent on a channel of a pair of ranks is received in this order by the block with the same channel.
    pub channel: u32,
    /// The steps.
    pub steps: Vec<Step>,
    /// Where it stands in the file, bytes.
    pub at: usize,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub kind: Kind,
    /// First chunk it reads.
    pub src: Place,
    /// First chunk it writes.
    pub dst: Place,
    /// Chunks.
    pub count: u32,
    /// Thread block and step of this rank that must be done before.
    pub after: Option<(usize, usize)>,
    /// Whether another step may depend on this one.
    pub awaited: bool,
    /// Where it stands in the file, bytes.
    pub at: usize,
}

/// A chunk of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The buffer.
    pub buffer: Buffer,
    /// The chunk.
    pub chunk: u32,
}

/// A buffer of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// The user's input.
    Input = 0,
    /// The user's output.
    Output = 1,
    /// Memory of the algorithm.
    Scratch = 2,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sends `src`.
    Send,
    /// Receives into `dst`.
    Receive,
    /// Receives into `dst` and sends it on.
    ReceiveCopySend,
    /// Receives, reduces with `src`, into `dst`.
    ReceiveReduceCopy,
    /// Receives, reduces with `src`, sends the result and keeps nothing.
    ReceiveReduceSend,
    /// Receives, reduces with `src` into `dst`, and sends the result.
    ReceiveReduceCopySend,
    /// Copies `src` to `dst`.
    Copy,
    /// Reduces `src` into `dst`.
    Reduce,
    /// Nothing: only waits for the step it depends on.
    Nop,
}

impl Kind {
    /// All kinds, with the names they have in files.
    pub const ALL: [(&str, Self); 9] = [
        ("s", Self::Send),
        ("r", Self::Receive),
        ("rcs", Self::ReceiveCopySend),
        ("rrc", Self::ReceiveReduceCopy),
        ("rrs", Self::ReceiveReduceSend),
        ("rrcs", Self::ReceiveReduceCopySend),
        ("cpy", Self::Copy),
        ("re", Self::Reduce),
        ("nop", Self::Nop),
    ];

    /// Returns whether something is sent.
    #[must_use]
    pub fn sends(self) -> bool {
        matches!(
            self,
            Self::Send | Self::ReceiveCopySend | Self::ReceiveReduceSend | Self::ReceiveReduceCopySend
        )
    }

    /// Returns whether something is received.
    #[must_use]
    pub fn receives(self) -> bool {
        self.reduces_received() || matches!(self, Self::Receive | Self::ReceiveCopySend)
    }

    /// Returns whether what is received is reduced.
    #[must_use]
    pub fn reduces_received(self) -> bool {
        matches!(self, Self::ReceiveReduceCopy | Self::ReceiveReduceSend | Self::ReceiveReduceCopySend)
    }

    /// Returns whether `src` is read.
    #[must_use]
    pub fn reads(self) -> bool {
        self.reduces_received() || matches!(self, Self::Send | Self::Copy | Self::Reduce)
    }

    /// Returns whether `dst` is written.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Self::Send | Self::ReceiveReduceSend | Self::Nop)
    }
}

/// Prints the name it has in files.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, kind)| kind == self).map_or("?", |(name, _)| name);
        f.write_str(name)
    }
}

impl Buffer {
    /// All buffers.
    pub const ALL: [Self; 3] = [Self::Input, Self::Output, Self::Scratch];

    /// Returns the letter it has in files.
    #[must_use]
    pub fn letter(self) -> &'static str {
        ["i", "o", "s"][self as usize]
    }
}

/// Prints `o[3]`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.buffer.letter(), self.chunk)
    }
}

impl Algorithm {
    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        u32::try_from(self.gpus.len()).unwrap_or(u32::MAX)
    }

    /// Returns the parts of the whole (all-reduce) or of each rank's block (all others).
    #[must_use]
    pub fn parts(&self) -> u32 {
        if self.op == OpKind::AllReduce { self.chunks } else { self.chunks / self.ranks().max(1) }
    }

    /// Returns the chunks that the operation has in input and output.
    #[must_use]
    pub fn extents(&self) -> [u32; 2] {
        match self.op {
            OpKind::AllGather => [self.parts(), self.chunks],
            OpKind::ReduceScatter => [self.chunks, self.parts()],
            _ => [self.chunks; 2],
        }
    }

    /// Returns where a place lies that is named by `rank`: in place, the smaller of input and output is a part of the
    /// larger, and the input of equals is the output.
    #[must_use]
    pub fn resolve(&self, rank: u32, place: Place, in_place: bool) -> Place {
        let share = rank * self.parts();
        match (self.op, place.buffer) {
            _ if !in_place => place,
            (OpKind::AllGather, Buffer::Input) => {
                Place { buffer: Buffer::Output, chunk: share + place.chunk }
            }
            (OpKind::ReduceScatter, Buffer::Output) => {
                Place { buffer: Buffer::Input, chunk: share + place.chunk }
            }
            (OpKind::AllReduce | OpKind::AllToAll, Buffer::Input) => {
                Place { buffer: Buffer::Output, ..place }
            }
            _ => place,
        }
    }
}
