//! Compositions on the real kernel: over three and more servers, equal and not, with every algorithm on every level,
//! and what goes over which link.

use core::time::Duration;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::variants::Variant;
use aicpu_tests::world::{self, Place};
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Config, Operation};
use host_launcher::rank_table::{RankTable, Source};
use host_launcher::topology::Topology;
use wire::launch::Algorithm as A;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::Protocol;
use wire::{DataType, ReduceOp};

const COMPOSITIONS: [Algorithm; 6] =
    [A::TwoLevel, A::ThreeLevel, A::Pipeline, A::Ahc, A::MultiRing, A::MeshChunk];
const LEVELS: [Algorithm; 5] = [A::Ring, A::Nhr, A::Nb, A::HalvingDoubling, A::MeshTwoShot];
const LARGEST: u64 = 2 * 16 * 12 * 1000;

fn config() -> Config {
    Config { buffer_bytes: 256 << 10, timeout: Duration::from_secs(20), ..Config::default() }
}

/// Types whose order of reduction shows, one that no link adds, and one that some do.
const TYPES: [(DataType, ReduceOp); 3] =
    [(DataType::Fp32, ReduceOp::Sum), (DataType::Int64, ReduceOp::Prod), (DataType::Bf16, ReduceOp::Sum)];

#[test]
fn compositions_over_servers_of_every_shape_are_what_the_oracle_says() {
    let mut cases = 0;
    for (ranks, size) in [(3, 1), (6, 2), (7, 3), (8, 3), (9, 3), (8, 5), (12, 4), (12, 5)] {
        let cluster = world::threads(ranks, Place::Servers(size), 48 << 20);
        let mut bench = Bench::new(&cluster, config(), LARGEST).unwrap();
        let variants = Variant::all();
        for variant in variants.into_iter().filter(|variant| COMPOSITIONS.contains(&variant.algorithm)) {
            for (turn, (count, chunk)) in
                [(1, 0), (u64::from(ranks) + 1, 0), (1000, 0), (101, 13)].into_iter().enumerate()
            {
                let (dtype, reduce) = TYPES[turn % TYPES.len()];
                let reduce = if variant.op.reduces() { reduce } else { ReduceOp::Sum };
                let operation = variant.operation(count, ranks, turn as u64 + 1);
                let operation = Operation { dtype, reduce, chunk, ..operation };
                let in_place = turn == 1 && variant.runs(false, true);
                let case = Case { operation, in_place, shift: 1, seed: cases };
                bench.run(&case).unwrap_or_else(|error| panic!("{ranks} by {size}, {case:?}: {error}"));
                cases += 1;
            }
        }
        bench.finish().unwrap();
    }
    assert!(cases > 8 * 4 * 15, "{cases}");
}

#[test]
fn any_algorithms_on_two_levels_are_what_the_oracle_says() {
    for (ranks, size) in [(8, 4), (9, 3), (8, 5)] {
        let cluster = world::threads(ranks, Place::Servers(size), 64 << 20);
        for inner in LEVELS {
            let mut bench = Bench::new(&cluster, config(), LARGEST).unwrap();
            for outer in LEVELS {
                let levels = [Some(inner), Some(outer), None, None];
                for (algorithm, staging) in [(A::TwoLevel, Staging::Direct), (A::Ahc, Staging::Scratch)] {
                    let variant = Variant { op: OpKind::AllReduce, algorithm, staging };
                    let operation = Operation { levels, ..variant.operation(1003, ranks, 0) };
                    let case = Case { operation, in_place: false, shift: 0, seed: 5 };
                    bench.run(&case).unwrap_or_else(|error| panic!("{ranks} by {size}, {case:?}: {error}"));
                }
            }
            bench.finish().unwrap();
        }
    }
}

/// B24: what crosses servers is each rank's slice, and nothing else.
#[test]
fn servers_exchange_one_slice_of_every_rank() {
    for (algorithm, servers) in
        [(A::TwoLevel, 2), (A::Pipeline, 2), (A::TwoLevel, 3), (A::Pipeline, 3), (A::Ahc, 2)]
    {
        let ranks = 4 * servers;
        let cluster = world::threads(ranks, Place::Servers(4), 24 << 20);
        let mut bench = Bench::new(&cluster, config(), LARGEST).unwrap();
        let count = u64::from(ranks) * 100;
        let variant = Variant { op: OpKind::AllReduce, algorithm, staging: Staging::Direct };
        let case = Case { operation: variant.operation(count, ranks, 0), in_place: false, shift: 0, seed: 1 };
        bench.run(&case).unwrap();
        let (bytes, s) = (count * 4, u64::from(servers));
        for rank in 0..ranks {
            let counters = cluster.machine().snapshot(rank);
            assert_eq!(counters.sent(Protocol::Hccs), 2 * bytes * 3 / 4, "{algorithm}, {servers} servers");
            assert_eq!(
                counters.sent(Protocol::Roce),
                2 * bytes / 4 * (s - 1) / s,
                "{algorithm}, {servers} servers"
            );
        }
        bench.finish().unwrap();
    }
}

/// The super pods of a 1.2 table, and the servers of 3 and 5 of a 1.0 table.
#[test]
fn tables_of_files_with_super_pods_and_unequal_servers() {
    for (name, levels) in [("v1.2_2pods_2x4.json", 3), ("v1.0_uneven_3+5.json", 2)] {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/rank-tables/").to_owned() + name;
        let bytes = std::fs::read(path).unwrap();
        let table = RankTable::parse(Source { bytes: &bytes, name }, None).unwrap();
        let topology = Topology::new(&table);
        assert_eq!(topology.groups().pods.len() > 1, levels == 3, "{name}");
        let ranks = topology.ranks();
        let cluster = Cluster::start(topology, 32 << 20, &Aicpu::Thread).unwrap();
        let mut bench = Bench::new(&cluster, config(), LARGEST).unwrap();
        for variant in Variant::all().into_iter().filter(|variant| COMPOSITIONS.contains(&variant.algorithm))
        {
            let operation = Operation { dtype: DataType::Bf16, ..variant.operation(501, ranks, 3) };
            bench.run(&Case { operation, in_place: false, shift: 1, seed: 9 }).unwrap();
        }
        bench.finish().unwrap();
    }
}
