//! Replays that succeed.

use std::sync::Arc;

use aicpu_tests::variants::algorithms;
use aicpu_tests::world::{self, Place};
use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Operation, Slot};
use host_launcher::traffic::Traffic;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp};

use crate::rig::{Rig, Step, chain, config, operation, rotate, step};

const MEMORY: u64 = 24 << 20;

#[test]
fn three_operations_replayed_with_rotating_buffers() {
    for (place, ranks, replays) in
        [(Place::OneServer, 4, 200), (Place::TwoServers, 5, 30), (Place::UnifiedBus, 4, 30)]
    {
        let cluster = world::threads(ranks, place, MEMORY);
        rotate(&cluster, &chain(250), 4, replays, 8 << 10);
    }
}

#[test]
fn one_rank_one_operation_and_no_data() {
    let cluster = world::threads(1, Place::OneServer, MEMORY);
    rotate(&cluster, &chain(250)[..1], 2, 3, 8 << 10);
    let cluster = world::threads(3, Place::OneServer, MEMORY);
    rotate(&cluster, &chain(0), 4, 3, 8 << 10);
}

/// Every algorithm, direct and in scratch, many chunks in the middle, the same context twice in turn, in place.
#[test]
fn everything_in_one_program() {
    let cluster = world::threads(4, Place::OneServer, MEMORY);
    let mut direct = operation(OpKind::AllReduce, Algorithm::MeshTwoShot, 300);
    direct.staging = Staging::Direct;
    let mut chunked = operation(OpKind::AllReduce, Algorithm::Ring, 300);
    chunked.chunk = 16;
    let reduce = |algorithm| operation(OpKind::AllReduce, algorithm, 300);
    let shared = |offset, stride| Slot { index: 2, offset, stride };
    let steps = [
        step(direct, 0, 1),
        step(chunked, 1, 2),
        step(reduce(Algorithm::Ring), 2, 1),
        step(reduce(Algorithm::Ring), 1, 3),
        step(reduce(Algorithm::HalvingDoubling), 3, 1),
        step(reduce(Algorithm::MeshOneShot), 1, 1),
        Step {
            operation: operation(OpKind::AllGather, Algorithm::Nhr, 100),
            input: shared(64, 400),
            output: shared(64, 0),
        },
        Step {
            operation: operation(OpKind::ReduceScatter, Algorithm::Ring, 100),
            input: shared(64, 0),
            output: shared(64, 400),
        },
    ];
    rotate(&cluster, &steps, 4, 12, 4 << 10);
}

/// An operation by the name users type, of at most `count` elements a block.
fn named(name: &str, count: u64, ranks: u32) -> Operation {
    let traffic = Traffic::named(name).unwrap();
    let vector = traffic.vector(count, count, ranks).map(Arc::new);
    let count = if vector.is_some() { 0 } else { count };
    Operation { vector, ..operation(traffic.op(), algorithms(traffic.op())[0], count) }
}

/// What the field keeps out of its cache: partners, batches, counts of each rank's own, 64-bit types and products, in
/// place, over every link. Replayed, everything hits.
#[test]
fn partners_vectors_wide_types_and_products_in_one_program() {
    for place in [Place::OneServer, Place::TwoServers, Place::UnifiedBus] {
        let ranks = 4;
        let reduced = |name, dtype, reduce| Operation { dtype, reduce, ..named(name, 40, ranks) };
        let steps = [
            step(named("send-recv", 60, ranks), 0, 1),
            step(named("batch-send-recv", 50, ranks), 0, 2),
            step(named("all-to-all-v", 30, ranks), 0, 3),
            step(named("all-to-all-vc", 25, ranks), 0, 4),
            step(named("all-gather-v", 45, ranks), 0, 5),
            step(reduced("reduce-scatter-v", DataType::Int64, ReduceOp::Sum), 0, 6),
            step(reduced("all-reduce", DataType::Uint64, ReduceOp::Max), 0, 7),
            step(reduced("all-reduce", DataType::Int32, ReduceOp::Prod), 7, 7),
            step(reduced("reduce-scatter", DataType::Int64, ReduceOp::Prod), 7, 8),
            step(named("all-to-all", 20, ranks), 8, 9),
        ];
        rotate(&world::threads(ranks, place, MEMORY), &steps, 10, 60, 4 << 10);
    }
}

/// As many buffers as a program may name, each moved at its own pace.
#[test]
fn a_program_of_128_buffers() {
    let next = |slot| step(operation(OpKind::AllReduce, Algorithm::Ring, 8), slot, slot + 1);
    let steps: Vec<_> = (0..127).map(next).collect();
    rotate(&world::threads(2, Place::OneServer, MEMORY), &steps, 128, 6, 32);
}

