//! Whatever fails between lookup and publication leaves nothing that can hit, and no page taken.

use aicpu_kernel::LARGEST_GRAPH_PAGES;
use task_cache::{Refusal, Tally};
use wire::launch::{Algorithm, Buffer, CacheMode, CacheOutcome, OpKind, Staging};
use wire::npu::{Protocol, Status};
use wire::{DeviceAddr, ErrorCode, LaunchArgs, Sqe};

use crate::cache_bytes::PAGES;
use crate::rig::{Rig, Setup};
use crate::rings::drive;

const NOTHING: Tally = Tally { units: 0, slots: 0 };

fn run(rig: &mut Rig, setup: &Setup, args: LaunchArgs) -> (Status, Vec<Sqe>) {
    let status = rig.run(args);
    let drained = rig.drain(setup);
    (status, drained[0].1.iter().copied().map(Sqe::from).collect())
}

/// Runs a launch twice that fails with `code`: neither hits, and nothing is left of them.
fn fails(rig: &mut Rig, setup: &Setup, args: LaunchArgs, code: ErrorCode) {
    let before = rig.kernel.cache_use();
    for _ in 0..2 {
        let (status, sqes) = run(rig, setup, args);
        assert_eq!(ErrorCode(status.code), code);
        assert_eq!(status.cache, CacheOutcome::Bypassed as u8);
        let opcodes: Vec<_> = sqes.iter().map(|sqe| sqe.opcode).collect();
        assert_eq!(opcodes, [Sqe::WAIT, Sqe::RECORD_HOST], "nothing of it is submitted");
    }
    let after = rig.kernel.cache_use();
    assert_eq!((after.kept, after.pages), (before.kept, before.pages), "{code}");
    assert_eq!((after.stats.hits, after.stats.inserted), (before.stats.hits, before.stats.inserted));
}

/// Runs a launch twice: the second time it hits.
fn hits(rig: &mut Rig, setup: &Setup, args: LaunchArgs) {
    for outcome in [CacheOutcome::Miss, CacheOutcome::Hit] {
        let (status, _) = run(rig, setup, args);
        assert_eq!((status.code, status.cache), (0, outcome as u8));
    }
}

#[test]
fn a_graph_with_more_descriptors_than_there_are_blocks_for() {
    let setup = Setup::new(0, 16);
    let mut rig = Rig::with_pages(&[setup], 1, PAGES);
    fails(&mut rig, &setup, setup.launch(64), ErrorCode::GRAPH_FULL);
    let after = rig.kernel.cache_use();
    assert_eq!((after.kept, after.pages, after.stats.misses), (NOTHING, 0, 2));
    let empty = setup.launch(0);
    hits(&mut rig, &setup, empty);
    assert_eq!(rig.kernel.cache_use().kept, Tally { units: 1, slots: 1 });
}

#[test]
fn a_graph_with_more_descriptors_than_there_are_pages_for() {
    let setup = Setup::new(0, 16);
    let mut rig = Rig::with_pages(&[setup], 16, 1);
    fails(&mut rig, &setup, setup.launch(64), ErrorCode::PAGES_FULL);
    let after = rig.kernel.cache_use();
    assert_eq!((after.kept, after.pages, after.stats.misses), (NOTHING, 0, 2));
    assert_eq!(after.stats.refused_by(Refusal::TooLarge), 2);
    // What fits the page runs, and is not kept: the page is all there is for graphs that are submitted.
    for _ in 0..2 {
        let (status, _) = run(&mut rig, &setup, setup.launch(0));
        assert_eq!((status.code, status.cache), (0, CacheOutcome::Miss as u8));
    }
    assert_eq!((rig.kernel.cache_use().kept, rig.kernel.cache_use().pages), (NOTHING, 0));
}

