//! Captured graphs and replays: ranks that replay different ones, addresses and sizes that change, resources that run out.

use core::time::Duration;
use std::time::Instant;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::scene::{FAR, Scene, TIMEOUT, case};
use aicpu_tests::world::{self, Place};
use device_model::fabric::{BASE_STEP, Fabric, FabricConfig};
use device_model::fault::{Fault, Mishap, When};
use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Config, Program};
use wire::launch::{Algorithm, CacheOutcome, OpKind, Staging};
use wire::{DeviceAddr, ErrorCode};

use crate::rig::{Rig, Step, chain, config, operation, rotate, step};

fn cluster(ranks: u32) -> Cluster {
    world::threads(ranks, Place::OneServer, 24 << 20)
}

fn free(cluster: &Cluster, buffers: impl IntoIterator<Item = SharedBuffer>) {
    buffers.into_iter().for_each(|buffer| buffer.free(cluster).unwrap());
}

/// T17, vllm-project/vllm-ascend#13826 and #6002: ranks pad differently, and replay graphs of different sizes; or one of
/// them does not replay at all. In the field a hang, or garbage.
#[test]
fn ranks_that_replay_different_graphs_are_told_apart() {
    let cluster = cluster(3);
    // Another size, fewer operations, or one operation that was not captured at rank 1.
    for other in ["another size", "fewer operations", "not captured"] {
        let mut rig = Rig::new(&cluster, Config { timeout: FAR, ..config() });
        let programs =
            [&chain(100)[..], &chain(70), &chain(100)[..2]].map(|steps| rig.capture(steps).unwrap());
        let [a, b, c, d] = rig.buffers(2 << 10);
        let slots = [&a, &b, &c, &d];
        rig.replay(1, &programs[0], &chain(100), &slots);
        let started = Instant::now();
        for rank in [0, 2] {
            rig.comm.replay_on(rank, &programs[0], &slots).unwrap();
        }
        let place = |buffer| host_launcher::communicator::Place { buffer, offset: 0 };
        match other {
            "another size" => rig.comm.replay_on(1, &programs[1], &slots),
            "fewer operations" => rig.comm.replay_on(1, &programs[2], &slots[..3]),
            _ => rig.comm.launch(1, &chain(100)[0].operation, place(&a), place(&b)),
        }
        .unwrap();
        let error = rig.comm.synchronize().unwrap_err();
        assert!(started.elapsed() < FAR / 2, "{other}: by the signatures, before the deadline");
        let report = error.diagnosis().unwrap();
        assert_eq!(report.culprit_rank, Some(1), "{other}: {error}");
        let (code, cause) = match other {
            "another size" => {
                (ErrorCode::ARGUMENTS_DIFFER, "1: count is 70 at rank 1, but 100 at ranks 0, 2.")
            }
            "fewer operations" => (
                ErrorCode::PEER_DIFFERS,
                "number of operations is 2 (a captured program) at rank 1, but 3 (a captured program) at ranks 0, 2.",
            ),
            _ => (
                ErrorCode::PEER_DIFFERS,
                "number of operations is 1 at rank 1, but 3 (a captured program) at ranks 0, 2.",
            ),
        };
        assert_eq!((error.code(), &*report.cause), (code, cause), "{error}");
        rig.comm.destroy().unwrap();
        free(&cluster, [a, b, c, d]);
    }
}

