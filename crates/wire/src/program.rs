//! Programs: operations that one launch replays in order, as often as the host likes.
//!
//! Made by the host once, when a capture ends; read by the kernel at every replay. A program holds what stays the same
//! from replay to replay. Buffers do not: an operand names a slot of the list of [`Buffer`]s that each replay brings.
//! Like a context, a program whose bytes have changed in any bit is refused. Spec: `docs/wire-format.md` section 6.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::launch::{Buffer, CacheMode, Launch, check_header, check_waits};
use crate::{ABI_MAJOR, ABI_MINOR, CRC32C, DeviceAddr, ErrorCode, LaunchArgs};

/// First eight bytes of a program.
pub const MAGIC: u64 = u64::from_le_bytes(*b"AICPUPRG");
/// Operations of one program.
pub const MAX_OPERATIONS: usize = 128;
/// Slots of the list of buffers.
pub const MAX_BINDINGS: usize = 128;

/// Head of a program, 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProgramHeader {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`ABI_MAJOR`].
    pub abi_major: u16,
    /// [`ABI_MINOR`].
    pub abi_minor: u16,
    /// Bytes of the program.
    pub total_len: u32,
    /// CRC-32C over all bytes, this field as 0.
    pub checksum: u32,
    /// Number of entries.
    pub count: u32,
    /// Communicator instance.
    pub instance: [u64; 2],
    /// Communicator epoch.
    pub epoch: u32,
    /// Slots of the list of buffers that a replay brings.
    pub bindings: u32,
    /// Zero.
    pub reserved: [u64; 2],
}
const _: () = assert!(size_of::<ProgramHeader>() == 64);

/// A buffer of an operation: part of one in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProgramOperand {
    /// Slot of the list of buffers.
    pub slot: u32,
    /// Zero.
    pub reserved: u32,
    /// First byte within the buffer.
    pub offset: u64,
    /// Bytes that may be touched.
    pub len: u64,
}
const _: () = assert!(size_of::<ProgramOperand>() == 24);

/// An operation of a program, 112 bytes. Fields without comment are those of [`LaunchArgs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProgramEntry {
    /// [`OpKind`](crate::launch::OpKind) number.
    pub op: u8,
    /// [`DataType`](crate::DataType) number.
    pub dtype: u8,
    /// [`ReduceOp`](crate::ReduceOp) number, 0 for operations that do not reduce.
    pub reduce: u8,
    /// [`Algorithm`](crate::launch::Algorithm) number.
    pub algorithm: u8,
    /// [`Staging`](crate::launch::Staging) number.
    pub staging: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Elements per rank; 0 where a vector says it.
    pub count: u64,
    /// Table of [`VectorRow`](crate::launch::VectorRow)s, where the operation has one.
    pub vector: DeviceAddr,
    /// Root of a rooted operation, 0 elsewhere.
    pub root: u32,
    /// [`Algorithm`](crate::launch::Algorithm) numbers of a composition's levels, 0 for its own choice.
    pub levels: [u8; 4],
    /// Upper bound of elements per chunk and rank, 0 for none.
    pub chunk: u64,
    /// Longest piece of one transfer, bytes; 0 for as long as the engine allows.
    pub piece: u64,
    /// Resource context.
    pub context: DeviceAddr,
    /// Bytes of the resource context.
    pub context_len: u32,
    /// First of the start notifies of the context's main thread. A replay whose start notify is the n-th of the first
    /// operation's uses the n-th of every operation's.
    pub start_base: u32,
    /// Input.
    pub input: ProgramOperand,
    /// Output.
    pub output: ProgramOperand,
}
const _: () = assert!(size_of::<ProgramEntry>() == 112);

/// A program whose header has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program<'a> {
    header: &'a ProgramHeader,
    entries: &'a [ProgramEntry],
}

