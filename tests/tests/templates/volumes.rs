//! Steps and bytes of rooted operations, exchanges, NB and the barrier: the formulas of the algorithms' table, at every
//! rank of up to 1,024.

use aicpu_tests::reference::FULL_CAPS;
use task_graph::{Counter, Counts};
use templates::{Plan, Shape, Tables};
use wire::launch::{Algorithm, OpKind};

use crate::facts::shape;

/// Bytes of the whole of a rooted operation: divides by all numbers of ranks below.
const WHOLE: u64 = 8 * 1024 * 15;

fn count(shape: &Shape) -> Counts {
    let plan = Plan::new(shape, &Tables::default()).expect("has a plan");
    assert_eq!(plan.chunks(), 1);
    let mut counter = Counter::new(FULL_CAPS);
    plan.emit(0, &Tables::default(), &mut counter).expect("a counter takes everything");
    counter.counts()
}

/// What each rank does, from the root on.
fn of_all(op: OpKind, algorithm: Algorithm, ranks: u32, count_of: u64) -> Vec<Counts> {
    let root = if op.is_rooted() { ranks / 3 } else { 0 };
    (0..ranks)
        .map(|member| {
            let rank = (root + member) % ranks;
            count(&Shape { root, ..shape(op, algorithm, rank, ranks, count_of) })
        })
        .collect()
}

fn logarithm(ranks: u32) -> u64 {
    u64::from((ranks - 1).ilog2() + 1)
}

fn sizes() -> impl Iterator<Item = u32> {
    (2..=17).chain([32, 60, 64, 100])
}

#[test]
fn a_tree_has_a_logarithm_of_steps_and_every_edge_the_whole() {
    for ranks in sizes().chain([256, 1024]) {
        let n = u64::from(ranks);
        let down = of_all(OpKind::Broadcast, Algorithm::Tree, ranks, WHOLE / 8);
        assert!(down.iter().all(|counts| counts.steps == logarithm(ranks)), "{ranks}");
        assert_eq!(down.iter().map(|counts| counts.sent_bytes).sum::<u64>(), (n - 1) * WHOLE, "{ranks}");
        // B16: the root's egress is its fan-out, a logarithm.
        assert_eq!(down[0].sent_bytes, logarithm(ranks) * WHOLE, "{ranks}");
        let up = of_all(OpKind::Reduce, Algorithm::Tree, ranks, WHOLE / 8);
        assert!(up.iter().skip(1).all(|counts| counts.sent_bytes == WHOLE), "{ranks}");
        assert_eq!((up[0].sent_bytes, up[0].steps), (0, logarithm(ranks)), "{ranks}");
        let both = of_all(OpKind::AllReduce, Algorithm::Tree, ranks, WHOLE / 8);
        assert!(both.iter().all(|counts| counts.steps == 2 * logarithm(ranks)), "{ranks}");
    }
}

/// Scatter and gather along a tree move each block once per edge on its way.
#[test]
fn blocks_on_a_tree_travel_as_far_as_they_are_deep() {
    for ranks in sizes() {
        // The depth of a member is the number of its bits.
        let edges: u64 = (0..ranks).map(|member| u64::from(member.count_ones())).sum();
        for op in [OpKind::Scatter, OpKind::Gather] {
            let all = of_all(op, Algorithm::Tree, ranks, 1);
            assert_eq!(all.iter().map(|counts| counts.sent_bytes).sum::<u64>(), 8 * edges, "{op} {ranks}");
            assert!(all.iter().all(|counts| counts.steps == logarithm(ranks)), "{op} {ranks}");
        }
    }
}

/// B11: one step, and the root does everything.
#[test]
fn a_star_has_its_hot_spot_at_the_root() {
    for ranks in sizes() {
        let n = u64::from(ranks);
        for (op, at_root, elsewhere) in [
            (OpKind::Broadcast, (n - 1) * WHOLE, 0),
            (OpKind::Scatter, (n - 1) * WHOLE, 0),
            (OpKind::Reduce, 0, WHOLE),
            (OpKind::Gather, 0, WHOLE),
        ] {
            let all = of_all(op, Algorithm::Star, ranks, WHOLE / 8);
            assert_eq!((all[0].sent_bytes, all[0].steps), (at_root, 1), "{op} {ranks}");
            assert!(all.iter().skip(1).all(|counts| counts.sent_bytes == elsewhere), "{op} {ranks}");
        }
        let both = of_all(OpKind::AllReduce, Algorithm::Star, ranks, WHOLE / 8);
        assert_eq!((both[0].sent_bytes, both[0].steps), ((n - 1) * WHOLE, 2), "{ranks}");
    }
}

/// B16: along a chain nobody sends more than the whole once.
#[test]
fn a_chain_sends_the_whole_once_per_link() {
    for ranks in sizes() {
        let n = u64::from(ranks);
        for op in [OpKind::Broadcast, OpKind::Reduce] {
            let all = of_all(op, Algorithm::Ring, ranks, WHOLE / 8);
            let sending = all.iter().filter(|counts| counts.sent_bytes == WHOLE).count() as u64;
            let silent = all.iter().filter(|counts| counts.sent_bytes == 0).count() as u64;
            assert_eq!((sending, silent), (n - 1, 1), "{op} {ranks}");
            assert!(all.iter().all(|counts| counts.steps == 2 * n - 2), "{op} {ranks}");
        }
    }
}

#[test]
fn nb_takes_a_logarithm_at_the_volume_of_a_ring() {
    for ranks in sizes().chain([256, 1000, 1024]) {
        let n = u64::from(ranks);
        for rank in [0, ranks / 3, ranks - 1] {
            for op in [OpKind::AllGather, OpKind::ReduceScatter] {
                let counts = count(&shape(op, Algorithm::Nb, rank, ranks, 1));
                assert_eq!(
                    (counts.steps, counts.sent_bytes),
                    (logarithm(ranks), 8 * (n - 1)),
                    "{op} {ranks}"
                );
            }
            let counts = count(&shape(OpKind::AllReduce, Algorithm::Nb, rank, ranks, n));
            let expected = (2 * logarithm(ranks), 16 * (n - 1));
            assert_eq!((counts.steps, counts.sent_bytes), expected, "{ranks}");
        }
    }
}

/// B17: each pair moves exactly its block, once; pairwise one pair after the other, the mesh all at once.
#[test]
fn an_exchange_sends_every_block_once() {
    for ranks in sizes() {
        let n = u64::from(ranks);
        for op in [OpKind::AllToAll, OpKind::AllGather, OpKind::ReduceScatter] {
            for (algorithm, steps) in [(Algorithm::Pairwise, n - 1), (Algorithm::MeshOneShot, 1)] {
                for counts in of_all(op, algorithm, ranks, 3) {
                    let found = (counts.steps, counts.transfers, counts.sent_bytes);
                    assert_eq!(found, (steps, n - 1, 24 * (n - 1)), "{op} {algorithm} {ranks}");
                }
            }
        }
    }
}

#[test]
fn a_barrier_is_signals_alone() {
    for ranks in sizes() {
        for (algorithm, steps) in [
            (Algorithm::Ring, u64::from(ranks) - 1),
            (Algorithm::Nhr, logarithm(ranks)),
            (Algorithm::Nb, logarithm(ranks)),
        ] {
            for counts in of_all(OpKind::Barrier, algorithm, ranks, 0) {
                assert_eq!(
                    (counts.steps, counts.transfers, counts.copies),
                    (steps, 0, 0),
                    "{algorithm} {ranks}"
                );
                assert!(counts.waits >= 2 * steps, "{algorithm} {ranks}: {counts:?}");
            }
        }
    }
}
