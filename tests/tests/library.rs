//! Collectives through the kernel as a shared object: a C program for each NPU loads it as a runtime would and turns
//! its calls into entries of the NPU's rings; every byte of every rank is compared with the oracle.
//!
//! Needs `cargo xtask image --so`, whose directory `AICPU_SO_DIR` names, and `qemu-aarch64` for the object of the AICPU;
//! says so and passes without.

#[path = "capture/rig.rs"]
#[expect(dead_code, reason = "shared with the tests of programs")]
mod rig;

use core::time::Duration;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::variants::Variant;
use aicpu_tests::world::{Place, topology};
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Config, Operation};
use host_launcher::library::Options;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp};

/// The program that runs aarch64 programs.
const EMULATOR: &str = "qemu-aarch64";
/// Where Debian's cross compiler has its C library.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// Bytes of one page of the emulated process.
#[derive(Clone, Copy, Debug)]
enum On {
    Host,
    Aarch64 { page: u32 },
}

fn options(on: On, log: Option<&Path>) -> Option<Options> {
    let Some(dir) = std::env::var_os("AICPU_SO_DIR").map(PathBuf::from) else {
        eprintln!("SKIPPED: AICPU_SO_DIR names no shared objects; run `cargo xtask test`");
        return None;
    };
    let (dir, mut command) = match on {
        On::Host => (dir.join(std::env::consts::ARCH), Vec::new()),
        On::Aarch64 { page } => {
            if Command::new(EMULATOR).arg("--version").output().is_err() {
                eprintln!("SKIPPED: {EMULATOR} is not installed; run `cargo xtask setup`");
                return None;
            }
            let page = page.to_string();
            let command = [EMULATOR, "-p", &page, "-L", LIBRARIES].map(OsString::from);
            (dir.join("aarch64"), command.to_vec())
        }
    };
    command.push(dir.join("driver").into());
    let kernel = dir.join("libaicpu_ts_kernel.so");
    Some(Options { command, kernel, entry: "AicpuTsLaunch".into(), log: log.map(Path::to_owned) })
}

const SMALL_PAGES: On = On::Aarch64 { page: 4096 };
const LARGE_PAGES: On = On::Aarch64 { page: 65536 };

/// Operation, algorithm, staging, type, reduction.
type Kind = (OpKind, Algorithm, Staging, DataType, ReduceOp);

/// One of everything.
const KINDS: [Kind; 18] = [
    (OpKind::AllReduce, Algorithm::Ring, Staging::Scratch, DataType::Fp32, ReduceOp::Sum),
    (OpKind::AllReduce, Algorithm::Ring, Staging::Direct, DataType::Int32, ReduceOp::Max),
    (OpKind::AllReduce, Algorithm::HalvingDoubling, Staging::Scratch, DataType::Bf16, ReduceOp::Sum),
    (OpKind::AllReduce, Algorithm::Nhr, Staging::Direct, DataType::Fp16, ReduceOp::Min),
    (OpKind::AllReduce, Algorithm::MeshOneShot, Staging::Scratch, DataType::Fp64, ReduceOp::Sum),
    (OpKind::AllReduce, Algorithm::MeshTwoShot, Staging::Scratch, DataType::Int64, ReduceOp::Prod),
    (OpKind::AllReduce, Algorithm::MeshTwoShot, Staging::Direct, DataType::Fp32, ReduceOp::Sum),
    (OpKind::AllGather, Algorithm::Ring, Staging::Scratch, DataType::Int128, ReduceOp::Sum),
    (OpKind::AllGather, Algorithm::Nhr, Staging::Direct, DataType::Int8, ReduceOp::Sum),
    (OpKind::ReduceScatter, Algorithm::Nhr, Staging::Scratch, DataType::Uint16, ReduceOp::Sum),
    (OpKind::AllReduce, Algorithm::Strict, Staging::Scratch, DataType::Fp32, ReduceOp::Sum),
    (OpKind::Broadcast, Algorithm::Tree, Staging::Scratch, DataType::Fp16, ReduceOp::Sum),
    (OpKind::Reduce, Algorithm::Tree, Staging::Scratch, DataType::Int32, ReduceOp::Max),
    (OpKind::Scatter, Algorithm::Star, Staging::Scratch, DataType::Int8, ReduceOp::Sum),
    (OpKind::Gather, Algorithm::Star, Staging::Scratch, DataType::Fp64, ReduceOp::Sum),
    (OpKind::AllToAll, Algorithm::Pairwise, Staging::Scratch, DataType::Fp32, ReduceOp::Sum),
    (OpKind::AllToAllV, Algorithm::Pairwise, Staging::Scratch, DataType::Int16, ReduceOp::Sum),
    (OpKind::Barrier, Algorithm::Nb, Staging::Scratch, DataType::Fp32, ReduceOp::Sum),
];

