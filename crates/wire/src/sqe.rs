//! Submission entries: one task for the device's scheduler.
//!
//! [`Sqe`] is the raw 64 bytes; [`Command`] is the task they mean. `Command::parse` accepts exactly what
//! `Command::emit` produces: a field the command does not use must be zero. A command is a [`Transfer`] or a
//! [`Control`], which can be parsed apart.

use core::mem::offset_of;

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::{Control, DataType, Descriptor, DeviceAddr, ErrorCode, Phase, ReduceOp, Reduction};

/// A submission entry as it lies in the ring. Lanes: see [`Lane`](crate::Lane).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Sqe {
    /// What to do; the numbers are the constants of this type.
    pub opcode: u8,
    /// [`SqeFlags`] bits.
    pub flags: u8,
    /// [`DataType`] number when reducing, else 0.
    pub dtype: u8,
    /// [`ReduceOp`] number when reducing, else 0.
    pub reduce: u8,
    /// [`Phase`] number: a label, the device ignores it.
    pub phase: u8,
    /// Zero.
    pub reserved: u8,
    /// Step within the algorithm: a label, the device ignores it.
    pub step: u16,
    /// Operation sequence in the high half, index within the operation in the low half.
    pub task: u64,
    /// Source address.
    pub src: u64,
    /// Destination address.
    pub dst: u64,
    /// Length in bytes.
    pub len: u64,
    /// Token of the source region.
    pub src_token: u32,
    /// Token of the destination region.
    pub dst_token: u32,
    /// Notify to record or to wait for.
    pub notify: u32,
    /// Index into the device's channel table.
    pub channel: u16,
    /// Peer rank: a label, the device ignores it.
    pub peer: u16,
    /// How long a wait may last, milliseconds; a label, the host enforces it.
    pub timeout_ms: u32,
    /// Work-queue tail (low 32 bits) that a post makes visible.
    pub wqe_tail: u32,
}
const _: () = assert!(size_of::<Sqe>() == 64);
const _: () = assert!(offset_of!(Sqe, task) == 8 && offset_of!(Sqe, src) == 16 && offset_of!(Sqe, dst) == 24);
const _: () = assert!(offset_of!(Sqe, len) == 32 && offset_of!(Sqe, src_token) == 40);
const _: () = assert!(offset_of!(Sqe, notify) == 48 && offset_of!(Sqe, channel) == 52);
const _: () = assert!(offset_of!(Sqe, timeout_ms) == 56 && offset_of!(Sqe, wqe_tail) == 60);

impl Sqe {
    /// Copy, or reduce, between two places of this device's memory.
    pub const COPY: u8 = 1;
    /// Write to a peer's memory over an in-server link.
    pub const WRITE: u8 = 2;
    /// Read from a peer's memory over an in-server link.
    pub const READ: u8 = 3;
    /// Set a notify of this device.
    pub const RECORD: u8 = 4;
    /// Block the queue until a notify of this device is set, then clear it.
    pub const WAIT: u8 = 5;
    /// Set a notify of a peer over an in-server link.
    pub const RECORD_PEER: u8 = 6;
    /// Set a notify of the host.
    pub const RECORD_HOST: u8 = 7;
    /// Let a queue pair run up to a position, and wait until it has.
    pub const POST: u8 = 8;

    /// Label of a task that concerns no peer.
    pub const NO_PEER: u16 = u16::MAX;

    /// Returns whether this is a [`Transfer`], by its opcode.
    #[inline]
    #[must_use]
    pub const fn is_transfer(&self) -> bool {
        matches!(self.opcode, Self::COPY | Self::WRITE | Self::READ)
    }
}

impl From<Descriptor> for Sqe {
    #[inline]
    fn from(descriptor: Descriptor) -> Self {
        transmute!(descriptor)
    }
}

impl From<Sqe> for Descriptor {
    /// The same as reinterpreting the bytes, in eight stores instead of one per field.
    #[inline(always)]
    fn from(sqe: Sqe) -> Self {
        let [step_low, step_high] = sqe.step.to_le_bytes();
        let head =
            [sqe.opcode, sqe.flags, sqe.dtype, sqe.reduce, sqe.phase, sqe.reserved, step_low, step_high];
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let signal = u64::from(sqe.notify) | u64::from(sqe.channel) << 32 | u64::from(sqe.peer) << 48;
        Self {
            lanes: [
                u64::from_le_bytes(head),
                sqe.task,
                sqe.src,
                sqe.dst,
                sqe.len,
                pair(sqe.src_token, sqe.dst_token),
                signal,
                pair(sqe.timeout_ms, sqe.wqe_tail),
            ],
        }
    }
}

