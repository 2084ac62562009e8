//! Every operation, algorithm, staging, rank count, element count and link capability, in random interleavings.

use aicpu_tests::reference::{Aliases, FULL_CAPS, PLAIN_CAPS, World, expand_with};
use host_launcher::communicator::Vector;
use host_launcher::traffic::Traffic;
use task_graph::{Caps, RegionKind};
use templates::{Needs, Plan, Shape, Tables};
use wire::launch::{Algorithm, ElementRange, OpKind, Staging};
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

/// Counts and places of a shape, with empty blocks, gaps, and an order of their own; `None` where it has none.
pub(crate) fn vector(shape: &Shape) -> Option<Vector> {
    let traffic = Traffic::named(shape.op.name()).expect("every operation has a name");
    traffic.vector(shape.count + u64::from(shape.ranks), shape.count, shape.ranks)
}

/// What rank `rank` must hold afterwards, from the definition of the operation alone; bytes that no block covers stay
/// poisoned.
fn oracle(shape: &Shape, vector: Option<&Vector>, rank: u32) -> Vec<i64> {
    let (count, ranks, root) = (shape.count, shape.ranks, shape.root);
    let sum = |index| (0..ranks).map(|other| element(other.into(), index)).sum::<i64>();
    let share = |other: u32| (0..count).map(move |index| element(other.into(), index));
    let block = |other: u32, block: u32| {
        let first = u64::from(block) * count;
        (first..first + count).map(move |index| element(other.into(), index))
    };
    let row = |rank: u32, peer: u32| vector.expect("has rows").rows(rank)[peer as usize];
    // Blocks from every rank: which of its elements, where to.
    let placed = |blocks: &dyn Fn(u32) -> (ElementRange, ElementRange)| {
        let all: Vec<_> = (0..ranks).map(|other| (other, blocks(other))).collect();
        let end = all.iter().filter_map(|(_, (_, to))| to.end()).max().unwrap_or(0);
        let mut out = vec![i64::from_le_bytes([POISON; 8]); usize::try_from(end).expect("small")];
        for (other, (from, to)) in all {
            assert_eq!(from.count, to.count);
            for index in 0..from.count {
                out[usize::try_from(to.first + index).expect("small")] =
                    element(other.into(), from.first + index);
            }
        }
        out
    };
    match shape.op {
        OpKind::AllReduce => (0..count).map(sum).collect(),
        OpKind::Reduce if rank == root => (0..count).map(sum).collect(),
        OpKind::AllGather => (0..ranks).flat_map(share).collect(),
        OpKind::Gather if rank == root => (0..ranks).flat_map(share).collect(),
        OpKind::ReduceScatter => (0..count).map(|index| sum(u64::from(rank) * count + index)).collect(),
        OpKind::ReduceScatterV => {
            let own = row(rank, rank).send;
            (0..own.count).map(|index| sum(own.first + index)).collect()
        }
        OpKind::Broadcast => share(root).collect(),
        OpKind::Scatter => block(root, rank).collect(),
        OpKind::AllToAll => (0..ranks).flat_map(|other| block(other, rank)).collect(),
        OpKind::AllGatherV => placed(&|other| {
            let to = row(rank, other).receive;
            (ElementRange { first: 0, count: to.count }, to)
        }),
        OpKind::AllToAllV | OpKind::SendReceive => {
            placed(&|other| (row(other, rank).send, row(rank, other).receive))
        }
        OpKind::Reduce | OpKind::Gather | OpKind::Barrier => Vec::new(),
    }
}

/// Runs a shape on ranks grouped as `groups` says, and compares every rank's output.
pub(crate) fn check(shape: &Shape, groups: &Tables<'_>, caps: Caps) {
    let vector = vector(shape);
    let tables = |rank| Tables { vector: vector.as_ref().map_or(&[], |vector| vector.rows(rank)), ..*groups };
    let scratch = usize::try_from(shape.scratch_len).expect("small");
    let mut tasks = Vec::new();
    let mut buffers: Vec<[Vec<u8>; 3]> = Vec::new();
    for rank in 0..shape.ranks {
        let of_rank = Shape { rank, ..*shape };
        let [input, output] = of_rank.extents(&tables(rank)).expect("has extents").own;
        let input: Vec<u8> = (0..input).flat_map(|i| element(rank.into(), i).to_le_bytes()).collect();
        let output = vec![POISON; usize::try_from(output * 8).expect("small")];
        // A rank with one buffer has none in place.
        let in_place = shape.in_place && !input.is_empty() && !output.is_empty();
        tasks.push(expand_with(&Shape { in_place, ..of_rank }, &tables(rank), caps).tasks);
        buffers.push([input, output, vec![POISON; scratch]]);
    }
    let aliases = if shape.in_place { Aliases::InPlace } else { Aliases::Apart };
    let world = World::new(&buffers, &tasks, aliases);
    for seed in [u64::from(shape.ranks) * 1000 + shape.count, 7] {
        let mut world = world.clone();
        world
            .run(seed, &add)
            .unwrap_or_else(|stopped| panic!("{shape:?} {groups:?} seed {seed}: {stopped:?}"));
        for rank in 0..shape.ranks {
            let got: Vec<i64> = world
                .buffer(rank as usize, RegionKind::Output)
                .chunks_exact(8)
                .map(|bytes| i64::from_le_bytes(bytes.try_into().expect("8")))
                .collect();
            assert_eq!(
                got,
                oracle(shape, vector.as_ref(), rank),
                "{shape:?} {groups:?} rank {rank} seed {seed}"
            );
        }
    }
}

pub(crate) fn shape(op: OpKind, algorithm: Algorithm, staging: Staging, ranks: u32, count: u64) -> Shape {
    Shape {
        op,
        algorithm,
        levels: [None; 4],
        staging,
        rank: 0,
        ranks,
        root: if op.is_rooted() { ranks - 1 } else { 0 },
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
                        let vector = vector(&shape);
                        let vector = vector.as_ref().map_or(&[] as &[_], |vector| vector.rows(0));
                        // Blocks with places of their own have none in common; the real kernel refuses them in place.
                        if shape.in_place && !vector.is_empty() {
                            continue;
                        }
                        match Plan::new(&shape, &Tables { vector, ..Tables::default() }) {
                            Ok(_) => {}
                            Err(error) => {
                                let known = [ErrorCode::PLAN_OP, ErrorCode::PLAN_STAGING];
                                assert!(known.contains(&error.code), "{shape:?}: {error:?}");
                                continue;
                            }
                        }
                        let caps = if shape.inline_reduce { FULL_CAPS } else { PLAIN_CAPS };
                        check(&shape, &Tables::default(), caps);
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
