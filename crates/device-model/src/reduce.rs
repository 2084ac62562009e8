//! Elementwise reductions: the arithmetic of every engine that can reduce.
//!
//! [`reduce`] is the only arithmetic on payload in the device: inline reductions of the engines and reduce tasks of
//! the AICPU all end here, so that a result does not depend on which of them did the work. The order in which
//! operands of several ranks are combined is the caller's; one call combines two buffers.
//!
//! The rules below are those of `docs/numerics.md`.
#![doc = include_str!("../../../docs/numerics.md")]

#[cfg(target_arch = "x86_64")]
mod avx2;
mod dispatch;
mod element;
mod half_precision;

use wire::{DataType, ErrorCode, ReduceOp};

/// Combines `src` into `dst` element by element: `dst[i] = dst[i] op src[i]`.
///
/// Both slices hold whole little-endian elements of `dtype`, the same number of them (zero is allowed), aligned to
/// the element unless empty. Nothing is written when the call is refused. The result depends only on the values: not on the
/// processor, not on the length, not on the position of an element in the slice.
///
/// # Errors
/// `SQE_REDUCE` for a type that cannot be reduced, `SQE_LENGTH` when the lengths differ or are no whole number of
/// elements, `SQE_ALIGNMENT` when a slice is not aligned to its element.
pub fn reduce(dtype: DataType, op: ReduceOp, dst: &mut [u8], src: &[u8]) -> Result<(), ErrorCode> {
    if !dtype.can_reduce() {
        return Err(ErrorCode::SQE_REDUCE);
    }
    if dst.len() != src.len() || !(dst.len() as u64).is_multiple_of(dtype.size_bytes()) {
        return Err(ErrorCode::SQE_LENGTH);
    }
    if dst.is_empty() {
        return Ok(());
    }
    dispatch::widest(dtype, op, dst, src)
}
