//! Reductions against the integer oracle and against written-down bits.

mod oracle;

use aicpu_device_model::reduce::reduce;
use wire::{DataType, ErrorCode, ReduceOp};
use zerocopy::IntoBytes;

const OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min];

/// Reduces pairs of elements given and returned as bits.
fn model(dtype: DataType, op: ReduceOp, pairs: &[(u64, u64)]) -> Vec<u64> {
    let size = usize::try_from(dtype.size_bytes()).unwrap();
    let pack = |element: fn(&(u64, u64)) -> u64| {
        let mut words = vec![0u64; (pairs.len() * size).div_ceil(8)];
        for (slot, pair) in words.as_mut_bytes().chunks_exact_mut(size).zip(pairs) {
            slot.copy_from_slice(&element(pair).to_le_bytes()[..size]);
        }
        words
    };
    let (mut dst, src) = (pack(|pair| pair.0), pack(|pair| pair.1));
    let bytes = pairs.len() * size;
    reduce(dtype, op, &mut dst.as_mut_bytes()[..bytes], &src.as_bytes()[..bytes]).unwrap();
    let word = |slot: &[u8]| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(slot);
        u64::from_le_bytes(word)
    };
    dst.as_bytes()[..bytes].chunks_exact(size).map(word).collect()
}

/// Compares the model with the oracle, and with itself on swapped operands.
fn check(dtype: DataType, pairs: &[(u64, u64)]) {
    let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
    for op in OPS {
        let (results, mirrored) = (model(dtype, op, pairs), model(dtype, op, &swapped));
        for ((&(a, b), result), mirrored) in pairs.iter().zip(results).zip(mirrored) {
            let expected = oracle::combine(dtype, op, a, b);
            assert_eq!(
                result, expected,
                "{dtype:?} {op:?} of {a:#x} and {b:#x}: {result:#x}, not {expected:#x}"
            );
            assert_eq!(result, mirrored, "{dtype:?} {op:?} of {a:#x} and {b:#x} depends on their order");
        }
    }
}

fn all_pairs(values: &[u64]) -> Vec<(u64, u64)> {
    values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b))).collect()
}

/// Pairs of random bits of `size` bytes; every second pair is of close magnitude, so that sums round and cancel.
fn random_pairs(dtype: DataType, count: usize) -> Vec<(u64, u64)> {
    let mask = u64::MAX >> (64 - 8 * dtype.size_bytes());
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let half_mask = mask >> (4 * dtype.size_bytes());
    (0..count)
        .map(|index| {
            let (a, b) = (next() & mask, next() & mask);
            if index % 2 == 0 {
                (a, b)
            } else {
                (a, a ^ b & half_mask ^ (b & 1) << (8 * dtype.size_bytes() - 1))
            }
        })
        .collect()
}

/// Zeros, subnormals, the edges of the normal range, ones and their neighbours, infinities, every kind of NaN; of
/// both signs.
fn special_floats(exponent: u32, fraction: u32) -> Vec<u64> {
    let infinity = ((1u64 << exponent) - 1) << fraction;
    let one = ((1u64 << (exponent - 1)) - 1) << fraction;
    let step = 1u64 << fraction;
    let quiet = 1u64 << (fraction - 1);
    let magnitudes = [
        0,
        1,
        2,
        step - 1,
        step,
        step + 1,
        quiet,
        one - 1,
        one,
        one + 1,
        one | quiet,
        one - step,
        one - step * (u64::from(fraction) + 1),
        one - step * u64::from(fraction) - 1,
        one + step * u64::from(fraction),
        one + step * (u64::from(fraction) + 1),
        one / 2,
        infinity - 1,
        infinity - step,
        infinity - step * (u64::from(fraction) + 2),
        infinity,
        infinity | 1,
        infinity | quiet,
        infinity | quiet | 1,
        infinity | (step - 1),
    ];
    let sign = 1u64 << (exponent + fraction);
    magnitudes.iter().flat_map(|&bits| [bits, bits | sign]).collect()
}

const FLOATS: [(DataType, u32, u32); 4] =
    [(DataType::Fp16, 5, 10), (DataType::Bf16, 8, 7), (DataType::Fp32, 8, 23), (DataType::Fp64, 11, 52)];

