//! Dumps: written when an operation fails or on demand, explained when nothing runs any more.
//!
//! Threads: NVIDIA/nccl#1730 (a report that says all is well), NVIDIA/nccl#1911 (the stragglers are not named),
//! pytorch/pytorch#117883 (dumps of all ranks, aligned).

use core::mem::offset_of;
use core::sync::atomic::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use aicpu_tests::rings::waited;
use aicpu_tests::scene::{Scene, TIMEOUT, case, warm};
use aicpu_tests::world::{self, Place};
use device_model::fault::Fault;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::Config;
use host_launcher::diagnosis::offline::{self, diagnose};
use host_launcher::diagnosis::snapshot::Snapshot;
use host_launcher::diagnosis::{Report, dump};
use wire::ErrorCode;
use wire::launch::Algorithm;
use wire::npu::{MAX_QUEUES, QUEUES, QueueSlot};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("aicpu-ts-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn cluster() -> Cluster {
    world::threads(4, Place::OneServer, 24 << 20)
}

fn dumping(folder: &Folder) -> Config {
    Config { timeout: TIMEOUT, dump: Some(folder.0.clone()), ..Config::default() }
}

/// What must be the same whether a failure is explained at once or later: all but the words for the time and the dumps.
fn essence(report: &Report) -> Report {
    Report { since: String::new(), dumps: String::new(), ..report.clone() }
}

