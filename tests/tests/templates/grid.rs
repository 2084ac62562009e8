//! Every operation, algorithm, staging, rank count, element count and link capability, in random interleavings.

use aicpu_tests::reference::{Aliases, FULL_CAPS, PLAIN_CAPS, World, expand};
use task_graph::{Caps, RegionKind};
use templates::{Needs, Plan, Shape};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp, Reduction};

const POISON: u8 = 0xa5;

/// Element `index` of rank `rank`'s input: every rank and position has its own value.
fn element(rank: u64, index: u64) -> i64 {
    i64::try_from((rank + 1) * 1_000_003 + index * 17 + rank * index % 11).expect("small")
}

pub(crate) fn add(reduction: Reduction, dst: &mut [u8], src: &[u8]) {
    assert_eq!(reduction, Reduction { dtype: DataType::Int64, op: ReduceOp::Sum });
    for (dst, src) in dst.chunks_exact_mut(8).zip(src.chunks_exact(8)) {
        let sum =
            i64::from_le_bytes(dst.try_into().expect("8")) + i64::from_le_bytes(src.try_into().expect("8"));
        dst.copy_from_slice(&sum.to_le_bytes());
    }
}

fn sizes(op: OpKind, count: u64, ranks: u64) -> (u64, u64) {
    match op {
        OpKind::AllReduce => (count, count),
        OpKind::AllGather => (count, count * ranks),
        OpKind::ReduceScatter => (count * ranks, count),
    }
}

/// What rank `rank` must hold afterwards, from the definition of the operation alone.
fn oracle(op: OpKind, rank: u64, count: u64, ranks: u64) -> Vec<i64> {
    let sum = |index| (0..ranks).map(|other| element(other, index)).sum();
    match op {
        OpKind::AllReduce => (0..count).map(sum).collect(),
        OpKind::AllGather => {
            (0..ranks).flat_map(|other| (0..count).map(move |i| element(other, i))).collect()
        }
        OpKind::ReduceScatter => (0..count).map(|index| sum(rank * count + index)).collect(),
    }
}

fn check(shape: &Shape, caps: Caps) {
    let (ranks, count) = (u64::from(shape.ranks), shape.count);
    let (input, output) = sizes(shape.op, count, ranks);
    let scratch = usize::try_from(shape.scratch_len).expect("small");
    let buffers: Vec<[Vec<u8>; 3]> = (0..ranks)
        .map(|rank| {
            let input: Vec<u8> = (0..input).flat_map(|i| element(rank, i).to_le_bytes()).collect();
            let output = vec![POISON; usize::try_from(output * 8).expect("small")];
            [input, output, vec![POISON; scratch]]
        })
        .collect();
    let tasks: Vec<_> = (0..shape.ranks).map(|rank| expand(&Shape { rank, ..*shape }, caps).tasks).collect();
    let aliases = if shape.in_place { Aliases::InPlace } else { Aliases::Apart };
    let world = World::new(&buffers, &tasks, aliases);
    for seed in [ranks * 1000 + count, 7] {
        let mut world = world.clone();
        world.run(seed, &add).unwrap_or_else(|stopped| panic!("{shape:?} seed {seed}: {stopped:?}"));
        for rank in 0..ranks {
            let index = usize::try_from(rank).expect("small");
            let got: Vec<i64> = world
                .buffer(index, RegionKind::Output)
                .chunks_exact(8)
                .map(|bytes| i64::from_le_bytes(bytes.try_into().expect("8")))
                .collect();
            assert_eq!(got, oracle(shape.op, rank, count, ranks), "{shape:?} rank {rank} seed {seed}");
        }
    }
}

fn shape(op: OpKind, algorithm: Algorithm, staging: Staging, ranks: u32, count: u64) -> Shape {
    Shape {
        op,
        algorithm,
        staging,
        rank: 0,
        ranks,
        count,
        dtype: DataType::Int64,
        reduce: ReduceOp::Sum,
        // Two areas of one chunk for every rank: one chunk does it all.
        scratch_len: 2 * u64::from(ranks) * (count * 8).max(1).next_multiple_of(128),
        threads: Needs::of(algorithm, ranks).threads,
        inline_reduce: true,
        in_place: false,
        chunk: 0,
        piece: 128,
    }
}

/// Runs everything that has a plan; returns how many cases that were.
fn sweep(ranks: impl Iterator<Item = u32> + Clone, vary: impl Fn(Shape) -> Shape) -> u32 {
    let mut cases = 0;
    for &op in OpKind::ALL {
        for &algorithm in Algorithm::ALL {
            for &staging in Staging::ALL {
                for ranks in ranks.clone() {
                    let n = u64::from(ranks);
                    for count in [0, 1, n.saturating_sub(1), n, n + 1, 1000] {
                        let shape = vary(shape(op, algorithm, staging, ranks, count));
                        match Plan::new(&shape) {
                            Ok(_) => {}
                            Err(error) => {
                                let known = [ErrorCode::PLAN_OP, ErrorCode::PLAN_STAGING];
                                assert!(known.contains(&error.code), "{shape:?}: {error:?}");
                                continue;
                            }
                        }
                        let caps = if shape.inline_reduce { FULL_CAPS } else { PLAIN_CAPS };
                        check(&shape, caps);
                        cases += 1;
                    }
                }
            }
        }
    }
    cases
}

fn ranks() -> impl Iterator<Item = u32> + Clone {
    (1..=9).chain([16])
}

#[test]
fn inline_reduction_and_all_threads() {
    assert!(sweep(ranks(), |shape| shape) > 800);
}

#[test]
fn links_that_only_move_bytes() {
    assert!(sweep(ranks(), |shape| Shape { inline_reduce: false, ..shape }) > 600);
}

#[test]
fn one_thread_for_everything() {
    assert!(sweep(ranks(), |shape| Shape { threads: 1, ..shape }) > 800);
}

#[test]
fn three_threads_share_the_peers() {
    assert!(sweep(ranks(), |shape| Shape { threads: 3, ..shape }) > 800);
}

#[test]
fn scratch_so_small_that_there_are_many_chunks() {
    let vary = |shape: Shape| {
        let areas = 2 * u64::from(shape.ranks) * u64::from(shape.ranks);
        Shape { scratch_len: areas * 128, inline_reduce: false, ..shape }
    };
    assert!(sweep(ranks(), vary) > 600);
}

#[test]
fn chunks_of_seven_elements() {
    assert!(sweep(ranks(), |shape| Shape { chunk: 7, ..shape }) > 800);
}

#[test]
fn input_and_output_in_one_buffer() {
    assert!(sweep(ranks(), |shape| Shape { in_place: true, ..shape }) > 600);
    assert!(sweep(ranks(), |shape| Shape { in_place: true, inline_reduce: false, chunk: 7, ..shape }) > 600);
}