/// vllm-ascend#3389 and #9691: every captured graph took queues and notifies of its own, until there were none. Here
/// it takes memory alone, and when that is used up, it says so and everything captured before goes on.
#[test]
fn t20_two_hundred_programs_on_four_communicators() {
    let cluster = world::threads(2, Place::OneServer, MEMORY);
    let free = cluster.npu(0).free_bytes();
    let mut rigs: Vec<_> = (0..4).map(|_| Rig::new(&cluster, config())).collect();
    let buffers: [SharedBuffer; 4] = rigs[0].buffers(1 << 10);
    let slots: Vec<_> = buffers.iter().collect();
    let steps: Vec<_> = (0..200).map(|number| chain(50 - number % 50)).collect();
    let mut programs: Vec<Vec<_>> = vec![Vec::new(); 4];
    let mut tables = None;
    for (number, steps) in steps.iter().enumerate() {
        for (rig, programs) in rigs.iter_mut().zip(&mut programs) {
            programs.push(rig.capture(steps).unwrap());
        }
        // Queues, channels and notifies are those of the algorithms, whatever was captured first.
        let set_up: Vec<_> = rigs.iter().map(|rig| rig.comm.set_up()).collect();
        let before = tables.get_or_insert(set_up.clone());
        assert_eq!(set_up, *before, "program {number}");
    }
    for (seed, number) in (0..).zip((0..200).step_by(7)) {
        for (rig, programs) in rigs.iter_mut().zip(&programs) {
            rig.replay(seed, &programs[number], &steps[number], &slots);
        }
    }
    let full = loop {
        match rigs[0].capture(&steps[0]) {
            Ok(program) => programs[0].push(program),
            Err(error) => break error,
        }
    };
    assert_eq!(full.code(), ErrorCode::DEVICE_MEMORY_FULL, "{full}");
    rigs[3].replay(99, &programs[3][199], &steps[199], &slots);
    rigs[0].replay(98, &programs[0][0], &steps[0], &slots);
    rigs.into_iter().for_each(|rig| rig.finish([]));
    buffers.into_iter().for_each(|buffer| buffer.free(&cluster).unwrap());
    assert_eq!(cluster.npu(0).free_bytes(), free, "everything is given back");
}

/// ROCm/mori#559: two captured sizes on one communicator in turn: the layout depends on the size, and nothing of the other may stay.
#[test]
fn t21_two_sizes_in_turn() {
    let cluster = world::threads(3, Place::OneServer, MEMORY);
    let mut rig = Rig::new(&cluster, config());
    let buffers: [SharedBuffer; 4] = rig.buffers(1 << 10);
    let slots: Vec<_> = buffers.iter().collect();
    let sizes = [chain(24), chain(61)];
    let programs = sizes.clone().map(|steps| rig.capture(&steps).unwrap());
    for replay in 0..1000 {
        let which = usize::from(replay % 2 == 1);
        rig.replay(replay, &programs[which], &sizes[which], &slots);
    }
    rig.finish(buffers);
}

/// vllm-ascend#13688: as many replays in flight as there can be, on buffers of their own.
#[test]
fn t18_replays_in_flight_do_not_take_each_others_signals() {
    let cluster = world::threads(4, Place::OneServer, MEMORY);
    let mut rig = Rig::new(&cluster, config());
    let steps = chain(50);
    let program = rig.capture(&steps).unwrap();
    let sets: Vec<[SharedBuffer; 4]> = (0..16).map(|_| rig.buffers(1 << 10)).collect();
    for round in 0..20 {
        let slots: Vec<Vec<_>> = sets.iter().map(|set| set.iter().collect()).collect();
        let mut expected = Vec::new();
        for (seed, slots) in (16 * round..).zip(&slots) {
            rig.fill(seed, slots);
            expected.push(rig.expected(&steps, slots));
            rig.comm.replay(&program, slots).unwrap();
        }
        rig.comm.synchronize().unwrap();
        for (expected, slots) in expected.iter().zip(&slots) {
            rig.check(expected, slots, "in flight");
        }
    }
    rig.finish(sets.into_iter().flatten());
}

/// What stands behind an operation is not in its graph's address but in its last task: alone, first, in the middle and
/// last it must not be given the graph of another place.
#[test]
fn one_operation_in_every_place() {
    let cluster = world::threads(3, Place::OneServer, MEMORY);
    let mut rig = Rig::new(&cluster, config());
    let turn = |input, output| step(operation(OpKind::AllReduce, Algorithm::Ring, 60), input, output);
    let sequences: [&[Step]; 4] = [
        &[turn(0, 1)],
        &[turn(0, 1), turn(1, 2)],
        &[turn(0, 1), turn(1, 2), turn(2, 0)],
        &[turn(0, 2), turn(2, 1), turn(1, 0), turn(0, 2)],
    ];
    let programs = sequences.map(|steps| rig.capture(steps).unwrap());
    let buffers: [SharedBuffer; 3] = rig.buffers(1 << 10);
    for replay in 0..40 {
        let which = usize::try_from(replay * 7 / 3 % 4).unwrap();
        let slots: Vec<_> = buffers.iter().take(programs[which].needs().len()).collect();
        rig.replay(replay, &programs[which], sequences[which], &slots);
    }
    rig.finish(buffers);
}

/// NVIDIA/nccl#2351: buffers that are freed, made anew and registered at another place between replays.
#[test]
fn t23_t24_buffers_that_move_between_replays() {
    let cluster = world::threads(4, Place::OneServer, MEMORY);
    let mut rig = Rig::new(&cluster, config());
    let mut steps = chain(250);
    steps[0].operation.algorithm = Algorithm::MeshTwoShot;
    steps[0].operation.staging = Staging::Direct;
    let program = rig.capture(&steps).unwrap();
    let mut places = std::collections::HashSet::new();
    for replay in 0..20 {
        // Each time something else stands in the way.
        let obstacle = SharedBuffer::new(&cluster, 4096 * (1 + replay % 5)).unwrap();
        let buffers: [SharedBuffer; 4] = rig.buffers(8 << 10);
        places.insert(buffers[0].addr(0));
        rig.replay(replay, &program, &steps, &buffers.iter().collect::<Vec<_>>());
        buffers.into_iter().chain([obstacle]).for_each(|buffer| buffer.free(&cluster).unwrap());
    }
    assert!(places.len() > 2, "they did move");
    rig.finish([]);
}

#[test]
fn the_image_replays_programs() {
    let Some(aicpu) = world::image() else { return };
    let cluster = Cluster::start(world::topology(4, Place::OneServer), MEMORY, &aicpu).unwrap();
    rotate(&cluster, &chain(250), 4, 10, 8 << 10);
}
