//! The AI CPU's cores: in the field each communicator's kernel holds one until its waits are over, and the seventh
//! blocks without a word. Here one kernel serves all communicators of an NPU and never waits.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::scene::{FAR, Scene, case};
use aicpu_tests::world::{self, Place};
use device_model::fabric::{Fabric, FabricConfig};
use device_model::fault::{Fault, Mishap, When};
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::Config;
use host_launcher::diagnosis::OnWarning;
use wire::ErrorCode;
use wire::launch::{Algorithm, CacheOutcome};
use wire::npu::LAUNCH_TAIL;

/// T37, constraints.md of the field: seven communicators on six cores whose waits cross, so that with a core held by
/// each none could go on.
#[test]
fn more_communicators_than_cores_with_crossed_waits_all_finish() {
    const COMMUNICATORS: u32 = 9;
    let cluster = world::threads(2, Place::OneServer, 24 << 20);
    let mut benches: Vec<Bench<'_>> = (0..COMMUNICATORS)
        .map(|number| {
            let config = Config { name: format!("comm-{number}"), timeout: FAR, ..Config::default() };
            Bench::new(&cluster, config, 64 << 10).unwrap()
        })
        .collect();
    for (seed, bench) in (0..).zip(&mut benches) {
        bench.run(&Case { seed, ..case(Algorithm::Ring) }).unwrap();
    }
    // Rank 0 starts them in order, rank 1 in the opposite order: the first of each waits for the last of the other.
    for bench in &mut benches {
        bench.launch_on(0, &case(Algorithm::Ring)).unwrap();
        let pending = bench.communicator().pending();
        assert_eq!(pending.len(), 1, "rank 0 alone");
    }
    for bench in benches.iter_mut().rev() {
        bench.launch_on(1, &case(Algorithm::Ring)).unwrap();
    }
    for bench in &mut benches {
        bench.communicator().synchronize().unwrap();
    }
    benches.into_iter().for_each(|bench| bench.finish().unwrap());
}

/// The same constraint: twelve communicators wait for a rank that has not launched yet, twice as many as there are cores in
/// the field, and more contexts than a kernel keeps decoded. The thirteenth works all the while; then they do.
#[test]
fn communicators_that_wait_hold_no_core() {
    const WAITING: usize = 12;
    let cluster = world::threads(2, Place::OneServer, 24 << 20);
    let mut benches: Vec<Bench<'_>> = (0..=WAITING)
        .map(|number| {
            let config = Config { name: format!("comm-{number}"), timeout: FAR, ..Config::default() };
            Bench::new(&cluster, config, 64 << 10).unwrap()
        })
        .collect();
    let (free, waiting) = benches.split_last_mut().unwrap();
    for bench in &mut *waiting {
        bench.launch_on(0, &case(Algorithm::Ring)).unwrap();
    }
    for seed in 0..200 {
        free.run(&Case { seed, ..case(Algorithm::Ring) }).unwrap();
    }
    for bench in waiting {
        assert_eq!(bench.communicator().pending().len(), 1, "it waits");
        bench.launch_on(1, &case(Algorithm::Ring)).unwrap();
        bench.communicator().synchronize().unwrap();
    }
    benches.into_iter().for_each(|bench| bench.finish().unwrap());
}

/// T34, vllm-project/vllm-ascend#15035 and #14296: two engines want the same cores, and the start hangs. Two processes that
/// want the same NPUs: the second is told who has them, at once.
#[test]
fn the_holder_of_a_device_is_named() {
    const FILE: &str = "AICPU_TS_TEST_HOLDING_HOST";
    let config = FabricConfig::new(2, 24 << 20);
    let over = |fabric: &Fabric| Cluster::over(fabric, world::topology(2, Place::OneServer), &Aicpu::Thread);
    if let Some(file) = std::env::var_os(FILE) {
        let cluster = over(&Fabric::open(Path::new(&file), &config).unwrap()).unwrap();
        println!("\nit has them");
        // Until the other process closes the pipe.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        drop(cluster);
        return;
    }
    let file = std::env::temp_dir().join(format!("aicpu-ts-held-{}", std::process::id()));
    let fabric = Fabric::create_at(&file, &config).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["cores::the_holder_of_a_device_is_named", "--exact", "--nocapture"]).env(FILE, &file);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "it has them"));
    let error = over(&fabric).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NPU_HELD, "{error}");
    assert!(error.message().contains(&format!("process {}", child.id())), "{error}");
    drop(child.stdin.take());
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
    let cluster = over(&fabric).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut bench = Bench::new(&cluster, Config::default(), 64 << 10).unwrap();
    bench.run(&case(Algorithm::Ring)).unwrap();
    bench.finish().unwrap();
}

