//! Reductions of fp16 and bf16 against the integer oracle: a sample of the left operands with every right one, and, by
//! hand or at night, all 2^32 pairs of each type and reduction:
//!
//!     cargo test --release -p aicpu-device-model --test exhaustive -- --ignored

mod oracle;

use std::thread;

use aicpu_device_model::reduce::reduce;
use wire::{DataType, ReduceOp};
use zerocopy::IntoBytes;

/// Compares the pairs of every `stride`-th left operand, from `first` on, of each type and reduction.
fn compare(first: u16, stride: usize) {
    thread::scope(|scope| {
        for dtype in [DataType::Fp16, DataType::Bf16] {
            scope.spawn(move || {
                for &op in ReduceOp::ALL {
                    let wrong = (first..=u16::MAX).step_by(stride).find_map(|left| differs(dtype, op, left));
                    assert_eq!(wrong, None, "{dtype:?} {op:?}: (left, right, result, expected)");
                }
            });
        }
    });
}

/// Returns the first pair with this left operand whose result is not the oracle's, and both results.
fn differs(dtype: DataType, op: ReduceOp, left: u16) -> Option<(u16, u16, u16, u64)> {
    let right: Vec<u16> = (0..=u16::MAX).collect();
    let mut results = vec![left; right.len()];
    reduce(dtype, op, results.as_mut_bytes(), right.as_bytes()).expect("aligned and of equal length");
    right.iter().zip(results).find_map(|(&right, result)| {
        let expected = oracle::combine(dtype, op, u64::from(left), u64::from(right));
        (expected != u64::from(result)).then_some((left, right, result, expected))
    })
}

#[test]
fn a_sample_of_all_pairs_is_what_the_oracle_says() {
    // A prime: every exponent, and mantissas of all kinds.
    compare(0, 1021);
}

#[test]
#[ignore = "34 thousand million pairs: minutes in a release build"]
fn every_pair_is_what_the_oracle_says() {
    compare(0, 1);
}
