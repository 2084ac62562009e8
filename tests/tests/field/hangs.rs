//! Hangs that were reported late, and with no rank or the wrong one named.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use aicpu_tests::rings::waited;
use aicpu_tests::scene::{FAR, Scene, TIMEOUT, case, warm};
use aicpu_tests::world::{self, Place};
use device_model::fault::{Fault, Mishap, When};
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Communicator, Config, Progress};
use host_launcher::diagnosis::{OnWarning, Warning};
use host_launcher::settings::Settings;
use wire::launch::Algorithm;
use wire::npu::{KERNEL_STATE, KernelState, QueueKind};
use wire::{ErrorCode, Recorded, Sqe};

fn cluster(ranks: u32) -> Cluster {
    world::threads(ranks, Place::OneServer, 24 << 20)
}

/// Launches on all ranks but one.
fn launch_without(scene: &mut Scene<'_>, missing: u32, algorithm: Algorithm) {
    for rank in (0..4).filter(|rank| *rank != missing) {
        scene.bench().launch_on(rank, &case(algorithm)).unwrap();
    }
}

/// T1, vllm-project/vllm-ascend#3413 and #382: one rank does something else while the others are in operation k.
#[test]
fn a_rank_that_skips_an_operation_is_named_with_the_last_it_did() {
    let cluster = cluster(4);
    let mut scene = Scene::new(&cluster);
    for _ in 0..3 {
        warm(scene.bench(), Algorithm::Ring);
    }
    launch_without(&mut scene, 1, Algorithm::Ring);
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::PEER_NOT_STARTED, 1, 0, Some(1));
    assert_eq!(
        report.cause,
        "rank 1 has not started operation #4; the last it started is #3. Ranks behind: 1. Waiting for it: 0, 2; for \
         those: 3."
    );
    assert_eq!(
        (report.sequence, &*report.behind, &*report.waiting),
        (4, &[1][..], &[vec![0, 2], vec![3]][..])
    );
    scene.recovers();
}

/// T1, vllm-project/vllm-ascend#16652: the same after so many operations that the flight recorder has gone round.
#[test]
fn history_is_still_there_after_the_recorder_went_round() {
    let cluster = cluster(2);
    let mut scene = Scene::new(&cluster);
    for _ in 0..500 {
        warm(scene.bench(), Algorithm::Ring);
    }
    scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap();
    scene.failure().assert(ErrorCode::PEER_NOT_STARTED, 1, 0, Some(1));
    let taken = |rank: u32| -> Vec<u32> {
        let events = cluster.npu(rank).trace();
        assert_eq!(events.len(), 1024, "it has gone round");
        let taken = |event: &wire::TraceEvent| match event.recorded()? {
            Recorded::LaunchTaken { signature, .. } => Some(signature.sequence),
            _ => None,
        };
        events.iter().filter_map(taken).collect()
    };
    let (zero, one) = (taken(0), taken(1));
    assert_eq!((zero.last(), one.last()), (Some(&501), Some(&500)));
    assert!(zero.len() > 300 && zero.is_sorted_by(|a, b| a + 1 == *b), "{zero:?}");
    scene.recovers();
}

/// T2, InternLM/lmdeploy#3354: a rank that never entered was `remote rank [unknown]`.
#[test]
fn a_rank_that_never_started_anything_is_named() {
    let cluster = cluster(4);
    let mut scene = Scene::new(&cluster);
    launch_without(&mut scene, 3, Algorithm::MeshTwoShot);
    let failure = scene.failure();
    let rank = failure.error().diagnosis().unwrap().rank;
    let report = failure.assert(ErrorCode::PEER_NOT_STARTED, 3, rank, Some(3));
    let cause =
        "rank 3 has not started operation #1; it has started none. Ranks behind: 3. Waiting for it: 0-2.";
    assert_eq!(report.cause, cause);
    scene.recovers();
}

/// T3, a comment on hiyouga/LLaMA-Factory PR#975: a signal between threads of one rank was `remote rank [4294967295]`.
#[test]
fn a_signal_between_threads_of_one_rank_is_called_that() {
    let cluster = cluster(4);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::MeshTwoShot);
    let (notify, _) = waited(&cluster, 2).into_iter().find(|(_, peer)| peer.is_none()).unwrap();
    cluster.machine().inject(2, Fault::DropNotify { notify });
    scene.bench().launch(&case(Algorithm::MeshTwoShot)).unwrap();
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::NOTIFY_TIMEOUT, 2, 2, None);
    let text = failure.error().to_string();
    let local = report.whereabouts.split_once("from local thread ").expect("a local signal").1;
    let (from, to) = local.split_once(" to thread ").expect("both threads");
    let threads = |number: &str| number.parse::<u32>().expect("a number") < 4;
    assert!(threads(from) && threads(to) && from != to, "{text}");
    assert!(
        report.cause.starts_with("a signal within rank 2 did not come: no other rank is to blame."),
        "{text}"
    );
    assert!(!text.contains("4294967295") && !text.contains("unknown"), "{text}");
    scene.recovers();
}