/// Without room the operation runs all the same, as often as it is launched, and the counters say why.
#[test]
fn t29b_refused_recordings_run_uncached() {
    let setup = Setup::new(0, 16);
    // The graph takes three pages. A communicator may have three quarters of the room.
    let ring = setup.launch(64);
    for (room, refusal) in [(0, Refusal::TooLarge), (2, Refusal::TooLarge), (3, Refusal::OverQuota)] {
        let mut rig = Rig::with_pages(&[setup], 16, LARGEST_GRAPH_PAGES + room);
        for launches in 1..4 {
            let (status, sqes) = run(&mut rig, &setup, ring);
            assert_eq!((status.code, status.cache, sqes.len()), (0, CacheOutcome::Miss as u8, 124));
            let after = rig.kernel.cache_use();
            assert_eq!((after.kept, after.pages), (NOTHING, 0));
            assert_eq!((after.stats.misses, after.stats.refused_by(refusal)), (launches, launches));
        }
    }
    let mut rig = Rig::with_pages(&[setup], 16, LARGEST_GRAPH_PAGES + 4);
    hits(&mut rig, &setup, ring);
    assert_eq!(rig.kernel.cache_use().kept, Tally { units: 3, slots: 1 });
}

/// A launch that has a graph of its own: sizes would share one.
fn with_piece(setup: &Setup, pieces: u64) -> LaunchArgs {
    LaunchArgs { piece: 128 * pieces, ..setup.launch(100) }
}

/// Launches that never come back: each runs, the oldest give way, nothing is lost.
#[test]
fn t29b_a_full_cache_lets_the_oldest_go() {
    let setup = Setup::new(1, 4);
    let mut rig = Rig::with_pages(&[setup], 16, LARGEST_GRAPH_PAGES + 16);
    for piece in 100..400 {
        let (status, sqes) = run(&mut rig, &setup, with_piece(&setup, piece));
        assert_eq!((status.code, status.cache, sqes.len()), (0, CacheOutcome::Miss as u8, 28));
        let kept = (piece - 99).min(12);
        let after = rig.kernel.cache_use();
        assert_eq!(after.kept, Tally { units: kept, slots: kept });
        assert_eq!((u64::from(after.pages), after.stats.evicted), (kept, piece - 99 - kept));
    }
    // The last twelve are there, in any order.
    for piece in (388..400).rev() {
        assert_eq!(run(&mut rig, &setup, with_piece(&setup, piece)).0.cache, CacheOutcome::Hit as u8);
    }
    assert_eq!(run(&mut rig, &setup, with_piece(&setup, 387)).0.cache, CacheOutcome::Miss as u8);
    let stats = rig.kernel.cache_use().stats;
    assert_eq!((stats.hits, stats.misses, stats.inserted, stats.refused()), (12, 301, 301, 0));
}

/// More communicators' graphs than there are entries, one page each.
#[test]
fn t29b_a_cache_without_entries_lets_the_oldest_go() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::with_pages(&[setup], 16, LARGEST_GRAPH_PAGES + 2000);
    for piece in 1..=1000 {
        assert_eq!(run(&mut rig, &setup, with_piece(&setup, piece)).0.code, 0);
    }
    let after = rig.kernel.cache_use();
    // A communicator may have 192 of 256 entries.
    assert_eq!((after.kept, after.pages), (Tally { units: 192, slots: 192 }, 192));
    assert_eq!((after.stats.inserted, after.stats.evicted), (1000, 808));
}

