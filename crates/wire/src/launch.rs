//! Launch arguments: the one block the host hands over per operation.
//!
//! [`LaunchArgs`] is the raw struct in a mailbox slot; [`Launch`] is what it means once every field has been checked
//! on its own. Checks that need the resource context (sizes, identity) are the kernel's.

use core::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::dtype::wire_enum;
use crate::npu::{HOST_NOTIFIES, MAX_NOTIFIES};
use crate::{ABI_MAJOR, DataType, DeviceAddr, ErrorCode, ReduceOp, digest};

wire_enum! {
    /// A collective operation; the numbers are our own. All-to-all-vc is an all-to-all-v by the time it is launched,
    /// send, receive and their batches are exchanges.
    OpKind, LAUNCH_OP {
        AllReduce = 1 "all-reduce", AllGather = 2 "all-gather", ReduceScatter = 3 "reduce-scatter",
        Broadcast = 4 "broadcast", Reduce = 5 "reduce", Scatter = 6 "scatter", Gather = 7 "gather",
        AllToAll = 8 "all-to-all", AllToAllV = 9 "all-to-all-v", AllGatherV = 10 "all-gather-v",
        ReduceScatterV = 11 "reduce-scatter-v", SendReceive = 12 "send-recv", Barrier = 13 "barrier",
    }
}

impl OpKind {
    /// Returns whether elements are reduced.
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce | Self::ReduceScatterV)
    }

    /// Returns whether one rank is the root.
    #[must_use]
    pub const fn is_rooted(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Scatter | Self::Gather)
    }

    /// Returns whether it moves between named ranks instead of all.
    #[must_use]
    pub const fn is_point_to_point(self) -> bool {
        matches!(self, Self::SendReceive)
    }

    /// Returns whether counts and places come as a table of [`VectorRow`]s.
    #[must_use]
    pub const fn has_vector(self) -> bool {
        matches!(self, Self::AllToAllV | Self::AllGatherV | Self::ReduceScatterV | Self::SendReceive)
    }
}

wire_enum! {
    /// How an operation is carried out; the numbers are our own.
    Algorithm, LAUNCH_OP {
        Ring = 1 "ring", HalvingDoubling = 2 "halving-doubling", Nhr = 3 "nhr", MeshOneShot = 4 "mesh-one-shot",
        MeshTwoShot = 5 "mesh-two-shot", Nb = 6 "nb", MeshChunk = 7 "mesh-chunk", Pairwise = 8 "pairwise",
        Tree = 9 "tree", Star = 10 "star", MultiRing = 11 "multi-ring", TwoLevel = 12 "two-level",
        ThreeLevel = 13 "three-level", Pipeline = 14 "pipeline", Ahc = 15 "ahc", Strict = 16 "strict",
        File = 17 "file",
    }
}

wire_enum! {
    /// Where the algorithm works.
    Staging, LAUNCH_OP {
        Scratch = 0 "scratch",
        Direct = 1 "direct",
    }
}

wire_enum! {
    /// Whether the kernel may replay a recorded graph, and keep the one it records.
    CacheMode, LAUNCH_CACHE { On = 0 "on", Off = 1 "off", Hccl = 2 "hccl" }
}

wire_enum! {
    /// What the cache did for a launch.
    CacheOutcome, LAUNCH_CACHE { Bypassed = 0 "bypassed", Hit = 1 "hit", Miss = 2 "miss" }
}

/// One user buffer of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Buffer {
    /// First byte.
    pub addr: DeviceAddr,
    /// Bytes that may be touched.
    pub len: u64,
    /// Token of the region the buffer lies in.
    pub token: u32,
    /// Zero.
    pub reserved: u32,
    /// Table of [`PeerBuffer`], one per rank in rank order; address 0 when peers may not touch this buffer.
    pub peers: DeviceAddr,
}
const _: () = assert!(size_of::<Buffer>() == 32);

/// The same buffer at one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PeerBuffer {
    /// First byte, in the address space of that rank's device.
    pub addr: DeviceAddr,
    /// Bytes.
    pub len: u64,
    /// Token of the region.
    pub token: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = assert!(size_of::<PeerBuffer>() == 24);

/// What one rank and one peer exchange in an operation with a vector, elements; 32 bytes. Which half counts depends on
/// the operation: an all-gather-v has what each rank contributes in `receive`, a reduce-scatter-v in `send`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VectorRow {
    /// Elements of the input that go to the peer.
    pub send: ElementRange,
    /// Elements of the output that come from the peer.
    pub receive: ElementRange,
}
const _: () = assert!(size_of::<VectorRow>() == 32);

/// Some elements of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ElementRange {
    /// First element.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl ElementRange {
    /// Returns the element behind the last one; 0 when there is none, `None` when it cannot be counted.
    #[must_use]
    pub const fn end(self) -> Option<u64> {
        if self.count == 0 { Some(0) } else { self.first.checked_add(self.count) }
    }
}