/// Makes an operation fail and returns what was reported.
fn failing(cluster: &Cluster, folder: &Folder, fail: impl Fn(&Cluster, &mut Scene<'_>)) -> Report {
    let mut scene = Scene::with(cluster, dumping(folder));
    warm(scene.bench(), Algorithm::Ring);
    fail(cluster, &mut scene);
    let failure = scene.failure();
    let report = failure.error().diagnosis().unwrap().clone();
    let text = failure.error().to_string();
    assert!(text.contains("\n  more     dumps of all ranks in "), "{text}");
    assert!(text.lines().count() <= 12, "{text}");
    scene.recovers();
    report
}

#[test]
fn dumps_say_later_what_was_said_at_once() {
    let drops = |cluster: &Cluster, scene: &mut Scene<'_>| {
        let (notify, _) = waited(cluster, 2).into_iter().find(|(_, peer)| *peer == Some(1)).unwrap();
        cluster.machine().inject(2, Fault::DropNotify { notify });
        scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    };
    let stays_away = |_: &Cluster, scene: &mut Scene<'_>| {
        for rank in [0, 1, 3] {
            scene.bench().launch_on(rank, &case(Algorithm::Ring)).unwrap();
        }
    };
    let stalls = |cluster: &Cluster, scene: &mut Scene<'_>| {
        cluster.machine().inject(1, Fault::Stall);
        scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    };
    let unregistered = |cluster: &Cluster, scene: &mut Scene<'_>| {
        cluster.npu(3).deregister(scene.bench().input().token(3)).unwrap();
        scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    };
    let differs = |_: &Cluster, scene: &mut Scene<'_>| {
        let mut other = case(Algorithm::Ring);
        other.operation.count = 7;
        for rank in 0..4 {
            let case = if rank == 2 { other.clone() } else { case(Algorithm::Ring) };
            scene.bench().launch_on(rank, &case).unwrap();
        }
    };
    type Fail<'a> = &'a dyn Fn(&Cluster, &mut Scene<'_>);
    let cases: [(ErrorCode, u32, Fail<'_>); 5] = [
        (ErrorCode::NOTIFY_TIMEOUT, 1, &drops),
        (ErrorCode::PEER_NOT_STARTED, 2, &stays_away),
        (ErrorCode::HOST_NOTIFY_TIMEOUT, 1, &stalls),
        (ErrorCode::DMA_UNREGISTERED, 3, &unregistered),
        (ErrorCode::ARGUMENTS_DIFFER, 2, &differs),
    ];
    for (code, culprit, fail) in cases {
        let (cluster, folder) = (cluster(), Folder::new("later"));
        let report = failing(&cluster, &folder, fail);
        drop(cluster);
        let findings = diagnose(&[&folder.0]).unwrap();
        let root = findings.root.expect("something failed");
        assert_eq!((root.code, root.culprit_rank), (code.0, Some(culprit)));
        assert_eq!(essence(&root), essence(&report));
        assert!(findings.missing.is_empty() && findings.ranks.len() == 4);
        let behind: Vec<u32> = findings.ranks.iter().filter(|own| own.behind).map(|own| own.rank).collect();
        assert_eq!(behind, if code == ErrorCode::PEER_NOT_STARTED { vec![2] } else { vec![] }, "{code}");
        assert!(findings.ranks.iter().all(|own| own.completed == Some(1)), "{:?}", findings.ranks);
        let rank = findings.recorder.last().expect("events").rank;
        assert_eq!(rank, culprit, "the recorder of the culprit is shown");
    }
}

#[test]
fn a_rank_without_a_dump_is_named_and_is_the_root_when_others_wait_for_it() {
    let (cluster, folder) = (cluster(), Folder::new("missing"));
    failing(&cluster, &folder, |_, scene| {
        for rank in [0, 2, 3] {
            scene.bench().launch_on(rank, &case(Algorithm::Ring)).unwrap();
        }
    });
    fs::remove_file(folder.0.join("rank-0001.dump")).unwrap();
    let findings = diagnose(&[&folder.0]).unwrap();
    assert_eq!(findings.missing, [1]);
    let root = findings.root.unwrap();
    assert_eq!((root.code, root.culprit_rank, root.rank), (ErrorCode::PEER_LOST.0, Some(1), 0), "{root}");
    let cause = "nothing is known of rank 1: it left no dump, or cannot be reached. Waiting for it: 0, 2; for those: \
                 3.";
    assert_eq!(root.cause, cause);
}

#[test]
fn dumps_on_demand_of_a_healthy_communicator_show_no_failure() {
    let (cluster, folder) = (cluster(), Folder::new("healthy"));
    let mut scene = Scene::new(&cluster);
    for _ in 0..3 {
        warm(scene.bench(), Algorithm::Nhr);
    }
    // The kernels look at their completions.
    cluster.machine().run_until(|| false, Some(std::time::Instant::now() + TIMEOUT / 10));
    let files = scene.bench().communicator().dump(&folder.0).unwrap();
    assert_eq!(files.len(), 4);
    let findings = diagnose(&files).unwrap();
    assert_eq!((findings.root, findings.missing), (None, vec![]));
    assert!(findings.ranks.iter().all(|own| own.launched == 3 && own.completed == Some(3) && !own.behind));
    let events: Vec<_> = findings.recorder.iter().map(|line| line.event).collect();
    assert_eq!(events[events.len() - 3..], ["launch taken", "submitted", "completed"]);
    assert!(findings.recorder[events.len() - 2].about.starts_with("hit, "), "{:?}", findings.recorder);
}

fn one_dump() -> (Snapshot, Vec<u8>) {
    let cluster = world::threads(2, Place::TwoServers, 24 << 20);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap();
    cluster.machine().run_until(|| false, Some(std::time::Instant::now() + TIMEOUT / 10));
    let folder = Folder::new("one");
    let files = scene.bench().communicator().dump(&folder.0).unwrap();
    let bytes = fs::read(&files[0]).unwrap();
    (dump::read(&files[0]).unwrap(), bytes)
}

/// Reading trusts nothing: no cut and no flipped bit is taken for a dump, and none panics.
#[test]
fn damaged_dumps_are_refused() {
    let (snapshot, bytes) = one_dump();
    assert_eq!(Snapshot::from_bytes(&bytes).unwrap(), snapshot);
    assert_eq!(snapshot.to_bytes(), bytes);
    assert!(!snapshot.heads().is_empty(), "there is a task that waits");
    let refused = |bytes: &[u8]| Snapshot::from_bytes(bytes).unwrap_err().code();
    for len in (0..bytes.len()).step_by(997).chain(0..64) {
        assert_eq!(refused(&bytes[..len]), ErrorCode::DUMP_FORMAT, "{len}");
    }
    for bit in (0..bytes.len() * 8).step_by(10_007).chain(0..128) {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(refused(&bytes), ErrorCode::DUMP_FORMAT, "bit {bit}");
    }
}

/// CRC-32C bit by bit, another implementation than the one that is tested.
fn checksum(bytes: &[u8]) -> u32 {
    const CRC32C: u32 = 0x82f6_3b78;
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { CRC32C } else { 0 })
    })
}

