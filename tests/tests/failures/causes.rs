//! One test per cause, on kernels in this process: nothing runs between launch and wait, so a fault can be put in
//! exactly there.

use core::sync::atomic::Ordering;

use aicpu_tests::bench::Bench;
use aicpu_tests::variants::algorithms;
use aicpu_tests::world::{self, Place};
use device_model::driver::QueueId;
use device_model::fault::Fault;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Communicator, Config};
use host_launcher::run::{Run, Setup};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::{LAUNCH_SLOTS, LAUNCH_TAIL, LAUNCHES, NOTIFIES, QueueKind};
use wire::{ErrorCode, LaunchArgs};
use zerocopy::{FromZeros, IntoBytes};

use aicpu_tests::rings::{queues, waited};
use aicpu_tests::scene::{FAR, Scene, TIMEOUT, case, warm};

fn cluster(ranks: u32) -> Cluster {
    world::threads(ranks, Place::OneServer, 24 << 20)
}

/// Rank, notify and sender of everything that the ranks wait for.
fn signals(cluster: &Cluster, algorithm: Algorithm) -> Vec<(u32, u32, Option<u32>)> {
    let mut bench = Bench::new(cluster, Config::default(), 64 << 10).unwrap();
    warm(&mut bench, algorithm);
    let of = |rank| waited(cluster, rank).into_iter().map(move |(notify, peer)| (rank, notify, peer));
    let signals = (0..cluster.topology().ranks()).flat_map(of).collect();
    bench.finish().unwrap();
    signals
}

/// Five signals of every algorithm, from its first to its last, are lost in turn, between ranks and between the threads of one.
#[test]
fn a_notify_that_never_comes() {
    for algorithm in algorithms(OpKind::AllReduce) {
        let cluster = cluster(5);
        let signals = signals(&cluster, algorithm);
        // A communicator gets the notifies that the one before has given back.
        let step = signals.len().div_ceil(5).max(1);
        for (rank, notify, peer) in signals.into_iter().step_by(step) {
            let mut scene = Scene::new(&cluster);
            warm(scene.bench(), algorithm);
            cluster.machine().inject(rank, Fault::DropNotify { notify });
            scene.bench().launch(&case(algorithm)).unwrap();
            let failure = scene.failure();
            let report = failure.assert(ErrorCode::NOTIFY_TIMEOUT, peer.unwrap_or(rank), rank, peer);
            assert!(failure.elapsed >= TIMEOUT);
            // A signal between threads of one rank is named as such: no rank is made up for it.
            let from = peer.map_or("local thread ".to_owned(), |peer| format!("rank {peer}"));
            let wait = format!("wait notify {notify} from {from}");
            assert!(report.whereabouts.contains(&wait), "{algorithm}: {wait}: {}", failure.error());
            scene.recovers();
        }
    }
}

/// The tables that messages are made of, for one signal that is known to the last number.
#[test]
fn the_block_of_a_lost_notify() {
    let cluster = cluster(4);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    let data = waited(&cluster, 2).into_iter().find(|(_, peer)| *peer == Some(1)).unwrap().0;
    cluster.machine().inject(2, Fault::DropNotify { notify: data });
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::NOTIFY_TIMEOUT, 1, 2, Some(1));
    assert_eq!(
        (report.step, report.operation.as_str()),
        (Some(0), "#2 all-reduce fp32 × 1000 sum by ring (scratch)")
    );
    let text = failure.error().to_string();
    let facts: Vec<&str> = text.lines().map(|line| line.trim_start()).collect();
    assert_eq!(facts[1], "who      rank 1 (host \"server-0\", device 1), alive, waits; noticed by rank 2");
    let task = report.task.unwrap();
    let place = format!("where    rank 2, step 0 of 6 (run), task {task} of ");
    assert!(
        facts[2].starts_with(&place) && facts[2].ends_with(&format!("wait notify {data} from rank 1")),
        "{text}"
    );
    assert!(facts[3].ends_with("s (deadline 0.200 s, set by the test)"), "{text}");
    let cause = format!(
        "cause    rank 1 has sent notify {data} to rank 2, which has not got it: lost, or taken twice. \
         Waiting for it: 0, 3."
    );
    assert_eq!(facts[4], cause);
    assert_eq!(facts[5], "do       look at the rank named as the cause first");
    assert_eq!(
        facts[6],
        "effect   communicator poisoned: destroy it, then create another; the process may go on"
    );
    assert_eq!(facts.len(), 7);
    scene.recovers();
}

#[test]
fn a_start_signal_that_never_comes() {
    let cluster = cluster(3);
    let mut scene = Scene::new(&cluster);
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    let start = posted(&cluster, 1).start_notify;
    cluster.npu(1).window().half(NOTIFIES + 4 * u64::from(start)).store(0, Ordering::Release);
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::NOTIFY_TIMEOUT, 1, 1, None);
    assert!(
        report.whereabouts.ends_with(&format!("wait notify {start} from the host")),
        "{}",
        failure.error()
    );
    scene.recovers();
}

