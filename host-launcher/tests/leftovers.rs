//! NPUs in a file, and processes that die with them.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use device_model::fabric::{Fabric, FabricConfig};
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Communicator, Config, Operation};
use host_launcher::rank_table::RankTable;
use host_launcher::run::{Run, Setup};
use host_launcher::topology::Topology;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp};

const RANKS: u32 = 3;
/// Names the file to the child.
const FILE: &str = "AICPU_TEST_FABRIC";

fn config() -> FabricConfig {
    FabricConfig::new(RANKS, 16 << 20)
}

fn topology() -> Topology {
    Topology::new(&RankTable::uniform(RANKS, 8).unwrap())
}

fn prepare(cluster: &Cluster) -> Run<'_> {
    let operation = Operation {
        op: OpKind::AllReduce,
        count: 1000,
        dtype: DataType::Int32,
        reduce: ReduceOp::Sum,
        algorithm: Algorithm::Ring,
        staging: Staging::Scratch,
        ..Operation::default()
    };
    let comm = Communicator::create(cluster, Config { buffer_bytes: 1 << 20, ..Config::default() }).unwrap();
    let chunk = comm.chunk_elements(&operation, false).unwrap();
    let setup = Setup { chunk, seed: 1, in_place: false, buffers: 1, capture: 0 };
    Run::prepare(cluster, comm, operation, &setup).unwrap()
}

/// Not a test of its own: the process that dies. Runs an operation, says so, and waits to be killed.
#[test]
fn child() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let fabric = Fabric::open(Path::new(&path), &config()).unwrap();
    let cluster = Cluster::over(&fabric, topology(), &Aicpu::Thread).unwrap();
    assert!(cluster.reclaimed().is_empty());
    let mut run = prepare(&cluster);
    run.step().unwrap();
    println!("\nready");
    loop {
        std::thread::park();
    }
}

fn start(path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(FILE, path).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = Vec::new();
    let out = child.stdout.as_mut().unwrap();
    while !said.ends_with(b"ready\n") {
        let mut byte = [0];
        assert_eq!(out.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    child
}

#[test]
fn what_a_killed_process_had_is_found_named_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("npus");
    let fabric = Fabric::create_at(&path, &config()).unwrap();
    let mut child = start(&path);
    let held = Cluster::over(&fabric, topology(), &Aicpu::Thread).unwrap_err();
    assert_eq!(held.code(), ErrorCode::NPU_HELD);
    assert!(held.message().contains(&format!("process {}", child.id())), "{held}");

    child.kill().unwrap();
    child.wait().unwrap();
    let cluster = Cluster::over(&fabric, topology(), &Aicpu::Thread).unwrap();
    let left = cluster.reclaimed();
    assert_eq!(left.iter().map(|left| left.npu).collect::<Vec<_>>(), [0, 1, 2]);
    for left in left {
        // A ring works on one thread, with a channel to each peer; two buffers and a scratch are registered.
        assert_eq!((left.channels, left.regions, left.launches, left.notifies), (2, 3, 0, 0), "{left}");
        assert!(left.queues >= 1 && left.owner.number == u64::from(child.id()), "{left}");
        assert!(left.to_string().contains(&format!("process {}, which is gone", child.id())));
    }
    let before: Vec<_> = (0..RANKS).map(|rank| cluster.npu(rank).usage()).collect();
    let mut run = prepare(&cluster);
    run.step().unwrap();
    run.abandon().unwrap();
    assert_eq!((0..RANKS).map(|rank| cluster.npu(rank).usage()).collect::<Vec<_>>(), before);
    drop(cluster);
    let next = Cluster::over(&fabric, topology(), &Aicpu::Thread).unwrap();
    assert!(next.reclaimed().is_empty(), "a cluster that ends in order leaves nothing to be found");
}
