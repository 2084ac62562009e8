//! T25, T26 and T30: which of a series of operations hit, one communicator at a time.

use core::time::Duration;

use aicpu_tests::variants::{Variant, algorithms};
use aicpu_tests::world::{self, Place};
use host_launcher::communicator::{Config, Operation};
use wire::launch::{Algorithm, CacheMode, OpKind, Staging};

use crate::rotation::{BYPASSED, HIT, MISS, Rotation, Step, ring};

const RANKS: u32 = 4;

fn config(cache: CacheMode) -> Config {
    Config { cache, timeout: Duration::from_secs(20), ..Config::default() }
}

/// Only the first step is expanded: on a hit the kernel spends no time with a template.
#[test]
fn t25_a_thousand_equal_steps_are_expanded_once() {
    let cluster = world::threads(RANKS, Place::TwoServers, 24 << 20);
    let mut rotation = Rotation::new(&cluster, config(CacheMode::On), 1024, 3);
    let (mut hits, mut misses, mut expanded) = ([0; 4], [0; 4], [0; 4]);
    for seed in 0..1000 {
        let pair = usize::try_from(seed % 3).unwrap();
        for done in rotation.run(&Step { operation: ring(250), in_place: false, pair, seed }) {
            let rank = done.rank as usize;
            assert_eq!(done.status.cache, if seed == 0 { MISS } else { HIT }, "step {seed}, rank {rank}");
            hits[rank] += u32::from(done.status.cache == HIT);
            misses[rank] += u32::from(done.status.cache == MISS);
            expanded[rank] += u32::from(done.status.expand_ns > 0);
        }
    }
    assert_eq!((hits, misses, expanded), ([999; 4], [1; 4], [1; 4]));
    rotation.finish();
}

/// The same for everything that a launch can name, out of place and in place.
#[test]
fn t25_every_operation_is_expanded_once() {
    for place in [Place::OneServer, Place::TwoServers] {
        let cluster = world::threads(RANKS, place, 48 << 20);
        let mut rotation = Rotation::new(&cluster, config(CacheMode::On), 4 * 250 * 4, 3);
        let mut series = 0;
        for variant in Variant::all() {
            for in_place in [false, true] {
                // A rank with one buffer has the graph of the operation out of place.
                let known = in_place && !variant.aliases_at_every_rank();
                if known || !variant.runs(place == Place::OneServer, in_place) {
                    continue;
                }
                let operation = variant.operation(250, RANKS, 5);
                for seed in 0..10 {
                    let pair = usize::try_from(seed % 3).unwrap();
                    let found =
                        rotation.outcomes(&Step { operation: operation.clone(), in_place, pair, seed });
                    assert_eq!(found, [if seed == 0 { MISS } else { HIT }; 4], "{operation}, step {seed}");
                }
                series += 1;
            }
        }
        assert!(series > 100, "{series}");
        rotation.finish();
    }
}

/// Runs a series of counts; returns what the caches did, the same on every rank.
fn series(rotation: &mut Rotation<'_>, counts: &[u64]) -> Vec<u8> {
    let step = |(seed, &count)| Step { operation: ring(count), in_place: false, pair: 0, seed };
    let same = |found: Vec<u8>| {
        assert!(found.iter().all(|outcome| *outcome == found[0]), "{found:?}");
        found[0]
    };
    (0..).zip(counts).map(step).map(|step| same(rotation.outcomes(&step))).collect()
}

/// The second size brings a larger scratch buffer, and with it another context; it is recorded for all sizes of its
/// shape, so that the first size is served as well when it comes back.
#[test]
fn t26_another_size_misses_once() {
    const MEGA: u64 = (1 << 20) / 4;
    let cluster = world::threads(RANKS, Place::OneServer, 24 << 20);
    let mut rotation = Rotation::new(&cluster, config(CacheMode::On), 2 << 20, 1);
    assert_eq!(series(&mut rotation, &[MEGA, MEGA, 2 * MEGA, MEGA]), [MISS, HIT, MISS, HIT]);
    rotation.finish();
}

/// The field's cache knows sizes only: each has a graph of its own.
#[test]
fn t26_another_size_is_another_graph_for_the_field() {
    let cluster = world::threads(2, Place::UnifiedBus, 24 << 20);
    let mut rotation = Rotation::new(&cluster, config(CacheMode::Hccl), 16 << 10, 1);
    let found = series(&mut rotation, &[1000, 1000, 2000, 1000, 2000, 3000, 3000, 4000]);
    assert_eq!(found, [MISS, HIT, MISS, HIT, HIT, MISS, HIT, MISS]);
    rotation.finish();
}

