//! Compositions over servers of every shape: results, who talks to whom, how much, in how many steps.

use std::collections::{BTreeMap, BTreeSet};

use aicpu_tests::reference::{FULL_CAPS, Labelled, PLAIN_CAPS, expand_with};
use task_graph::{Counter, Task};
use templates::{Plan, Shape, Tables};
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind, Staging};

use crate::grid::{check, shape, vector};

/// Servers by size.
const SERVERS: [&[u32]; 27] = [
    &[1],
    &[2],
    &[1, 1],
    &[3],
    &[2, 1],
    &[2, 2],
    &[1, 1, 1, 1],
    &[3, 1],
    &[5],
    &[3, 2],
    &[3, 3],
    &[2, 2, 2],
    &[4, 2],
    &[1, 2, 4],
    &[7],
    &[4, 4],
    &[5, 3],
    &[2, 2, 2, 2],
    &[3, 3, 3],
    &[5, 4],
    &[12],
    &[4, 4, 4],
    &[6, 6],
    &[5, 3, 4],
    &[8, 8],
    &[4, 4, 4, 4],
    &[7, 9],
];

const COMPOSITIONS: [Algorithm; 6] = [
    Algorithm::TwoLevel,
    Algorithm::ThreeLevel,
    Algorithm::Pipeline,
    Algorithm::Ahc,
    Algorithm::MultiRing,
    Algorithm::MeshChunk,
];

/// What a level may run; `None` for the composition's own choice.
const LEVELS: [Option<Algorithm>; 6] = [
    None,
    Some(Algorithm::Ring),
    Some(Algorithm::Nhr),
    Some(Algorithm::Nb),
    Some(Algorithm::HalvingDoubling),
    Some(Algorithm::MeshTwoShot),
];

fn starts(sizes: &[u32]) -> Vec<u32> {
    let next = |sum: &mut u32, size: &u32| {
        let first = *sum;
        *sum += size;
        Some(first)
    };
    sizes.iter().scan(0, next).collect()
}

/// Every second server begins a super pod.
fn pods(servers: &[u32]) -> Vec<u32> {
    servers.iter().copied().step_by(2).collect()
}

/// Runs every composition that has a plan on every shape of servers with at most so many ranks; returns how many cases
/// that were.
fn sweep(most: u32, vary: impl Fn(Shape) -> Shape) -> u32 {
    let mut cases = 0;
    for sizes in SERVERS.into_iter().filter(|sizes| sizes.iter().sum::<u32>() <= most) {
        let servers = starts(sizes);
        let pods = pods(&servers);
        let ranks: u32 = sizes.iter().sum();
        let n = u64::from(ranks);
        for &op in OpKind::ALL {
            for algorithm in COMPOSITIONS {
                for &staging in Staging::ALL {
                    for count in [0, 1, n.saturating_sub(1), n, n + 1, 1000] {
                        let shape = vary(shape(op, algorithm, staging, ranks, count));
                        let vector = vector(&shape);
                        let vector = vector.as_ref().map_or(&[] as &[_], |vector| vector.rows(0));
                        let groups = Tables { servers: &servers, pods: &pods, ..Tables::default() };
                        if shape.in_place && !vector.is_empty() {
                            continue;
                        }
                        if let Err(error) = Plan::new(&shape, &Tables { vector, ..groups }) {
                            let known = [ErrorCode::PLAN_OP, ErrorCode::PLAN_STAGING];
                            assert!(known.contains(&error.code), "{shape:?} {groups:?}: {error:?}");
                            continue;
                        }
                        check(&shape, &groups, if shape.inline_reduce { FULL_CAPS } else { PLAIN_CAPS });
                        cases += 1;
                    }
                }
            }
        }
    }
    cases
}

#[test]
fn every_composition_on_every_shape_of_servers() {
    assert!(sweep(16, |shape| shape) > 3000);
}

#[test]
fn compositions_on_links_that_only_move_bytes_with_few_threads() {
    assert!(sweep(16, |shape| Shape { inline_reduce: false, threads: 1, ..shape }) > 3000);
    assert!(sweep(8, |shape| Shape { inline_reduce: false, threads: 3, ..shape }) > 1500);
}

