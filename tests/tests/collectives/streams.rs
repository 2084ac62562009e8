//! Several operations in flight: in order within a communicator, in order on a stream, independent otherwise.

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::variants::{Variant, algorithms};
use aicpu_tests::world::{self, Place};
use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Communicator, Config, Operation, Place as At, Progress};
use wire::DataType;
use wire::launch::{Algorithm, OpKind, Staging};

const BYTES: u64 = 64 << 10;

fn case(algorithm: Algorithm) -> Case {
    let operation =
        Variant { op: OpKind::AllReduce, algorithm, staging: Staging::Scratch }.operation(1003, 4, 1);
    Case { operation, in_place: false, shift: 0, seed: 1 }
}

fn bench<'c>(cluster: &'c Cluster, name: &str) -> Bench<'c> {
    Bench::new(cluster, Config { name: name.to_owned(), ..Config::default() }, BYTES).unwrap()
}

/// Each operation works on the result of the one before, in rings of its own: all are in flight at once.
#[test]
fn operations_of_a_communicator_are_in_order_whatever_their_algorithms() {
    const COUNT: usize = 1003;
    let cluster = world::threads(4, Place::TwoServers, 32 << 20);
    let mut comm = Communicator::create(&cluster, Config::default()).unwrap();
    let buffer = SharedBuffer::new(&cluster, 8 * COUNT as u64).unwrap();
    let operation = |algorithm| Operation {
        count: COUNT as u64,
        dtype: DataType::Int64,
        ..Variant { op: OpKind::AllReduce, algorithm, staging: Staging::Scratch }.operation(
            COUNT as u64,
            4,
            0,
        )
    };
    let all = algorithms(OpKind::AllReduce);
    assert!(all.len() >= 9, "{all:?}");
    for start in 0..all.len() {
        // As many as can be in flight, no two neighbours by the same algorithm.
        let chain: Vec<_> = (0..12).map(|index| all[(start + index) % all.len()]).collect();
        for rank in 0..4 {
            let values: Vec<u8> =
                (0..COUNT as u64).flat_map(|index| (index + u64::from(rank)).to_le_bytes()).collect();
            cluster.npu(rank).write(buffer.addr(rank), &values).unwrap();
        }
        let at = At { buffer: &buffer, offset: 0 };
        chain.iter().for_each(|&algorithm| comm.launch_all(&operation(algorithm), at, at).unwrap());
        assert_eq!(comm.synchronize().unwrap().len(), 4 * chain.len());
        for rank in 0..4 {
            let mut bytes = vec![0; 8 * COUNT];
            cluster.npu(rank).read(buffer.addr(rank), &mut bytes).unwrap();
            for (index, value) in (0_u64..).zip(bytes.chunks_exact(8)) {
                let value = u64::from_le_bytes(value.try_into().unwrap());
                // Four ranks, then eleven times four equal ones.
                assert_eq!(value, (4 * index + 6) << 22, "rank {rank}, element {index}, {chain:?}");
            }
        }
    }
    buffer.free(&cluster).unwrap();
    comm.destroy().unwrap();
}

#[test]
fn a_stream_carries_out_one_after_the_other_whatever_the_communicator() {
    let cluster = world::threads(4, Place::TwoServers, 32 << 20);
    let subset = cluster.subset(&[1, 2, 3]).unwrap();
    let (mut first, mut second) = (bench(&cluster, "first"), bench(&subset, "second"));
    let case = case(Algorithm::Ring);
    for _ in 0..3 {
        let stream = cluster.stream();
        for rank in 0..4 {
            first.launch_in(Some(&stream), rank, &case).unwrap();
        }
        for rank in 0..3 {
            second.launch_in(Some(&stream), rank, &case).unwrap();
        }
        let pending = second.communicator().pending();
        assert!(pending.iter().all(|one| one.progress == Progress::Held), "{pending:?}");
        // Who waits for the second lets the first go on, and it is done when the second begins.
        second.communicator().synchronize().unwrap();
        let pending = first.communicator().pending();
        assert_eq!(pending.len(), 4);
        assert!(pending.iter().all(|one| one.progress == Progress::Done), "{pending:?}");
        first.communicator().synchronize().unwrap();
    }
    // What is on no stream, or on another, waits for nobody.
    for stream in [None, Some(cluster.stream())] {
        first.launch_in(Some(&cluster.stream()), 0, &case).unwrap();
        second
            .run_with(&case, |bench| {
                (0..3).try_for_each(|rank| bench.launch_in(stream.as_ref(), rank, &case))
            })
            .unwrap();
        (1..4).for_each(|rank| first.launch_on(rank, &case).unwrap());
        first.communicator().synchronize().unwrap();
    }
    second.finish().unwrap();
    first.finish().unwrap();
}

/// A stream outlives the communicators on it: what is gone is waited for no longer.
#[test]
fn what_a_communicator_left_on_a_stream_holds_nobody() {
    let cluster = world::threads(2, Place::OneServer, 32 << 20);
    let stream = cluster.stream();
    let mut stays = bench(&cluster, "stays");
    let case = case(Algorithm::Ring);
    let mut leaves = bench(&cluster, "leaves");
    leaves.launch_in(Some(&stream), 0, &case).unwrap();
    let both = |bench: &mut Bench<'_>| {
        (0..2).try_for_each(|rank| bench.launch_in(Some(&stream), rank, &case))?;
        leaves.finish()
    };
    stays.run_with(&case, both).unwrap();
    stays.finish().unwrap();
    assert_eq!(cluster.behind(), []);
}