/// T18, vllm-project/vllm-ascend#13688: replays that shared a notify waited for each other. Two communicators of the same
/// ranks have replays in flight, which each rank was given in another order.
#[test]
fn replays_of_two_communicators_share_no_notify() {
    let cluster = cluster(4);
    let mut rigs = [0, 1].map(|_| Rig::new(&cluster, config()));
    let steps = [chain(60), chain(33)];
    let programs: Vec<Program> =
        rigs.iter_mut().zip(&steps).map(|(rig, steps)| rig.capture(steps).unwrap()).collect();
    let buffers: Vec<[SharedBuffer; 4]> = rigs.iter().map(|rig| rig.buffers(1 << 10)).collect();
    for seed in 0..20 {
        let slots: Vec<Vec<_>> = buffers.iter().map(|own| own.iter().collect()).collect();
        let mut expected = Vec::new();
        for ((rig, steps), slots) in rigs.iter().zip(&steps).zip(&slots) {
            rig.fill(seed, slots);
            expected.push(rig.expected(steps, slots));
        }
        for rank in 0..4 {
            let order = if rank % 2 == 0 { [0, 1] } else { [1, 0] };
            for which in order {
                rigs[which].comm.replay_on(rank, &programs[which], &slots[which]).unwrap();
            }
        }
        for (which, rig) in rigs.iter_mut().enumerate() {
            rig.comm.synchronize().unwrap();
            rig.check(&expected[which], &slots[which], "crossed");
        }
    }
    rigs.into_iter().zip(buffers).for_each(|(rig, own)| rig.finish(own));
}

/// T19, jd-opensource/xllm#2284, and T20, vllm-project/vllm-ascend#3389 and #5213: streams that a capture leaves unjoined,
/// and streams that run out because each captured graph takes some. Here 4 communicators with 200 graphs each take what
/// their first operation takes, and memory for programs alone; what does run out is named with number and remedy.
#[test]
fn eight_hundred_graphs_take_no_queue_and_no_notify() {
    let cluster = world::threads(2, Place::OneServer, 48 << 20);
    let usage = || (0..2).map(|rank| cluster.npu(rank).usage()).collect::<Vec<_>>();
    let before = usage();
    let mut rigs: Vec<Rig<'_>> = (0..4).map(|_| Rig::new(&cluster, config())).collect();
    let one = |count| [step(operation(OpKind::AllReduce, Algorithm::Ring, count), 0, 1)];
    let first: Vec<Program> = rigs.iter_mut().map(|rig| rig.capture(&one(16)).unwrap()).collect();
    let warm = usage();
    let mut programs = Vec::new();
    for rig in &mut rigs {
        programs.push((1..200).map(|count| rig.capture(&one(count)).unwrap()).collect::<Vec<_>>());
    }
    for (now, warm) in usage().iter().zip(&warm) {
        let resources = |usage: &device_model::driver::Usage| {
            (usage.queues, usage.channels, usage.free_notifies, usage.host_notifies, usage.regions)
        };
        assert_eq!(resources(now), resources(warm), "graphs take memory only");
        assert!(warm.free_bytes - now.free_bytes < 800 * 2048, "{warm:?} {now:?}");
    }
    for (seed, (rig, (first, programs))) in (0..).zip(rigs.iter_mut().zip(first.iter().zip(&programs))) {
        let [a, b] = rig.buffers(1 << 10);
        for (count, program) in [(16, first), (1, &programs[0]), (199, &programs[198])] {
            rig.replay(seed, program, &one(count), &[&a, &b]);
        }
        free(&cluster, [a, b]);
    }
    // What does run out says what, of which there are how many.
    let take = |count| cluster.npu(1).alloc_notifies(count).ok();
    let hoard: Vec<_> = core::iter::from_fn(|| take(64).or_else(|| take(1))).collect();
    let mut last = Rig::new(&cluster, config());
    let steps = [step(operation(OpKind::AllReduce, Algorithm::MeshTwoShot, 16), 0, 1)];
    let error = last.capture(&steps).expect_err("no notify is left");
    assert_eq!(error.code(), ErrorCode::NOTIFIES_FULL, "{error}");
    assert!(error.message().contains("NPU 1") && error.message().contains("notif"), "{error}");
    assert!(!error.to_string().contains("storage"), "{error}");
    hoard.into_iter().for_each(|range| cluster.npu(1).free_notifies(range.start).unwrap());
    last.capture(&steps).expect("there are notifies again");
    last.finish([]);
    rigs.into_iter().for_each(|rig| rig.finish([]));
    assert_eq!(usage(), before, "everything is given back");
}

