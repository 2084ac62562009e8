//! Sum, product, maximum and minimum of one pair of elements, and the loop over a slice.
//!
//! Everything is branch-free and `inline(always)`, so that the loop vectorises inside whichever function it is
//! inlined into. NaN results are replaced by one fixed pattern with a compare and a select.

use wire::{ErrorCode, ReduceOp};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The NaN every fp32 reduction returns.
pub(super) const NAN_FP32: f32 = f32::from_bits(0x7FC0_0000);
/// The NaN every fp64 reduction returns.
const NAN_FP64: f64 = f64::from_bits(0x7FF8_0000_0000_0000);

/// A type the device can reduce; the rules are those of `docs/numerics.md`.
pub(super) trait Element: Copy + FromBytes + IntoBytes + Immutable {
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
}

/// Reduces bytes as elements of `T`. The lengths are equal and whole elements.
#[inline(always)]
pub(super) fn reduce<T: Element>(op: ReduceOp, dst: &mut [u8], src: &[u8]) -> Result<(), ErrorCode> {
    let (dst, src) = typed(dst, src)?;
    reduce_elements::<T>(op, dst, src);
    Ok(())
}

/// Views both slices as elements of `T`; their lengths are whole elements.
#[inline(always)]
pub(super) fn typed<'a, T: Element>(
    dst: &'a mut [u8],
    src: &'a [u8],
) -> Result<(&'a mut [T], &'a [T]), ErrorCode> {
    let dst = <[T]>::mut_from_bytes(dst).map_err(|_| ErrorCode::SQE_ALIGNMENT)?;
    let src = <[T]>::ref_from_bytes(src).map_err(|_| ErrorCode::SQE_ALIGNMENT)?;
    Ok((dst, src))
}

/// Reduces slices of equal length.
#[inline(always)]
pub(super) fn reduce_elements<T: Element>(op: ReduceOp, dst: &mut [T], src: &[T]) {
    match op {
        ReduceOp::Sum => each(dst, src, T::sum),
        ReduceOp::Prod => each(dst, src, T::prod),
        ReduceOp::Max => each(dst, src, T::max),
        ReduceOp::Min => each(dst, src, T::min),
    }
}

/// Combines slices of equal length element by element.
#[inline(always)]
pub(super) fn each<T: Copy>(dst: &mut [T], src: &[T], combine: impl Fn(T, T) -> T) {
    for (to, from) in dst.iter_mut().zip(src) {
        *to = combine(*to, *from);
    }
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Element for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }
        }
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

/// Implements the IEEE rules: one rounding per operation, −0 below +0, every NaN result the same.
macro_rules! floats {
    ($($type:ty, $nan:ident, $order:ident;)*) => {$(
        impl Element for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                let result = self + other;
                if result.is_nan() { $nan } else { result }
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                let result = self * other;
                if result.is_nan() { $nan } else { result }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                let larger = if $order(self) > $order(other) { self } else { other };
                if self.is_nan() | other.is_nan() { $nan } else { larger }
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                let smaller = if $order(self) < $order(other) { self } else { other };
                if self.is_nan() | other.is_nan() { $nan } else { smaller }
            }
        }
    )*};
}
floats! {
    f32, NAN_FP32, order_fp32;
    f64, NAN_FP64, order_fp64;
}

/// Maps numbers to integers of the same order, −0 just below +0: the lower bits of negative numbers are inverted.
#[inline(always)]
fn order_fp32(value: f32) -> i32 {
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed()
}

/// As [`order_fp32`].
#[inline(always)]
fn order_fp64(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}
