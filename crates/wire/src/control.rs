//! Submission entries that move no bytes themselves: signals and posts.
//!
//! Nothing here writes one; [`Command::emit`](crate::Command::emit) does.

use crate::sqe::flags_of;
use crate::{Descriptor, ErrorCode, Phase, Sqe, SqeFlags};

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
        let Sqe { channel, notify, wqe_tail, .. } = *sqe;
        let [head, _, src, dst, len, tokens, ..] = Descriptor::from(*sqe).lanes;
        if src | dst | len | tokens | head & UNUSED_HEAD != 0 || Phase::try_from(sqe.phase).is_err() {
            return Err(refusal(sqe));
        }
        match sqe.opcode {
            Sqe::RECORD if channel == 0 && wqe_tail == 0 => Ok(Self::Record { notify }),
            Sqe::WAIT if channel == 0 && wqe_tail == 0 => Ok(Self::Wait { notify }),
            Sqe::RECORD_PEER if wqe_tail == 0 => Ok(Self::RecordPeer { channel, notify }),
            Sqe::RECORD_HOST if channel == 0 && wqe_tail == 0 => Ok(Self::RecordHost { notify }),
            Sqe::POST if notify == 0 => Ok(Self::Post { channel, wqe_tail }),
            _ => Err(refusal(sqe)),
        }
    }
}

/// What no control uses of the first lane: flags but one, data type, reduction, the byte without a meaning.
const UNUSED_HEAD: u64 = u64::from_le_bytes([0, !SqeFlags::COMPLETE.bits(), 0xff, 0xff, 0, 0xff, 0, 0]);

/// Returns what is wrong with an entry that is no control.
#[cold]
fn refusal(sqe: &Sqe) -> ErrorCode {
    let is_known = (Sqe::RECORD..=Sqe::POST).contains(&sqe.opcode);
    if is_known || flags_of(sqe).is_err() { ErrorCode::SQE_FIELD } else { ErrorCode::SQE_OPCODE }
}

const _: () = assert!(Sqe::RECORD == 4 && Sqe::POST == 8);