/// T21, ROCm/mori PR#559: one communicator with two sizes in turn; places depend on the size, and a shard of the other
/// size's stayed.
#[test]
fn two_sizes_in_turn_a_thousand_times() {
    let cluster = cluster(4);
    let mut bench = Bench::new(&cluster, config(), 16 << 10).unwrap();
    for seed in 0..1000 {
        let mut case = Case { seed, ..case(Algorithm::MeshTwoShot) };
        let odd = seed % 2 == 1;
        case.operation.count = if odd { 61 } else { 1024 };
        case.operation.staging = if seed % 4 < 2 { Staging::Direct } else { Staging::Scratch };
        let hit = bench.run(&case).unwrap().iter().all(|done| done.status.cache == CacheOutcome::Hit as u8);
        assert!(hit || seed < 4, "step {seed}");
    }
    bench.finish().unwrap();
}

/// T23, ROCm/aiter#3838 and pytorch/pytorch#196133: buffers that are freed and made anew at another address between
/// replays of one graph.
#[test]
fn buffers_at_other_addresses_between_replays() {
    let cluster = cluster(3);
    let mut rig = Rig::new(&cluster, config());
    let mut steps = chain(100);
    (steps[0].operation.algorithm, steps[0].operation.staging) = (Algorithm::MeshTwoShot, Staging::Direct);
    let program = rig.capture(&steps).unwrap();
    let mut places = Vec::new();
    for replay in 0..12 {
        let obstacle = SharedBuffer::new(&cluster, 4096 * (1 + replay % 4)).unwrap();
        let buffers: [SharedBuffer; 4] = rig.buffers(2 << 10);
        places.push(buffers[0].addr(0));
        rig.replay(replay, &program, &steps, &buffers.iter().collect::<Vec<_>>());
        free(&cluster, buffers.into_iter().chain([obstacle]));
    }
    places.sort();
    places.dedup();
    assert!(places.len() > 1, "they did move: {places:?}");
    rig.finish([]);
    // Sets of buffers that take turns, each slot at its own pace.
    rotate(&cluster, &chain(100), 4, 12, 2 << 10);
}

/// T24, NVIDIA/nccl#2351 and vllm-project/vllm#46234: after a restore everything lies elsewhere. A graph from before is
/// refused by what it is, not by its addresses; captured anew it works.
#[test]
fn a_graph_from_before_a_suspension_is_refused() {
    let cluster = cluster(3);
    let mut rig = Rig::new(&cluster, config());
    let program = rig.capture(&chain(100)).unwrap();
    let buffers: [SharedBuffer; 4] = rig.buffers(2 << 10);
    rig.replay(1, &program, &chain(100), &buffers.iter().collect::<Vec<_>>());
    rig.comm.suspend().unwrap();
    let old = buffers[0].addr(1);
    free(&cluster, buffers);
    let obstacle = SharedBuffer::new(&cluster, 1 << 16).unwrap();
    rig.comm.resume().unwrap();
    let buffers: [SharedBuffer; 4] = rig.buffers(2 << 10);
    assert_ne!(buffers[0].addr(1), old);
    let slots: Vec<_> = buffers.iter().collect();
    let error = rig.comm.replay(&program, &slots).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PROGRAM_STALE, "{error}");
    let program = rig.capture(&chain(100)).unwrap();
    rig.replay(2, &program, &chain(100), &slots);
    drop(slots);
    rig.finish(buffers.into_iter().chain([obstacle]));
}

