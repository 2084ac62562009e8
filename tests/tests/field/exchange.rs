//! Blocks between pairs of ranks: receives that nobody sends to, and blocks of unequal sizes.

use std::sync::Arc;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::scene::{FAR, Scene, case};
use aicpu_tests::variants::{Variant, algorithms};
use aicpu_tests::world::{self, Place};
use host_launcher::communicator::{Config, Operation, Vector};
use wire::ErrorCode;
use wire::launch::{Algorithm, ElementRange, OpKind, Staging, VectorRow};

/// Rank 0 gets `count` elements of rank 1, and nobody else anything.
fn from_one_to_zero(count: u64, algorithm: Algorithm) -> Case {
    let none = ElementRange { first: 0, count: 0 };
    let some = ElementRange { first: 0, count };
    let row = |from: u32, to: u32| {
        let of = |sender, receiver| if (sender, receiver) == (1, 0) { some } else { none };
        VectorRow { send: of(from, to), receive: of(to, from) }
    };
    let rows = (0..3).flat_map(|rank| (0..3).map(move |peer| (rank, peer)));
    let vector = Vector::of_rows(rows.map(|(rank, peer)| row(rank, peer)).collect()).expect("a square");
    let operation = Operation {
        op: OpKind::SendReceive,
        algorithm,
        count: 0,
        vector: Some(Arc::new(vector)),
        ..Operation::default()
    };
    Case { operation, ..case(Algorithm::Ring) }
}

/// T45, NVIDIA/nccl#788: a rank waits for bytes that nobody sends. Which rank disagrees is said at once, not at a deadline.
#[test]
fn a_receive_that_nobody_sends_to_is_named() {
    let cluster = world::threads(3, Place::OneServer, 24 << 20);
    for algorithm in algorithms(OpKind::SendReceive) {
        let mut scene = Scene::with_deadline(&cluster, FAR);
        let (sent, unsent) = (from_one_to_zero(500, algorithm), from_one_to_zero(0, algorithm));
        scene.bench().run(&sent).unwrap();
        for rank in 0..3 {
            scene.bench().launch_on(rank, if rank == 1 { &unsent } else { &sent }).unwrap();
        }
        let failure = scene.failure();
        let report = failure.error().diagnosis().unwrap();
        assert_eq!(failure.error().code(), ErrorCode::ARGUMENTS_DIFFER, "{}", failure.error());
        assert_eq!(report.culprit_rank, Some(1), "{}", failure.error());
        assert!(report.cause.starts_with("vector of counts"), "{}", report.cause);
        scene.recovers();
    }
}

/// T47, candle-org/MindAct PR#2498 and candle-org/candle PR#119: an all-to-all-v of more than two ranks that returned
/// success with zeros. Every byte of unequal blocks, of none and between gaps.
#[test]
fn unequal_blocks_of_four_and_eight_ranks() {
    for (ranks, place) in
        [(4, Place::OneServer), (4, Place::TwoServers), (8, Place::OneServer), (8, Place::UnifiedBus)]
    {
        let cluster = world::threads(ranks, place, 32 << 20);
        let config = || Config { timeout: FAR, ..Config::default() };
        let mut bench = Bench::new(&cluster, config(), 8 * 8 * 300).unwrap();
        for op in [OpKind::AllToAllV, OpKind::AllGatherV, OpKind::SendReceive] {
            for algorithm in algorithms(op) {
                let variant = Variant { op, algorithm, staging: Staging::Scratch };
                for seed in 1..4 {
                    let operation = variant.operation(257, ranks, seed);
                    bench.run(&Case { operation, in_place: false, shift: 0, seed }).unwrap();
                }
            }
        }
        bench.finish().unwrap();
    }
}

/// T47 again: two and more sends and receives outstanding, code 6 in the field. Sixteen in flight, each of other counts.
#[test]
fn many_sends_and_receives_are_outstanding_at_once() {
    let cluster = world::threads(4, Place::OneServer, 24 << 20);
    let mut bench = Bench::new(&cluster, Config { timeout: FAR, ..Config::default() }, 16 << 10).unwrap();
    let algorithm = algorithms(OpKind::SendReceive)[0];
    let variant = Variant { op: OpKind::SendReceive, algorithm, staging: Staging::Scratch };
    let last = Case { operation: variant.operation(100, 4, 16), in_place: false, shift: 0, seed: 3 };
    for _ in 0..5 {
        let earlier = |bench: &mut Bench<'_>| {
            for seed in 1..16 {
                let operation = variant.operation(90, 4, seed);
                bench.launch(&Case { operation, in_place: false, shift: 0, seed })?;
            }
            bench.launch(&last)
        };
        // What the earlier ones write lies in the places that the last one leaves alone, or writes again.
        for seed in 1..16 {
            let operation = variant.operation(90, 4, seed);
            bench.run(&Case { operation, in_place: false, shift: 0, seed }).unwrap();
        }
        earlier(&mut bench).unwrap();
        assert_eq!(bench.communicator().synchronize().unwrap().len(), 16 * 4);
        bench.run(&last).unwrap();
    }
    bench.finish().unwrap();
}
