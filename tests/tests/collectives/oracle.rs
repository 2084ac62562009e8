//! The oracle itself, against definitions worked out by hand, and that a wrong byte is reported.

use aicpu_tests::bench::{Bench, Case, compare, inputs};
use aicpu_tests::variants::algorithms;
use aicpu_tests::world::{self, Place};
use host_launcher::communicator::{Config, Operation};
use host_launcher::oracle;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ReduceOp};

fn operation(op: OpKind, algorithm: Algorithm, count: u64, dtype: DataType, reduce: ReduceOp) -> Operation {
    Operation { op, count, dtype, reduce, algorithm, staging: Staging::Scratch, ..Operation::default() }
}

fn words(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks(4).map(|word| i32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// The root of operations that have one.
const ROOT: usize = 0;

/// What integers become by definition, in any order of adding.
fn by_definition(op: OpKind, reduce: ReduceOp, count: usize, inputs: &[Vec<u8>]) -> Vec<Vec<i32>> {
    let inputs: Vec<Vec<i32>> = inputs.iter().map(|input| words(input)).collect();
    let at = |index: usize| {
        let column = inputs.iter().map(|input| input[index]);
        match reduce {
            ReduceOp::Sum => column.fold(0, i32::wrapping_add),
            ReduceOp::Prod => column.fold(1, i32::wrapping_mul),
            ReduceOp::Max => column.max().unwrap(),
            ReduceOp::Min => column.min().unwrap(),
        }
    };
    let each = |rank: usize| match op {
        OpKind::AllGather => inputs.iter().flat_map(|input| input.iter().copied()).collect(),
        OpKind::AllReduce => (0..count).map(at).collect(),
        OpKind::ReduceScatter => (rank * count..(rank + 1) * count).map(at).collect(),
        OpKind::Reduce if rank != ROOT => Vec::new(),
        OpKind::Reduce => (0..count).map(at).collect(),
        OpKind::Broadcast => inputs[ROOT][..count].to_vec(),
        OpKind::Scatter => inputs[ROOT][rank * count..(rank + 1) * count].to_vec(),
        OpKind::Gather if rank != ROOT => Vec::new(),
        OpKind::Gather => inputs.iter().flat_map(|input| input[..count].iter().copied()).collect(),
        OpKind::AllToAll => {
            inputs.iter().flat_map(|input| input[rank * count..(rank + 1) * count].iter().copied()).collect()
        }
        OpKind::Barrier => Vec::new(),
        other => unreachable!("{other} has a vector"),
    };
    (0..inputs.len()).map(each).collect()
}

#[test]
fn the_oracle_agrees_with_the_definition_for_integers() {
    for op in OpKind::ALL.iter().copied().filter(|op| !op.has_vector()) {
        for algorithm in algorithms(op) {
            for (ranks, count) in [(1, 5), (2, 1), (3, 7), (5, 0), (6, 13), (8, 64), (9, 4), (16, 33)] {
                for &reduce in ReduceOp::ALL {
                    let operation = operation(op, algorithm, count, DataType::Int32, reduce);
                    let case = Case { operation: operation.clone(), in_place: false, shift: 0, seed: count };
                    let inputs = inputs(&case, ranks);
                    let found = oracle::expected(&operation, count.max(1), &inputs);
                    let found: Vec<Vec<i32>> = found.iter().map(|output| words(output)).collect();
                    let expected = by_definition(op, reduce, usize::try_from(count).unwrap(), &inputs);
                    assert_eq!(found, expected, "{operation:?} on {ranks} ranks");
                }
            }
        }
    }
}

/// 2^24, 1, 1 and -2^24: every order of adding gives another sum, because 2^24 + 1 is 2^24 in fp32.
#[test]
fn the_oracle_adds_floats_in_the_documented_order() {
    let big = 16_777_216.0_f32;
    let inputs: Vec<Vec<u8>> =
        [big, 1.0, 1.0, -big].iter().map(|value| value.to_le_bytes().repeat(4)).collect();
    let sums = |algorithm| {
        let operation = operation(OpKind::AllReduce, algorithm, 4, DataType::Fp32, ReduceOp::Sum);
        let output = oracle::expected(&operation, 4, &inputs).swap_remove(0);
        let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        output.chunks(4).map(value).collect::<Vec<_>>()
    };
    // Rank order: ((x0 + x1) + x2) + x3.
    assert_eq!(sums(Algorithm::MeshOneShot), [0.0; 4]);
    assert_eq!(sums(Algorithm::MeshTwoShot), [0.0; 4]);
    // Slice j: x_j + (x_{j+3} + (x_{j+2} + x_{j+1})).
    assert_eq!(
        sums(Algorithm::Ring),
        [
            big + (-big + (1.0 + 1.0)),
            1.0 + (big + (-big + 1.0)),
            1.0 + (1.0 + (big + -big)),
            -big + (1.0 + (1.0 + big)),
        ]
    );
    assert_eq!(sums(Algorithm::Ring), [2.0, 2.0, 2.0, 0.0]);
    // Slice 0: (x0 + x2) + (x1 + x3), slice 1: (x1 + x3) + (x0 + x2), and so on: pairs two apart first.
    assert_eq!(sums(Algorithm::HalvingDoubling), [1.0, 1.0, 1.0, 1.0]);
    // Slice of rank r: (x_r + x_{r+1}) + (x_{r+2} + x_{r+3}); those of ranks 0, 2, 1, 3.
    assert_eq!(sums(Algorithm::Nhr), [1.0, 1.0, 2.0, 2.0]);
}

#[test]
fn a_flipped_byte_is_reported() {
    let bytes: Vec<u8> = (0..200).collect();
    assert_eq!(compare("output", &bytes, &bytes), Ok(()));
    for at in 0..200 {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1;
        let message = compare("output", &wrong, &bytes).unwrap_err();
        assert_eq!(
            message,
            format!("output, byte {at}: {:#04x} instead of {:#04x}", bytes[at] ^ 1, bytes[at])
        );
    }
    assert_eq!(compare("output", &bytes[..199], &bytes), Err("output: 199 bytes instead of 200".to_owned()));
}

/// The input is changed on the device after the oracle has seen it: the operation is right, the result is not.
#[test]
#[should_panic(expected = "output, byte")]
fn a_wrong_result_is_reported() {
    let cluster = world::threads(2, Place::OneServer, 8 << 20);
    let mut bench = Bench::new(&cluster, Config::default(), 4096).unwrap();
    let operation = operation(OpKind::AllReduce, Algorithm::Ring, 100, DataType::Int32, ReduceOp::Sum);
    let case = Case { operation, in_place: false, shift: 0, seed: 1 };
    let damaged = |bench: &mut Bench<'_>| {
        bench.flip_input(1, 17);
        bench.launch(&case)
    };
    bench.run_with(&case, damaged).unwrap();
}