/// A dump with its checksum put right.
fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&body);
    body.extend(sum.to_le_bytes());
    body
}

/// Whatever a device has left, any word of it, is explained or refused; none panics. (Totals of a status that do not fit 32
/// bits did, found by the fuzz target `dump`.)
#[test]
fn whatever_a_device_has_left_is_explained() {
    let (cluster, folder) = (cluster(), Folder::new("words"));
    failing(&cluster, &folder, |cluster, scene| {
        cluster.machine().inject(1, Fault::Stall);
        scene.bench().launch(&case(Algorithm::Ring)).unwrap();
    });
    let file = |rank: u32| folder.0.join(format!("rank-{rank:04}.{}", dump::ENDING));
    let all: Vec<Snapshot> = (0..4).map(|rank| dump::read(&file(rank)).unwrap()).collect();
    let (mut read, mut same) = (0, 0);
    let root = offline::explain(all.clone()).unwrap().root.unwrap();
    for (rank, place) in [(1, 1), (2, 2)] {
        let bytes = fs::read(file(rank)).unwrap();
        let body = &bytes[..bytes.len() - 4];
        let tables = 16 + u32::from_le_bytes(body[12..16].try_into().unwrap()) as usize;
        for at in (tables..body.len() - 3).step_by(4) {
            for value in [u32::MAX, 1 << 31, 1] {
                let mut changed = body.to_vec();
                changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
                let Ok(snapshot) = Snapshot::from_bytes(&sealed(changed)) else { continue };
                let mut ranks = all.clone();
                ranks[place] = snapshot;
                let found = offline::explain(ranks).unwrap().root;
                read += 1;
                same += usize::from(found.is_some_and(|found| found.culprit_rank == root.culprit_rank));
            }
        }
    }
    assert!(read > 1000 && same > read / 2, "{read} {same}");
}

/// The same with the checksum put right: every length is checked against the bytes that are there.
#[test]
fn damaged_dumps_with_a_right_checksum_are_refused_or_read() {
    let (_, bytes) = one_dump();
    let body = &bytes[..bytes.len() - 4];
    assert_eq!(
        checksum(body).to_le_bytes(),
        bytes[bytes.len() - 4..],
        "another implementation of the checksum"
    );
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    // Head, host's view, lines of the tables with their places, rings.
    let lines = 16 + number(12);
    let (first, second) = (lines + 4, lines + 4 + 68);
    let rings = first + number(lines) * 68;
    for at in [
        12,
        lines,
        first,
        second,
        rings,
        rings + 4,
        rings + 8,
        rings + 12,
        rings + 16,
        rings + 20,
        body.len() - 4,
    ] {
        for value in [0, 1, 0xffff, u32::MAX] {
            let mut changed = body.to_vec();
            if changed[at..at + 4] == value.to_le_bytes() {
                continue;
            }
            changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let changed = sealed(changed);
            match Snapshot::from_bytes(&changed) {
                Ok(read) => assert_eq!(read.to_bytes(), changed, "what is read is what was written: {at}"),
                Err(error) => assert_eq!(error.code(), ErrorCode::DUMP_FORMAT, "{at} {value}"),
            }
        }
    }
    // One snapshot is one file: lines come upwards, each once, and those that are all zero not at all.
    let refused = |body: Vec<u8>| Snapshot::from_bytes(&sealed(body)).unwrap_err().code();
    let (mut turned, mut twice, mut empty) = (body.to_vec(), body.to_vec(), body.to_vec());
    turned[first..first + 136].rotate_left(68);
    twice.copy_within(first..first + 4, second);
    empty[first + 4..second].fill(0);
    for (what, body) in [("turned", turned), ("twice", twice), ("empty", empty)] {
        assert_eq!(refused(body), ErrorCode::DUMP_FORMAT, "{what}");
    }
}