/// The options with these before the driver's own arguments.
fn with(mut options: Options, flags: &[&str]) -> Options {
    options.command.extend(flags.iter().map(OsString::from));
    options
}

/// Runs every kind twice, on buffers that move; returns how many operations were verified.
fn verify(ranks: u32, place: Place, count: u64, options: Options, kinds: &[Kind]) -> usize {
    let cluster = Cluster::start(topology(ranks, place), 48 << 20, &Aicpu::Library(options)).unwrap();
    let config = Config { buffer_bytes: 1 << 20, timeout: Duration::from_secs(60), ..Config::default() };
    let mut bench = Bench::new(&cluster, config, 16 * count * u64::from(ranks) + 4096).unwrap();
    let mut verified = 0;
    for &(op, algorithm, staging, dtype, reduce) in kinds {
        // RoCE adds nothing on the way, so the direct mesh does not exist there.
        if place == Place::TwoServers && algorithm == Algorithm::MeshTwoShot && staging == Staging::Direct {
            continue;
        }
        let variant = Variant { op, algorithm, staging };
        let operation = Operation { dtype, reduce, ..variant.operation(count, ranks, verified as u64) };
        for turn in 0..2 {
            let operation = operation.clone();
            let case = Case { operation, in_place: false, shift: turn, seed: verified as u64 };
            bench.run(&case).unwrap_or_else(|error| panic!("{place:?}, {case:?}: {error}"));
            verified += 1;
        }
    }
    bench.finish().unwrap();
    cluster.check().unwrap();
    verified
}

#[test]
fn eight_ranks_through_the_object_of_this_host() {
    for place in [Place::OneServer, Place::TwoServers, Place::UnifiedBus] {
        let Some(options) = options(On::Host, None) else { return };
        assert!(verify(8, place, 1000, options, &KINDS) >= 30);
    }
}

#[test]
fn eight_ranks_through_the_object_of_the_aicpu() {
    let Some(options) = options(SMALL_PAGES, None) else { return };
    assert_eq!(verify(8, Place::OneServer, 1000, options, &KINDS), 36);
}

#[test]
fn four_ranks_across_servers_with_large_pages() {
    let Some(options) = options(LARGE_PAGES, None) else { return };
    assert!(verify(4, Place::TwoServers, 777, options, &KINDS) >= 30);
}

#[test]
fn rings_that_fill_up_are_waited_for() {
    let Some(options) = options(On::Host, None) else { return };
    // 2,048 entries of a ring, and chunks of one element: many times as many tasks.
    let cluster = Cluster::start(topology(4, Place::OneServer), 16 << 20, &Aicpu::Library(options)).unwrap();
    let config = Config { timeout: Duration::from_secs(60), ..Config::default() };
    let mut bench = Bench::new(&cluster, config, 1 << 16).unwrap();
    let operation = Operation {
        op: OpKind::AllReduce,
        count: 700,
        dtype: DataType::Int32,
        reduce: ReduceOp::Sum,
        algorithm: Algorithm::Ring,
        staging: Staging::Scratch,
        chunk: 1,
        ..Operation::default()
    };
    bench.run(&Case { operation, in_place: false, shift: 0, seed: 1 }).unwrap();
    bench.finish().unwrap();
}

#[test]
fn both_objects_make_the_same_calls() {
    let dirs = [0, 1].map(|_| tempfile::tempdir().expect("a directory"));
    for (on, dir) in [On::Host, SMALL_PAGES].into_iter().zip(&dirs) {
        let Some(options) = options(on, Some(dir.path())) else { return };
        verify(4, Place::UnifiedBus, 500, options, &KINDS);
    }
    let [host, aicpu] = dirs.each_ref().map(|dir| {
        (0..4)
            .map(|npu| {
                let path = dir.path().join(format!("npu-{npu}.log"));
                std::fs::read_to_string(path).expect("the driver has written it")
            })
            .collect::<Vec<_>>()
    });
    assert!(host.iter().all(|log| log.lines().count() > 500), "there are calls");
    assert!(host == aicpu, "the objects of two processors make different calls");
}

#[test]
fn a_custom_operator_of_ones_own_gathers() {
    for (on, ranks, place) in [
        (On::Host, 8, Place::OneServer),
        (On::Host, 5, Place::TwoServers),
        (SMALL_PAGES, 8, Place::UnifiedBus),
    ] {
        let Some(kernel) = options(on, None) else { return };
        let custom = kernel.kernel.with_file_name("libcustom_all_gather.so");
        let options = Options { kernel: custom, entry: "CustomAllGather".into(), ..kernel };
        let kinds = [DataType::Fp32, DataType::Int8, DataType::Int128]
            .map(|dtype| (OpKind::AllGather, Algorithm::Ring, Staging::Direct, dtype, ReduceOp::Sum));
        assert_eq!(verify(ranks, place, 1001, options, &kinds), 6, "{on:?}");
    }
}

