//! Bits that must not depend on what else is going on: on the size of the tensor, the chunks, the schedule, or other
//! communicators.

use core::time::Duration;

use aicpu_tests::bench::Bench;
use aicpu_tests::scene::{FAR, case};
use aicpu_tests::variants::algorithms;
use aicpu_tests::world::{self, Place as Where};
use device_model::fault::{Fault, Mishap, When};
use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Communicator, Config, Operation, Place};
use host_launcher::payload;
use wire::launch::{Algorithm, OpKind};
use wire::{DataType, ReduceOp};

const COLUMNS: u64 = 64;
const ROWS: [u64; 2] = [184, 736];

fn operation(algorithm: Algorithm, count: u64) -> Operation {
    let (dtype, reduce) = (DataType::Bf16, ReduceOp::Sum);
    Operation { op: OpKind::AllReduce, count, dtype, reduce, algorithm, ..Operation::default() }
}

/// What every rank holds after an all-reduce of the first `count` elements.
fn reduced(cluster: &Cluster, inputs: &[Vec<u8>], operation: &Operation, buffer_bytes: u64) -> Vec<Vec<u8>> {
    let config = Config { buffer_bytes, timeout: FAR, warn_after: Vec::new(), ..Config::default() };
    let bytes = usize::try_from(2 * operation.count).unwrap();
    let mut comm = Communicator::create(cluster, config).unwrap();
    let [input, output] = [0, 1].map(|_| SharedBuffer::new(cluster, bytes as u64).unwrap());
    for (rank, data) in (0..).zip(inputs) {
        cluster.npu(rank).write(input.addr(rank), &data[..bytes]).unwrap();
    }
    let at = |buffer| Place { buffer, offset: 0 };
    comm.launch_all(operation, at(&input), at(&output)).unwrap();
    comm.synchronize().unwrap();
    let read = |rank| {
        let mut sums = vec![0; bytes];
        cluster.npu(rank).read(output.addr(rank), &mut sums).unwrap();
        sums
    };
    let sums = (0..comm.size()).map(read).collect();
    comm.destroy().unwrap();
    [input, output].into_iter().for_each(|buffer| buffer.free(cluster).unwrap());
    sums
}

/// T53, vllm-project/vllm-ascend#17169 and ROCm/rocm-systems#11661: the same rows in a small and in a large tensor, 2 to
/// 16 ranks, through scratch of several sizes. With the strict order the bits are the same; with every algorithm all
/// ranks have the same ones (and those of the documented order: `collectives`).
#[test]
fn a_row_has_the_same_bits_whatever_it_is_reduced_with() {
    let [small, large] = ROWS.map(|rows| rows * COLUMNS);
    for (ranks, place) in
        [(2, Where::OneServer), (3, Where::TwoServers), (7, Where::OneServer), (16, Where::TwoServers)]
    {
        let cluster = world::threads(ranks, place, 24 << 20);
        let fill = |rank| payload::fill(5, rank, large, DataType::Bf16, ReduceOp::Sum);
        let inputs: Vec<_> = (0..ranks).map(fill).collect();
        for algorithm in algorithms(OpKind::AllReduce) {
            let sums = reduced(&cluster, &inputs, &operation(algorithm, small), 64 << 10);
            assert!(sums.iter().all(|own| *own == sums[0]), "{algorithm}: all {ranks} ranks have the same");
        }
        let strict = reduced(&cluster, &inputs, &operation(Algorithm::Strict, small), 64 << 20);
        for buffer_bytes in [64 << 10, 96 << 10, 1 << 20] {
            let sums = reduced(&cluster, &inputs, &operation(Algorithm::Strict, large), buffer_bytes);
            for own in &sums {
                assert!(own[..strict[0].len()] == strict[0][..], "{ranks} ranks, scratch of {buffer_bytes}");
            }
        }
    }
}

/// T54, NVIDIA/nccl#2360 and #157: the result depended on which other communicators were alive, and on the schedule. Ten
/// schedules, of which half have a slow rank and a second communicator at work.
#[test]
fn a_sum_has_the_same_bits_in_every_schedule() {
    let ranks = 5;
    let inputs: Vec<_> =
        (0..ranks).map(|rank| payload::fill(9, rank, 999, DataType::Bf16, ReduceOp::Sum)).collect();
    for algorithm in algorithms(OpKind::AllReduce) {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for seed in 0..10 {
            let cluster =
                Cluster::simulate(world::topology(ranks, Where::OneServer), 24 << 20, seed).unwrap();
            let mut other = None;
            if seed % 2 == 1 {
                let pace = Mishap::Slow(Duration::from_micros(seed * 3));
                cluster.machine().inject(u32::try_from(seed % 5).unwrap(), Fault::At(When::default(), pace));
                let mut bench =
                    Bench::new(&cluster, Config { timeout: FAR, ..Config::default() }, 8 << 10).unwrap();
                bench.launch(&case(Algorithm::Nhr)).unwrap();
                other = Some(bench);
            }
            all.push(reduced(&cluster, &inputs, &operation(algorithm, 999), 64 << 10).swap_remove(0));
            if let Some(mut bench) = other {
                bench.communicator().synchronize().unwrap();
                bench.finish().unwrap();
            }
        }
        assert!(all.iter().all(|sums| *sums == all[0]), "{algorithm}");
    }
}
