//! Replays through rings that are smaller than the graph, while the next launch waits to take its place.

use std::collections::BTreeMap;

use wire::launch::{Algorithm, CacheMode, CacheOutcome};
use wire::npu::Protocol;
use wire::{LaunchArgs, Sqe};

use crate::rig::{Rig, Setup};
use crate::rings::drive;

fn args(setup: &Setup, cache: CacheMode, count: u64, sequence: u32) -> LaunchArgs {
    LaunchArgs { cache: cache as u8, sequence, ..setup.launch(count) }
}

/// Replays of many turns write what a fresh expansion through the same rings writes.
#[test]
fn replays_go_through_rings_of_four() {
    let mesh = Setup { threads: 64, depth: 4, ..Setup::new(3, 64) };
    let roce = Setup { protocol: Protocol::Roce, pair_depth: 4, depth: 4, ..Setup::new(1, 3) };
    for (setup, algorithm) in
        [(mesh, Algorithm::MeshTwoShot), (mesh, Algorithm::MeshOneShot), (roce, Algorithm::Ring)]
    {
        let run = |cache: CacheMode| {
            let mut rig = Rig::with_pages(&[setup], 256, crate::cache_bytes::PAGES);
            let launch = |(sequence, count)| {
                let mut args = args(&setup, cache, count, sequence);
                args.algorithm = algorithm as u8;
                drive(&mut rig, &setup, args)
            };
            // The third is expanded for all sizes of its shape, and the fourth replays that.
            let launches = [(1, 576), (2, 576), (3, 768), (4, 960)];
            let (seen, turns): (Vec<_>, Vec<_>) = launches.map(launch).into_iter().unzip();
            assert!(turns.iter().all(|turns| *turns > 3), "{turns:?}");
            (seen, rig.kernel.cache_use())
        };
        let ((replayed, kept), (fresh, nothing)) = (run(CacheMode::On), run(CacheMode::Off));
        assert_eq!(replayed, fresh, "{algorithm}");
        assert_eq!((kept.stats.hits, kept.stats.misses, kept.kept.slots), (2, 2, 2));
        assert_eq!(u64::from(kept.pages), kept.kept.units, "nothing else is taken");
        assert_eq!((nothing.stats.hits, nothing.stats.misses, nothing.pages), (0, 0, 0));
    }
}

/// What a launch has written to thread 0's ring.
type Seen = BTreeMap<u32, Vec<Sqe>>;

/// Posts four launches at once, of sizes of three classes, into a ring that holds a quarter of each.
fn four_at_once(pages: usize, cache: CacheMode) -> (Seen, Vec<u8>, Rig) {
    let setup = Setup { depth: 16, ..Setup::new(0, 8) };
    let mut rig = Rig::with_pages(&[setup], 16, pages);
    let mut outcomes = Vec::new();
    let mut seen = Seen::new();
    // The first lap fills the cache; in the second, what comes next waits behind a replay of several turns.
    for lap in 0..2_u32 {
        for (index, count) in [(0, 800), (1, 800), (2, 801), (3, 802)] {
            rig.post(args(&setup, cache, count, 4 * lap + index));
        }
        let mut turns = 0;
        while !rig.all_answered() {
            rig.kernel.poll();
            for sqe in rig.consume(&setup, 0) {
                let sequence = u32::try_from(sqe.task >> 32).expect("32 bits");
                seen.entry(sequence).or_default().push(sqe);
            }
            turns += 1;
            assert!(turns < 1000);
        }
        assert!(turns > 12, "{turns}");
        outcomes.extend(rig.statuses(4).iter().map(|status| status.cache));
    }
    (seen, outcomes, rig)
}

#[test]
fn a_replay_is_not_evicted_by_what_waits_behind_it() {
    let largest = aicpu_kernel::LARGEST_GRAPH_PAGES;
    let (expected, outcomes, _) = four_at_once(largest, CacheMode::Off);
    assert_eq!(outcomes, [CacheOutcome::Bypassed as u8; 8]);
    let lens: Vec<_> = expected.values().map(Vec::len).collect();
    assert_eq!(lens, [60; 8]);
    // Two pages each, of three quarters of the room: for all three, for two, for one, and for none.
    for (room, hits, evicted) in [(8, 5, 0), (6, 2, 4), (3, 2, 5), (2, 0, 0)] {
        let (seen, outcomes, rig) = four_at_once(largest + room, CacheMode::On);
        assert_eq!(seen, expected, "room for {room}");
        let found = outcomes.iter().filter(|outcome| **outcome == CacheOutcome::Hit as u8).count();
        let after = rig.kernel.cache_use();
        assert_eq!((found, after.stats.evicted), (hits, evicted), "room for {room}");
        assert_eq!(u64::from(after.pages), after.kept.units, "nothing is in hand");
    }
}