bitflags! {
    /// Variants of an opcode.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SqeFlags: u8 {
        /// Reduce into the destination instead of overwriting it.
        const REDUCE = 1;
        /// Set the peer's notify once the data has landed.
        const NOTIFY = 1 << 1;
        /// Run by a processor core of the device, not by a copy engine.
        const AICPU = 1 << 2;
        /// Report the completion.
        const COMPLETE = 1 << 3;
    }
}

/// One end of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operand {
    /// First byte.
    pub addr: DeviceAddr,
    /// Token of the registered region it lies in.
    pub token: u32,
}

/// Which way a transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// Between two places of this device.
    Local,
    /// To the peer at the other end of a channel.
    Write {
        /// Index into the device's channel table.
        channel: u16,
    },
    /// From the peer at the other end of a channel.
    Read {
        /// Index into the device's channel table.
        channel: u16,
    },
}

/// What moves the bytes of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A copy engine.
    Sdma,
    /// A processor core: reductions that no copy engine can do.
    Aicpu,
}

/// A transfer of `len` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which way it goes.
    pub kind: TransferKind,
    /// What moves the bytes.
    pub engine: Engine,
    /// Overwrite, or reduce into the destination.
    pub reduction: Option<Reduction>,
    /// Source; at the peer for a read.
    pub src: Operand,
    /// Destination; at the peer for a write.
    pub dst: Operand,
    /// Bytes.
    pub len: u64,
    /// Notify of the peer to set once the data has landed (writes only).
    pub notify: Option<u32>,
}

/// A task that makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Move bytes.
    Transfer(Transfer),
    /// Set a notify of this device.
    Record {
        /// Index into the notify bank.
        notify: u32,
    },
    /// Wait for a notify of this device, then clear it.
    Wait {
        /// Index into the notify bank.
        notify: u32,
    },
    /// Set a notify of the peer at the other end of a channel.
    RecordPeer {
        /// Index into the device's channel table.
        channel: u16,
        /// Index into the peer's notify bank.
        notify: u32,
    },
    /// Set a notify of the host.
    RecordHost {
        /// Index into the device's host-notify words.
        notify: u32,
    },
    /// Let the queue pair of a channel run up to `wqe_tail`.
    Post {
        /// Index into the device's channel table.
        channel: u16,
        /// Low 32 bits of the work-queue tail.
        wqe_tail: u32,
    },
}

/// What a descriptor carries besides its command: labels for messages and launch-time values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Task id.
    pub task: u64,
    /// Phase of the template.
    pub phase: Phase,
    /// Step of the algorithm.
    pub step: u16,
    /// Peer rank, [`Sqe::NO_PEER`] where none.
    pub peer: u16,
    /// How long a wait may last, milliseconds.
    pub timeout_ms: u32,
    /// Whether the completion is to be reported.
    pub complete: bool,
}

impl Command {
    /// Returns the descriptor that means this command.
    #[inline(always)]
    #[must_use]
    pub fn emit(&self, labels: Labels) -> Sqe {
        let mut sqe = Sqe {
            phase: labels.phase as u8,
            step: labels.step,
            task: labels.task,
            peer: labels.peer,
            timeout_ms: labels.timeout_ms,
            ..Sqe::default()
        };
        let mut flags = if labels.complete { SqeFlags::COMPLETE } else { SqeFlags::empty() };
        match *self {
            Self::Transfer(ref transfer) => flags |= transfer.emit(&mut sqe),
            Self::Record { notify } => (sqe.opcode, sqe.notify) = (Sqe::RECORD, notify),
            Self::Wait { notify } => (sqe.opcode, sqe.notify) = (Sqe::WAIT, notify),
            Self::RecordPeer { channel, notify } => {
                (sqe.opcode, sqe.channel, sqe.notify) = (Sqe::RECORD_PEER, channel, notify);
            }
            Self::RecordHost { notify } => (sqe.opcode, sqe.notify) = (Sqe::RECORD_HOST, notify),
            Self::Post { channel, wqe_tail } => {
                (sqe.opcode, sqe.channel, sqe.wqe_tail) = (Sqe::POST, channel, wqe_tail);
            }
        }
        sqe.flags = flags.bits();
        sqe
    }