impl<'a> Program<'a> {
    /// Checks a program. `entries` are what follows the header, all of it.
    ///
    /// # Errors
    /// The first fault found: `PROGRAM_MAGIC`, `PROGRAM_VERSION`, `PROGRAM_LENGTH`, `PROGRAM_CHECKSUM`,
    /// `PROGRAM_FIELD` for reserved fields and slots that the list does not have. What an operation asks for is checked
    /// by [`launch`](Self::launch).
    pub fn new(header: &'a ProgramHeader, entries: &'a [ProgramEntry]) -> Result<Self, ErrorCode> {
        let total = size_of::<ProgramHeader>() + size_of_val(entries);
        let len =
            (u32::try_from(entries.len()), u32::try_from(total)) == (Ok(header.count), Ok(header.total_len));
        let fields = header.reserved == [0; 2] && header.count > 0;
        if header.magic != MAGIC {
            Err(ErrorCode::PROGRAM_MAGIC)
        } else if (header.abi_major, header.abi_minor) != (ABI_MAJOR, ABI_MINOR) {
            Err(ErrorCode::PROGRAM_VERSION)
        } else if !len {
            Err(ErrorCode::PROGRAM_LENGTH)
        } else if header.checksum != checksum(header, entries) {
            Err(ErrorCode::PROGRAM_CHECKSUM)
        } else if !fields || !entries.iter().all(|entry| entry.is_within(header.bindings)) {
            Err(ErrorCode::PROGRAM_FIELD)
        } else {
            Ok(Self { header, entries })
        }
    }

    /// Returns a program that has been checked before and copied to memory that nobody else writes.
    #[must_use]
    pub const fn trusted(header: &'a ProgramHeader, entries: &'a [ProgramEntry]) -> Self {
        Self { header, entries }
    }

    /// Returns the header.
    #[must_use]
    pub const fn header(&self) -> &'a ProgramHeader {
        self.header
    }

    /// Returns how many operations there are; never 0.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no operation; never true.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns what the operation with this index asks for when it is replayed with these buffers. Checks everything
    /// that [`Launch::parse`] checks.
    ///
    /// # Errors
    /// `PROGRAM_FIELD` when there is no such operation, `PROGRAM_BINDINGS` when the list has another length than the
    /// program says, `BINDING_EXTENT` for an operand that is not inside its buffer, `LAUNCH_NOTIFY`, and those of
    /// [`Launch::parse`].
    pub fn launch(&self, index: usize, replay: &Replay, bindings: &[Buffer]) -> Result<Launch, ErrorCode> {
        if u32::try_from(bindings.len()) != Ok(self.header.bindings) {
            return Err(ErrorCode::PROGRAM_BINDINGS);
        }
        let (Some(first), Some(entry)) = (self.entries.first(), self.entries.get(index)) else {
            return Err(ErrorCode::PROGRAM_FIELD);
        };
        let number = replay.start_notify.checked_sub(first.start_base).ok_or(ErrorCode::LAUNCH_NOTIFY)?;
        let start_notify = entry.start_base.checked_add(number).ok_or(ErrorCode::LAUNCH_NOTIFY)?;
        Launch::checked(&LaunchArgs {
            sequence: replay.sequence,
            instance: replay.instance,
            epoch: replay.epoch,
            op: entry.op,
            dtype: entry.dtype,
            reduce: entry.reduce,
            algorithm: entry.algorithm,
            staging: entry.staging,
            // The field's policy has nothing captured in its cache.
            cache: if replay.cache == CacheMode::On { CacheMode::On } else { CacheMode::Off } as u8,
            count: entry.count,
            vector: entry.vector,
            root: entry.root,
            levels: entry.levels,
            chunk: entry.chunk,
            piece: entry.piece,
            context: entry.context,
            context_len: entry.context_len,
            input: entry.input.of(bindings)?,
            output: entry.output.of(bindings)?,
            start_notify,
            done_notify: replay.done_notify,
            timeout_ms: replay.timeout_ms,
            ..LaunchArgs::new_zeroed()
        })
    }
}

impl ProgramHeader {
    /// Returns this header with magic, version, length, count and checksum of a program with these entries.
    ///
    /// # Errors
    /// `PROGRAM_LENGTH` when their bytes cannot be counted in 32 bits.
    pub fn sealed(self, entries: &[ProgramEntry]) -> Result<Self, ErrorCode> {
        let total = size_of::<Self>() + size_of_val(entries);
        let header = Self {
            magic: MAGIC,
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            total_len: u32::try_from(total).map_err(|_| ErrorCode::PROGRAM_LENGTH)?,
            count: u32::try_from(entries.len()).map_err(|_| ErrorCode::PROGRAM_LENGTH)?,
            ..self
        };
        Ok(Self { checksum: checksum(&header, entries), ..header })
    }
}

fn checksum(header: &ProgramHeader, entries: &[ProgramEntry]) -> u32 {
    let mut digest = CRC32C.digest();
    digest.update(ProgramHeader { checksum: 0, ..*header }.as_bytes());
    digest.update(entries.as_bytes());
    digest.finalize()
}