#[test]
fn an_object_that_does_not_load_is_said_so_with_the_loaders_words() {
    let Some(good) = options(On::Host, None) else { return };
    let start = |options: Options| {
        Cluster::start(topology(2, Place::OneServer), 8 << 20, &Aicpu::Library(options)).expect_err("refused")
    };
    let other = good.kernel.parent().and_then(Path::parent).expect("two levels").join("aarch64");
    let lonely = good.kernel.with_file_name("driver-without-data-plane");
    for (options, words) in [
        (Options { command: vec![lonely.into()], ..good.clone() }, "undefined symbol: Hcomm"),
        (Options { kernel: "/nowhere/kernel.so".into(), ..good.clone() }, "cannot open shared object"),
        (Options { kernel: other.join("libaicpu_ts_kernel.so"), ..good.clone() }, "kernel.so"),
        (Options { entry: "NoSuchEntry".into(), ..good.clone() }, "undefined symbol: NoSuchEntry"),
    ] {
        let error = start(options);
        assert_eq!(error.code(), ErrorCode::EMULATOR_EXIT);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn programs_replay_through_both_objects() {
    for (on, ranks, place, replays) in [
        (On::Host, 4, Place::OneServer, 40),
        (On::Host, 5, Place::TwoServers, 10),
        (SMALL_PAGES, 8, Place::UnifiedBus, 10),
    ] {
        let Some(options) = options(on, None) else { return };
        let cluster = Cluster::start(topology(ranks, place), 24 << 20, &Aicpu::Library(options)).unwrap();
        rig::rotate(&cluster, &rig::chain(250), 4, replays, 8 << 10);
    }
}

/// Operations whose graphs write, read and reduce across servers.
fn across_servers() -> Vec<Kind> {
    let crosses = |kind: &&Kind| kind.0 != OpKind::Barrier;
    KINDS.iter().filter(crosses).copied().collect()
}

#[test]
fn a_relaxed_data_plane_is_held_together_by_fences() {
    for (on, place) in
        [(On::Host, Place::TwoServers), (On::Host, Place::UnifiedBus), (SMALL_PAGES, Place::TwoServers)]
    {
        let Some(options) = options(on, None) else { return };
        let options = with(options, &["--relaxed", "--fences"]);
        assert!(verify(4, place, 1000, options, &across_servers()) >= 30, "{on:?}, {place:?}");
    }
}

#[test]
fn without_fences_a_relaxed_data_plane_computes_nonsense() {
    let Some(options) = options(On::Host, None) else { return };
    let options = with(options, &["--relaxed"]);
    let cluster = Cluster::start(topology(4, Place::TwoServers), 48 << 20, &Aicpu::Library(options)).unwrap();
    let config = Config { timeout: Duration::from_secs(60), ..Config::default() };
    let mut bench = Bench::new(&cluster, config, 1 << 20).unwrap();
    let operation = Operation {
        op: OpKind::AllReduce,
        count: 1000,
        dtype: DataType::Int32,
        reduce: ReduceOp::Sum,
        algorithm: Algorithm::Ring,
        staging: Staging::Scratch,
        ..Operation::default()
    };
    let case = Case { operation, in_place: false, shift: 0, seed: 1 };
    let run = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| bench.run(&case).map(drop)));
    let report = run.expect_err("the comparison with the oracle fails");
    let report = report.downcast_ref::<String>().expect("its words");
    assert!(report.contains("output, byte"), "{report}");
}

#[test]
fn from_loading_to_the_first_return_takes_less_than_5_ms() {
    let Some(options) = options(On::Host, None) else { return };
    // The best of some: what takes longer on a busy machine is the machine.
    let best = (0..10)
        .map(|_| {
            let mut driver = Command::new(&options.command[0]);
            let output = driver.arg(&options.kernel).args(["AicpuTsLaunch", "--load"]).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let (_, rest) = text.split_once("loaded and called in ").expect("its words");
            let (micros, code) = rest.split_once(" us: ").expect("a time");
            assert_eq!(
                code.trim(),
                ErrorCode::PARAM_MAGIC.0.to_string(),
                "the entry has refused a null param"
            );
            micros.parse::<u64>().unwrap()
        })
        .min();
    let best = best.expect("ten");
    println!("from dlopen to the first return: {best} us");
    assert!(best < 5000, "{best} us");
}