/// T4, vllm-project/vllm-ascend#13482: the error of operation k surfaced as that of whatever was waited for next.
#[test]
fn an_error_is_that_of_its_operation_however_late_it_is_noticed() {
    let cluster = cluster(4);
    let mut scene = Scene::with_deadline(&cluster, FAR);
    warm(scene.bench(), Algorithm::Ring);
    cluster.npu(2).deregister(scene.bench().input().token(2)).unwrap();
    for _ in 0..6 {
        scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    }
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::DMA_UNREGISTERED, 2, 2, None);
    assert_eq!(report.operation, "#2 all-reduce fp32 × 1000 sum by ring (scratch)");
    scene.recovers();

    // The same where nothing fails but a rank stays away from operation 2 of 7.
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    for _ in 0..6 {
        launch_without(&mut scene, 3, Algorithm::Ring);
    }
    let failure = scene.failure();
    let rank = failure.error().diagnosis().unwrap().rank;
    let report = failure.assert(ErrorCode::PEER_NOT_STARTED, 3, rank, Some(3));
    assert!(report.operation.starts_with("#2 "), "{}", failure.error());
    scene.recovers();
}

/// T5, vllm-project/vllm-ascend#14309 and #1443: a kernel that stopped for good.
#[test]
fn a_kernel_that_stopped_is_named() {
    let cluster = cluster(3);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    let kernel = cluster.machine().detach(1).unwrap();
    let state = cluster.npu(1).window().word(KERNEL_STATE);
    state.store(KernelState::Parked as u64, Ordering::Release);
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    failure.assert(ErrorCode::KERNEL_PANIC, 1, 1, None);
    state.store(KernelState::Ready as u64, Ordering::Release);
    cluster.machine().attach(1, kernel);
    scene.recovers();
}

/// T6, Ascend/pytorch#54 and InternLM/lmdeploy#2482: a server died after half an hour without work.
#[test]
fn a_communicator_without_work_has_no_deadline_and_one_with_work_dies_once() {
    let cluster = cluster(2);
    let mut scene = Scene::with_deadline(&cluster, Duration::from_millis(60));
    warm(scene.bench(), Algorithm::Ring);
    std::thread::sleep(Duration::from_millis(150));
    assert!(scene.bench().communicator().pending().is_empty());
    warm(scene.bench(), Algorithm::Ring);
    scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap();
    scene.failure().assert(ErrorCode::PEER_NOT_STARTED, 1, 0, Some(1));
    scene.recovers();
    // No value means "for ever", and the refusal says so.
    let error = Settings::from_env([("HCCL_EXEC_TIMEOUT".into(), "0".into())]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ENV_VALUE);
    assert!(error.to_string().contains("HCCL_EXEC_TIMEOUT"), "{error}");
}

/// T7, Ascend/pytorch#48 and #43: another timeout fired than the one that was set.
#[test]
fn the_timer_that_fired_is_named_with_the_setting_it_is_from() {
    let cluster = cluster(2);
    let mut scene = Scene::new(&cluster);
    scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::PEER_NOT_STARTED, 1, 0, Some(1));
    assert!(report.since.ends_with("s (deadline 0.200 s, set by the test)"), "{}", report.since);
    assert_eq!((report.deadline_ms, &*report.deadline_source), (200, "the test"));
    scene.recovers();
    let default = Config::default();
    assert_eq!(
        (default.timeout, &*default.timeout_source),
        (Duration::from_secs(1836), "the default of HCCL_EXEC_TIMEOUT")
    );
}

/// T9, modelscope/ms-swift#2434 and alibaba/Pai-Megatron-Patch#436: one rank busy for almost, or just over, the timeout.
#[test]
fn a_rank_that_is_late_is_waited_for_until_the_deadline_and_no_longer() {
    let cluster = cluster(4);
    for (late, in_time) in [(TIMEOUT * 3 / 4, true), (TIMEOUT * 5 / 4, false)] {
        let mut scene = Scene::new(&cluster);
        warm(scene.bench(), Algorithm::Nhr);
        launch_without(&mut scene, 0, Algorithm::Nhr);
        let until = Instant::now() + late.min(TIMEOUT);
        if in_time {
            cluster.machine().run_until(|| false, Some(until));
            scene.bench().launch_on(0, &case(Algorithm::Nhr)).unwrap();
            scene.bench().communicator().synchronize().unwrap();
            scene.bench().communicator().synchronize().expect("nothing is in flight");
        } else {
            let failure = scene.failure();
            let rank = failure.error().diagnosis().unwrap().rank;
            failure.assert(ErrorCode::PEER_NOT_STARTED, 0, rank, Some(0));
            scene.recovers();
        }
    }
}

