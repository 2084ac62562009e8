//! Set-up is paid once: nothing is created, registered or written anew for an operation that has run before.
//! And what a launch checks of the buffers it gets.

use std::sync::Arc;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::variants::algorithms;
use aicpu_tests::world::{self, Place};
use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Communicator, Config, Operation, Place as At, SetUp, Vector};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::{CHANNELS, MAX_CHANNELS, MAX_QUEUES, MAX_REGIONS, QUEUES, QueueKind, REGIONS};
use wire::{DataType, ErrorCode, ReduceOp};

const RANKS: u32 = 4;

/// Everything that a host can create on the devices: the tables that the devices read, and free memory.
fn created(cluster: &Cluster) -> Vec<(Vec<u8>, u64)> {
    let tables = |rank: u32| {
        let npu = cluster.npu(rank);
        let mut bytes = vec![0; usize::try_from(32 * (MAX_REGIONS + MAX_CHANNELS + MAX_QUEUES)).unwrap()];
        const { assert!(CHANNELS == REGIONS + 32 * MAX_REGIONS && QUEUES == CHANNELS + 32 * MAX_CHANNELS) };
        npu.window().read(REGIONS, &mut bytes);
        (bytes, npu.free_bytes())
    };
    (0..RANKS).map(tables).collect()
}

#[test]
fn a17_e5_set_up_stays_flat_over_a_thousand_operations() {
    let cluster = world::threads(RANKS, Place::TwoServers, 32 << 20);
    let mut bench = Bench::new(&cluster, Config::default(), 4096).unwrap();
    let case = |algorithm, turn: u64| {
        let operation = Operation {
            op: OpKind::AllReduce,
            count: 1 + turn % 256,
            dtype: DataType::Int32,
            reduce: ReduceOp::Sum,
            algorithm,
            staging: Staging::Scratch,
            ..Operation::default()
        };
        Case { operation, in_place: turn % 2 == 1, shift: turn % 3, seed: turn }
    };
    assert_eq!(bench.communicator().set_up(), SetUp::default(), "nothing before the first operation");
    for algorithm in algorithms(OpKind::AllReduce) {
        bench.run(&case(algorithm, 0)).unwrap();
    }
    let set_up = bench.communicator().set_up();
    // For each algorithm: four ranks with three peers and one context each.
    let count = algorithms(OpKind::AllReduce).len() as u64;
    assert!(count >= 9);
    assert_eq!((set_up.channels, set_up.contexts), (12 * count, 4 * count));
    let tables = created(&cluster);
    let all = algorithms(OpKind::AllReduce);
    for turn in 0..1000 {
        let algorithm = all[usize::try_from(turn).unwrap() % all.len()];
        bench.run(&case(algorithm, turn)).unwrap();
    }
    assert_eq!(bench.communicator().set_up(), set_up);
    assert!(created(&cluster) == tables, "a table of the device, or its free memory, has changed");
}

/// Leaves an NPU with so many of something, by taking all others.
fn leave(cluster: &Cluster, npu: u32, queues: u64, notifies: u64) {
    let npu = cluster.npu(npu);
    while MAX_QUEUES - npu.usage().queues > queues {
        npu.create_queue(QueueKind::Thread, 4, 0).unwrap();
    }
    let spare = npu.usage().free_notifies - notifies;
    npu.alloc_notifies(u32::try_from(spare).unwrap()).unwrap();
}

#[test]
fn what_an_npu_has_too_little_of_is_refused_before_anything_is_created() {
    let operation =
        |algorithm| Operation { op: OpKind::AllReduce, count: 1000, algorithm, ..Operation::default() };
    // Of a mesh of four: four threads; six notifies of the main thread and 16 for starts, two for each sub thread, three
    // for each of three channels.
    let mesh = operation(Algorithm::MeshOneShot);
    for (queues, notifies, expected) in [
        (3, 100, Some((ErrorCode::QUEUES_FULL, "needs 4 queues, NPU 2 has 3 left"))),
        (4, 36, Some((ErrorCode::NOTIFIES_FULL, "needs 37 notifies, NPU 2 has 36 left"))),
        (4, 37, None),
    ] {
        let cluster = world::threads(RANKS, Place::OneServer, 32 << 20);
        let mut comm = Communicator::create(&cluster, Config::default()).unwrap();
        let buffer = SharedBuffer::new(&cluster, 4096).unwrap();
        let at = At { buffer: &buffer, offset: 0 };
        leave(&cluster, 2, queues, notifies);
        let usage = |cluster: &Cluster| (0..RANKS).map(|rank| cluster.npu(rank).usage()).collect::<Vec<_>>();
        let before = usage(&cluster);
        let Some((code, message)) = expected else {
            comm.launch_all(&mesh, at, at).unwrap();
            comm.synchronize().unwrap();
            continue;
        };
        let error = comm.launch(0, &mesh, at, at).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().starts_with(&format!("rank 2 {message}")), "{error}");
        assert!(error.advice().starts_with("choose an algorithm"), "{error}");
        assert_eq!(usage(&cluster), before);
        // One thread, and three notifies for each channel: a ring fits all the same.
        comm.launch_all(&operation(Algorithm::Ring), at, at).unwrap();
        comm.synchronize().unwrap();
    }
}

