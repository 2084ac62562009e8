//! T28 through the device, and for both builds: what a hit writes to the rings, byte for byte.

use core::time::Duration;

use aicpu_tests::variants::Variant;
use aicpu_tests::world::{self, Place};
use aicpu_tests::written::assert_same;
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Config, Operation};
use wire::launch::CacheMode;
use wire::{DataType, ReduceOp};

use crate::rotation::{BYPASSED, HIT, MISS, Rotation, Step};

/// Types that links reduce, and types that they leave to the AI CPU.
const TYPES: [(DataType, ReduceOp); 4] = [
    (DataType::Fp32, ReduceOp::Sum),
    (DataType::Int64, ReduceOp::Sum),
    (DataType::Bf16, ReduceOp::Max),
    (DataType::Fp16, ReduceOp::Prod),
];

/// Counts of which some have the shape of others.
const SIZES: [u64; 6] = [332, 100, 7, 320, 96, 1];

/// Every operation by every algorithm and staging that exists there, in place and not.
fn operations(place: Place, ranks: u32) -> Vec<(Operation, bool)> {
    let mut list = Vec::new();
    for (turn, variant) in Variant::all().into_iter().enumerate() {
        for in_place in [false, true] {
            // A rank with one buffer has the graph of the operation out of place.
            let known = in_place && !variant.aliases_at_every_rank();
            if known || !variant.runs(place != Place::TwoServers, in_place) {
                continue;
            }
            let operation = variant.operation(333, ranks, turn as u64);
            let (dtype, reduce) = TYPES[if variant.adds_on_the_way() { 0 } else { turn % TYPES.len() }];
            let reduce = if variant.op.reduces() { reduce } else { ReduceOp::Sum };
            list.push((Operation { dtype, reduce, ..operation }, in_place));
        }
    }
    list
}

/// Runs everything at two places on two clusters; returns the hits, which write the same on both.
fn compare(clusters: [&Cluster; 2], place: Place, caches: [CacheMode; 2]) -> usize {
    let ranks = clusters[0].topology().ranks();
    let bytes = u64::from(ranks) * 8 * 333;
    let rotation = |at: usize| {
        let config = Config { cache: caches[at], timeout: Duration::from_secs(20), ..Config::default() };
        Rotation::new(clusters[at], config, bytes, 2)
    };
    let mut rotations = [0, 1].map(rotation);
    let mut hits = 0;
    for (seed, (operation, in_place)) in (0..).zip(operations(place, ranks)) {
        for (pair, outcome) in [(0, MISS), (1, HIT)] {
            let step = Step { operation: operation.clone(), in_place, pair, seed };
            for (rotation, cache) in rotations.iter_mut().zip(caches) {
                let expected = if cache == CacheMode::Off { BYPASSED } else { outcome };
                assert_eq!(rotation.outcomes(&step), vec![expected; ranks as usize], "{step:?}");
            }
            assert_same(clusters[0], clusters[1], &step);
            assert_same_results(&rotations, pair, ranks, &step);
            hits += usize::from(outcome == HIT);
        }
        // Other sizes, whose graph may be that of another size, patched.
        for (pair, count) in (0..).zip(SIZES) {
            let operation = Variant::resized(&operation, count, ranks, seed);
            let step = Step { operation, in_place, pair: pair % 2, seed };
            let [one, other] = rotations.each_mut().map(|rotation| rotation.outcomes(&step));
            assert!(caches[1] == CacheMode::Off || one == other, "{step:?}: {one:?} and {other:?}");
            assert_same(clusters[0], clusters[1], &step);
            assert_same_results(&rotations, pair % 2, ranks, &step);
            hits += one.iter().filter(|outcome| **outcome == HIT).count() / one.len();
        }
    }
    rotations.into_iter().for_each(Rotation::finish);
    hits
}

/// Results are equal bit for bit.
fn assert_same_results(rotations: &[Rotation<'_>; 2], pair: usize, ranks: u32, step: &Step) {
    let [one, other] = rotations;
    for rank in 0..ranks {
        let [one, other] = [one, other].map(|rotation| rotation.results(pair, step.in_place, rank));
        assert!(one == other, "{step:?}, rank {rank}");
    }
}

fn start(ranks: u32, place: Place, aicpu: &Aicpu) -> Cluster {
    Cluster::start(world::topology(ranks, place), 48 << 20, aicpu).unwrap()
}

#[test]
fn t28_a_hit_writes_what_a_fresh_expansion_writes() {
    let mut hits = 0;
    for place in [Place::OneServer, Place::TwoServers, Place::UnifiedBus] {
        for ranks in [2, 3, 8] {
            let clusters = [0, 1].map(|_| start(ranks, place, &Aicpu::Thread));
            hits += compare([&clusters[0], &clusters[1]], place, [CacheMode::On, CacheMode::Off]);
        }
    }
    assert!(hits > 3 * (30 + 28 + 30) + 800, "{hits}");
}

#[test]
fn hits_of_both_builds_write_the_same_descriptors() {
    let Some(image) = world::image() else { return };
    let mut hits = 0;
    for (ranks, place) in [(3, Place::OneServer), (4, Place::TwoServers), (2, Place::UnifiedBus)] {
        let clusters = [start(ranks, place, &Aicpu::Thread), start(ranks, place, &image)];
        hits += compare([&clusters[0], &clusters[1]], place, [CacheMode::On; 2]);
    }
    assert!(hits > 30 + 28 + 30 + 200, "{hits}");
}
