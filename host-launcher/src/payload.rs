//! Test data: every rank and position has its own value, in the range where the operation says something.

use half::{bf16, f16};
use wire::{DataType, ReduceOp};

/// A well-mixed number for one element (the finaliser of SplitMix64, public domain).
fn mixed(seed: u64, rank: u32, index: u64) -> u64 {
    let mut z = seed ^ u64::from(rank).rotate_left(32) ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Returns `count` elements of rank `rank`. Floats have fractions that make sums depend on their order; factors stay
/// near 1; integers use all their bits.
#[must_use]
pub fn fill(seed: u64, rank: u32, count: u64, dtype: DataType, op: ReduceOp) -> Vec<u8> {
    let size = usize::try_from(dtype.size_bytes()).unwrap_or(16);
    let mut bytes = Vec::with_capacity(usize::try_from(count).unwrap_or(0) * size);
    for index in 0..count {
        let random = mixed(seed, rank, index);
        let element = u128::from(random) | u128::from(!random) << 64;
        // The top 24 bits as a fraction: exact in f32.
        let part = (random >> 40) as f32 / (1_u32 << 24) as f32;
        let real = if op == ReduceOp::Prod { 0.75 + part / 2.0 } else { (part - 0.5) * 200.0 };
        match dtype {
            DataType::Fp16 => bytes.extend(f16::from_f32(real).to_le_bytes()),
            DataType::Bf16 => bytes.extend(bf16::from_f32(real).to_le_bytes()),
            DataType::Fp32 => bytes.extend(real.to_le_bytes()),
            DataType::Fp64 => bytes.extend((f64::from(real) * 1.000_000_1).to_le_bytes()),
            _ => bytes.extend(&element.to_le_bytes()[..size]),
        }
    }
    bytes
}
