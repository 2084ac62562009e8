//! Picks the code for a data type, and the widest instruction set this processor has for it.
//!
//! One generic body is compiled twice: for the baseline of the target and, on x86-64, with AVX2. The loops are plain
//! and the compiler vectorises them, so both compilations compute the same values.

use wire::{DataType, ErrorCode, ReduceOp};

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::element;
use super::half_precision::{self, Bf16};

/// Reduces with the widest instruction set of this processor.
pub(super) fn widest(dtype: DataType, op: ReduceOp, dst: &mut [u8], src: &[u8]) -> Result<(), ErrorCode> {
    #[cfg(target_arch = "x86_64")]
    if let Some(done) = avx2::reduce(dtype, op, dst, src) {
        return done;
    }
    portable(dtype, op, dst, src)
}

/// Reduces with whatever the function this is inlined into was compiled for.
#[inline(always)]
pub(super) fn portable(dtype: DataType, op: ReduceOp, dst: &mut [u8], src: &[u8]) -> Result<(), ErrorCode> {
    match dtype {
        DataType::Int8 => element::reduce::<i8>(op, dst, src),
        DataType::Int16 => element::reduce::<i16>(op, dst, src),
        DataType::Int32 => element::reduce::<i32>(op, dst, src),
        DataType::Int64 => element::reduce::<i64>(op, dst, src),
        DataType::Uint8 => element::reduce::<u8>(op, dst, src),
        DataType::Uint16 => element::reduce::<u16>(op, dst, src),
        DataType::Uint32 => element::reduce::<u32>(op, dst, src),
        DataType::Uint64 => element::reduce::<u64>(op, dst, src),
        DataType::Fp32 => element::reduce::<f32>(op, dst, src),
        DataType::Fp64 => element::reduce::<f64>(op, dst, src),
        DataType::Bf16 => element::reduce::<Bf16>(op, dst, src),
        DataType::Fp16 => half_precision::reduce_fp16(op, dst, src),
        _ => Err(ErrorCode::SQE_REDUCE),
    }
}

#[cfg(test)]
mod tests {
    use wire::{DataType, ErrorCode, ReduceOp};
    use zerocopy::IntoBytes;

    const TYPES: [DataType; 12] = [
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Uint8,
        DataType::Uint16,
        DataType::Uint32,
        DataType::Uint64,
        DataType::Fp16,
        DataType::Bf16,
        DataType::Fp32,
        DataType::Fp64,
    ];

    /// Random bits, one word in eight all ones in its upper half: NaN in every floating-point type.
    fn words(seed: u64, count: usize) -> Vec<u64> {
        let mut state = seed;
        core::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mixed = state ^ (state >> 29);
            if mixed.is_multiple_of(8) { mixed | 0xFFFF_FFFF_0000_0000 } else { mixed }
        })
        .take(count)
        .collect()
    }

    #[test]
    fn both_instances_give_equal_bits_at_every_length() {
        let (left, right) = (words(1, 256), words(2, 256));
        for dtype in TYPES {
            for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min] {
                let size = usize::try_from(dtype.size_bytes()).unwrap();
                for elements in (0..80).chain([2048 / size]) {
                    let bytes = elements * size;
                    let (mut plain, mut wide) = (left.clone(), left.clone());
                    let src = &right.as_bytes()[..bytes];
                    super::portable(dtype, op, &mut plain.as_mut_bytes()[..bytes], src).unwrap();
                    super::widest(dtype, op, &mut wide.as_mut_bytes()[..bytes], src).unwrap();
                    assert_eq!(plain, wide, "{dtype:?} {op:?} × {elements}");
                    assert_eq!(plain.as_bytes()[bytes..], left.as_bytes()[bytes..], "wrote beyond the end");
                }
            }
        }
    }

    #[test]
    fn a_misaligned_slice_is_refused_and_untouched() {
        let (mut dst, src) = ([1u64; 3], [2u64; 3]);
        for (dst_skip, src_skip) in [(4, 0), (0, 4), (1, 1)] {
            let dst = &mut dst.as_mut_bytes()[dst_skip..][..16];
            let refused =
                super::widest(DataType::Fp64, ReduceOp::Sum, dst, &src.as_bytes()[src_skip..][..16]);
            assert_eq!(refused, Err(ErrorCode::SQE_ALIGNMENT));
        }
        assert_eq!(dst, [1; 3]);
    }
}