/// T26, NVIDIA/nccl#1924: operations back to back on one buffer, of which a slow peer has still to read. In the field
/// right with two buffers and wrong with one.
#[test]
fn operations_back_to_back_on_one_buffer_with_a_slow_peer() {
    let cluster = cluster(4);
    for (algorithm, staging) in [
        (Algorithm::MeshTwoShot, Staging::Direct),
        (Algorithm::MeshTwoShot, Staging::Scratch),
        (Algorithm::Ring, Staging::Scratch),
    ] {
        let mut rig = Rig::new(&cluster, config());
        let mut turn = operation(OpKind::AllReduce, algorithm, 300);
        turn.staging = staging;
        // One buffer; what works directly needs another to go to, and overwrites what its peers read in the next turn.
        let places =
            |index: u32| if staging == Staging::Direct { (index % 2, 1 - index % 2) } else { (0, 0) };
        let one = |index| step(turn.clone(), places(index).0, places(index).1);
        let steps: Vec<Step> = (0..8).map(one).collect();
        let program = rig.capture(&steps).unwrap();
        let buffers: [SharedBuffer; 2] = rig.buffers(1200);
        let slots: Vec<_> = buffers.iter().take(program.needs().len()).collect();
        for slow in 0..4 {
            let pace = Mishap::Slow(Duration::from_micros(50));
            cluster.machine().inject(slow, Fault::At(When::default(), pace));
            rig.replay(u64::from(slow), &program, &steps, &slots);
            cluster.repair(slow).unwrap();
        }
        rig.finish(buffers);
    }
}

/// T28, local-inference-lab/b12x#313 and meta-pytorch/torchcomms PR#750: a limit that counted polls, and a watchdog that
/// did not look at replays. The deadline is time, and holds for replays too.
#[test]
fn a_replay_that_a_rank_stays_away_from_ends_at_the_deadline() {
    let cluster = cluster(3);
    let mut rig = Rig::new(&cluster, Config { timeout: TIMEOUT, ..config() });
    let program = rig.capture(&chain(100)).unwrap();
    let buffers: [SharedBuffer; 4] = rig.buffers(2 << 10);
    let slots: Vec<_> = buffers.iter().collect();
    rig.replay(1, &program, &chain(100), &slots);
    for rank in [0, 2] {
        rig.comm.replay_on(rank, &program, &slots).unwrap();
    }
    let started = Instant::now();
    let error = rig.comm.synchronize().unwrap_err();
    let elapsed = started.elapsed();
    assert!(elapsed >= TIMEOUT && elapsed < TIMEOUT + Duration::from_secs(1), "{elapsed:?}");
    assert_eq!(error.code(), ErrorCode::PEER_NOT_STARTED, "{error}");
    assert_eq!(error.diagnosis().unwrap().culprit_rank, Some(1), "{error}");
    drop(slots);
    rig.finish(buffers);
}

/// T29, hazard H1: a peer's scratch buffer at an address that is, as a number, within a user's own buffer. Told apart by
/// what they are, replays with moved buffers stay right. (`replay::addresses` does it for everything there is.)
#[test]
fn equal_addresses_on_two_devices_are_two_places() {
    let bases = vec![DeviceAddr(BASE_STEP); 2];
    let fabric = Fabric::create(&FabricConfig { bases, ..FabricConfig::new(2, 32 << 20) }).unwrap();
    let cluster = Cluster::over(&fabric, world::topology(2, Place::OneServer), &Aicpu::Thread).unwrap();
    let filler = cluster.npu(1).alloc(512 << 10, 128).unwrap();
    let sets: Vec<[SharedBuffer; 2]> =
        (0..3).map(|_| [0, 1].map(|_| SharedBuffer::new(&cluster, 512 << 10).unwrap())).collect();
    cluster.npu(1).free(filler).unwrap();
    let mut rig = Rig::new(&cluster, config());
    let steps = [step(operation(OpKind::AllReduce, Algorithm::Ring, 1000), 0, 1)];
    let program = rig.capture(&steps).unwrap();
    // The scratch of rank 1 went to where the filler was: an address of rank 0's first buffer.
    let probe = cluster.npu(1).alloc(64, 64).unwrap();
    assert!(probe.0 > sets[0][0].addr(0).0, "the hole is in use");
    for (seed, set) in [(1, 0), (2, 1), (3, 2), (4, 0)] {
        rig.replay(seed, &program, &steps, &[&sets[set][0], &sets[set][1]]);
    }
    cluster.npu(1).free(probe).unwrap();
    rig.finish(sets.into_iter().flatten());
}