const INTEGERS: [DataType; 8] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Uint8,
    DataType::Uint16,
    DataType::Uint32,
    DataType::Uint64,
];

#[test]
fn special_floats_agree_with_the_oracle() {
    for (dtype, exponent, fraction) in FLOATS {
        check(dtype, &all_pairs(&special_floats(exponent, fraction)));
    }
}

#[test]
fn a_million_random_float_pairs_agree_with_the_oracle() {
    for (dtype, ..) in FLOATS {
        check(dtype, &random_pairs(dtype, 1 << 20));
    }
}

#[test]
fn integers_agree_with_the_oracle() {
    for dtype in INTEGERS {
        let top = 1u64 << (8 * dtype.size_bytes() - 1);
        let edges = [0, 1, 2, 3, 10, top - 2, top - 1, top, top | 1, top | (top - 2), top | (top - 1)];
        check(dtype, &all_pairs(&edges));
        check(dtype, &random_pairs(dtype, 1 << 16));
    }
}

#[test]
fn every_fp16_and_bf16_value_survives_an_identity() {
    let negative_zero = 0x8000;
    for (dtype, one, infinity, nan) in
        [(DataType::Fp16, 0x3C00, 0x7C00, 0x7E00), (DataType::Bf16, 0x3F80, 0x7F80, 0x7FC0)]
    {
        for (op, identity) in [
            (ReduceOp::Sum, negative_zero),
            (ReduceOp::Prod, one),
            (ReduceOp::Max, infinity | 0x8000),
            (ReduceOp::Min, infinity),
        ] {
            let pairs: Vec<(u64, u64)> = (0..=0xFFFF).map(|bits| (bits, identity)).collect();
            for (&(bits, _), result) in pairs.iter().zip(model(dtype, op, &pairs)) {
                let is_nan = bits & 0x7FFF > infinity;
                assert_eq!(result, if is_nan { nan } else { bits }, "{dtype:?} {op:?} of {bits:#06x}");
            }
        }
    }
}

