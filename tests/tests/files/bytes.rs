//! Every byte of every rank, against the order of reduction that the file says.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::world::{self, Place};
use algorithm_file::AlgorithmFile;
use host_launcher::algorithm_file as file;
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Config, Operation};
use wire::launch::{Algorithm, CacheOutcome, Staging};
use wire::{DataType, ReduceOp};

use crate::custom_all_gather::two_way_ring;

/// Types that links reduce while moving, and types that they do not, or that cannot be reduced at all.
const REDUCED: [(DataType, ReduceOp); 5] = [
    (DataType::Fp32, ReduceOp::Sum),
    (DataType::Bf16, ReduceOp::Sum),
    (DataType::Int64, ReduceOp::Prod),
    (DataType::Fp16, ReduceOp::Max),
    (DataType::Int8, ReduceOp::Min),
];
const MOVED: [DataType; 3] = [DataType::Fp32, DataType::Int128, DataType::Hif8];

/// Reads a file of the repository.
pub(crate) fn read(path: &str) -> AlgorithmFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    file::read(&path).unwrap_or_else(|error| panic!("{error}"))
}

/// The published files and the examples.
fn files() -> Vec<AlgorithmFile> {
    let paths = [
        "tests/data/msccl/all-reduce-ring-simple.xml",
        "tests/data/msccl/alltoall-8n-0-9kb.xml",
        "examples/algorithms/all-reduce-ring-8.xml",
        "examples/algorithms/all-gather-mesh-8.xml",
        "examples/algorithms/all-reduce-hierarchical-2x4.xml",
    ];
    paths.into_iter().map(read).collect()
}

/// Runs a file with every count, in place and not as it can; returns how many cases that were.
pub(crate) fn run(cluster: &Cluster, file: AlgorithmFile, counts: &[u64]) -> usize {
    let (ranks, parts) = (cluster.topology().ranks(), u64::from(file.algorithm().parts()));
    let op = file.algorithm().op;
    // Little scratch: the larger counts take several chunks.
    let config = Config { buffer_bytes: 64 << 10, timeout: Duration::from_secs(60), ..Config::default() };
    let largest = counts.iter().copied().max().unwrap_or(0).max(3 * parts);
    let mut bench = Bench::new(cluster, config, u64::from(ranks) * 16 * largest).unwrap();
    let file = Arc::new(file);
    let mut cases = 0;
    // None at all, fewer than parts, one more than a multiple, and what was asked for.
    for &count in [0, 1, parts - 1, parts, 2 * parts + 1].iter().chain(counts) {
        for in_place in [false, true].into_iter().filter(|&in_place| file.works(in_place)) {
            let (dtype, reduce) = if op.reduces() {
                REDUCED[cases % REDUCED.len()]
            } else {
                (MOVED[cases % MOVED.len()], ReduceOp::Sum)
            };
            let operation = Operation {
                op,
                count,
                dtype,
                reduce,
                algorithm: Algorithm::File,
                staging: Staging::Scratch,
                file: Some(Arc::clone(&file)),
                ..Operation::default()
            };
            let seed = cases as u64;
            bench.run(&Case { operation, in_place, shift: seed % 4, seed }).unwrap();
            cases += 1;
        }
    }
    bench.finish().unwrap();
    cases
}

fn place_of(file: &AlgorithmFile, turn: usize) -> Place {
    // A table of form 2.0 has no more than 16 ranks.
    [Place::OneServer, Place::TwoServers, Place::UnifiedBus][(turn + file.algorithm().chunks as usize) % 3]
}

#[test]
fn every_file_is_right_on_this_hosts_build() {
    let mut cases = 0;
    for file in files() {
        for turn in 0..3 {
            let place = place_of(&file, turn);
            let cluster = world::threads(file.algorithm().ranks(), place, 48 << 20);
            cases += run(&cluster, file.clone(), &[1000, 20_011]);
        }
    }
    assert_eq!(cases, 3 * 7 * (2 + 1 + 2 + 2 + 2));
}

#[test]
fn every_file_is_right_on_the_aarch64_build() {
    let Some(image) = world::image() else { return };
    for (turn, file) in files().into_iter().enumerate() {
        let topology =
            world::topology(file.algorithm().ranks(), [Place::OneServer, Place::TwoServers][turn % 2]);
        let cluster = Cluster::start(topology, 48 << 20, &image).unwrap();
        run(&cluster, file, &[1000]);
        let file = AlgorithmFile::new(two_way_ring(cluster.topology().ranks())).unwrap();
        run(&cluster, file, &[1000]);
    }
}

#[test]
fn the_example_in_rust_is_right_for_any_number_of_ranks() {
    for ranks in 2..=9 {
        for place in [Place::OneServer, Place::TwoServers] {
            let cluster = Cluster::start(world::topology(ranks, place), 48 << 20, &Aicpu::Thread).unwrap();
            run(&cluster, AlgorithmFile::new(two_way_ring(ranks)).unwrap(), &[1000, 20_011]);
        }
    }
}

#[test]
fn two_files_of_one_communicator_do_not_take_each_others_graphs() {
    let cluster = world::threads(8, Place::OneServer, 48 << 20);
    let config = Config { timeout: Duration::from_secs(20), ..Config::default() };
    let mut bench = Bench::new(&cluster, config, 8 * 16 * 1000).unwrap();
    let files = ["all-reduce-ring-8.xml", "all-reduce-hierarchical-2x4.xml"]
        .map(|name| Arc::new(read(&format!("examples/algorithms/{name}"))));
    let mut outcomes = Vec::new();
    for turn in 0..6 {
        let operation = Operation {
            count: 1000,
            // Sums of floats differ where the order does.
            dtype: DataType::Fp32,
            algorithm: Algorithm::File,
            file: Some(Arc::clone(&files[turn % 2])),
            ..Operation::default()
        };
        let done = bench.run(&Case { operation, in_place: false, shift: 0, seed: 7 }).unwrap();
        outcomes.push(done[0].status.cache);
    }
    let [miss, hit] = [CacheOutcome::Miss as u8, CacheOutcome::Hit as u8];
    assert_eq!(outcomes, [miss, miss, hit, hit, hit, hit]);
    bench.finish().unwrap();
}