#[test]
fn a_peer_that_never_starts() {
    for algorithm in [Algorithm::Ring, Algorithm::Nhr, Algorithm::MeshTwoShot] {
        let cluster = cluster(4);
        let mut scene = Scene::new(&cluster);
        warm(scene.bench(), algorithm);
        for rank in [0, 1, 2] {
            scene.bench().launch_on(rank, &case(algorithm)).unwrap();
        }
        let failure = scene.failure();
        let rank = failure.error().diagnosis().unwrap().rank;
        let report = failure.assert(ErrorCode::PEER_NOT_STARTED, 3, rank, Some(3));
        assert!(rank != 3 && report.step.is_some() && report.task.is_some());
        let cause = "rank 3 has not started operation #2; the last it started is #1. Ranks behind: 3.";
        assert!(report.cause.starts_with(cause), "{}", failure.error());
        scene.recovers();
    }
}

#[test]
fn a_region_that_is_not_registered_any_more() {
    let cluster = cluster(4);
    let mut scene = Scene::with_deadline(&cluster, FAR);
    warm(scene.bench(), Algorithm::Ring);
    cluster.npu(2).deregister(scene.bench().input().token(2)).unwrap();
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::DMA_UNREGISTERED, 2, 2, None);
    assert!(report.whereabouts.contains("(pre-copy)"), "{}", failure.error());
    scene.recovers();
}

/// Peers read the input of rank 2 directly: whoever does so first notices, and rank 2 is to blame.
#[test]
fn a_region_of_a_peer_that_is_not_registered_any_more() {
    let cluster = cluster(4);
    let mut scene = Scene::with_deadline(&cluster, FAR);
    let mut direct = case(Algorithm::MeshTwoShot);
    direct.operation.staging = Staging::Direct;
    scene.bench().run(&direct).unwrap();
    cluster.npu(2).deregister(scene.bench().input().token(2)).unwrap();
    scene.bench().launch(&direct).unwrap();
    let failure = scene.failure();
    let rank = failure.error().diagnosis().unwrap().rank;
    let peer = (rank != 2).then_some(2);
    failure.assert(ErrorCode::DMA_UNREGISTERED, 2, rank, peer);
    scene.recovers();
}

#[test]
fn a_wrong_token() {
    for rank in 0..3 {
        let cluster = cluster(3);
        let mut scene = Scene::with_deadline(&cluster, FAR);
        cluster.machine().inject(rank, Fault::FlipToken);
        scene.bench().launch(&case(Algorithm::HalvingDoubling)).unwrap();
        let failure = scene.failure();
        let peer = failure.error().diagnosis().unwrap().peer;
        failure.assert(ErrorCode::DMA_TOKEN, rank, rank, peer);
        scene.recovers();
    }
}

/// The arguments that were posted last on a rank.
fn posted(cluster: &Cluster, rank: u32) -> LaunchArgs {
    let mut args = LaunchArgs::new_zeroed();
    cluster.npu(rank).window().read(slot(cluster, rank), args.as_mut_bytes());
    args
}

fn slot(cluster: &Cluster, rank: u32) -> u64 {
    let tail = cluster.npu(rank).window().word(LAUNCH_TAIL).load(Ordering::Acquire);
    LAUNCHES + (tail - 1) % LAUNCH_SLOTS * size_of::<LaunchArgs>() as u64
}

#[test]
fn a_launch_of_another_epoch_or_communicator() {
    let next_epoch = |args: &mut LaunchArgs| args.epoch += 1;
    let other_instance = |args: &mut LaunchArgs| args.instance[1] ^= 1;
    for change in [next_epoch as fn(&mut LaunchArgs), other_instance] {
        let cluster = cluster(3);
        let mut scene = Scene::with_deadline(&cluster, FAR);
        warm(scene.bench(), Algorithm::Ring);
        scene.bench().launch(&case(Algorithm::Ring)).unwrap();
        let mut args = posted(&cluster, 1);
        change(&mut args);
        cluster.npu(1).window().write(slot(&cluster, 1), args.sealed().as_bytes());
        let failure = scene.failure();
        failure.assert(ErrorCode::CONTEXT_STALE, 1, 1, None);
        scene.recovers();
    }
}

#[test]
fn a_launch_that_one_kernel_refuses() {
    let cluster = cluster(4);
    let mut scene = Scene::with_deadline(&cluster, FAR);
    let mut impossible = case(Algorithm::Ring);
    impossible.operation.op = OpKind::ReduceScatter;
    impossible.operation.staging = Staging::Direct;
    for rank in 0..4 {
        let case = if rank == 2 { impossible.clone() } else { case(Algorithm::Ring) };
        scene.bench().launch_on(rank, &case).unwrap();
    }
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::PLAN_STAGING, 2, 2, None);
    assert!(report.effect.starts_with("communicator poisoned"), "{}", failure.error());
    scene.recovers();
}