/// `(type, op, a, b, result)` in bits.
const PINNED: &[(DataType, ReduceOp, u64, u64, u64)] = &[
    // Integers wrap.
    (DataType::Int8, ReduceOp::Sum, 0x7F, 0x01, 0x80),
    (DataType::Int8, ReduceOp::Prod, 0x80, 0xFF, 0x80),
    (DataType::Int8, ReduceOp::Max, 0x80, 0x7F, 0x7F),
    (DataType::Uint8, ReduceOp::Max, 0x80, 0x7F, 0x80),
    (DataType::Uint8, ReduceOp::Sum, 0xFF, 0x02, 0x01),
    (DataType::Int64, ReduceOp::Sum, 0x7FFF_FFFF_FFFF_FFFF, 1, 0x8000_0000_0000_0000),
    (DataType::Uint64, ReduceOp::Prod, 0xFFFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF, 1),
    // Ties go to even: 1 + 2^-8 and 1.0078125 + 2^-8 in bf16, 2048 + 1 and 2050 + 1 in fp16.
    (DataType::Bf16, ReduceOp::Sum, 0x3F80, 0x3B80, 0x3F80),
    (DataType::Bf16, ReduceOp::Sum, 0x3F81, 0x3B80, 0x3F82),
    (DataType::Fp16, ReduceOp::Sum, 0x6800, 0x3C00, 0x6800),
    (DataType::Fp16, ReduceOp::Sum, 0x6801, 0x3C00, 0x6802),
    (DataType::Fp32, ReduceOp::Sum, 0x4B80_0000, 0x3F80_0000, 0x4B80_0000),
    (DataType::Fp32, ReduceOp::Sum, 0x3F80_0000, 0x4000_0000, 0x4040_0000),
    // Overflow is infinity, underflow is gradual.
    (DataType::Fp16, ReduceOp::Sum, 0x7BFF, 0x4C00, 0x7C00),
    (DataType::Fp16, ReduceOp::Sum, 0x7BFF, 0x4BFF, 0x7BFF),
    (DataType::Bf16, ReduceOp::Prod, 0x7F00, 0x4000, 0x7F80),
    (DataType::Bf16, ReduceOp::Prod, 0x0080, 0x3F00, 0x0040),
    (DataType::Fp32, ReduceOp::Prod, 0x0080_0000, 0x3F00_0000, 0x0040_0000),
    // Zeros: only −0 − 0 is −0; −0 is below +0.
    (DataType::Fp32, ReduceOp::Sum, 0x8000_0000, 0x8000_0000, 0x8000_0000),
    (DataType::Fp32, ReduceOp::Sum, 0x8000_0000, 0, 0),
    (DataType::Fp32, ReduceOp::Max, 0x8000_0000, 0, 0),
    (DataType::Fp32, ReduceOp::Min, 0x8000_0000, 0, 0x8000_0000),
    (DataType::Fp64, ReduceOp::Min, 0, 0x8000_0000_0000_0000, 0x8000_0000_0000_0000),
    // NaN in, one NaN out, whatever its sign, payload and kind; and from Inf − Inf and 0 × Inf.
    (DataType::Fp32, ReduceOp::Sum, 0xFFC1_2345, 0x3F80_0000, 0x7FC0_0000),
    (DataType::Fp32, ReduceOp::Max, 0x7F80_0001, 0x7F80_0000, 0x7FC0_0000),
    (DataType::Fp32, ReduceOp::Min, 0x3F80_0000, 0xFF80_0001, 0x7FC0_0000),
    (DataType::Fp32, ReduceOp::Sum, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0000),
    (DataType::Fp32, ReduceOp::Prod, 0, 0xFF80_0000, 0x7FC0_0000),
    (DataType::Fp64, ReduceOp::Prod, 0xFFF0_0000_0000_0001, 0, 0x7FF8_0000_0000_0000),
    (DataType::Fp16, ReduceOp::Max, 0xFC01, 0x3C00, 0x7E00),
    (DataType::Bf16, ReduceOp::Sum, 0x7F81, 0xFFFF, 0x7FC0),
    (DataType::Fp32, ReduceOp::Max, 0xFF80_0000, 0xFF7F_FFFF, 0xFF7F_FFFF),
];

#[test]
fn pinned_results() {
    for &(dtype, op, a, b, expected) in PINNED {
        let result = model(dtype, op, &[(a, b)])[0];
        assert_eq!(result, expected, "{dtype:?} {op:?} of {a:#x} and {b:#x}: {result:#x}");
        assert_eq!(
            oracle::combine(dtype, op, a, b),
            expected,
            "the oracle on {dtype:?} {op:?} of {a:#x}, {b:#x}"
        );
    }
}

#[test]
fn nothing_is_a_whole_number_of_elements() {
    for &dtype in DataType::ALL {
        let expected = if dtype.can_reduce() { Ok(()) } else { Err(ErrorCode::SQE_REDUCE) };
        assert_eq!(reduce(dtype, ReduceOp::Sum, &mut [], &[]), expected, "{dtype:?}");
    }
    assert_eq!(DataType::ALL.iter().filter(|dtype| dtype.can_reduce()).count(), 12);
}

#[test]
fn refusals_write_nothing() {
    let (mut dst, src) = ([1u64; 4], [2u64; 4]);
    let mut refused = |dtype, dst_bytes: usize, src_bytes: usize| {
        let dst = &mut dst.as_mut_bytes()[..dst_bytes];
        reduce(dtype, ReduceOp::Sum, dst, &src.as_bytes()[..src_bytes]).unwrap_err()
    };
    assert_eq!(refused(DataType::Int128, 16, 16), ErrorCode::SQE_REDUCE);
    assert_eq!(refused(DataType::Hif8, 1, 1), ErrorCode::SQE_REDUCE);
    assert_eq!(refused(DataType::Fp32, 8, 4), ErrorCode::SQE_LENGTH);
    assert_eq!(refused(DataType::Fp32, 6, 6), ErrorCode::SQE_LENGTH);
    assert_eq!(refused(DataType::Int8, 0, 1), ErrorCode::SQE_LENGTH);
    assert_eq!(dst, [1; 4]);
}