/// As the field's cache does it: what came first stays for ever, the last graph reaches beyond the 10 MiB, and what comes
/// later runs uncached, of every communicator.
#[test]
fn t29b_as_the_field_does_it_the_first_ten_mebibytes_stay() {
    let setup = Setup { protocol: Protocol::Ub, pair_depth: 512, ..Setup::new(0, 64) };
    let other = Setup { slot: 1, instance: [3, 4], ..setup };
    let mut rig = Rig::with_pages(&[setup, other], 64, LARGEST_GRAPH_PAGES + 2048);
    let mut launch = |setup: &Setup, piece: u64| {
        let args = LaunchArgs { cache: CacheMode::Hccl as u8, piece: 128 * piece, ..setup.launch(6400) };
        drive(&mut rig, setup, args);
        let status = rig.status();
        (ErrorCode(status.code), status.cache, 112 * u64::from(status.sqes) + 144 * u64::from(status.wqes))
    };
    let (mut bytes, mut kept) = (0, 0);
    while bytes < 10 << 20 {
        kept += 1;
        let (code, cache, more) = launch(&setup, kept);
        assert_eq!((code, cache), (ErrorCode::OK, CacheOutcome::Miss as u8));
        bytes += more;
    }
    assert!(kept > 20, "{kept} graphs");
    for piece in kept + 1..kept + 4 {
        for setup in [&setup, &other] {
            assert_eq!([0; 2].map(|_| launch(setup, piece).1), [CacheOutcome::Miss as u8; 2]);
        }
    }
    for piece in 1..=kept {
        assert_eq!(launch(&setup, piece).1, CacheOutcome::Hit as u8, "{piece}");
    }
    let after = rig.kernel.cache_use();
    assert_eq!((after.kept.slots, after.stats.evicted, after.stats.refused_by(Refusal::Full)), (kept, 0, 12));
    // The same launch under our own policy lets the oldest go only where there is no room.
    let args = LaunchArgs { piece: 128 * (kept + 1), ..setup.launch(6400) };
    drive(&mut rig, &setup, args);
    assert_eq!((rig.kernel.cache_use().kept.slots, rig.kernel.cache_use().stats.evicted), (kept + 1, 0));
}

/// A two-shot all-reduce of `count` int32 over the users' buffers, whose tables are written.
fn direct(rig: &mut Rig, setup: &Setup, count: u64) -> LaunchArgs {
    rig.write_peers(setup, |_| 4 * count);
    let [input, output] = setup.peer_tables();
    let args = setup.launch(count);
    LaunchArgs {
        algorithm: Algorithm::MeshTwoShot as u8,
        staging: Staging::Direct as u8,
        input: Buffer { peers: input, ..args.input },
        output: Buffer { peers: output, ..args.output },
        ..args
    }
}

/// The graph for all sizes is made of two others, for which there is no room beside it: each size is expanded.
#[test]
fn a_shape_whose_graphs_do_not_fit_beside_each_other_is_expanded_each_time() {
    let setup = Setup { threads: 4, ..Setup::new(1, 4) };
    let run = |cache: CacheMode| {
        let mut rig = Rig::with_pages(&[setup], 512, PAGES);
        // The same number of pieces each.
        let seen = [250_000, 250_004, 250_008, 250_004].map(|count| {
            let args = direct(&mut rig, &setup, count);
            let seen = drive(&mut rig, &setup, LaunchArgs { piece: 128, cache: cache as u8, ..args }).0;
            assert!(rig.status().sqes > 7000);
            assert_eq!((rig.kernel.cache_use().kept, rig.kernel.cache_use().pages), (NOTHING, 0));
            seen
        });
        (seen, rig.kernel.cache_use().stats)
    };
    let ((cached, stats), (fresh, _)) = (run(CacheMode::On), run(CacheMode::Off));
    assert_eq!(cached, fresh);
    assert_eq!((stats.hits, stats.misses, stats.inserted), (0, 4, 0));
}