/// NVIDIA/nccl#1111 and #1063: nothing is said for a long time.
#[test]
fn warnings_come_in_stages_before_the_deadline_and_name_who_is_waited_for() {
    let cluster = cluster(4);
    let told = Arc::new(Mutex::new(Vec::<Warning>::new()));
    let list = Arc::clone(&told);
    let stages = [20, 60, 100_000].map(Duration::from_millis);
    let config = Config {
        timeout: TIMEOUT,
        warn_after: stages.to_vec(),
        on_warning: OnWarning::tell(move |warning| list.lock().unwrap().push(warning.clone())),
        ..Config::default()
    };
    let mut scene = Scene::with(&cluster, config);
    warm(scene.bench(), Algorithm::Ring);
    assert!(told.lock().unwrap().is_empty(), "nothing was slow");
    launch_without(&mut scene, 2, Algorithm::Ring);
    scene.failure().assert(ErrorCode::PEER_NOT_STARTED, 2, 1, Some(2));
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    for (warning, stage) in told.iter().zip(stages) {
        assert!(warning.after >= stage && warning.after < TIMEOUT, "{warning}");
        assert_eq!(warning.report.culprit_rank, Some(2), "{warning}");
        let text = warning.to_string();
        let head = format!(
            "W{} OPERATION_SLOW  comm \"test\"   op #2 all-reduce fp32 × 1000 sum by ring (scratch)",
            ErrorCode::OPERATION_SLOW.0
        );
        assert!(text.starts_with(&head) && text.lines().count() <= 6, "{text}");
        assert!(
            text.contains("rank 2 has not started operation #2") && text.contains("0.200 s, set by the test")
        );
    }
    assert!(told[0].executed > 0 && told[1].executed == 0, "{told:?}");
    scene.recovers();
}

/// NVIDIA/nccl#1063 asks for the operations in flight.
#[test]
fn what_is_pending_can_be_asked() {
    let cluster = cluster(3);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap();
    let of = |scene: &mut Scene<'_>| scene.bench().communicator().pending();
    let posted = of(&mut scene);
    assert_eq!(posted.len(), 1);
    assert_eq!((posted[0].rank, posted[0].sequence, posted[0].progress), (0, 2, Progress::Posted));
    assert_eq!(posted[0].operation, "all-reduce fp32 × 1000 sum by ring (scratch)");
    cluster.machine().run_until(|| false, Some(Instant::now() + Duration::from_millis(20)));
    let waiting = of(&mut scene).remove(0);
    assert_eq!((waiting.progress, waiting.step, waiting.peer), (Progress::Waiting, Some(0), Some(1)));
    assert!(waiting.task.is_some_and(|task| task > 0));
    scene.bench().launch_on(1, &case(Algorithm::Ring)).unwrap();
    scene.bench().launch_on(2, &case(Algorithm::Ring)).unwrap();
    cluster.machine().run_until(|| false, Some(Instant::now() + Duration::from_millis(50)));
    let done = of(&mut scene);
    assert_eq!(done.iter().map(|own| own.rank).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(done.iter().all(|own| own.progress == Progress::Done && own.task.is_none()), "{done:?}");
    scene.bench().communicator().synchronize().unwrap();
    assert!(of(&mut scene).is_empty());
}

/// A doorbell that a device never saw is rung once more in the middle of the deadline, and nobody notices; one that is
/// lost again is reported.
#[test]
fn a_doorbell_that_was_lost_is_rung_again_once() {
    let cluster = cluster(3);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    let lose = || cluster.machine().inject(1, Fault::At(When::default(), Mishap::LoseDoorbell));
    lose();
    let started = Instant::now();
    warm(scene.bench(), Algorithm::Ring);
    assert!(started.elapsed() >= TIMEOUT / 2, "{:?}", started.elapsed());
    assert_eq!(scene.bench().communicator().repeated_doorbells(), 1);
    warm(scene.bench(), Algorithm::Ring);
    assert_eq!(scene.bench().communicator().repeated_doorbells(), 1, "only what was lost");

    lose();
    lose();
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    let rank = failure.error().diagnosis().unwrap().rank;
    let report = failure.assert(ErrorCode::DOORBELL_LOST, 1, rank, Some(1));
    assert!(report.cause.starts_with("rank 1 has "), "{}", failure.error());
    assert_eq!(scene.bench().communicator().repeated_doorbells(), 2);
    scene.recovers();
}

/// The example of the specification: a cycle is a defect of an algorithm. Two ranks are made to wait for each other.
#[test]
fn a_circle_of_waits_is_printed_as_one() {
    let cluster = cluster(2);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    for rank in 0..2 {
        cluster.machine().inject(rank, Fault::Stall);
    }
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    cluster.machine().run_until(|| false, Some(Instant::now() + Duration::from_millis(20)));
    for rank in 0..2 {
        first_wait_and_record_swapped(&cluster, rank);
        cluster.machine().reset(rank);
    }
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::WAIT_CIRCLE, 0, 0, Some(1));
    assert!(
        report.cause.starts_with("2 ranks wait for each other in a circle: rank 0 task "),
        "{}",
        report.cause
    );
    scene.recovers();
}