impl ProgramEntry {
    /// Returns whether reserved fields are 0 and both operands name one of `bindings` slots.
    fn is_within(&self, bindings: u32) -> bool {
        let operand = |operand: &ProgramOperand| operand.reserved == 0 && operand.slot < bindings;
        self.reserved == [0; 3] && operand(&self.input) && operand(&self.output)
    }
}

impl ProgramOperand {
    /// Returns the part of its buffer.
    fn of(&self, bindings: &[Buffer]) -> Result<Buffer, ErrorCode> {
        let slot = usize::try_from(self.slot).map_err(|_| ErrorCode::PROGRAM_FIELD)?;
        let whole = bindings.get(slot).ok_or(ErrorCode::PROGRAM_FIELD)?;
        let inside = self.offset.checked_add(self.len).is_some_and(|end| end <= whole.len);
        let addr = whole.addr.checked_add(self.offset).filter(|_| inside).ok_or(ErrorCode::BINDING_EXTENT)?;
        Ok(Buffer { addr, len: self.len, ..*whole })
    }
}

/// The launch of a program whose every field is legal on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Operation sequence within the communicator.
    pub sequence: u32,
    /// Communicator instance.
    pub instance: [u64; 2],
    /// Communicator epoch.
    pub epoch: u32,
    /// Whether graphs may be replayed and kept.
    pub cache: CacheMode,
    /// Program and its bytes.
    pub program: (DeviceAddr, u32),
    /// List of [`Buffer`]s and its bytes.
    pub bindings: (DeviceAddr, u64),
    /// Start notify of the first operation.
    pub start_notify: u32,
    /// Done notify of the last operation.
    pub done_notify: u32,
    /// Device wait timeout, milliseconds.
    pub timeout_ms: u32,
}

impl Replay {
    /// A replay of nothing, all of whose bytes are zero: what memory for one begins as.
    pub const NONE: Self = Self {
        sequence: 0,
        instance: [0; 2],
        epoch: 0,
        cache: CacheMode::On,
        program: (DeviceAddr(0), 0),
        bindings: (DeviceAddr(0), 0),
        start_notify: 0,
        done_notify: 0,
        timeout_ms: 0,
    };

    /// Returns the launch arguments of this replay, sealed.
    #[must_use]
    pub fn args(&self) -> LaunchArgs {
        let bindings = Buffer { addr: self.bindings.0, len: self.bindings.1, ..Buffer::default() };
        LaunchArgs {
            blocks: 1,
            kind: LaunchArgs::REPLAY,
            sequence: self.sequence,
            instance: self.instance,
            epoch: self.epoch,
            cache: self.cache as u8,
            context: self.program.0,
            context_len: self.program.1,
            input: bindings,
            start_notify: self.start_notify,
            done_notify: self.done_notify,
            timeout_ms: self.timeout_ms,
            ..LaunchArgs::default()
        }
        .sealed()
    }

    /// `LAUNCH_RESERVED` when a field is set that a replay does not have, and the codes of the others.
    fn checked(args: &LaunchArgs) -> Result<Self, ErrorCode> {
        let replay = Self {
            sequence: args.sequence,
            instance: args.instance,
            epoch: args.epoch,
            cache: CacheMode::try_from(args.cache)?,
            program: (args.context, args.context_len),
            bindings: (args.input.addr, args.input.len),
            start_notify: args.start_notify,
            done_notify: args.done_notify,
            timeout_ms: args.timeout_ms,
        };
        check_waits(args)?;
        if replay.args() == *args { Ok(replay) } else { Err(ErrorCode::LAUNCH_RESERVED) }
    }
}

/// What launch arguments ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// One operation.
    Operation(Launch),
    /// The operations of a program.
    Replay(Replay),
}

impl Posted {
    /// Parses launch arguments of either kind.
    ///
    /// # Errors
    /// As [`Launch::parse`].
    pub fn parse(args: &LaunchArgs) -> Result<Self, ErrorCode> {
        check_header(args)?;
        match args.kind {
            LaunchArgs::OPERATION => Launch::checked(args).map(Self::Operation),
            LaunchArgs::REPLAY => Replay::checked(args).map(Self::Replay),
            _ => Err(ErrorCode::LAUNCH_OP),
        }
    }
}