    /// Returns the command and labels that `sqe` means.
    ///
    /// # Errors
    /// `SQE_OPCODE` for an unknown opcode, `SQE_FIELD` for a value out of range, a field set that this opcode does
    /// not use, or a combination that means nothing.
    pub fn parse(sqe: &Sqe) -> Result<(Self, Labels), ErrorCode> {
        let command = if sqe.is_transfer() {
            Self::Transfer(Transfer::parse(sqe)?)
        } else {
            match Control::parse(sqe)? {
                Control::Record { notify } => Self::Record { notify },
                Control::Wait { notify } => Self::Wait { notify },
                Control::RecordPeer { channel, notify } => Self::RecordPeer { channel, notify },
                Control::RecordHost { notify } => Self::RecordHost { notify },
                Control::Post { channel, wqe_tail } => Self::Post { channel, wqe_tail },
            }
        };
        let labels = Labels {
            task: sqe.task,
            phase: Phase::try_from(sqe.phase)?,
            step: sqe.step,
            peer: sqe.peer,
            timeout_ms: sqe.timeout_ms,
            complete: sqe.flags & SqeFlags::COMPLETE.bits() != 0,
        };
        Ok((command, labels))
    }
}

#[inline(always)]
pub(crate) fn flags_of(sqe: &Sqe) -> Result<SqeFlags, ErrorCode> {
    SqeFlags::from_bits(sqe.flags).ok_or(ErrorCode::SQE_FIELD)
}

impl Transfer {
    #[inline(always)]
    fn emit(&self, sqe: &mut Sqe) -> SqeFlags {
        let mut flags = SqeFlags::empty();
        (sqe.opcode, sqe.channel) = match self.kind {
            TransferKind::Local => (Sqe::COPY, 0),
            TransferKind::Write { channel } => (Sqe::WRITE, channel),
            TransferKind::Read { channel } => (Sqe::READ, channel),
        };
        if self.engine == Engine::Aicpu {
            flags |= SqeFlags::AICPU;
        }
        if let Some(reduction) = self.reduction {
            flags |= SqeFlags::REDUCE;
            (sqe.dtype, sqe.reduce) = (reduction.dtype as u8, reduction.op as u8);
        }
        if let Some(notify) = self.notify {
            flags |= SqeFlags::NOTIFY;
            sqe.notify = notify;
        }
        (sqe.src, sqe.src_token) = (self.src.addr.0, self.src.token);
        (sqe.dst, sqe.dst_token) = (self.dst.addr.0, self.dst.token);
        sqe.len = self.len;
        flags
    }

    /// Returns the transfer that `sqe` means.
    ///
    /// # Errors
    /// As [`Command::parse`]; `SQE_OPCODE` for what is none too.
    #[inline(always)]
    pub fn parse(sqe: &Sqe) -> Result<Self, ErrorCode> {
        let flags = flags_of(sqe)?;
        let reduces = flags.contains(SqeFlags::REDUCE);
        let reduction = if reduces { Some(parse_reduction(sqe.dtype, sqe.reduce)?) } else { None };
        let kind = match sqe.opcode {
            Sqe::COPY => TransferKind::Local,
            Sqe::WRITE => TransferKind::Write { channel: sqe.channel },
            Sqe::READ => TransferKind::Read { channel: sqe.channel },
            _ => return Err(ErrorCode::SQE_OPCODE),
        };
        let notify = flags.contains(SqeFlags::NOTIFY).then_some(sqe.notify);
        let engine = if flags.contains(SqeFlags::AICPU) { Engine::Aicpu } else { Engine::Sdma };
        let only_local = engine == Engine::Aicpu && (kind != TransferKind::Local || !reduces);
        let only_write = notify.is_some() && !matches!(kind, TransferKind::Write { .. });
        if only_local || only_write {
            return Err(ErrorCode::SQE_FIELD);
        }
        Phase::try_from(sqe.phase)?;
        let is_clean = sqe.wqe_tail == 0
            && sqe.reserved == 0
            && (sqe.channel == 0 || kind != TransferKind::Local)
            && (sqe.notify == 0 || notify.is_some())
            && (sqe.dtype | sqe.reduce == 0 || reduces);
        if !is_clean {
            return Err(ErrorCode::SQE_FIELD);
        }
        Ok(Self {
            kind,
            engine,
            reduction,
            src: Operand { addr: DeviceAddr(sqe.src), token: sqe.src_token },
            dst: Operand { addr: DeviceAddr(sqe.dst), token: sqe.dst_token },
            len: sqe.len,
            notify,
        })
    }
}

/// Parses a data type and a reduction that stand beside each other in a descriptor.
#[inline]
pub(crate) fn parse_reduction(dtype: u8, op: u8) -> Result<Reduction, ErrorCode> {
    let dtype = DataType::try_from(dtype).map_err(|_| ErrorCode::SQE_FIELD)?;
    let op = ReduceOp::try_from(op).map_err(|_| ErrorCode::SQE_FIELD)?;
    if dtype.can_reduce() { Ok(Reduction { dtype, op }) } else { Err(ErrorCode::SQE_REDUCE) }
}