#[test]
fn compositions_in_many_chunks_and_in_place() {
    assert!(sweep(8, |shape| Shape { chunk: 7, ..shape }) > 1500);
    assert!(sweep(8, |shape| Shape { in_place: true, inline_reduce: false, chunk: 50, ..shape }) > 1000);
    let small = |shape: Shape| {
        let areas = 2 * u64::from(shape.ranks) * u64::from(shape.ranks);
        Shape { scratch_len: areas * 128, inline_reduce: false, ..shape }
    };
    assert!(sweep(8, small) > 1500);
}

#[test]
fn every_pair_of_algorithms_on_two_levels() {
    let mut cases = 0;
    for sizes in [&[3, 3][..], &[4, 4], &[2, 2, 2], &[3, 3, 3], &[5, 3], &[1, 2, 4]] {
        let (servers, ranks) = (starts(sizes), sizes.iter().sum());
        let groups = Tables { servers: &servers, ..Tables::default() };
        for algorithm in [Algorithm::TwoLevel, Algorithm::Ahc] {
            for op in [OpKind::AllReduce, OpKind::ReduceScatter, OpKind::AllGather, OpKind::Broadcast] {
                for (inner, outer) in
                    LEVELS.iter().flat_map(|inner| LEVELS.iter().map(move |outer| (inner, outer)))
                {
                    for (staging, inline_reduce) in [(Staging::Scratch, false), (Staging::Direct, true)] {
                        let shape = Shape {
                            levels: [*inner, *outer, None, None],
                            inline_reduce,
                            ..shape(op, algorithm, staging, ranks, 101)
                        };
                        if Plan::new(&shape, &groups).is_ok() {
                            check(&shape, &groups, if inline_reduce { FULL_CAPS } else { PLAIN_CAPS });
                            cases += 1;
                        }
                    }
                }
            }
        }
    }
    // All-reduce runs with any, the others without the fold.
    assert!(cases > 6 * 36 * 2 * 2 + 6 * 25 * 5, "{cases}");
}

/// What a rank sends: peer, first byte, bytes, step.
fn sent(tasks: &[Labelled]) -> Vec<(u32, u64, u64, u16)> {
    let write = |labelled: &Labelled| match labelled.task {
        Task::Write { peer, dst, .. } => Some((peer, dst.offset, dst.len, labelled.step)),
        _ => None,
    };
    tasks.iter().filter_map(write).collect()
}

fn all(shape: &Shape, groups: &Tables<'_>) -> Vec<Vec<Labelled>> {
    (0..shape.ranks).map(|rank| expand_with(&Shape { rank, ..*shape }, groups, FULL_CAPS).tasks).collect()
}

/// B24: inside servers what the inner level moves, across what the outer one does, and only between the ranks that
/// have the same place.
#[test]
fn bytes_of_each_level_stay_on_its_links() {
    for (sizes, algorithm) in [
        (&[8, 8][..], Algorithm::TwoLevel),
        (&[4, 4, 4], Algorithm::TwoLevel),
        (&[3, 3, 3], Algorithm::Pipeline),
        (&[4, 4, 4, 4], Algorithm::Pipeline),
        (&[4, 4], Algorithm::Ahc),
    ] {
        let (servers, size) = (starts(sizes), sizes[0]);
        let groups = Tables { servers: &servers, ..Tables::default() };
        let ranks: u32 = sizes.iter().sum();
        let n = u64::from(ranks);
        let (inner, outer) = (u64::from(size), sizes.len() as u64);
        for (op, halves) in [(OpKind::AllReduce, 2), (OpKind::ReduceScatter, 1), (OpKind::AllGather, 1)] {
            if !templates::exists(op, algorithm) {
                continue;
            }
            // A whole of 24 parts a rank; of the others the count is a block's.
            let (count, whole) = if op == OpKind::AllReduce { (24 * n, 24 * n) } else { (24, 24 * n) };
            let shape = shape(op, algorithm, Staging::Scratch, ranks, count);
            for (rank, tasks) in (0..).zip(all(&shape, &groups)) {
                let (mut inside, mut across) = (0, 0);
                for (peer, _, len, _) in sent(&tasks) {
                    if peer / size == rank / size {
                        inside += len;
                    } else {
                        across += len;
                        assert_eq!(peer % size, rank % size, "{algorithm} {op}");
                    }
                }
                let bytes = whole * 8;
                assert_eq!(inside, halves * bytes * (inner - 1) / inner, "{algorithm} {op} {sizes:?}");
                assert_eq!(
                    across,
                    halves * bytes / inner * (outer - 1) / outer,
                    "{algorithm} {op} {sizes:?}"
                );
            }
        }
    }
}