/// A device whose table of queues has been overwritten is dumped all the same, and explained.
#[test]
fn an_overwritten_table_of_queues_is_dumped() {
    let cluster = world::threads(2, Place::TwoServers, 24 << 20);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Ring);
    scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap();
    cluster.machine().run_until(|| false, Some(std::time::Instant::now() + TIMEOUT / 10));
    let window = cluster.npu(0).window();
    let mut dumped = |ring: &dyn Fn(u64) -> u64, depth: u32| {
        for queue in 0..MAX_QUEUES {
            let word = window.word(QUEUES + 32 * queue);
            // ORDER: only this thread looks at it.
            word.store(ring(word.load(Ordering::Relaxed)), Ordering::Relaxed);
            let at = QUEUES + 32 * queue + offset_of!(QueueSlot, depth) as u64;
            window.half(at).store(depth, Ordering::Relaxed);
        }
        let folder = Folder::new("overwritten");
        let files = scene.bench().communicator().dump(&folder.0).unwrap();
        let snapshots: Vec<_> = files.iter().map(|file| dump::read(file).unwrap()).collect();
        offline::explain(snapshots).unwrap()
    };
    for depth in [u32::MAX, 3, 0] {
        assert_eq!(dumped(&|_| u64::MAX - 127, depth).ranks.len(), 2);
        assert_eq!(dumped(&|ring| !ring, depth).ranks.len(), 2);
    }
}

#[test]
fn what_is_no_set_of_dumps_is_refused() {
    let folder = Folder::new("set");
    let refused = |paths: &[&Path]| diagnose(paths).unwrap_err().code();
    assert_eq!(refused(&[&folder.0]), ErrorCode::DUMP_READ, "no such folder");
    fs::create_dir_all(&folder.0).unwrap();
    assert_eq!(refused(&[&folder.0]), ErrorCode::DUMP_READ, "an empty folder");
    assert_eq!(refused(&[Path::new("/dev/zero")]), ErrorCode::DUMP_READ, "no regular file");
    let other = folder.0.join("other.dump");
    fs::write(&other, "something else").unwrap();
    assert_eq!(refused(&[&other]), ErrorCode::DUMP_FORMAT);

    let (snapshot, _) = one_dump();
    let code = |snapshots: Vec<Snapshot>| offline::explain(snapshots).unwrap_err().code();
    assert_eq!(code(Vec::new()), ErrorCode::DUMP_SET);
    assert_eq!(code(vec![snapshot.clone(), snapshot.clone()]), ErrorCode::DUMP_SET, "one rank twice");
    let mut stranger = snapshot.clone();
    (stranger.host.rank, stranger.host.instance[1]) = (1, 5);
    assert_eq!(code(vec![snapshot.clone(), stranger]), ErrorCode::DUMP_SET, "two communicators");

    // A folder that cannot be made: a file has its name.
    let error = snapshot.write_to(&other).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DUMP_WRITE, "{error}");
    // That there is no room for dumps hides no failure.
    let cluster = cluster();
    let config = Config { timeout: TIMEOUT, dump: Some(other), ..Config::default() };
    let mut scene = Scene::with(&cluster, config);
    scene.bench().launch_on(0, &case(Algorithm::Ring)).unwrap();
    let failure = scene.failure();
    let text = failure.error().to_string();
    assert_eq!(failure.error().code(), ErrorCode::PEER_NOT_STARTED, "{text}");
    assert!(text.contains("\n  more     no dumps: "), "{text}");
    scene.recovers();
}