/// T35, vllm-project/vllm-ascend#12776: after 20 hours a kernel found its arguments wrong. Counters that begin just below
/// their wrap, and operations of all kinds until they are far beyond it.
#[test]
fn counters_go_round_and_nothing_changes() {
    rounds(2_000, 1, 1_000);
}

/// The same for as long as a job of days: ten million operations, of which every tenth is compared.
#[test]
#[ignore = "minutes; run with --release"]
fn ten_million_operations_and_nothing_changes() {
    rounds(1_000_000, 10, 4);
}

/// So many times, so many operations and then a look at every byte.
fn rounds(times: u64, each: u32, count: u64) {
    let sized = |algorithm, seed| {
        let mut case = Case { seed, ..case(algorithm) };
        case.operation.count = count;
        case
    };
    let first_position = u64::from(u32::MAX) - 500;
    let fabric = Fabric::create(&FabricConfig { first_position, ..FabricConfig::new(3, 24 << 20) }).unwrap();
    let cluster = Cluster::over(&fabric, world::topology(3, Place::OneServer), &Aicpu::Thread).unwrap();
    let usage = || (0..3).map(|rank| cluster.npu(rank).usage()).collect::<Vec<_>>();
    let config = Config { queue_depth: 64, timeout: FAR, ..Config::default() };
    let mut bench = Bench::new(&cluster, config, 64 << 10).unwrap();
    for algorithm in [Algorithm::Ring, Algorithm::MeshTwoShot] {
        bench.run(&sized(algorithm, 0)).unwrap();
    }
    let before = usage();
    for seed in 0..times {
        let algorithm = if seed % 3 == 0 { Algorithm::MeshTwoShot } else { Algorithm::Ring };
        let case = sized(algorithm, seed);
        let done = bench.run_with(&case, |bench| (0..each).try_for_each(|_| bench.launch(&case))).unwrap();
        assert!(done.iter().all(|own| own.status.cache == CacheOutcome::Hit as u8), "operation {seed}");
    }
    assert_eq!(usage(), before, "nothing more is taken");
    bench.finish().unwrap();
}

/// T36, vllm-project/vllm-ascend#13934: an error that was ignored came 400,000 times, with garbage in between. The first one
/// ends it: nothing is launched any more, each refusal is one short text, and nobody is warned again.
#[test]
fn the_first_error_ends_it() {
    let cluster = world::threads(3, Place::OneServer, 24 << 20);
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    let on_warning = OnWarning::tell(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let config =
        Config { timeout: FAR, warn_after: vec![Duration::from_millis(50)], on_warning, ..Config::default() };
    let mut scene = Scene::with(&cluster, config);
    scene.bench().run(&case(Algorithm::Ring)).unwrap();
    cluster.machine().inject(1, Fault::At(When::default(), Mishap::Fail(ErrorCode::DMA_TOKEN)));
    scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    failure.assert(ErrorCode::DMA_TOKEN, 1, 1, failure.error().diagnosis().unwrap().peer);
    let launches = || cluster.npu(0).window().word(LAUNCH_TAIL).load(Ordering::Relaxed);
    let (before, mut text) = (launches(), 0);
    for _ in 0..1000 {
        let error = scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::COMM_POISONED, "{error}");
        text = error.to_string().len();
        assert!(text < 300, "{error}");
    }
    assert!(text > 0);
    assert_eq!(
        (launches(), told.load(Ordering::Relaxed)),
        (before, 0),
        "nothing was launched, nobody warned"
    );
    scene.recovers();
}