fn steps(shape: &Shape, groups: &Tables<'_>) -> u64 {
    let plan = Plan::new(shape, groups).expect("has a plan");
    let mut counter = Counter::new(FULL_CAPS);
    plan.emit(0, groups, &mut counter).expect("a counter takes everything");
    counter.counts().steps
}

#[test]
fn steps_are_the_sums_of_the_levels() {
    let servers = starts(&[4, 4, 4, 4, 4]);
    let groups = Tables { servers: &servers, ..Tables::default() };
    let of = |op, algorithm, levels| {
        steps(&Shape { levels, ..shape(op, algorithm, Staging::Scratch, 20, 2000) }, &groups)
    };
    let own = [None; 4];
    let (ring, nhr) = (Some(Algorithm::Ring), Some(Algorithm::Nhr));
    assert_eq!(of(OpKind::AllReduce, Algorithm::TwoLevel, own), 2 * (1 + 3));
    assert_eq!(of(OpKind::AllReduce, Algorithm::TwoLevel, [ring, ring, None, None]), 2 * (3 + 4));
    assert_eq!(of(OpKind::AllReduce, Algorithm::TwoLevel, [nhr, nhr, None, None]), 2 * (2 + 3));
    // Five servers fold to four: one step in, two halves of two, one step out.
    let folded = [None, Some(Algorithm::HalvingDoubling), None, None];
    assert_eq!(of(OpKind::AllReduce, Algorithm::TwoLevel, folded), 2 * (1 + 3));
    assert_eq!(of(OpKind::ReduceScatter, Algorithm::TwoLevel, own), 1 + 3);
    assert_eq!(of(OpKind::AllGather, Algorithm::TwoLevel, own), 1 + 3);
    // (servers − 1) overlapped steps and one.
    assert_eq!(of(OpKind::AllGather, Algorithm::Pipeline, own), 5);
    assert_eq!(of(OpKind::AllReduce, Algorithm::Pipeline, own), 10);
    assert_eq!(of(OpKind::AllReduce, Algorithm::MultiRing, own), 2 * 19);
    assert_eq!(of(OpKind::AllReduce, Algorithm::MeshChunk, own), 19 + 1);
    assert_eq!(of(OpKind::ReduceScatter, Algorithm::MeshChunk, own), 19);
    let pods = [0, 8];
    let servers = starts(&[4, 4, 4, 4]);
    let groups = Tables { servers: &servers, pods: &pods, ..Tables::default() };
    let three = shape(OpKind::AllReduce, Algorithm::ThreeLevel, Staging::Scratch, 16, 1600);
    assert_eq!(steps(&three, &groups), 2 * (1 + 1 + 1));
}

/// B12: no two rings share a link in either direction, every link carries as much, and a ring with k others a k-th of
/// what it would alone.
#[test]
fn rings_share_no_link_and_carry_the_same() {
    for (ranks, rings) in [(2_u32, 1), (3, 1), (5, 2), (7, 3), (8, 2), (9, 3), (12, 2), (16, 4)] {
        let count = u64::from(ranks) * rings * 10;
        let of = |algorithm| {
            let shape = shape(OpKind::AllReduce, algorithm, Staging::Scratch, ranks, count);
            let mut links = BTreeMap::<(u32, u32), u64>::new();
            for (rank, tasks) in (0..).zip(all(&shape, &Tables::default())) {
                for (peer, _, len, _) in sent(&tasks) {
                    *links.entry((rank, peer)).or_default() += len;
                }
            }
            links
        };
        let (one, many) = (of(Algorithm::Ring), of(Algorithm::MultiRing));
        let alone: BTreeSet<u64> = one.values().copied().collect();
        let shared: BTreeSet<u64> = many.values().copied().collect();
        assert_eq!((alone.len(), shared.len()), (1, 1), "{ranks} ranks");
        assert_eq!(shared.first().expect("one") * rings, *alone.first().expect("one"));
        assert_eq!(many.len() as u64, u64::from(ranks) * rings);
        if ranks > 2 {
            assert!(many.keys().all(|&(a, b)| !many.contains_key(&(b, a))), "{ranks} ranks");
        }
    }
}