/// Launch arguments as they lie in a mailbox slot, 256 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct LaunchArgs {
    /// [`LaunchArgs::MAGIC`].
    pub magic: u32,
    /// [`ABI_MAJOR`].
    pub abi: u16,
    /// Number of blocks: 1.
    pub blocks: u16,
    /// Operation sequence within the communicator; answers carry it.
    pub sequence: u32,
    /// Checksum over all bytes with this field zero (`docs/wire-format.md` section 5).
    pub checksum: u32,
    /// Communicator instance.
    pub instance: [u64; 2],
    /// Communicator epoch.
    pub epoch: u32,
    /// [`OpKind`] number.
    pub op: u8,
    /// [`DataType`] number.
    pub dtype: u8,
    /// [`ReduceOp`] number, 0 for operations that do not reduce.
    pub reduce: u8,
    /// [`Algorithm`] number.
    pub algorithm: u8,
    /// Elements per rank: of the whole (all-reduce, reduce, broadcast), of a rank's block (all others); 0 where a vector
    /// says it.
    pub count: u64,
    /// Upper bound of elements per chunk and rank, 0 for as many as the scratch buffer holds.
    pub chunk: u64,
    /// Longest piece of one transfer, bytes; 0 for as long as the engine allows.
    pub piece: u64,
    /// Resource context.
    pub context: DeviceAddr,
    /// Bytes of the resource context.
    pub context_len: u32,
    /// [`Staging`] number.
    pub staging: u8,
    /// [`CacheMode`] number.
    pub cache: u8,
    /// 0 for an operation, 1 for the replay of a program ([`crate::program`]).
    pub kind: u8,
    /// Zero.
    pub reserved: u8,
    /// Input.
    pub input: Buffer,
    /// Output.
    pub output: Buffer,
    /// Notify (of the main thread) that the host records before the launch; index into the NPU's bank.
    pub start_notify: u32,
    /// Host notify to record when the operation is done.
    pub done_notify: u32,
    /// How long a wait on the device may last, milliseconds; never 0.
    pub timeout_ms: u32,
    /// Root of a rooted operation, 0 elsewhere.
    pub root: u32,
    /// Table of [`VectorRow`]s, one per rank in rank order; of algorithm `file` the [script](crate::script), which no
    /// operation with rows has; address 0 elsewhere.
    pub vector: DeviceAddr,
    /// [`Algorithm`] numbers of a composition's levels from the innermost on; 0 for its own choice, and elsewhere.
    pub levels: [u8; 4],
    /// Zero.
    pub reserved1: u32,
    /// Zero.
    pub reserved2: [u64; 10],
}
const _: () = assert!(size_of::<LaunchArgs>() == 256);
const _: () = assert!(offset_of!(LaunchArgs, instance) == 16 && offset_of!(LaunchArgs, count) == 40);
const _: () = assert!(offset_of!(LaunchArgs, input) == 80 && offset_of!(LaunchArgs, start_notify) == 144);

impl LaunchArgs {
    /// First four bytes of launch arguments.
    pub const MAGIC: u32 = u32::from_le_bytes(*b"ATSL");
    /// The kind of an operation.
    pub const OPERATION: u8 = 0;
    /// The kind of a replay.
    pub const REPLAY: u8 = 1;

    /// Returns these arguments with magic, version and checksum filled in.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.magic = Self::MAGIC;
        self.abi = ABI_MAJOR;
        self.checksum = self.compute_checksum();
        self
    }

    /// A multiply-rotate hash over the 32 words, folded to 32 bits: each word enters by a bijection, so a change of
    /// one word always changes the unfolded state. A CRC would cost more than the rest of a small launch.
    fn compute_checksum(&self) -> u32 {
        let words: [u64; 32] = zerocopy::transmute!(Self { checksum: 0, ..*self });
        let hash = words.into_iter().fold(digest::START, digest::with);
        let [a, b, c, d, e, f, g, h] = hash.to_le_bytes();
        u32::from_le_bytes([a, b, c, d]) ^ u32::from_le_bytes([e, f, g, h])
    }
}

/// Launch arguments whose every field is legal on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Operation sequence within the communicator.
    pub sequence: u32,
    /// Communicator instance.
    pub instance: [u64; 2],
    /// Communicator epoch.
    pub epoch: u32,
    /// Operation.
    pub op: OpKind,
    /// Element type.
    pub dtype: DataType,
    /// Reduction; sum for operations that do not reduce.
    pub reduce: ReduceOp,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Where the algorithm works.
    pub staging: Staging,
    /// Whether graphs may be replayed and kept.
    pub cache: CacheMode,
    /// Elements per rank; 0 where a vector says it.
    pub count: u64,
    /// Root of a rooted operation.
    pub root: u32,
    /// Table of [`VectorRow`]s, where the operation has one, or the [script](crate::script) of algorithm `file`.
    pub vector: DeviceAddr,
    /// Algorithms of a composition's levels from the innermost on; `None` for its own choice.
    pub levels: [Option<Algorithm>; 4],
    /// Upper bound of elements per chunk and rank, 0 for none.
    pub chunk: u64,
    /// Longest piece of one transfer, bytes, 0 for no other bound than the engine's.
    pub piece: u64,
    /// Resource context and its bytes.
    pub context: (DeviceAddr, u32),
    /// Input.
    pub input: Buffer,
    /// Output.
    pub output: Buffer,
    /// Start notify.
    pub start_notify: u32,
    /// Done notify.
    pub done_notify: u32,
    /// Device wait timeout, milliseconds.
    pub timeout_ms: u32,
}

