//! Work-queue entries: one request for a queue pair (RoCE or UB).
//!
//! A task that crosses servers is two descriptors: the work request in the queue pair's own ring, and a post in the
//! thread's ring that lets the queue pair run up to it. Lanes stand where those of the [`Sqe`](crate::Sqe) do.

use core::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::sqe::parse_reduction;
use crate::{Descriptor, DeviceAddr, ErrorCode, Labels, Operand, Phase, Reduction, SqeFlags};

/// A work-queue entry as it lies in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Wqe {
    /// What to do; the numbers are the constants of this type.
    pub opcode: u8,
    /// [`SqeFlags`] bits; `AICPU` and `COMPLETE` do not occur.
    pub flags: u8,
    /// Data type number when reducing, else 0.
    pub dtype: u8,
    /// Reduction number when reducing, else 0.
    pub reduce: u8,
    /// Phase number: a label.
    pub phase: u8,
    /// Zero.
    pub reserved: u8,
    /// Step within the algorithm: a label.
    pub step: u16,
    /// Task id.
    pub task: u64,
    /// Address at this device.
    pub local: u64,
    /// Address at the peer.
    pub remote: u64,
    /// Length in bytes.
    pub len: u64,
    /// Token of the local region.
    pub local_token: u32,
    /// Token of the remote region.
    pub remote_token: u32,
    /// Notify of the peer.
    pub notify: u32,
    /// Zero.
    pub reserved1: u16,
    /// Peer rank: a label.
    pub peer: u16,
    /// Zero.
    pub reserved2: u64,
}
const _: () = assert!(size_of::<Wqe>() == 64);
const _: () =
    assert!(offset_of!(Wqe, task) == 8 && offset_of!(Wqe, local) == 16 && offset_of!(Wqe, remote) == 24);
const _: () = assert!(offset_of!(Wqe, len) == 32 && offset_of!(Wqe, local_token) == 40);
const _: () = assert!(offset_of!(Wqe, notify) == 48 && offset_of!(Wqe, reserved2) == 56);

impl Wqe {
    /// Write local memory to the peer.
    pub const WRITE: u8 = 0x21;
    /// Read the peer's memory to local.
    pub const READ: u8 = 0x22;
    /// Set a notify of the peer.
    pub const RECORD: u8 = 0x23;
}

impl From<Descriptor> for Wqe {
    #[inline]
    fn from(descriptor: Descriptor) -> Self {
        transmute!(descriptor)
    }
}

impl From<Wqe> for Descriptor {
    #[inline]
    fn from(wqe: Wqe) -> Self {
        transmute!(wqe)
    }
}

/// A work request that makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkRequest {
    /// Write `len` bytes from `local` to `remote`.
    Write {
        /// Source.
        local: Operand,
        /// Destination at the peer.
        remote: Operand,
        /// Bytes.
        len: u64,
        /// Overwrite, or reduce into the destination.
        reduction: Option<Reduction>,
        /// Notify of the peer to set once the data has landed.
        notify: Option<u32>,
    },
    /// Read `len` bytes from `remote` to `local`.
    Read {
        /// Destination.
        local: Operand,
        /// Source at the peer.
        remote: Operand,
        /// Bytes.
        len: u64,
        /// Overwrite, or reduce into the destination.
        reduction: Option<Reduction>,
    },
    /// Set a notify of the peer, after everything before it has landed.
    Record {
        /// Index into the peer's notify bank.
        notify: u32,
    },
}

impl WorkRequest {
    /// Returns the entry that means this request. Of the labels, timeout and completion do not apply here.
    #[inline]
    #[must_use]
    pub fn emit(&self, labels: Labels) -> Wqe {
        let mut wqe = Wqe {
            phase: labels.phase as u8,
            step: labels.step,
            task: labels.task,
            peer: labels.peer,
            ..Wqe::default()
        };
        let mut flags = SqeFlags::empty();
        match *self {
            Self::Write { local, remote, len, reduction, notify } => {
                wqe.opcode = Wqe::WRITE;
                flags |= emit_ends(&mut wqe, local, remote, len, reduction);
                if let Some(notify) = notify {
                    flags |= SqeFlags::NOTIFY;
                    wqe.notify = notify;
                }
            }
            Self::Read { local, remote, len, reduction } => {
                wqe.opcode = Wqe::READ;
                flags |= emit_ends(&mut wqe, local, remote, len, reduction);
            }
            Self::Record { notify } => (wqe.opcode, wqe.notify) = (Wqe::RECORD, notify),
        }
        wqe.flags = flags.bits();
        wqe
    }

    /// Returns the request and labels that `wqe` means.
    ///
    /// # Errors
    /// As [`Command::parse`](crate::Command::parse).
    #[inline]
    pub fn parse(wqe: &Wqe) -> Result<(Self, Labels), ErrorCode> {
        let flags = SqeFlags::from_bits(wqe.flags).ok_or(ErrorCode::SQE_FIELD)?;
        let reduces = flags.contains(SqeFlags::REDUCE);
        let reduction = if reduces { Some(parse_reduction(wqe.dtype, wqe.reduce)?) } else { None };
        let local = Operand { addr: DeviceAddr(wqe.local), token: wqe.local_token };
        let remote = Operand { addr: DeviceAddr(wqe.remote), token: wqe.remote_token };
        let notify = flags.contains(SqeFlags::NOTIFY).then_some(wqe.notify);
        let request = match wqe.opcode {
            Wqe::WRITE => Self::Write { local, remote, len: wqe.len, reduction, notify },
            Wqe::READ => Self::Read { local, remote, len: wqe.len, reduction },
            Wqe::RECORD => Self::Record { notify: wqe.notify },
            _ => return Err(ErrorCode::SQE_OPCODE),
        };
        let labels = Labels {
            task: wqe.task,
            phase: Phase::try_from(wqe.phase)?,
            step: wqe.step,
            peer: wqe.peer,
            timeout_ms: 0,
            complete: false,
        };
        if request.emit(labels) == *wqe { Ok((request, labels)) } else { Err(ErrorCode::SQE_FIELD) }
    }
}

#[inline]
fn emit_ends(
    wqe: &mut Wqe,
    local: Operand,
    remote: Operand,
    len: u64,
    reduction: Option<Reduction>,
) -> SqeFlags {
    (wqe.local, wqe.local_token) = (local.addr.0, local.token);
    (wqe.remote, wqe.remote_token) = (remote.addr.0, remote.token);
    wqe.len = len;
    match reduction {
        Some(Reduction { dtype, op }) => {
            (wqe.dtype, wqe.reduce) = (dtype as u8, op as u8);
            SqeFlags::REDUCE
        }
        None => SqeFlags::empty(),
    }
}
