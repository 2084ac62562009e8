//! T32: what the field's policy keeps, by the real launcher and kernels; ours keeps all of it.

use core::time::Duration;

use aicpu_tests::world::{self, Place};
use host_launcher::communicator::{Config, Operation};
use wire::launch::{Algorithm, CacheMode, OpKind, Staging};
use wire::{DataType, ReduceOp};

use crate::rotation::{BYPASSED, HIT, MISS, Rotation, Step, ring};

/// What is launched, whether in place, and whether the field's cache keeps it where all links are UB.
fn cases() -> Vec<(&'static str, Operation, bool, bool)> {
    let of = |op| Operation { op, ..ring(200) };
    vec![
        ("all-reduce", ring(200), false, true),
        ("all-gather", of(OpKind::AllGather), false, true),
        ("reduce-scatter", of(OpKind::ReduceScatter), false, true),
        ("another algorithm", Operation { algorithm: Algorithm::Nhr, ..ring(200) }, false, true),
        ("work in the user's buffers", Operation { staging: Staging::Direct, ..ring(200) }, false, true),
        ("all-reduce in place", ring(200), true, false),
        ("all-gather in place", of(OpKind::AllGather), true, false),
        ("reduce-scatter in place", of(OpKind::ReduceScatter), true, false),
        ("max of bf16", Operation { dtype: DataType::Bf16, reduce: ReduceOp::Max, ..ring(200) }, false, true),
        ("min of int8", Operation { dtype: DataType::Int8, reduce: ReduceOp::Min, ..ring(200) }, false, true),
        ("sum of int64", Operation { dtype: DataType::Int64, ..ring(200) }, false, false),
        ("sum of uint64", Operation { dtype: DataType::Uint64, ..ring(200) }, false, false),
        ("sum of fp64", Operation { dtype: DataType::Fp64, ..ring(200) }, false, false),
        (
            "int64 that is not reduced",
            Operation { dtype: DataType::Int64, ..of(OpKind::AllGather) },
            false,
            true,
        ),
        ("product", Operation { reduce: ReduceOp::Prod, ..ring(200) }, false, false),
        ("nothing to move", Operation { count: 0, ..ring(200) }, false, false),
    ]
}

/// Runs every case twice; returns the names of those that were kept.
fn kept(place: Place, cache: CacheMode) -> Vec<&'static str> {
    let cluster = world::threads(2, place, 48 << 20);
    let config = Config { cache, timeout: Duration::from_secs(20), ..Config::default() };
    let mut rotation = Rotation::new(&cluster, config, 2 * 8 * 200, 2);
    let mut kept = Vec::new();
    for (name, operation, in_place, _) in cases() {
        let step = |pair| Step { operation: operation.clone(), in_place, pair, seed: 9 };
        match [rotation.outcomes(&step(0)), rotation.outcomes(&step(1))].as_slice() {
            [first, second] if first == &[MISS; 2] && second == &[HIT; 2] => kept.push(name),
            [first, second] if first == &[BYPASSED; 2] && second == &[BYPASSED; 2] => {}
            other => panic!("{name}: {other:?}"),
        }
    }
    rotation.finish();
    kept
}

#[test]
fn t32_the_fields_policy_keeps_what_the_field_keeps() {
    let expected: Vec<_> = cases().iter().filter(|case| case.3).map(|case| case.0).collect();
    assert_eq!(kept(Place::UnifiedBus, CacheMode::Hccl), expected);
    assert_eq!(expected.len(), 8);
}

#[test]
fn t32_the_fields_policy_keeps_nothing_over_other_links() {
    assert_eq!(kept(Place::OneServer, CacheMode::Hccl), [""; 0]);
    assert_eq!(kept(Place::TwoServers, CacheMode::Hccl), [""; 0]);
}

#[test]
fn t32_ours_keeps_all_of_it_over_every_link() {
    let all: Vec<_> = cases().iter().map(|case| case.0).collect();
    for place in [Place::UnifiedBus, Place::OneServer, Place::TwoServers] {
        assert_eq!(kept(place, CacheMode::On), all, "{place:?}");
    }
}

/// Two servers of two ranks have HCCS inside and UB between: a link of another kind is enough.
#[test]
fn t32_one_link_of_another_kind_is_enough() {
    let cluster = world::threads(4, Place::UnifiedBus, 24 << 20);
    let config = Config { cache: CacheMode::Hccl, ..Config::default() };
    let mut rotation = Rotation::new(&cluster, config, 1024, 1);
    let found =
        [0, 1].map(|seed| rotation.outcomes(&Step { operation: ring(200), in_place: false, pair: 0, seed }));
    assert_eq!(found, [[BYPASSED; 4], [BYPASSED; 4]]);
    rotation.finish();
}
