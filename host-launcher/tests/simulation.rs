//! Whole lives of clusters under seeds: without faults every byte is right, and a seed is always the same life.

use core::time::Duration;

use host_launcher::faults::Fault;
use host_launcher::sim::{FaultPlan, Limits, Scenario, Verdict, many, minimized, play, soak};

#[test]
fn without_faults_every_byte_is_right() {
    let totals = many(0..300, &Limits::default(), 2, None, &|_| {});
    assert_eq!((totals.seeds, totals.right), (300, 300), "{:?}", totals.first_failures);
}

#[test]
fn a_seed_is_always_the_same_life() {
    let lives = |seeds| -> Vec<u64> {
        let live = |seed| play(&Scenario::new(seed, &Limits::default())).digest;
        Iterator::map(seeds, live).collect()
    };
    let first = lives(1000..1060);
    assert_eq!(first, lives(1000..1060));
    let mut different = first;
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 60);
}

#[test]
fn what_is_fixed_leaves_the_rest_of_a_seed_as_it_was() {
    for seed in 0..50 {
        let free = Scenario::new(seed, &Limits::default());
        let ranks = Scenario::new(seed, &Limits { ranks: Some(free.ranks), ..Limits::default() });
        assert_eq!(free, ranks);
        let fewer = Scenario::new(seed, &Limits { ranks: Some(3), operations: Some(1), ..Limits::default() });
        assert_eq!((fewer.ranks, fewer.parts[..].len()), (3, 1));
        assert_eq!(fewer.parts[0], free.parts[0]);
    }
}

#[test]
fn a_scenario_that_is_right_is_made_as_small_as_it_gets() {
    let scenario = Scenario::new(5, &Limits::default());
    let small = minimized(&scenario);
    assert_eq!(play(&small).verdict, Verdict::Right);
    assert_eq!((small.ranks, small.parts.len(), small.parts[0].operation.count), (2, 1, 1));
}

#[test]
fn a_long_life_leaves_nothing_taken_and_wraps_its_counters() {
    let done = soak(7, Duration::ZERO).unwrap();
    assert!(done.operations >= 4_000 && done.reported >= 100 && done.communicators > 100, "{done:?}");
    assert_eq!(done.left_taken, 0, "{done:?}");
    assert!(done.wraps >= 100, "{done:?}");
    // So few probes vary; `cargo xtask soak` has enough of them for 5 %.
    let [first, last] = done.probe_ns;
    assert!(first > 0 && last <= 2 * first, "{done:?}");
}

#[test]
fn ranks_that_agree_on_another_operation_cannot_know() {
    // Seeds of a campaign that took these for silent corruption.
    for (seed, what) in [(22_330, "reduce"), (35_658, "count")] {
        let fault = |rank| Fault::parse(&format!("mismatch:rank={rank},what={what}")).unwrap();
        let lives = |faults| {
            let faults = FaultPlan::Given(faults);
            let limits =
                Limits { ranks: Some(2), operations: Some(1), count: Some(1), faults, ..Limits::default() };
            play(&Scenario::new(seed, &limits)).verdict
        };
        assert_eq!(lives(vec![fault(0), fault(1)]), Verdict::Undetectable, "seed {seed}");
        assert!(
            matches!(lives(vec![fault(0)]), Verdict::Reported(_)),
            "seed {seed}: one rank alone is noticed"
        );
    }
}
