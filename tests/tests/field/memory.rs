//! Buffers and memory: scratch that is smaller than what is sent, what a communicator takes, and where it runs out.

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::scene::{FAR, case};
use aicpu_tests::variants::algorithms;
use aicpu_tests::world::{self, Place};
use host_launcher::communicator::{Budget, Config};
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind};

fn config(buffer_bytes: u64) -> Config {
    Config { buffer_bytes, timeout: FAR, ..Config::default() }
}

fn sized(algorithm: Algorithm, count: u64) -> Case {
    let mut case = case(algorithm);
    case.operation.count = count;
    case
}

/// T38, vllm-project/vllm-ascend#2674: more to send than the scratch buffer holds was an address out of range. Here it goes
/// in chunks, and the last one is a part of one.
#[test]
fn a_payload_larger_than_scratch_goes_in_chunks() {
    const COUNT: u64 = 100_003;
    let cluster = world::threads(4, Place::OneServer, 24 << 20);
    for algorithm in algorithms(OpKind::AllReduce) {
        let mut bench = Bench::new(&cluster, config(64 << 10), 4 * COUNT).unwrap();
        let case = sized(algorithm, COUNT);
        let chunk = bench.communicator().chunk_elements(&case.operation, false).unwrap();
        assert!(chunk > 0 && chunk < COUNT && !COUNT.is_multiple_of(chunk), "{algorithm}: {chunk}");
        bench.run(&case).unwrap();
        bench.finish().unwrap();
    }
}

/// T39, HCCL_BUFFSIZE=1 with 64 MB.
#[test]
fn sixty_four_mebibytes_through_a_scratch_of_one() {
    let cluster = world::threads(2, Place::OneServer, 136 << 20);
    let mut bench = Bench::new(&cluster, config(1 << 20), 64 << 20).unwrap();
    let case = sized(Algorithm::Ring, 16 << 20);
    let chunk = bench.communicator().chunk_elements(&case.operation, false).unwrap();
    assert!(4 * chunk <= 1 << 20, "{chunk}");
    bench.run(&case).unwrap();
    bench.finish().unwrap();
}

/// T40, NVIDIA/nccl#1907 and vllm-project/vllm-ascend#7656: nobody can say what a communicator takes. What an operation
/// will take is told before, and is what it takes; 32 communicators take it 32 times.
#[test]
fn what_an_operation_takes_is_told_before() {
    for (place, communicators) in [(Place::OneServer, 32), (Place::TwoServers, 6), (Place::UnifiedBus, 6)] {
        let cluster = world::threads(4, place, 48 << 20);
        let config = || Config { queue_depth: 64, ..config(96 << 10) };
        let mut benches: Vec<Bench<'_>> =
            (0..communicators).map(|_| Bench::new(&cluster, config(), 8 << 10).unwrap()).collect();
        for bench in &mut benches {
            for algorithm in [Algorithm::Ring, Algorithm::MeshTwoShot, Algorithm::Nhr] {
                let case = case(algorithm);
                let usage = || (0..4).map(|rank| cluster.npu(rank).usage()).collect::<Vec<_>>();
                let comm = bench.communicator();
                let told: Vec<Budget> = (0..4).map(|rank| comm.budget(&case.operation, rank)).collect();
                let before = usage();
                bench.run(&case).unwrap();
                for ((told, before), after) in told.iter().zip(before).zip(usage()) {
                    let taken = [
                        before.free_bytes - after.free_bytes,
                        after.queues - before.queues,
                        after.channels - before.channels,
                        before.free_notifies - after.free_notifies,
                    ];
                    assert_eq!(
                        taken,
                        [told.bytes, told.queues, told.channels, told.notifies],
                        "{algorithm}: {told}"
                    );
                    assert!(told.scratch_bytes >= 64 << 10 && told.bytes > told.scratch_bytes, "{told}");
                }
                let again = bench.communicator().budget(&case.operation, 0);
                assert_eq!(again, Budget::default(), "it has all it needs");
            }
        }
        benches.into_iter().for_each(|bench| bench.finish().unwrap());
    }
}

/// T41, vllm-project/vllm-ascend#13185: memory runs out on one rank only. That rank is named with what is needed and what
/// is free, nothing is taken of the others, and once there is memory the same call works.
#[test]
fn no_memory_on_one_rank_is_told_of_that_rank() {
    let cluster = world::threads(4, Place::OneServer, 8 << 20);
    let mut bench = Bench::new(&cluster, config(1 << 20), 8 << 10).unwrap();
    let hoard = cluster.npu(2).alloc(cluster.npu(2).free_bytes() - (100 << 10), 64).unwrap();
    let usage = || (0..4).map(|rank| cluster.npu(rank).usage()).collect::<Vec<_>>();
    let before = usage();
    let case = sized(Algorithm::Ring, 1000);
    let error = bench.launch(&case).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DEVICE_MEMORY_FULL, "{error}");
    let told = bench.communicator().budget(&case.operation, 2);
    for part in ["rank 2: ", &told.to_string(), &format!("; {} bytes are free", cluster.npu(2).free_bytes())]
    {
        assert!(error.message().contains(part), "{part}: {error}");
    }
    assert!(error.advice().contains("HCCL_BUFFSIZE"), "{error}");
    assert_eq!(usage(), before, "nothing was taken");
    cluster.npu(2).free(hoard).unwrap();
    bench.run(&case).unwrap();
    bench.finish().unwrap();
}