/// T31, hazard H3: a communicator with ever-changing sizes fills the cache, and another one's steps never hit again.
/// (`replay::sharing` does it with 5,000 sizes.)
#[test]
fn ever_changing_sizes_do_not_starve_another_communicator() {
    let cluster = cluster(2);
    let mut changing = Bench::new(&cluster, config(), 8 << 10).unwrap();
    let mut steady = Bench::new(&cluster, config(), 8 << 10).unwrap();
    let sized = |count| {
        let mut case = case(Algorithm::Ring);
        case.operation.count = count;
        case
    };
    for count in 1..=600 {
        changing.run(&sized(count)).unwrap();
    }
    let mut hits = 0;
    for step in 0..200 {
        changing.run(&sized(601 + step)).unwrap();
        let done = steady.run(&Case { seed: step, ..sized(64) }).unwrap();
        hits += u64::from(done.iter().all(|own| own.status.cache == CacheOutcome::Hit as u8));
    }
    assert!(hits >= 198, "{hits} of 200");
    [changing, steady].into_iter().for_each(|bench| bench.finish().unwrap());
}

/// T32, hazard H4: the plan changes between steps although the size does not. On all ranks: the new plan is carried out;
/// on one: named. In the field the algorithm is not part of the key.
#[test]
fn another_plan_for_the_same_size_is_another_graph() {
    let cluster = cluster(4);
    let mut scene = Scene::with_deadline(&cluster, FAR);
    let plans: Vec<Case> =
        [Algorithm::Ring, Algorithm::Nhr, Algorithm::HalvingDoubling, Algorithm::MeshTwoShot]
            .into_iter()
            .flat_map(|algorithm| {
                [0, 96].map(|chunk| {
                    let mut case = case(algorithm);
                    case.operation.chunk = chunk;
                    case
                })
            })
            .collect();
    for seed in 0..40 {
        let which = usize::try_from(seed * 7 % 8).unwrap();
        scene.bench().run(&Case { seed, ..plans[which].clone() }).unwrap();
    }
    for rank in 0..4 {
        scene.bench().launch_on(rank, if rank == 3 { &plans[2] } else { &plans[0] }).unwrap();
    }
    let failure = scene.failure();
    let report = failure.error().diagnosis().unwrap();
    assert_eq!((failure.error().code(), report.culprit_rank), (ErrorCode::ARGUMENTS_DIFFER, Some(3)));
    assert_eq!(report.cause, "algorithm is nhr at rank 3, but ring at ranks 0-2.");
    scene.recovers();
}

/// T33, hazard H5: an expansion that ends half-way must leave nothing that a later operation takes for whole. A rank dies
/// at each of the tasks of the first operation; after a repair the same operation, of the same name, is right.
#[test]
fn an_expansion_that_ended_half_way_is_not_replayed() {
    for nth in 0..24 {
        let cluster = Cluster::simulate(world::topology(3, Place::OneServer), 24 << 20, nth).unwrap();
        let config =
            Config { timeout: Duration::from_millis(200), warn_after: Vec::new(), ..Config::default() };
        let mut bench = Bench::new(&cluster, config.clone(), 8 << 10).unwrap();
        let spared = u32::try_from(nth).unwrap();
        cluster.machine().inject(1, Fault::At(When { spared, ..When::default() }, Mishap::Kill));
        bench.launch(&case(Algorithm::Ring)).unwrap();
        let failed = bench.communicator().synchronize();
        bench.abandon().unwrap();
        cluster.repair(1).unwrap();
        let mut bench = Bench::new(&cluster, config, 8 << 10).unwrap();
        for seed in 0..3 {
            bench.run(&Case { seed, ..case(Algorithm::Ring) }).unwrap();
        }
        bench.finish().unwrap();
        assert!(failed.is_err() || nth > 12, "task {nth} is one of its tasks");
    }
}
