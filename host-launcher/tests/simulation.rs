//! Whole lives of clusters under seeds: without faults every byte is right, and a seed is always the same life.

use core::time::Duration;

use host_launcher::faults::Fault;
use host_launcher::sim::{FaultPlan, Given, Limits, Scenario, Verdict, many, minimized, play, soak};
use wire::launch::OpKind;

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

/// One life, in many orders of everything that happens in it: the same bits each time, whether a graph is made or replayed.
#[test]
fn a_life_gives_the_same_bits_in_every_schedule() {
    for life in [1, 2, 3, 4, 6, 8] {
        let given = Given { op: Some(OpKind::AllReduce), life: Some(life), ..Given::default() };
        let limits = Limits { operations: Some(1), given, ..Limits::default() };
        let totals = many(0..40, &limits, 2, None, &|_| {});
        assert_eq!((totals.right, totals.outputs.len()), (40, 1), "life {life}: {totals:?}");
        let launches: u64 = totals.cache.values().sum();
        let times = Scenario::new(0, &limits).parts[0].times;
        assert_eq!(launches, 40 * times * u64::from(Scenario::new(9, &limits).ranks));
    }
    // What tells lives apart is not the schedule.
    let of = |seed, life| {
        let given = Given { op: Some(OpKind::AllReduce), life: Some(life), ..Given::default() };
        play(&Scenario::new(seed, &Limits { operations: Some(1), given, ..Limits::default() }))
    };
    assert_ne!(of(0, 1).digest, of(1, 1).digest, "another order");
    assert_ne!(of(0, 1).course.outputs, of(0, 2).course.outputs, "another life");
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
