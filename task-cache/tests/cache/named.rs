//! What a cache of recorded graphs must do, as its users put it.

use task_cache::{Alias, Determinism, Facts, Form, Key, KeyHash, Limits, Refusal, Tally, defaults};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ReduceOp};

use crate::support::{A, B, FACTS, directory, key, nothing, open, record, step};

both_hashes!(
    the_same_step_a_thousand_times_misses_once,
    sizes_miss_and_hit_as_they_return,
    each_field_alone_misses,
    a_root_where_there_is_none_still_hits,
    a_reduction_where_there_is_none_still_hits,
    a_full_cache_that_keeps_its_first_refuses_and_counts,
    a_full_cache_that_evicts_takes_the_least_recently_used,
    a_new_life_under_the_same_name_misses,
    changing_sizes_on_one_communicator_do_not_starve_another,
    changing_sizes_between_the_steps_of_another_do_not_starve_it,
    one_shape_class_serves_a_thousand_sizes,
);

/// T25.
fn the_same_step_a_thousand_times_misses_once<H: KeyHash>() {
    let mut directory = directory::<8, H>();
    let hits = (0..1000).filter(|_| step(&mut directory, &Key::new(&FACTS))).count();
    assert_eq!((hits, directory.stats().hits, directory.stats().misses), (999, 999, 1));
    assert_eq!(directory.stats().inserted, 1);
}

/// T26.
fn sizes_miss_and_hit_as_they_return<H: KeyHash>() {
    let mut directory = directory::<8, H>();
    let hits = [1 << 20, 1 << 20, 2 << 20, 1 << 20].map(|count| step(&mut directory, &key(A, 1, count)));
    assert_eq!(hits, [false, true, false, true]);
}

/// T27: one change per field.
fn each_field_alone_misses<H: KeyHash>() {
    let rooted = Facts { op: OpKind::Broadcast, root: 1, ..FACTS };
    let changes: [(Facts, Facts); 23] = [
        (FACTS, Facts { instance: [0xa, 2], ..FACTS }),
        (FACTS, Facts { instance: [0xb, 1], ..FACTS }),
        (FACTS, Facts { epoch: 2, ..FACTS }),
        (FACTS, Facts { op: OpKind::ReduceScatter, ..FACTS }),
        (FACTS, Facts { dtype: DataType::Int32, ..FACTS }),
        (FACTS, Facts { reduce: ReduceOp::Max, ..FACTS }),
        (FACTS, Facts { algorithm: Algorithm::Nhr, ..FACTS }),
        (FACTS, Facts { staging: Staging::Direct, ..FACTS }),
        (FACTS, Facts { alias: Alias::InPlace, ..FACTS }),
        (FACTS, Facts { form: Form::Exact(1 << 21), ..FACTS }),
        (FACTS, Facts { form: Form::Class(1 << 20), ..FACTS }),
        (FACTS, Facts { rank: 4, ..FACTS }),
        (FACTS, Facts { ranks: 9, ..FACTS }),
        (rooted, Facts { root: 2, ..rooted }),
        (FACTS, Facts { chunk: 1, ..FACTS }),
        (FACTS, Facts { piece: 1, ..FACTS }),
        (FACTS, Facts { scratch_len: 1, ..FACTS }),
        (FACTS, Facts { topology: 1, ..FACTS }),
        (FACTS, Facts { context: 1, ..FACTS }),
        (FACTS, Facts { threads: 9, ..FACTS }),
        (FACTS, Facts { determinism: Determinism::Strict, ..FACTS }),
        (FACTS, Facts { features: 2, ..FACTS }),
        (FACTS, Facts { features: 3 | 1 << 31, ..FACTS }),
    ];
    for (recorded, launched) in changes {
        let mut directory = directory::<4, H>();
        record(&mut directory, &Key::new(&recorded), 1, 7, &mut nothing).expect("there is room");
        assert_eq!(directory.lookup(&Key::new(&launched)), None, "{launched:?}");
        assert_eq!(directory.lookup(&Key::new(&recorded)).map(|hit| hit.payload), Some(7));
        assert_eq!(Key::new(&launched).differences(Key::new(&recorded)).count(), 1, "{launched:?}");
    }
}

/// T27, the other half.
fn a_root_where_there_is_none_still_hits<H: KeyHash>() {
    for op in OpKind::ALL.iter().filter(|op| !op.is_rooted()) {
        let mut directory = directory::<4, H>();
        record(&mut directory, &Key::new(&Facts { op: *op, ..FACTS }), 1, 7, &mut nothing)
            .expect("there is room");
        assert!(directory.lookup(&Key::new(&Facts { op: *op, root: 5, ..FACTS })).is_some(), "{op:?}");
    }
}