impl Launch {
    /// Parses launch arguments.
    ///
    /// # Errors
    /// `LAUNCH_*` codes: magic, version, checksum, blocks, reserved fields, kind and other numbers out of range, a type that cannot
    /// be reduced, a reduction, root or vector where none belongs, a vector that is missing, a zero timeout, notifies that
    /// do not exist, a misaligned or wrapping buffer.
    pub fn parse(args: &LaunchArgs) -> Result<Self, ErrorCode> {
        check_header(args)?;
        if args.kind == LaunchArgs::OPERATION { Self::checked(args) } else { Err(ErrorCode::LAUNCH_OP) }
    }

    /// Parses everything but the header.
    pub(crate) fn checked(args: &LaunchArgs) -> Result<Self, ErrorCode> {
        let op = OpKind::try_from(args.op)?;
        let dtype = DataType::try_from(args.dtype)?;
        let reduce = ReduceOp::try_from(args.reduce)?;
        let reduces = op.reduces();
        if (reduces && !dtype.can_reduce()) || (!reduces && args.reduce != 0) {
            return Err(ErrorCode::LAUNCH_REDUCE);
        }
        if args.root != 0 && !op.is_rooted() {
            return Err(ErrorCode::LAUNCH_ROOT);
        }
        let file = args.algorithm == Algorithm::File as u8;
        if file && op.has_vector() {
            return Err(ErrorCode::LAUNCH_OP);
        }
        if (op.has_vector() || file) != (args.vector.0 != 0) || (op.has_vector() && args.count != 0) {
            return Err(ErrorCode::LAUNCH_VECTOR);
        }
        if !args.vector.0.is_multiple_of(8) {
            return Err(ErrorCode::LAUNCH_ALIGNMENT);
        }
        let mut levels = [None; 4];
        for (level, &number) in levels.iter_mut().zip(&args.levels) {
            *level = if number == 0 { None } else { Some(Algorithm::try_from(number)?) };
        }
        check_waits(args)?;
        check_buffers(args, dtype.size_bytes())?;
        Ok(Self {
            sequence: args.sequence,
            instance: args.instance,
            epoch: args.epoch,
            op,
            dtype,
            reduce,
            algorithm: Algorithm::try_from(args.algorithm)?,
            staging: Staging::try_from(args.staging)?,
            cache: CacheMode::try_from(args.cache)?,
            count: args.count,
            root: args.root,
            vector: args.vector,
            levels,
            chunk: args.chunk,
            piece: args.piece,
            context: (args.context, args.context_len),
            input: args.input,
            output: args.output,
            start_notify: args.start_notify,
            done_notify: args.done_notify,
            timeout_ms: args.timeout_ms,
        })
    }
}

pub(crate) fn check_waits(args: &LaunchArgs) -> Result<(), ErrorCode> {
    if args.timeout_ms == 0 {
        Err(ErrorCode::LAUNCH_TIMEOUT)
    } else if u64::from(args.start_notify) >= MAX_NOTIFIES || u64::from(args.done_notify) >= HOST_NOTIFIES {
        Err(ErrorCode::LAUNCH_NOTIFY)
    } else {
        Ok(())
    }
}

pub(crate) fn check_header(args: &LaunchArgs) -> Result<(), ErrorCode> {
    let reserved_zero = args.reserved == 0
        && args.reserved1 == 0
        && args.reserved2.iter().fold(0, |any, word| any | word) == 0
        && args.input.reserved == 0
        && args.output.reserved == 0;
    if args.magic != LaunchArgs::MAGIC {
        Err(ErrorCode::LAUNCH_MAGIC)
    } else if args.abi != ABI_MAJOR {
        Err(ErrorCode::LAUNCH_VERSION)
    } else if args.checksum != args.compute_checksum() {
        Err(ErrorCode::LAUNCH_CHECKSUM)
    } else if args.blocks != 1 {
        Err(ErrorCode::LAUNCH_BLOCKS)
    } else if !reserved_zero {
        Err(ErrorCode::LAUNCH_RESERVED)
    } else {
        Ok(())
    }
}

fn check_buffers(args: &LaunchArgs, element: u64) -> Result<(), ErrorCode> {
    for buffer in [&args.input, &args.output] {
        if !buffer.addr.0.is_multiple_of(element) {
            return Err(ErrorCode::LAUNCH_ALIGNMENT);
        }
        if buffer.addr.checked_add(buffer.len).is_none() {
            return Err(ErrorCode::LAUNCH_BUFFER);
        }
    }
    Ok(())
}
