//! Abort, suspend, resume, retry: what holds on threads, in real time.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Communicator, Config, Operation, Place, Slot};
use host_launcher::faults::{Conduct, Fault};
use host_launcher::rank_table::RankTable;
use host_launcher::run::{Run, Setup};
use host_launcher::topology::Topology;
use wire::launch::{Algorithm, CacheOutcome, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp};

const RANKS: u32 = 4;

fn cluster() -> Cluster {
    let topology = Topology::new(&RankTable::uniform(RANKS, 8).unwrap());
    Cluster::start(topology, 16 << 20, &Aicpu::Thread).unwrap()
}

fn communicator(cluster: &Cluster) -> Communicator<'_> {
    let config = Config { buffer_bytes: 1 << 20, timeout: Duration::from_secs(60), ..Config::default() };
    Communicator::create(cluster, config).unwrap()
}

fn all_reduce(algorithm: Algorithm, staging: Staging) -> Operation {
    Operation {
        op: OpKind::AllReduce,
        count: 999,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        algorithm,
        staging,
        ..Operation::default()
    }
}

fn run<'c>(cluster: &'c Cluster, operation: Operation) -> Run<'c> {
    let comm = communicator(cluster);
    let chunk = comm.chunk_elements(&operation, false).unwrap();
    let setup = Setup { chunk, seed: 1, in_place: false, buffers: 1, capture: 0 };
    Run::prepare(cluster, comm, operation, &setup).unwrap()
}

#[test]
fn an_abort_from_another_thread_ends_a_wait_that_would_last_a_minute() {
    let cluster = cluster();
    let mut run = run(&cluster, all_reduce(Algorithm::Ring, Staging::Scratch));
    run.behave(Conduct { absent: vec![2], ..Conduct::default() });
    let aborter = run.communicator().aborter();
    let start = Instant::now();
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            aborter.abort();
        });
        run.step().unwrap_err()
    });
    assert_eq!(error.code(), ErrorCode::COMM_ABORTED, "{error}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(run.step().unwrap_err().code(), ErrorCode::COMM_ABORTED, "nothing is launched any more");

    run.behave(Conduct::default());
    let comm = run.communicator();
    assert_eq!(comm.resume().unwrap_err().code(), ErrorCode::COMM_SUSPENDED, "it is not suspended");
    comm.suspend().unwrap();
    assert_eq!(run.step().unwrap_err().code(), ErrorCode::COMM_SUSPENDED);
    run.communicator().resume().unwrap();
    run.step().unwrap();
    run.end().unwrap().destroy().unwrap();
}

#[test]
fn nothing_from_before_a_suspension_serves_after_it() {
    let cluster = cluster();
    let operation = all_reduce(Algorithm::MeshTwoShot, Staging::Direct);
    let before = cluster.npu(1).usage();
    let mut run = run(&cluster, operation.clone());
    let outcomes = |run: &mut Run<'_>| {
        let (_, completed) = run.step().unwrap();
        completed.iter().map(|done| done.status.cache).collect::<Vec<_>>()
    };
    let all = |outcome: CacheOutcome| vec![outcome as u8; RANKS as usize];
    assert_eq!(outcomes(&mut run), all(CacheOutcome::Miss));
    assert_eq!(outcomes(&mut run), all(CacheOutcome::Hit));
    let mut capture = run.communicator().capture().unwrap();
    capture.add(&operation, Slot::whole(0), Slot::whole(1)).unwrap();
    let program = capture.end().unwrap();

    assert_eq!(run.communicator().suspend().unwrap(), 0, "nothing was in flight");
    assert_eq!(run.communicator().suspend().unwrap(), 0, "it is suspended already");
    let idle = cluster.npu(1).usage();
    assert_eq!(
        (idle.queues, idle.channels, idle.free_notifies),
        (before.queues, before.channels, before.free_notifies)
    );
    run.communicator().resume().unwrap();
    assert_eq!(outcomes(&mut run), all(CacheOutcome::Miss), "another epoch, another key");
    assert_eq!(outcomes(&mut run), all(CacheOutcome::Hit));
    let buffers = [SharedBuffer::new(&cluster, 4096).unwrap(), SharedBuffer::new(&cluster, 4096).unwrap()];
    let stale = run.communicator().replay(&program, &[&buffers[0], &buffers[1]]).unwrap_err();
    assert_eq!(stale.code(), ErrorCode::PROGRAM_STALE, "{stale}");
    for buffer in buffers {
        buffer.free(&cluster).unwrap();
    }
    run.end().unwrap().destroy().unwrap();
    assert_eq!(cluster.npu(1).usage(), before);
}

/// What is computed from the tasks, against the bytes: an input that no task writes is what it was.
#[test]
fn an_operation_can_be_repeated_when_its_input_is_intact() {
    let cluster = cluster();
    let mut comm = communicator(&cluster);
    let buffers = [SharedBuffer::new(&cluster, 4096).unwrap(), SharedBuffer::new(&cluster, 4096).unwrap()];
    for algorithm in [
        Algorithm::Ring,
        Algorithm::Nhr,
        Algorithm::HalvingDoubling,
        Algorithm::MeshOneShot,
        Algorithm::MeshTwoShot,
    ] {
        for staging in [Staging::Scratch, Staging::Direct] {
            let operation = all_reduce(algorithm, staging);
            let retry = comm.retry(&operation, false).unwrap();
            assert!(retry.possible, "{operation}: {retry}");
            let input: Vec<u8> = (0..=250).cycle().take(4096).collect();
            for rank in 0..RANKS {
                cluster.npu(rank).write(buffers[0].addr(rank), &input).unwrap();
            }
            let place = |index: usize| Place { buffer: &buffers[index], offset: 0 };
            comm.launch_all(&operation, place(0), place(1)).unwrap();
            comm.synchronize().unwrap();
            for rank in 0..RANKS {
                let mut after = vec![0; 4096];
                cluster.npu(rank).read(buffers[0].addr(rank), &mut after).unwrap();
                assert!(after == input, "{operation}: the input of rank {rank} was written");
            }
        }
        let in_place = comm.retry(&all_reduce(algorithm, Staging::Scratch), true).unwrap();
        assert!(!in_place.possible && in_place.writes > 0, "{algorithm}: {in_place}");
    }
    comm.destroy().unwrap();
}

#[test]
fn a_dead_npu_is_named_until_it_is_restarted() {
    let cluster = cluster();
    let mut run = run(&cluster, all_reduce(Algorithm::Ring, Staging::Scratch));
    Fault::parse("kill:rank=3@step=0").unwrap().apply(&cluster, &mut Conduct::default());
    let aborter = run.communicator().aborter();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            aborter.abort();
        });
        run.step().unwrap_err()
    });
    run.abandon().unwrap();
    let dead = Communicator::create(&cluster, Config::default()).unwrap_err();
    assert_eq!(dead.code(), ErrorCode::NPU_DEAD);
    assert!(dead.message().contains("rank 3"), "{dead}");
    cluster.repair(3).unwrap();
    let mut run = self::run(&cluster, all_reduce(Algorithm::Ring, Staging::Scratch));
    run.step().unwrap();
    run.end().unwrap().destroy().unwrap();
}