fn a_reduction_where_there_is_none_still_hits<H: KeyHash>() {
    let facts = Facts { op: OpKind::AllGather, ..FACTS };
    let mut directory = directory::<4, H>();
    record(&mut directory, &Key::new(&facts), 1, 7, &mut nothing).expect("there is room");
    assert!(directory.lookup(&Key::new(&Facts { reduce: ReduceOp::Min, ..facts })).is_some());
}

/// T29, as the field has it: what came first stays.
fn a_full_cache_that_keeps_its_first_refuses_and_counts<H: KeyHash>() {
    let mut directory = directory::<16, H>();
    directory.set_limits(Limits { evict: false, ..open(4) });
    for count in 0..10 {
        let outcome = record(&mut directory, &key(A, 1, count), 1, 0, &mut nothing);
        assert_eq!(outcome.err(), (count >= 4).then_some(Refusal::Full), "{count}");
    }
    let stats = directory.stats();
    assert_eq!((stats.full(), stats.refused_by(Refusal::Full), stats.evicted, stats.inserted), (6, 6, 0, 4));
    assert_eq!((0..10).filter(|count| directory.peek(&key(A, 1, *count)).is_some()).count(), 4);
}

/// T29, as we have it.
fn a_full_cache_that_evicts_takes_the_least_recently_used<H: KeyHash>() {
    let mut directory = directory::<16, H>();
    directory.set_limits(open(4));
    for count in 0..4 {
        record(&mut directory, &key(A, 1, count), 1, 100, &mut nothing).expect("there is room");
    }
    assert!(directory.lookup(&key(A, 1, 0)).is_some());
    let mut released = 0;
    record(&mut directory, &key(A, 1, 4), 2, 200, &mut |payload| released += payload).expect("two give way");
    let left: Vec<u64> = (0..5).filter(|count| directory.peek(&key(A, 1, *count)).is_some()).collect();
    assert_eq!((left, released), (vec![0, 3, 4], 200));
    assert_eq!((directory.stats().evicted, directory.stats().full()), (2, 0));
    assert_eq!(directory.used(), Tally { units: 4, slots: 3 });
}

/// T30: the instance is new even where the name is not, and so is the epoch of a resumed communicator.
fn a_new_life_under_the_same_name_misses<H: KeyHash>() {
    let mut directory = directory::<8, H>();
    record(&mut directory, &key(A, 1, 64), 1, 5, &mut nothing).expect("there is room");
    assert_eq!(directory.lookup(&key([A[0], A[1] + 1], 1, 64)), None, "not even before it is cleared");
    assert_eq!(directory.lookup(&key(A, 2, 64)), None, "resumed");
    let mut released = Vec::new();
    directory.clear(A, &mut |payload| released.push(payload));
    assert_eq!(released, [5]);
    assert_eq!(directory.lookup(&key(A, 1, 64)), None);
    assert_eq!(directory.used(), Tally::default());
    directory.clear(A, &mut nothing);
}

/// H3 of the field: with its policy B never hits.
fn changing_sizes_on_one_communicator_do_not_starve_another<H: KeyHash>() {
    let run = |limits: Limits| {
        let mut directory = Box::new(directory::<256, H>());
        directory.set_limits(limits);
        for count in 0..5000 {
            assert!(!step(&mut directory, &key(A, 1, count)));
        }
        (0..1000).filter(|_| step(&mut directory, &key(B, 1, 64))).count()
    };
    let ours = defaults::limits(256, 256);
    assert_eq!(run(ours), 999);
    assert_eq!(run(Limits { evict: false, ..open(256) }), 0, "the comparison is worth something");
}

fn changing_sizes_between_the_steps_of_another_do_not_starve_it<H: KeyHash>() {
    let mut directory = Box::new(directory::<64, H>());
    directory.set_limits(defaults::limits(1 << 20, 64));
    let mut hits = 0;
    for count in 0..5000 {
        assert!(!step(&mut directory, &key(A, 1, count)));
        if count % 100 == 0 {
            hits += usize::from(step(&mut directory, &key(B, 1, 64)));
        }
    }
    assert_eq!(hits, 49, "a hundred new sizes in between, and only 48 of 64 slots for them");
    assert_eq!(directory.used_by(A).slots, 48);
}

fn one_shape_class_serves_a_thousand_sizes<H: KeyHash>() {
    let mut directory = directory::<8, H>();
    let of_size = |count: u64| Key::new(&Facts { form: Form::Class(count / 4096), ..FACTS });
    let hits = (0..1000).filter(|count| step(&mut directory, &of_size(8192 + count))).count();
    assert_eq!((hits, directory.used().slots), (999, 1));
}