#[test]
fn what_peers_touch_directly_begins_at_the_start_of_its_buffer() {
    let cluster = world::threads(2, Place::OneServer, 8 << 20);
    let mut comm = Communicator::create(&cluster, Config::default()).unwrap();
    let buffer = SharedBuffer::new(&cluster, 4096).unwrap();
    let at = |offset| At { buffer: &buffer, offset };
    let operation = |algorithm| Operation {
        op: OpKind::AllReduce,
        count: 64,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        algorithm,
        staging: Staging::Direct,
        ..Operation::default()
    };
    for (algorithm, input, output, name) in [
        (Algorithm::Ring, 0, 1024, "output"),
        (Algorithm::MeshTwoShot, 1024, 0, "input"),
        (Algorithm::MeshOneShot, 0, 1024, "output"),
    ] {
        let error = comm.launch(0, &operation(algorithm), at(input), at(output)).unwrap_err();
        let expected = format!("{name}: peers touch it, and it lies at offset 1024 of its buffer");
        assert_eq!((error.code(), error.message()), (ErrorCode::LAUNCH_BUFFER, &*expected));
    }
    // A ring reads its input alone.
    comm.launch_all(&operation(Algorithm::Ring), at(1024), at(0)).unwrap();
    comm.synchronize().unwrap();
}

/// Input and output that share memory otherwise than in place are refused before anything is launched.
#[test]
fn what_is_not_in_place_is_not_launched() {
    let cluster = world::threads(2, Place::OneServer, 8 << 20);
    let mut comm = Communicator::create(&cluster, Config::default()).unwrap();
    let buffer = SharedBuffer::new(&cluster, 4096).unwrap();
    let at = |offset| At { buffer: &buffer, offset };
    let of = |op, algorithm, vector: Option<Vector>| Operation {
        op,
        count: if vector.is_some() { 0 } else { 64 },
        vector: vector.map(Arc::new),
        dtype: DataType::Fp32,
        algorithm,
        staging: Staging::Scratch,
        ..Operation::default()
    };
    let moves = Vector::of_matrix(&[vec![1, 2], vec![3, 4]]);
    let (apart, moved) = (
        "overlap and are not in place",
        "what comes to rank 0 does not belong where what goes from there is",
    );
    for (operation, input, output, message) in [
        (of(OpKind::AllReduce, Algorithm::Ring, None), 0, 4, apart),
        (of(OpKind::AllReduce, Algorithm::Ring, None), 252, 0, apart),
        // At rank 0 the share is the first of the whole.
        (of(OpKind::AllGather, Algorithm::Ring, None), 256, 0, apart),
        (of(OpKind::ReduceScatter, Algorithm::Ring, None), 0, 256, apart),
        (of(OpKind::AllToAllV, Algorithm::Pairwise, moves), 0, 0, moved),
    ] {
        let error = comm.launch(0, &operation, at(input), at(output)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::LAUNCH_OVERLAP, "{error}");
        assert!(error.message().contains(message), "{error}");
    }
    // Nothing is under way, and what touches but does not overlap is as good as any.
    for (input, output) in [(0, 256), (256, 0), (0, 0)] {
        comm.launch_all(&of(OpKind::AllReduce, Algorithm::Ring, None), at(input), at(output)).unwrap();
        assert_eq!(comm.synchronize().unwrap().len(), 2);
    }
    let stays = Vector::of_matrix(&[vec![2, 2], vec![2, 2]]);
    comm.launch_all(&of(OpKind::AllToAllV, Algorithm::Pairwise, stays), at(0), at(0)).unwrap();
    assert_eq!(comm.synchronize().unwrap().len(), 2);
}