#[test]
fn a_device_that_stops() {
    for rank in 0..3 {
        let cluster = cluster(3);
        let mut scene = Scene::new(&cluster);
        warm(scene.bench(), Algorithm::Nhr);
        cluster.machine().inject(rank, Fault::Stall);
        scene.bench().launch(&case(Algorithm::Nhr)).unwrap();
        let failure = scene.failure();
        let report = failure.assert(ErrorCode::HOST_NOTIFY_TIMEOUT, rank, rank, None);
        let cause =
            format!("the device of rank {rank} does not execute a task that nothing holds: it has stopped.");
        assert!(report.cause.starts_with(&cause), "{}", failure.error());
        scene.recovers();
    }
}

/// A device that has lost its queues.
#[test]
fn a_device_that_does_not_know_its_queues() {
    let cluster = cluster(3);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    for (queue, _) in queues(&cluster, 1, QueueKind::Thread) {
        cluster.npu(1).retire_queue(QueueId(queue)).unwrap();
    }
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    let rank = failure.error().diagnosis().unwrap().rank;
    let report = failure.assert(ErrorCode::HOST_NOTIFY_TIMEOUT, 1, rank, Some(1));
    let cause = "the device of rank 1 does not execute what its kernel has submitted.";
    assert!(report.cause.starts_with(cause), "{}", failure.error());
    scene.recovers();
}

#[test]
fn a_queue_pair_in_its_error_state() {
    let cluster = world::threads(4, Place::TwoServers, 24 << 20);
    let mut scene = Scene::with_deadline(&cluster, FAR);
    warm(scene.bench(), Algorithm::Ring);
    let pairs = queues(&cluster, 1, QueueKind::QueuePair);
    assert_eq!(pairs.len(), 2, "one to each rank of the other server");
    for (queue, _) in pairs {
        cluster.machine().inject(1, Fault::BreakQueuePair { queue });
    }
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    // Ring: rank 1 sends to rank 2.
    scene.failure().assert(ErrorCode::QP_ERROR, 1, 1, Some(2));
    scene.recovers();
}

/// A kernel that does not answer may still write to the communicator's memory: it is not given back.
#[test]
fn a_kernel_that_is_silent() {
    let cluster = cluster(3);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    let kernel = cluster.machine().detach(1).unwrap();
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    let rank = failure.error().diagnosis().unwrap().rank;
    failure.assert(ErrorCode::KERNEL_SILENT, 1, rank, Some(1));
    // It comes back before the communicator goes.
    cluster.machine().attach(1, kernel);
    scene.recovers();
}

/// A ring that is full of tasks when the deadline passes: the kernel has more to submit, and nobody executes.
#[test]
fn a_lost_notify_with_full_rings() {
    let cluster = world::threads(4, Place::OneServer, 24 << 20);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    let (notify, peer) = waited(&cluster, 3)[0];
    cluster.machine().inject(3, Fault::DropNotify { notify });
    let mut long = case(Algorithm::Ring);
    // 1000 chunks of more than 20 tasks each do not fit a ring of 2048.
    long.operation.chunk = 1;
    scene.bench().launch(&long).unwrap();
    scene.failure().assert(ErrorCode::NOTIFY_TIMEOUT, peer.unwrap(), 3, peer);
    scene.recovers();
}

/// A device that has stopped while the kernels have more to submit than the rings hold: they do not wait for a
/// deadline that is far.
#[test]
fn an_error_with_full_rings_and_a_far_deadline() {
    let cluster = cluster(4);
    let mut scene = Scene::with_deadline(&cluster, FAR);
    warm(scene.bench(), Algorithm::Ring);
    cluster.machine().inject(1, Fault::FlipToken);
    let mut long = case(Algorithm::Ring);
    long.operation.chunk = 1;
    scene.bench().launch(&long).unwrap();
    scene.failure().assert(ErrorCode::DMA_TOKEN, 1, 1, None);
    scene.recovers();
}

/// Results are compared to the last bit: another order of addition, as an oracle for other chunks expects it, shows.
#[test]
fn a_result_that_is_not_what_the_operation_defines() {
    let cluster = cluster(4);
    let operation = case(Algorithm::Ring).operation;
    let run = |chunk| {
        let comm = Communicator::create(&cluster, Config::default()).unwrap();
        let setup = Setup { chunk, seed: 7, in_place: false, buffers: 1, capture: 0 };
        Run::prepare(&cluster, comm, operation.clone(), &setup).unwrap().step().map(drop)
    };
    run(1000).unwrap();
    let error = run(7).unwrap_err();
    assert_eq!(error.code(), ErrorCode::RESULT_WRONG, "{error}");
    assert!(error.message().starts_with("rank 0, element "), "{error}");
}
