//! The strict order: bits of a row do not depend on what else is reduced with it.

use core::time::Duration;

use aicpu_tests::world::{self, Place as Where};
use half::bf16;
use host_launcher::buffer::SharedBuffer;
use host_launcher::communicator::{Communicator, Config, Operation, Place};
use host_launcher::payload;
use wire::launch::{Algorithm, OpKind};
use wire::{DataType, ReduceOp};

const COLUMNS: u64 = 5120;
const ROWS: [u64; 2] = [184, 736];

/// Reduces one element in the strict order: the upper half folded onto the lower at the largest power of two below what
/// remains, each sum rounded to bf16.
fn fold(mut values: Vec<bf16>) -> bf16 {
    while values.len() > 1 {
        let mut lower = 1;
        while 2 * lower < values.len() {
            lower *= 2;
        }
        let upper = values.split_off(lower);
        for (low, high) in values.iter_mut().zip(upper) {
            *low = bf16::from_f32(low.to_f32() + high.to_f32());
        }
    }
    values[0]
}

/// The sum of the first `rows` rows by one strict all-reduce, in chunks of `chunk` elements.
fn reduced(place: Where, inputs: &[Vec<u8>], rows: u64, chunk: u64) -> Vec<u8> {
    let ranks = u32::try_from(inputs.len()).unwrap();
    let bytes = rows * COLUMNS * 2;
    let cluster = world::threads(ranks, place, 4 * bytes + (4 << 20));
    let config = Config { buffer_bytes: 16 << 20, timeout: Duration::from_secs(60), ..Config::default() };
    let mut comm = Communicator::create(&cluster, config).unwrap();
    let [input, output] = [0, 1].map(|_| SharedBuffer::new(&cluster, bytes).unwrap());
    for (rank, data) in (0..).zip(inputs) {
        cluster.npu(rank).write(input.addr(rank), &data[..usize::try_from(bytes).unwrap()]).unwrap();
    }
    let operation = Operation {
        op: OpKind::AllReduce,
        count: rows * COLUMNS,
        dtype: DataType::Bf16,
        algorithm: Algorithm::Strict,
        chunk,
        ..Operation::default()
    };
    let at = |buffer| Place { buffer, offset: 0 };
    comm.launch_all(&operation, at(&input), at(&output)).unwrap();
    comm.synchronize().unwrap();
    let mut sums = vec![0; usize::try_from(bytes).unwrap()];
    cluster.npu(ranks - 1).read(output.addr(ranks - 1), &mut sums).unwrap();
    comm.destroy().unwrap();
    sums
}

#[test]
fn the_same_rows_give_the_same_bits_in_a_small_and_a_large_tensor() {
    for (ranks, place) in [(2, Where::OneServer), (3, Where::TwoServers), (8, Where::OneServer)] {
        let fill = |rank| payload::fill(11, rank, ROWS[1] * COLUMNS, DataType::Bf16, ReduceOp::Sum);
        let inputs: Vec<_> = (0..ranks).map(fill).collect();
        let small = reduced(place, &inputs, ROWS[0], 0);
        let large = reduced(place, &inputs, ROWS[1], 0);
        assert!(large[..small.len()] == small, "{ranks} ranks");
        let chunked = reduced(place, &inputs, ROWS[0], 77_777);
        assert!(chunked == small, "{ranks} ranks, in chunks");
        for element in (0..small.len() / 2).step_by(997) {
            let value = |data: &Vec<u8>| bf16::from_le_bytes([data[2 * element], data[2 * element + 1]]);
            let expected = fold(inputs.iter().map(value).collect());
            assert_eq!(small[2 * element..2 * element + 2], expected.to_le_bytes(), "element {element}");
        }
    }
}
