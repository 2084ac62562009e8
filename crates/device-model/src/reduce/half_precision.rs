//! The 16-bit floating-point types: sums and products in fp32, rounded once; maximum and minimum on the bits.
//!
//! fp32 has more than twice the precision of either type plus two bits, so rounding the fp32 result again gives the
//! correctly rounded result of a single sum or product. The example `exhaustive_f16`
//! compares all pairs of values with an integer implementation.

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use wire::{ErrorCode, ReduceOp};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::element::{self, Element};

/// A bf16: the upper half of an fp32.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub(super) struct Bf16(u16);

impl Bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Rounds to nearest, ties to even. The NaN of the fp32 reductions becomes 0x7FC0, as its lower half is zero.
    #[inline(always)]
    fn narrow(value: f32) -> Self {
        let bits = value.to_bits();
        let odd = (bits >> 16) & 1;
        Self((bits.wrapping_add(0x7FFF + odd) >> 16) as u16)
    }
}

impl Element for Bf16 {
    #[inline(always)]
    fn sum(self, other: Self) -> Self {
        Self::narrow(Element::sum(self.widen(), other.widen()))
    }
    #[inline(always)]
    fn prod(self, other: Self) -> Self {
        Self::narrow(Element::prod(self.widen(), other.widen()))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(max(self.0, other.0, INFINITY_BF16))
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self(min(self.0, other.0, INFINITY_BF16))
    }
}

/// Reduces bytes as fp16.
#[inline(always)]
pub(super) fn reduce_fp16(op: ReduceOp, dst: &mut [u8], src: &[u8]) -> Result<(), ErrorCode> {
    let (dst, src) = element::typed::<u16>(dst, src)?;
    match op {
        ReduceOp::Max => element::each(dst, src, |a, b| max(a, b, INFINITY_FP16)),
        ReduceOp::Min => element::each(dst, src, |a, b| min(a, b, INFINITY_FP16)),
        ReduceOp::Sum | ReduceOp::Prod => combine_fp16(op, dst, src),
    }
    Ok(())
}

/// Elements of fp16 that are widened at a time: two fp32 blocks of this size stay in the first-level cache.
const BLOCK: usize = 512;

/// Combines in fp32. The conversions are those of `half`: the processor's, or the same in software.
fn combine_fp16(op: ReduceOp, dst: &mut [u16], src: &[u16]) {
    let (mut left, mut right) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
    for (dst, src) in dst.chunks_mut(BLOCK).zip(src.chunks(BLOCK)) {
        let (left, right) = (&mut left[..dst.len()], &mut right[..src.len()]);
        let dst = dst.reinterpret_cast_mut::<f16>();
        dst.convert_to_f32_slice(left);
        src.reinterpret_cast::<f16>().convert_to_f32_slice(right);
        element::reduce_elements(op, left, right);
        dst.convert_from_f32_slice(left);
    }
}

const INFINITY_FP16: u16 = 0x7C00;
const INFINITY_BF16: u16 = 0x7F80;

/// Returns the larger of two numbers of the format with this infinity, or its one NaN.
#[inline(always)]
fn max(a: u16, b: u16, infinity: u16) -> u16 {
    let larger = if order(a) > order(b) { a } else { b };
    if is_nan(a, infinity) | is_nan(b, infinity) { nan(infinity) } else { larger }
}

/// As [`max`].
#[inline(always)]
fn min(a: u16, b: u16, infinity: u16) -> u16 {
    let smaller = if order(a) < order(b) { a } else { b };
    if is_nan(a, infinity) | is_nan(b, infinity) { nan(infinity) } else { smaller }
}

#[inline(always)]
fn is_nan(bits: u16, infinity: u16) -> bool {
    bits & 0x7FFF > infinity
}

/// The quiet bit is the one below the exponent.
#[inline(always)]
fn nan(infinity: u16) -> u16 {
    infinity | (infinity & infinity.wrapping_neg()) >> 1
}

/// As the orders of the wider types.
#[inline(always)]
fn order(bits: u16) -> i16 {
    let bits = bits.cast_signed();
    bits ^ ((bits >> 15).cast_unsigned() >> 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use half::f16;
    use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

    #[test]
    fn the_conversions_of_the_processor_are_those_of_software() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let mut wide = vec![0.0f32; all.len()];
        all.reinterpret_cast::<f16>().convert_to_f32_slice(&mut wide);
        for (&bits, &value) in all.iter().zip(&wide) {
            let software = f16::from_bits(bits).to_f32_const();
            assert!(
                value.to_bits() == software.to_bits() || value.is_nan() && software.is_nan(),
                "{bits:#06x}"
            );
        }
        // Around every fp16 value and every midpoint between two: the neighbours in fp32 on both sides.
        let near: Vec<f32> = wide
            .iter()
            .flat_map(|value| [0u32, 0x0FFF, 0x1000, 0x1001, 0x1FFF].map(|low| value.to_bits() | low))
            .map(f32::from_bits)
            .filter(|value| !value.is_nan())
            .chain([super::element::NAN_FP32, 65_519.996, 65_520.0, f32::MAX, f32::MIN_POSITIVE, 1e-45])
            .collect();
        let mut narrow = vec![0u16; near.len()];
        narrow.reinterpret_cast_mut::<f16>().convert_from_f32_slice(&near);
        for (&value, &bits) in near.iter().zip(&narrow) {
            assert_eq!(bits, f16::from_f32_const(value).to_bits(), "{value:e} {:#010x}", value.to_bits());
        }
        assert_eq!(narrow[near.len() - 6..], [0x7E00, 0x7BFF, 0x7C00, 0x7C00, 0, 0]);
    }
}
