//! Two communicators on one cluster: one fails, the other does not notice, or learns that it was not its own fault.

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::world::{self, Place};
use device_model::fault::Fault;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::Config;
use wire::ErrorCode;
use wire::launch::Algorithm;

use aicpu_tests::scene::{FAR, Scene, TIMEOUT, case, warm};

const RANKS: u32 = 4;

fn cluster() -> Cluster {
    world::threads(RANKS, Place::TwoServers, 24 << 20)
}

fn other(cluster: &Cluster) -> Bench<'_> {
    let config = Config { name: "other".to_owned(), timeout: FAR, ..Config::default() };
    Bench::new(cluster, config, 64 << 10).unwrap()
}

/// A communicator fails by `fail` while another has an operation half done, which then goes on where it was.
fn other_goes_on(fail: impl Fn(&Cluster, &mut Scene<'_>)) {
    for algorithm in [Algorithm::Ring, Algorithm::HalvingDoubling, Algorithm::MeshOneShot] {
        let cluster = cluster();
        let mut other = other(&cluster);
        let case = case(algorithm);
        other.run(&case).unwrap();
        let half_done = |bench: &mut Bench<'_>| {
            bench.launch_on(0, &case)?;
            let mut scene = Scene::new(&cluster);
            warm(scene.bench(), Algorithm::Ring);
            fail(&cluster, &mut scene);
            // A third one, while the operation is still half done.
            scene.recovers();
            (1..RANKS).try_for_each(|rank| bench.launch_on(rank, &case))
        };
        other.run_with(&Case { seed: 8, ..case.clone() }, half_done).unwrap();
        other.run(&Case { seed: 9, ..case.clone() }).unwrap();
        other.finish().unwrap();
    }
}

#[test]
fn a_rank_that_does_not_launch() {
    other_goes_on(|_, scene| {
        scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap();
        let failure = scene.failure();
        assert_eq!(failure.error().code(), ErrorCode::PEER_NOT_STARTED, "{}", failure.error());
        assert!(failure.elapsed >= TIMEOUT);
    });
}

#[test]
fn a_task_that_is_refused() {
    other_goes_on(|cluster, scene| {
        cluster.npu(2).deregister(scene.bench().input().token(2)).unwrap();
        scene.bench().launch(&case(Algorithm::Ring)).unwrap();
        scene.failure().assert(ErrorCode::DMA_UNREGISTERED, 2, 2, None);
    });
}

#[test]
fn a_device_that_stands_still() {
    other_goes_on(|cluster, scene| {
        cluster.machine().inject(1, Fault::Stall);
        scene.bench().launch(&case(Algorithm::Ring)).unwrap();
        let failure = scene.failure();
        let report = failure.assert(ErrorCode::HOST_NOTIFY_TIMEOUT, 1, 1, None);
        assert!(report.cause.contains("it has stopped"), "{}", failure.error());
    });
}

/// An operation that nobody waits for ends with its communicator.
#[test]
fn a_communicator_that_goes_with_work_in_flight() {
    let cluster = cluster();
    let mut other = other(&cluster);
    let case = case(Algorithm::Nhr);
    for seed in 0..5 {
        let mut leaver = Bench::new(&cluster, Config::default(), 64 << 10).unwrap();
        warm(&mut leaver, Algorithm::Ring);
        for rank in [0, 1, 2] {
            leaver.launch_on(rank, &self::case(Algorithm::Ring)).unwrap();
        }
        other.run(&Case { seed, ..case.clone() }).unwrap();
        leaver.finish().unwrap();
        other.run(&Case { seed, ..case.clone() }).unwrap();
    }
    other.finish().unwrap();
}

/// The kernels submit what was launched, into queues that no device knows any more.
#[test]
fn a_communicator_that_goes_before_anything_was_done() {
    let cluster = cluster();
    let executed = || (0..RANKS).map(|rank| cluster.machine().snapshot(rank).executed_total());
    let mut leaver = Bench::new(&cluster, Config::default(), 64 << 10).unwrap();
    warm(&mut leaver, Algorithm::Ring);
    let before: Vec<u64> = executed().collect();
    let mut long = case(Algorithm::Ring);
    // 1000 chunks of more than 20 tasks each do not fit a ring of 2048.
    long.operation.chunk = 1;
    leaver.launch(&long).unwrap();
    leaver.finish().unwrap();
    assert!(executed().eq(before));
    let mut next = other(&cluster);
    next.run(&long).unwrap();
    next.finish().unwrap();
}

/// An NPU that stops, stops for everyone; who is not to blame is told so.
#[test]
fn an_error_of_another_communicator() {
    let cluster = cluster();
    let mut other = other(&cluster);
    warm(&mut other, Algorithm::Ring);
    let mut scene = Scene::with_deadline(&cluster, FAR);
    warm(scene.bench(), Algorithm::Ring);
    // The other one's operation cannot end, so that who waits for it meets the error.
    scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap();
    cluster.npu(2).deregister(other.input().token(2)).unwrap();
    other.launch(&case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::DMA_UNREGISTERED, 2, 2, None);
    let (cause, place) = ("a task of another communicator: ", "rank 2, queue ");
    assert!(report.cause.starts_with(cause) && report.whereabouts.starts_with(place), "{}", failure.error());
    let error = other.communicator().synchronize().unwrap_err();
    assert_eq!(error.code(), ErrorCode::DMA_UNREGISTERED);
    assert_eq!(error.diagnosis().unwrap().comm, "other");
    other.abandon().unwrap();
    scene.recovers();
}
