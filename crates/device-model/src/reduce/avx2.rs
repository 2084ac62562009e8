//! The instance for x86-64 processors with AVX2 and the fp16 conversions, which every one with AVX2 has.

// UNSAFETY: a function compiled for an instruction set may only be called where the processor has it.
#![expect(unsafe_code, reason = "calls one function compiled for AVX2 and F16C")]

use core::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph};
use std::arch::is_x86_feature_detected;

use wire::{DataType, ErrorCode, ReduceOp};
use zerocopy::transmute;

use super::dispatch;
use super::element::{self, Element};

/// Elements of fp16 that are converted at a time.
const LANES: usize = 8;

/// Reduces with AVX2; `None` where the processor has none.
pub(super) fn reduce(
    dtype: DataType,
    op: ReduceOp,
    dst: &mut [u8],
    src: &[u8],
) -> Option<Result<(), ErrorCode>> {
    if !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("f16c") {
        return None;
    }
    // SAFETY: (1) the only requirement of the callee is that the processor has AVX2 and F16C, which was just checked;
    // (2) it takes and returns safe types.
    Some(unsafe { instance(dtype, op, dst, src) })
}

#[target_feature(enable = "avx2,f16c")]
fn instance(dtype: DataType, op: ReduceOp, dst: &mut [u8], src: &[u8]) -> Result<(), ErrorCode> {
    match (dtype, op) {
        (DataType::Fp16, ReduceOp::Sum) => combine_fp16(dst, src, Element::sum),
        (DataType::Fp16, ReduceOp::Prod) => combine_fp16(dst, src, Element::prod),
        _ => dispatch::portable(dtype, op, dst, src),
    }
}

/// As `half_precision::reduce_fp16`, without a detour through memory.
#[target_feature(enable = "avx2,f16c")]
fn combine_fp16(dst: &mut [u8], src: &[u8], combine: impl Fn(f32, f32) -> f32) -> Result<(), ErrorCode> {
    let (dst, src) = element::typed::<u16>(dst, src)?;
    let (dst_chunks, dst_rest) = dst.as_chunks_mut();
    let (src_chunks, src_rest) = src.as_chunks();
    for (to, from) in dst_chunks.iter_mut().zip(src_chunks) {
        *to = combine_lanes(*to, *from, &combine);
    }
    let (mut to, mut from) = ([0; LANES], [0; LANES]);
    to[..dst_rest.len()].copy_from_slice(dst_rest);
    from[..src_rest.len()].copy_from_slice(src_rest);
    to = combine_lanes(to, from, &combine);
    dst_rest.copy_from_slice(&to[..dst_rest.len()]);
    Ok(())
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn combine_lanes(
    left: [u16; LANES],
    right: [u16; LANES],
    combine: &impl Fn(f32, f32) -> f32,
) -> [u16; LANES] {
    let (left, right) = (widen(left), widen(right));
    let mut lanes = [0.0; LANES];
    for lane in 0..LANES {
        lanes[lane] = combine(left[lane], right[lane]);
    }
    narrow(lanes)
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widen(lanes: [u16; LANES]) -> [f32; LANES] {
    transmute!(_mm256_cvtph_ps(transmute!(lanes)))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrow(lanes: [f32; LANES]) -> [u16; LANES] {
    transmute!(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(transmute!(lanes)))
}