/// A serving load: hardly a size comes twice, and three graphs serve them all.
#[test]
fn a_thousand_sizes_of_one_shape_hit() {
    let cluster = world::threads(RANKS, Place::TwoServers, 24 << 20);
    let mut rotation = Rotation::new(&cluster, config(CacheMode::On), 16 << 10, 2);
    let mut misses = 0;
    for seed in 0..1000 {
        let operation = ring(4 * (1 + seed * 617 % 1000));
        let pair = usize::try_from(seed % 2).unwrap();
        let found = rotation.outcomes(&Step { operation, in_place: seed % 3 == 0, pair, seed });
        misses += found.iter().filter(|outcome| **outcome == MISS).count();
    }
    // The first size has a graph of its own; in place and not, one more serves all the others.
    assert_eq!(misses, 3 * RANKS as usize);
    rotation.finish();
}

/// The plan changes between steps, on all ranks: each algorithm has its own graph, and keeps it.
#[test]
fn t32_another_algorithm_between_steps_has_a_graph_of_its_own() {
    let cluster = world::threads(RANKS, Place::OneServer, 24 << 20);
    let mut rotation = Rotation::new(&cluster, config(CacheMode::On), 1024, 2);
    let known = algorithms(OpKind::AllReduce);
    let turns = 5 * known.len();
    for turn in 0..turns {
        let operation = Operation { algorithm: known[turn % known.len()], ..ring(250) };
        let step = Step { operation, in_place: false, pair: turn % 2, seed: turn as u64 };
        let expected = if turn < known.len() { MISS } else { HIT };
        assert_eq!(rotation.outcomes(&step), [expected; 4], "{}, turn {turn}", step.operation);
    }
    rotation.finish();
}

/// Communicators that get the same name, addresses, queues and notifies one after the other.
#[test]
fn t30_a_communicator_of_the_same_name_hits_nothing_of_the_one_before() {
    let cluster = world::threads(RANKS, Place::TwoServers, 24 << 20);
    let mut places = Vec::new();
    for turn in 0..20 {
        let name = "again".to_owned();
        let mut rotation = Rotation::new(&cluster, Config { name, ..config(CacheMode::On) }, 1024, 2);
        for &algorithm in &[Algorithm::Ring, Algorithm::MeshTwoShot] {
            for (pair, outcome) in [(0, MISS), (1, HIT), (0, HIT)] {
                let operation = Operation { algorithm, ..ring(250) };
                let step = Step { operation, in_place: false, pair, seed: turn };
                assert_eq!(rotation.outcomes(&step), [outcome; 4], "{algorithm}, turn {turn}");
            }
        }
        places.push(rotation.buffer(0, 0).addr(1));
        rotation.finish();
    }
    places.dedup();
    assert_eq!(places.len(), 1, "the buffers lie where those of the one before lay");
}

/// D7: switched off, nothing is counted; a series of chunks is no graph.
#[test]
fn off_and_chunked_operations_pass_by() {
    let cluster = world::threads(RANKS, Place::OneServer, 24 << 20);
    for (cache, chunk) in [(CacheMode::Off, 0), (CacheMode::On, 100), (CacheMode::Off, 100)] {
        let mut rotation = Rotation::new(&cluster, config(cache), 1024, 2);
        for seed in 0..6 {
            let pair = usize::try_from(seed % 2).unwrap();
            let operation = Operation { chunk, ..ring(250) };
            for done in rotation.run(&Step { operation, in_place: seed % 3 == 0, pair, seed }) {
                assert_eq!((done.status.cache, done.status.expand_ns > 0), (BYPASSED, true));
            }
        }
        rotation.finish();
    }
}

/// Bits of a sum do not depend on whether its graph was expanded, replayed or not kept at all.
#[test]
fn sums_have_the_same_bits_on_hits_and_misses() {
    use wire::DataType::{Bf16, Fp16, Fp32};
    let cluster = world::threads(5, Place::OneServer, 48 << 20);
    let mut cached = Rotation::new(&cluster, config(CacheMode::On), 4 * 1003, 2);
    let mut fresh = Rotation::new(&cluster, config(CacheMode::Off), 4 * 1003, 1);
    let mut compared = 0;
    for algorithm in algorithms(OpKind::AllReduce) {
        for &staging in Staging::ALL {
            if !(Variant { op: OpKind::AllReduce, algorithm, staging }).runs(true, false) {
                continue;
            }
            for (seed, dtype) in (40..).zip([Fp16, Bf16, Fp32]) {
                let operation = Operation { algorithm, staging, dtype, ..ring(1003) };
                let step = |pair| Step { operation: operation.clone(), in_place: false, pair, seed };
                assert_eq!(cached.outcomes(&step(0)), [MISS; 5]);
                assert_eq!(cached.outcomes(&step(1)), [HIT; 5]);
                assert_eq!(fresh.outcomes(&step(0)), [BYPASSED; 5]);
                for rank in 0..5 {
                    let miss = cached.output(0, rank);
                    assert!(miss == cached.output(1, rank), "{operation}, rank {rank}: hit");
                    assert!(miss == fresh.output(0, rank), "{operation}, rank {rank}: uncached");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared >= 16 * 3 * 5, "{compared}");
    cached.finish();
    fresh.finish();
}
