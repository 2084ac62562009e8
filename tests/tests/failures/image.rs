//! The same on the aarch64 image under QEMU, whose kernels run while the host launches.

use core::time::Duration;

use aicpu_tests::variants::algorithms;
use aicpu_tests::world::{self, Place};
use device_model::fault::Fault;
use host_launcher::cluster::{Aicpu, Cluster};
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind, Staging};

use aicpu_tests::rings::waited;
use aicpu_tests::scene::{FAR, Scene, case, warm};

/// Deadline of operations that fail at it. Emulated kernels need some time for what they do before.
const TIMEOUT: Duration = Duration::from_secs(1);

fn cluster(ranks: u32) -> Option<Cluster> {
    Some(Cluster::start(world::topology(ranks, Place::OneServer), 24 << 20, &world::image()?).unwrap())
}

#[test]
fn a_notify_that_never_comes_to_the_image() {
    let Some(cluster) = cluster(4) else { return };
    for algorithm in algorithms(OpKind::AllReduce) {
        let mut scene = Scene::with_deadline(&cluster, TIMEOUT);
        warm(scene.bench(), algorithm);
        let (notify, peer) = waited(&cluster, 1).into_iter().find(|(_, peer)| peer.is_some()).unwrap();
        cluster.machine().inject(1, Fault::DropNotify { notify });
        scene.bench().launch(&case(algorithm)).unwrap();
        scene.failure().assert(ErrorCode::NOTIFY_TIMEOUT, peer.unwrap(), 1, peer);
        scene.recovers();
    }
}

#[test]
fn a_peer_that_never_starts_on_the_image() {
    let Some(cluster) = cluster(3) else { return };
    let mut scene = Scene::with_deadline(&cluster, TIMEOUT);
    warm(scene.bench(), Algorithm::Ring);
    scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap();
    scene.bench().launch_on(1, &case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    let rank = failure.error().diagnosis().unwrap().rank;
    failure.assert(ErrorCode::PEER_NOT_STARTED, 2, rank, Some(2));
    scene.recovers();
}

#[test]
fn a_region_that_the_image_finds_not_registered() {
    let Some(cluster) = cluster(3) else { return };
    let mut scene = Scene::with_deadline(&cluster, FAR);
    warm(scene.bench(), Algorithm::Ring);
    cluster.npu(1).deregister(scene.bench().input().token(1)).unwrap();
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    scene.failure().assert(ErrorCode::DMA_UNREGISTERED, 1, 1, None);
    scene.recovers();
}

#[test]
fn a_launch_that_the_image_refuses() {
    let Some(cluster) = cluster(3) else { return };
    let mut scene = Scene::with_deadline(&cluster, FAR);
    let mut impossible = case(Algorithm::Ring);
    impossible.operation.op = OpKind::ReduceScatter;
    impossible.operation.staging = Staging::Direct;
    for rank in 0..3 {
        let case = if rank == 0 { impossible.clone() } else { case(Algorithm::Ring) };
        scene.bench().launch_on(rank, &case).unwrap();
    }
    scene.failure().assert(ErrorCode::PLAN_STAGING, 0, 0, None);
    scene.recovers();
}

/// Kernels that are at work when the deadline passes, and while the communicator is destroyed.
#[test]
fn a_deadline_that_is_too_short_for_the_image() {
    let Some(cluster) = cluster(8) else { return };
    for algorithm in [Algorithm::MeshTwoShot, Algorithm::Ring, Algorithm::MeshOneShot] {
        let mut scene = Scene::with_deadline(&cluster, Duration::from_micros(1));
        scene.bench().launch(&case(algorithm)).unwrap();
        let failure = scene.failure();
        let report = failure.error().diagnosis().unwrap();
        let (culprit, rank, peer) = (report.culprit_rank.unwrap(), report.rank, report.peer);
        let report = failure.assert(ErrorCode::HOST_NOTIFY_TIMEOUT, culprit, rank, peer);
        assert!(report.cause.contains("it is only slow."), "{}", failure.error());
        scene.recovers();
    }
}

/// Cores that sleep finish what they are at when a communicator is destroyed.
#[test]
fn sleeping_cores_finish_when_a_communicator_goes() {
    let Some(Aicpu::Qemu { image, mut options }) = world::image() else { return };
    options.per_npu = true;
    let aicpu = Aicpu::Qemu { image, options };
    let cluster = Cluster::start(world::topology(3, Place::OneServer), 24 << 20, &aicpu).unwrap();
    let mut scene = Scene::with_deadline(&cluster, FAR);
    warm(scene.bench(), Algorithm::Ring);
    cluster.npu(2).deregister(scene.bench().input().token(2)).unwrap();
    let mut long = case(Algorithm::Ring);
    // 1000 chunks of more than 10 tasks each do not fit a ring of 2048.
    long.operation.chunk = 1;
    scene.bench().launch(&long).unwrap();
    scene.failure().assert(ErrorCode::DMA_UNREGISTERED, 2, 2, None);
    scene.recovers();
}