/// In the ring of a rank's main thread, puts the first wait for the peer before the first record to it.
fn first_wait_and_record_swapped(cluster: &Cluster, rank: u32) {
    use wire::{Descriptor, DeviceAddr};
    use zerocopy::{FromZeros, IntoBytes};
    let npu = cluster.npu(rank);
    let (queue, slot) = aicpu_tests::rings::queues(cluster, rank, QueueKind::Thread)[0];
    let word = |table: u64| npu.window().word(table + 8 * u64::from(queue)).load(Ordering::Acquire);
    let (head, tail) = (word(wire::npu::HEADS), word(wire::npu::TAILS));
    let at = |position: u64| DeviceAddr(slot.ring + 64 * (position % u64::from(slot.depth)));
    let entry = |position: u64| {
        let mut entry = Descriptor::new_zeroed();
        npu.read(at(position), entry.as_mut_bytes()).unwrap();
        entry
    };
    let find = |opcode: u8| {
        (head..tail).find(|position| {
            let sqe = Sqe::from(entry(*position));
            sqe.opcode == opcode && sqe.peer != Sqe::NO_PEER
        })
    };
    let (record, wait) = (find(Sqe::RECORD_PEER).expect("a record"), find(Sqe::WAIT).expect("a wait"));
    assert!(record < wait, "the record comes first where nothing is wrong");
    let entries: Vec<Descriptor> = (record..=wait).map(entry).collect();
    let (last, others) = entries.split_last().expect("two at least");
    for (position, entry) in (record..).zip(core::iter::once(last).chain(others)) {
        npu.write(at(position), entry.as_bytes()).unwrap();
    }
}

/// hiascend N-second recovery: a communicator that is suspended says so, and one over a dead NPU is not made.
#[test]
fn what_cannot_go_on_says_why() {
    let cluster = cluster(2);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    scene.bench().communicator().suspend().unwrap();
    let error = scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::COMM_SUSPENDED, "{error}");
    scene.bench().communicator().resume().unwrap();
    warm(scene.bench(), Algorithm::Ring);

    cluster.machine().inject(1, Fault::At(When::default(), Mishap::Kill));
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    let culprit = failure.error().diagnosis().and_then(|report| report.culprit_rank);
    assert_eq!(culprit, Some(1), "{}", failure.error());
    let error = Communicator::create(&cluster, Config::default()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NPU_DEAD, "{error}");
    assert!(error.message().contains("rank 1"), "{error}");
    cluster.repair(1).unwrap();
    scene.recovers();
}

/// T1 with groups, NVIDIA/nccl#1111 and NVIDIA/Megatron-LM#1207: a stage of some ranks skips an operation. Its ranks are
/// counted within the group, its place is that of the machine; NPUs of others are none of its business.
#[test]
fn a_rank_of_a_group_is_named_by_group_and_place() {
    let cluster = cluster(4);
    let group = cluster.subset(&[3, 1]).unwrap();
    let mut others = Scene::with_deadline(&cluster, FAR);
    warm(others.bench(), Algorithm::Ring);
    let mut scene = Scene::new(&group);
    warm(scene.bench(), Algorithm::Ring);
    // An NPU outside the group stops at an error, and the group goes on.
    cluster.npu(2).deregister(others.bench().input().token(2)).unwrap();
    others.bench().launch_on(2, &case(Algorithm::Ring)).unwrap();
    cluster.machine().run_past_errors(|| false, Some(Instant::now() + Duration::from_millis(20)));
    assert!(cluster.npu(2).device_error().is_some());
    warm(scene.bench(), Algorithm::Ring);

    scene.bench().launch_on(1, &case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::PEER_NOT_STARTED, 0, 1, Some(0));
    assert_eq!(report.culprit_place, "host \"server-0\", device 3");
    assert_eq!(report.operation, "#3 all-reduce fp32 × 1000 sum by ring (scratch)");
    scene.recovers();
}
