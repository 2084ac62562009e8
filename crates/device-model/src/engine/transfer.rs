//! One transfer: every check in its order, then the bytes.
//!
//! The order of the checks is part of the interface, since only the first refusal is reported: length, reduction,
//! alignment, source region, destination region, overlap.

use wire::npu::Access;
use wire::{ErrorCode, Operand, Reduction};

use super::Refusal;
use super::tables::{Limits, check_operand};
use crate::memory::{Span, Window};

/// One end of a transfer: where, in whose memory, and what its region must allow.
#[derive(Clone, Copy)]
pub(super) struct End<'a> {
    pub(super) window: &'a Window,
    pub(super) operand: Operand,
    pub(super) need: Access,
}

/// A transfer as the engines see it, whatever descriptor it came from.
#[derive(Clone, Copy)]
pub(super) struct Move<'a> {
    pub(super) src: End<'a>,
    pub(super) dst: End<'a>,
    pub(super) len: u64,
    pub(super) reduction: Option<Reduction>,
    pub(super) limits: Limits,
}

impl<'a> Move<'a> {
    /// Checks the transfer and performs it, or the next piece of it, when `moved` bytes have been moved so far. Returns how
    /// many have been moved then, and the destination, all of it. What is refused at first has moved nothing.
    ///
    /// # Errors
    /// The codes 5105 to 5108 and 5201 to 5204.
    #[inline(always)]
    pub(super) fn perform(self, moved: u64, piece: u64) -> Result<(u64, Span<'a>), Refusal> {
        self.check_shape()?;
        let src = check_operand(self.src.window, self.src.operand, self.len, self.src.need)?;
        let dst = check_operand(self.dst.window, self.dst.operand, self.len, self.dst.need)?;
        let refused = |code| Refusal { code, address: self.dst.operand.addr };
        if self.len <= piece && moved == 0 {
            self.carry(&src, &dst).map_err(refused)?;
            return Ok((self.len, dst));
        }
        dst.check_pair(&src).map_err(refused)?;
        let left = self.len - moved;
        let len = piece.min(left);
        // In which order pieces come is the engine's own affair: of some transfers the last is the first.
        let at = if self.is_backwards() { left - len } else { moved };
        self.carry(&src.part(at, len), &dst.part(at, len)).map_err(refused)?;
        Ok((moved + len, dst))
    }

    #[inline(always)]
    fn carry(&self, src: &Span<'a>, dst: &Span<'a>) -> Result<(), ErrorCode> {
        match self.reduction {
            None => dst.copy_from(src),
            Some(reduction) => dst.reduce_from(src, reduction),
        }
    }

    /// Whether the pieces of this transfer come from its end, the same for all of them; so it is with about half.
    fn is_backwards(&self) -> bool {
        let places = self.src.operand.addr.0 ^ self.dst.operand.addr.0;
        ((places / 64) ^ self.len).count_ones() % 2 == 1
    }

    #[inline]
    fn check_shape(&self) -> Result<(), Refusal> {
        if self.len == 0 || self.len > self.limits.max_len {
            return Err(ErrorCode::SQE_LENGTH.into());
        }
        let Some(Reduction { dtype, op }) = self.reduction else { return Ok(()) };
        let types = self.limits.reduce_types >> dtype as u32;
        let ops = self.limits.reduce_ops >> op as u32;
        if types & ops & 1 == 0 {
            return Err(ErrorCode::SQE_REDUCE.into());
        }
        let element = dtype.size_bytes();
        if !self.len.is_multiple_of(element) {
            return Err(ErrorCode::SQE_LENGTH.into());
        }
        for address in [self.src.operand.addr, self.dst.operand.addr] {
            if !address.0.is_multiple_of(element) {
                return Err(Refusal { code: ErrorCode::SQE_ALIGNMENT, address });
            }
        }
        Ok(())
    }
}
