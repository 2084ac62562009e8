//! T15 and T16: how often host and kernel touch the device for one operation, whatever its size.

use core::sync::atomic::Ordering;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::variants::algorithms;
use aicpu_tests::world::{self, Place};
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Completed, Config, HOST_OPS, Operation};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::{LAUNCH_HEAD, LAUNCH_TAIL, MAX_QUEUES, TAILS};
use wire::{DataType, ReduceOp, Sqe};

fn case(algorithm: Algorithm, count: u64, chunk: u64) -> Case {
    let (dtype, reduce, staging) = (DataType::Int32, ReduceOp::Sum, Staging::Scratch);
    let operation = Operation {
        op: OpKind::AllReduce,
        count,
        dtype,
        reduce,
        algorithm,
        staging,
        chunk,
        ..Operation::default()
    };
    Case { operation, in_place: false, shift: 0, seed: 3 }
}

/// What the device and its memory say has happened on a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    launched: u64,
    answered: u64,
    /// Host records that the device has carried out.
    done: u64,
    doorbells: u64,
    executed: u64,
    tails: Vec<u64>,
}

fn seen(cluster: &Cluster, rank: u32) -> Seen {
    let (npu, counters) = (cluster.npu(rank), cluster.machine().snapshot(rank));
    let word = |at| npu.window().word(at).load(Ordering::Acquire);
    Seen {
        launched: word(LAUNCH_TAIL),
        answered: word(LAUNCH_HEAD),
        done: counters.executed(Sqe::RECORD_HOST),
        doorbells: counters.doorbells,
        executed: counters.executed_total(),
        tails: (0..MAX_QUEUES).map(|queue| word(TAILS + 8 * queue)).collect(),
    }
}

fn builds(ranks: u32) -> Vec<Cluster> {
    let start =
        |aicpu: &Aicpu| Cluster::start(world::topology(ranks, Place::OneServer), 96 << 20, aicpu).unwrap();
    [Some(Aicpu::Thread), world::image()].iter().flatten().map(start).collect()
}

/// From 5 tasks to thousands: one launch, one start signal, one done signal.
#[test]
fn t15_one_launch_and_three_host_operations_whatever_the_size() {
    assert_eq!(HOST_OPS, 3);
    for cluster in builds(8) {
        let mut bench = Bench::new(&cluster, Config::default(), 1 << 20).unwrap();
        let mut sizes = Vec::new();
        for (count, chunk) in [(0, 0), (1, 0), (1000, 0), (1000, 8), (250_000, 0)] {
            for algorithm in algorithms(OpKind::AllReduce) {
                let before: Vec<Seen> = (0..8).map(|rank| seen(&cluster, rank)).collect();
                let completed = bench.run(&case(algorithm, count, chunk)).unwrap();
                for (done, before) in completed.iter().zip(&before) {
                    let after = seen(&cluster, done.rank);
                    assert_eq!(after.launched - before.launched, 1, "one launch");
                    assert_eq!(after.answered - before.answered, 1, "one answer");
                    assert_eq!(after.done - before.done, 1, "one done signal");
                    assert_eq!(
                        after.executed - before.executed,
                        u64::from(done.status.sqes),
                        "every task once"
                    );
                    sizes.push(done.status.sqes);
                }
            }
        }
        sizes.sort_unstable();
        assert_eq!(sizes[0], 2, "an operation without data is a wait and a record");
        assert!(sizes[sizes.len() - 1] > 5000, "{:?}", sizes.last());
        bench.finish().unwrap();
    }
}

/// A stream gets one doorbell for each 128 descriptors that lie ready: ⌈n / 128⌉.
#[test]
fn t16_a_doorbell_announces_up_to_128_descriptors() {
    for cluster in builds(8) {
        let mut bench = Bench::new(&cluster, Config::default(), 1 << 20).unwrap();
        let mut longest = 0;
        // The direct mesh last: in pieces of 512 bytes it has the longest streams.
        let mut pieces = case(Algorithm::MeshTwoShot, 100_000, 0);
        (pieces.operation.staging, pieces.operation.piece) = (Staging::Direct, 512);
        let of =
            |count| algorithms(OpKind::AllReduce).into_iter().map(move |algorithm| case(algorithm, count, 0));
        for case in [0, 8, 100_000].into_iter().flat_map(of).chain([pieces]) {
            let before: Vec<Seen> = (0..8).map(|rank| seen(&cluster, rank)).collect();
            let completed = bench.run(&case).unwrap();
            for (done, before) in completed.iter().zip(&before) {
                let after = seen(&cluster, done.rank);
                let written: Vec<u64> =
                    after.tails.iter().zip(&before.tails).map(|(after, before)| after - before).collect();
                let expected: u64 = written.iter().map(|n| n.div_ceil(128)).sum();
                assert_eq!(u64::from(done.status.doorbells), expected, "{case:?}: {:?}", done.status);
                assert_eq!(done.status.chunks, 1);
                longest = written.into_iter().fold(longest, u64::max);
            }
        }
        assert!(longest > 3 * 128, "a stream with several doorbells: {longest}");
        bench.finish().unwrap();
    }
}

/// The same in absolute numbers: a ring has one stream, and four descriptors a step.
#[test]
fn t16_doorbells_of_rings_of_8_to_64_ranks() {
    let mut found = Vec::new();
    for ranks in [8, 16, 32, 64] {
        let cluster = world::threads(ranks, Place::OneServer, 4 << 20);
        let config = Config { buffer_bytes: 64 << 10, ..Config::default() };
        let mut bench = Bench::new(&cluster, config, 64 << 10).unwrap();
        let completed = bench.run(&case(Algorithm::Ring, 640, 0)).unwrap();
        let counts = |done: &Completed| (done.status.steps, done.status.sqes, done.status.doorbells);
        assert!(completed.iter().all(|done| counts(done) == counts(&completed[0])), "the same on every rank");
        found.push((
            ranks,
            completed[0].status.steps,
            completed[0].status.sqes,
            completed[0].status.doorbells,
        ));
        bench.finish().unwrap();
    }
    assert_eq!(found, [(8, 14, 60, 1), (16, 30, 124, 1), (32, 62, 252, 2), (64, 126, 508, 4)]);
}
