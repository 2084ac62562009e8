//! The flight recorder outlives the process that launched: whoever has the memory reads it.
//!
//! sgl-project/sglang#33289 and pytorch/pytorch#117883 ask for a record that is always on; in the field a crash of the
//! process takes it along.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use aicpu_tests::bench::Bench;
use aicpu_tests::scene::{case, warm};
use aicpu_tests::world::{self, Place};
use device_model::driver::Npu;
use device_model::fabric::{Fabric, FabricConfig};
use device_model::fault::Fault;
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::Config;
use wire::launch::Algorithm;
use wire::npu::HEAP;
use wire::{Recorded, TraceEvent};

/// Names the file, for the process that crashes.
const FILE: &str = "AICPU_TS_TEST_CRASHING_HOST";
const RANKS: u32 = 3;

fn fabric_config() -> FabricConfig {
    FabricConfig::new(RANKS, (24 << 20) + HEAP.next_multiple_of(1 << 20))
}

/// Runs three operations, and is gone in the fourth.
fn crash(file: &Path) -> ! {
    let fabric = Fabric::create_at(file, &fabric_config()).unwrap();
    let topology = world::topology(RANKS, Place::OneServer);
    let cluster = Cluster::over(&fabric, topology, &Aicpu::Thread).unwrap();
    let mut bench = Bench::new(&cluster, Config::default(), 64 << 10).unwrap();
    for _ in 0..3 {
        warm(&mut bench, Algorithm::Ring);
    }
    cluster.machine().inject(1, Fault::Stall);
    bench.launch(&case(Algorithm::Ring)).unwrap();
    let deadline = std::time::Instant::now() + core::time::Duration::from_millis(50);
    cluster.machine().run_until(|| false, Some(deadline));
    std::process::abort();
}

/// T13 too, vllm-project/vllm-ascend#405 and hiyouga/LLaMA-Factory#3839: what a run that was killed has left is found, its
/// process named, and taken back; the next run works.
#[test]
fn the_flight_recorder_survives_the_crash_of_the_host() {
    if let Some(file) = env::var_os(FILE) {
        crash(Path::new(&file));
    }
    let file = env::temp_dir().join(format!("aicpu-ts-crash-{}", std::process::id()));
    drop(fs::remove_file(&file));
    let name = "crash::the_flight_recorder_survives_the_crash_of_the_host";
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([name, "--exact"]).env(FILE, &file).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let process = child.id();
    assert!(!child.wait().unwrap().success(), "it crashes");
    let fabric = Fabric::open(&file, &fabric_config()).expect("the memory is still there");
    fs::remove_file(&file).unwrap();
    for rank in 0..RANKS {
        let events = Npu::new(&fabric, rank).trace();
        let of = |wanted: fn(&Recorded) -> bool| -> Vec<u32> {
            let wanted = |event: &&TraceEvent| event.recorded().is_some_and(|recorded| wanted(&recorded));
            events.iter().filter(wanted).map(|event| event.sequence).collect()
        };
        assert_eq!(of(|event| matches!(event, Recorded::LaunchTaken { .. })), [1, 2, 3, 4], "rank {rank}");
        assert_eq!(of(|event| matches!(event, Recorded::Submitted { .. })), [1, 2, 3, 4], "rank {rank}");
        assert_eq!(of(|event| matches!(event, Recorded::Completed { .. })), [1, 2, 3], "rank {rank}");
    }
    let cluster = Cluster::over(&fabric, world::topology(RANKS, Place::OneServer), &Aicpu::Thread).unwrap();
    let left = cluster.reclaimed();
    assert_eq!(left.len(), RANKS as usize);
    for left in left {
        let text = left.to_string();
        assert!(text.contains(&format!("process {process}, which is gone")), "{text}");
        assert!(left.queues > 0 && left.regions > 0, "{text}");
    }
    let mut bench = Bench::new(&cluster, Config::default(), 64 << 10).unwrap();
    warm(&mut bench, Algorithm::Ring);
    bench.finish().unwrap();
}
