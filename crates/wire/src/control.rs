//! Submission entries that move no bytes themselves: signals and posts.
//!
//! Nothing here writes one; [`Command::emit`](crate::Command::emit) does.

use crate::sqe::flags_of;
use crate::{ErrorCode, Phase, Sqe, SqeFlags};

/// A command that is no transfer: [`Command`](crate::Command) without the one variant that makes it large. Whoever carries out many
/// entries parses these and [`Transfer`](crate::Transfer)s apart, so that they stay in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// As [`Command::Record`](crate::Command::Record).
    Record {
        /// Index into the notify bank.
        notify: u32,
    },
    /// As [`Command::Wait`](crate::Command::Wait).
    Wait {
        /// Index into the notify bank.
        notify: u32,
    },
    /// As [`Command::RecordPeer`](crate::Command::RecordPeer).
    RecordPeer {
        /// Index into the device's channel table.
        channel: u16,
        /// Index into the peer's notify bank.
        notify: u32,
    },
    /// As [`Command::RecordHost`](crate::Command::RecordHost).
    RecordHost {
        /// Index into the device's host-notify words.
        notify: u32,
    },
    /// As [`Command::Post`](crate::Command::Post).
    Post {
        /// Index into the device's channel table.
        channel: u16,
        /// Low 32 bits of the work-queue tail.
        wqe_tail: u32,
    },
}

impl Control {
    /// Returns the control that `sqe` means.
    ///
    /// # Errors
    /// As [`Command::parse`](crate::Command::parse); `SQE_OPCODE` for a transfer too.
    #[inline(always)]
    pub fn parse(sqe: &Sqe) -> Result<Self, ErrorCode> {
        let flags = flags_of(sqe)?;
        let Sqe { channel, notify, wqe_tail, .. } = *sqe;
        let (unused_channel, unused_notify, unused_tail) =
            (u64::from(channel), u64::from(notify), u64::from(wqe_tail));
        let (control, unused) = match sqe.opcode {
            Sqe::RECORD => (Self::Record { notify }, unused_channel | unused_tail),
            Sqe::WAIT => (Self::Wait { notify }, unused_channel | unused_tail),
            Sqe::RECORD_PEER => (Self::RecordPeer { channel, notify }, unused_tail),
            Sqe::RECORD_HOST => (Self::RecordHost { notify }, unused_channel | unused_tail),
            Sqe::POST => (Self::Post { channel, wqe_tail }, unused_notify),
            _ => return Err(ErrorCode::SQE_OPCODE),
        };
        Phase::try_from(sqe.phase)?;
        let data = sqe.src | sqe.dst | sqe.len | u64::from(sqe.src_token | sqe.dst_token);
        let head = sqe.dtype | sqe.reduce | sqe.reserved | (flags - SqeFlags::COMPLETE).bits();
        if data | unused | u64::from(head) == 0 { Ok(control) } else { Err(ErrorCode::SQE_FIELD) }
    }
}