/// A peer's buffer that is too short is found out before anything is looked up or submitted.
#[test]
fn a_refused_launch_leaves_the_entry_that_it_would_have_hit() {
    let setup = Setup { threads: 4, ..Setup::new(1, 4) };
    let mut rig = Rig::with_pages(&[setup], 16, PAGES);
    let args = direct(&mut rig, &setup, 100);
    hits(&mut rig, &setup, args);
    let expected = run(&mut rig, &setup, args).1;
    rig.write_peers(&setup, |rank| 400 - u64::from(rank == 2));
    fails(&mut rig, &setup, args, ErrorCode::BINDING_EXTENT);
    rig.write_peers(&setup, |_| 400);
    for (short, code) in [
        (LaunchArgs { input: Buffer { len: 396, ..args.input }, ..args }, ErrorCode::LAUNCH_BUFFER),
        (
            LaunchArgs { output: Buffer { addr: DeviceAddr(0), ..args.output }, ..args },
            ErrorCode::LAUNCH_BUFFER,
        ),
        (
            LaunchArgs { output: Buffer { peers: DeviceAddr(0), ..args.output }, ..args },
            ErrorCode::BINDING_MISSING,
        ),
    ] {
        fails(&mut rig, &setup, short, code);
    }
    let (status, again) = run(&mut rig, &setup, args);
    assert_eq!((status.cache, again), (CacheOutcome::Hit as u8, expected));
    let after = rig.kernel.cache_use();
    assert_eq!((after.stats.hits, after.stats.misses, after.stats.inserted), (3, 1, 1));
}

/// A replay that is given up half-way, because the device takes nothing, gives its entry back.
#[test]
fn a_replay_that_is_given_up_leaves_the_entry() {
    let (stuck, sound) = (Setup { depth: 8, ..Setup::new(0, 4) }, Setup { slot: 1, ..Setup::new(0, 4) });
    let mut rig = Rig::with_pages(&[stuck, sound], 16, PAGES);
    rig.post(stuck.launch(100));
    while !rig.all_answered() {
        rig.kernel.poll();
        rig.drain(&stuck);
    }
    let before = rig.kernel.cache_use();
    rig.post(stuck.launch(100));
    rig.kernel.poll();
    assert!(!rig.all_answered());
    rig.fake().now_ns.set(60_000_000_000);
    rig.kernel.poll();
    assert!(rig.all_answered());
    let status = rig.status();
    assert_eq!((ErrorCode(status.code), status.cache), (ErrorCode::QUEUE_FULL, CacheOutcome::Hit as u8));
    let after = rig.kernel.cache_use();
    assert_eq!((after.kept, after.pages), (before.kept, before.pages));
    hits(&mut rig, &sound, sound.launch(100));
}

/// D7: a cache that is switched off counts nothing and keeps nothing, and so do operations of several chunks.
#[test]
fn off_keeps_nothing_and_counts_nothing() {
    let setup = Setup { threads: 4, ..Setup::new(1, 4) };
    let mut rig = Rig::with_pages(&[setup], 64, PAGES);
    let exist = |algorithm: &&Algorithm| templates::exists(OpKind::AllReduce, **algorithm);
    let launches = Algorithm::ALL.iter().filter(exist).flat_map(|&algorithm| {
        [0, 1, 1000].map(|count| LaunchArgs {
            algorithm: algorithm as u8,
            cache: CacheMode::Off as u8,
            ..setup.launch(count)
        })
    });
    let chunked = LaunchArgs { chunk: 10, ..setup.launch(100) };
    for args in launches.chain([chunked]) {
        for _ in 0..2 {
            let (status, _) = run(&mut rig, &setup, args);
            assert_eq!((status.code, status.cache), (0, CacheOutcome::Bypassed as u8));
            let after = rig.kernel.cache_use();
            assert_eq!((after.kept, after.pages), (NOTHING, 0));
            let stats = after.stats;
            assert_eq!((stats.hits, stats.misses, stats.inserted, stats.refused()), (0, 0, 0, 0));
        }
    }
    // What was kept before is not looked at either.
    let gather = LaunchArgs { op: OpKind::AllGather as u8, ..setup.launch(10) };
    let gather = LaunchArgs { output: Buffer { len: 160, ..gather.output }, ..gather };
    hits(&mut rig, &setup, gather);
    let (status, _) = run(&mut rig, &setup, LaunchArgs { cache: CacheMode::Off as u8, ..gather });
    assert_eq!((status.code, status.cache), (0, CacheOutcome::Bypassed as u8));
    assert_eq!(rig.kernel.cache_use().stats.hits, 1);
}