/// In a sub-step the parts that come to an owner are all different, and together its slice.
#[test]
fn parts_that_are_added_at_once_do_not_overlap() {
    for ranks in [2_u32, 3, 5, 8, 16] {
        let others = u64::from(ranks) - 1;
        let count = u64::from(ranks) * others * 3;
        let shape = shape(OpKind::AllReduce, Algorithm::MeshChunk, Staging::Scratch, ranks, count);
        let tasks: Vec<_> = all(&shape, &Tables::default()).iter().map(|tasks| sent(tasks)).collect();
        for owner in 0..ranks {
            for step in 0..u16::try_from(others).expect("few") {
                let here = tasks.iter().flatten().filter(|&&(to, _, _, at)| to == owner && at == step);
                let parts: BTreeSet<(u64, u64)> = here.map(|&(_, first, len, _)| (first, len)).collect();
                let slice = others * 3 * 8;
                let expected = (0..others).map(|part| (u64::from(owner) * slice + part * 24, 24));
                assert_eq!(parts, expected.collect(), "{ranks} ranks, owner {owner}, sub-step {step}");
            }
        }
    }
}

/// Of servers of 5 and 3 ranks, each rank of the smaller holds a third: it talks to those that hold parts of it.
#[test]
fn unequal_servers_talk_where_they_hold_the_same_parts() {
    let servers = [0, 5];
    let groups = Tables { servers: &servers, ..Tables::default() };
    let shape = shape(OpKind::AllReduce, Algorithm::Ahc, Staging::Scratch, 8, 300);
    let mut pairs = BTreeMap::<(u32, u32), u64>::new();
    for (rank, tasks) in (0..).zip(all(&shape, &groups)) {
        for (peer, _, len, _) in sent(&tasks) {
            if (rank < 5) && peer >= 5 {
                *pairs.entry((rank, peer)).or_default() += len;
            }
        }
    }
    // Fifteenths of 300 elements: the runs of parts are 3, 2, 1, 3, 1, 2, 3. Of each run half goes each way, twice.
    let fifteenth = 300 / 15 * 8;
    let expected =
        [((0, 5), 3), ((1, 5), 2), ((1, 6), 1), ((2, 6), 3), ((3, 6), 1), ((3, 7), 2), ((4, 7), 3)];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(pair, parts)| (pair, parts * fifteenth)).collect();
    assert_eq!(pairs, expected);
}

/// 11, 13 and 17 ranks have a common multiple of 2,431: the data is cut into 1,024 parts, whose shares differ by one.
#[test]
fn too_many_parts_are_cut_differently() {
    let servers = starts(&[11, 13, 17]);
    let groups = Tables { servers: &servers, ..Tables::default() };
    for (staging, count) in [(Staging::Scratch, 5000), (Staging::Direct, 7)] {
        check(&shape(OpKind::AllReduce, Algorithm::Ahc, staging, 41, count), &groups, FULL_CAPS);
    }
}

#[test]
fn levels_that_cannot_be_run_are_refused() {
    let servers = [0, 3];
    let groups = Tables { servers: &servers, ..Tables::default() };
    let code = |op, algorithm, levels| {
        let shape = Shape { levels, ..shape(op, algorithm, Staging::Scratch, 6, 10) };
        Plan::new(&shape, &groups).err().map(|error| error.code)
    };
    let (ring, star) = (Some(Algorithm::Ring), Some(Algorithm::Star));
    let (halving, refused) = (Some(Algorithm::HalvingDoubling), Some(ErrorCode::PLAN_OP));
    use OpKind::{AllReduce, ReduceScatter};
    assert_eq!(code(AllReduce, Algorithm::TwoLevel, [ring, ring, None, None]), None);
    assert_eq!(code(AllReduce, Algorithm::TwoLevel, [star, None, None, None]), refused);
    assert_eq!(code(AllReduce, Algorithm::TwoLevel, [None, None, ring, None]), refused, "has two levels");
    assert_eq!(code(AllReduce, Algorithm::Pipeline, [ring, None, None, None]), refused, "is a mesh inside");
    assert_eq!(code(AllReduce, Algorithm::Ring, [ring, None, None, None]), refused, "has no levels");
    assert_eq!(code(AllReduce, Algorithm::TwoLevel, [halving, None, None, None]), None, "3 fold to 2");
    assert_eq!(code(ReduceScatter, Algorithm::TwoLevel, [halving, None, None, None]), refused, "3 do not");
}
