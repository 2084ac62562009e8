//! Compares all 2^32 pairs of fp16 or bf16 values with the integer oracle.
//!
//! `cargo run --release -p aicpu-device-model --example exhaustive_f16 -- bf16 sum`

#[path = "../tests/oracle/mod.rs"]
mod oracle;

use std::process::ExitCode;
use std::thread;

use aicpu_device_model::reduce::reduce;
use wire::{DataType, ReduceOp};
use zerocopy::IntoBytes;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [dtype, op] => dtype_of(dtype).zip(ReduceOp::ALL.iter().copied().find(|known| known.name() == op)),
        _ => None,
    };
    let Some((dtype, op)) = parsed else {
        eprintln!("usage: exhaustive_f16 fp16|bf16 sum|prod|max|min");
        return ExitCode::from(2);
    };
    match first_difference(dtype, op) {
        None => {
            println!("{dtype:?} {op:?}: 4294967296 pairs equal");
            ExitCode::SUCCESS
        }
        Some((a, b)) => {
            println!("{dtype:?} {op:?}: differs at {a:#06x}, {b:#06x}");
            ExitCode::FAILURE
        }
    }
}

fn dtype_of(name: &str) -> Option<DataType> {
    match name {
        "fp16" => Some(DataType::Fp16),
        "bf16" => Some(DataType::Bf16),
        _ => None,
    }
}

/// Splits the left operands over two threads.
fn first_difference(dtype: DataType, op: ReduceOp) -> Option<(u16, u16)> {
    thread::scope(|scope| {
        let upper = scope.spawn(move || (0x8000..=0xFFFF).find_map(|left| differs(dtype, op, left)));
        let lower = (0..0x8000).find_map(|left| differs(dtype, op, left));
        lower.or(upper.join().expect("the comparison does not panic"))
    })
}

/// Returns the first pair with this left operand whose result is not the oracle's.
fn differs(dtype: DataType, op: ReduceOp, left: u16) -> Option<(u16, u16)> {
    let right: Vec<u16> = (0..=u16::MAX).collect();
    let mut results = vec![left; right.len()];
    reduce(dtype, op, results.as_mut_bytes(), right.as_bytes()).expect("aligned and of equal length");
    let wrong = right.iter().zip(results).find(|&(&right, result)| {
        oracle::combine(dtype, op, u64::from(left), u64::from(right)) != u64::from(result)
    });
    wrong.map(|(&right, _)| (left, right))
}
