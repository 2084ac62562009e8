//! Facts that are numbers: steps, descriptors, volumes (T5…T10).
//!
//! Bytes count at the rank that writes them. Descriptors are counted in the field's view: one per send and one per
//! receive.

use std::collections::BTreeMap;

use aicpu_tests::reference::{FULL_CAPS, Labelled};
use task_graph::{Counter, Counts};
use templates::{Plan, Shape, Tables};
use wire::launch::{Algorithm, OpKind, Staging};

use crate::facts::{all_reduce, all_tasks, shape, writes};

const MIB: u64 = 1 << 20;

/// Counts one rank's tasks of an operation that is one chunk.
fn count(shape: &Shape) -> Counts {
    let plan = Plan::new(shape, &Tables::default()).expect("has a plan");
    assert_eq!(plan.chunks(), 1);
    let mut counter = Counter::new(FULL_CAPS);
    plan.emit(0, &Tables::default(), &mut counter).expect("a counter takes everything");
    counter.counts()
}

#[test]
fn t05_steps_of_ring_and_halving_doubling() {
    for (ranks, ring, halving) in
        [(2, 2, 2), (4, 6, 4), (8, 14, 6), (16, 30, 8), (32, 62, 10), (64, 126, 12), (1024, 2046, 20)]
    {
        let steps = |algorithm| count(&all_reduce(algorithm, 1, ranks, u64::from(ranks))).steps;
        assert_eq!(
            (steps(Algorithm::Ring), steps(Algorithm::HalvingDoubling)),
            (ring, halving),
            "{ranks} ranks"
        );
    }
}

#[test]
fn t06_a_send_and_a_receive_per_step() {
    for (ranks, ring, halving) in [(8_u32, 28, 12), (16, 60, 16), (32, 124, 20), (64, 252, 24)] {
        for (algorithm, expected) in [(Algorithm::Ring, ring), (Algorithm::HalvingDoubling, halving)] {
            let tasks = all_tasks(&all_reduce(algorithm, 0, ranks, u64::from(ranks)));
            for rank in 0..ranks {
                let sends = writes(&tasks[rank as usize]).len();
                let receives: usize = tasks
                    .iter()
                    .map(|tasks| writes(tasks).iter().filter(|&&(_, peer, ..)| peer == rank).count())
                    .sum();
                assert_eq!(sends + receives, expected, "{algorithm} {ranks} rank {rank}");
            }
        }
    }
}

#[test]
fn t07_every_rank_sends_two_n_minus_one_nths() {
    for ranks in [2_u32, 4, 8, 16, 32, 64, 256, 1024] {
        let n = u64::from(ranks);
        let bytes = 8 * 3 * n;
        for algorithm in [Algorithm::Ring, Algorithm::HalvingDoubling, Algorithm::Nhr] {
            for rank in [0, ranks / 2, ranks - 1] {
                let counts = count(&all_reduce(algorithm, rank, ranks, 3 * n));
                assert_eq!(counts.sent_bytes, 2 * (n - 1) * bytes / n, "{algorithm} {ranks} rank {rank}");
                assert_eq!(counts.read_bytes, 0);
            }
        }
    }
    let eight = count(&all_reduce(Algorithm::Ring, 3, 8, 8));
    assert_eq!((eight.transfers, eight.sent_bytes), (14, 14 * 8), "14 slices of an eighth");
    // Where N does not divide the count, the tail makes the last slice longer; the total stays.
    for (ranks, count_of_all) in [(3_u32, 10_u64), (7, 1000), (16, 5)] {
        for algorithm in [Algorithm::Ring, Algorithm::Nhr] {
            let sent = |rank| count(&all_reduce(algorithm, rank, ranks, count_of_all)).sent_bytes;
            let total: u64 = (0..ranks).map(sent).sum();
            assert_eq!(total, 2 * u64::from(ranks - 1) * count_of_all * 8, "{algorithm} {ranks}");
        }
    }
}

#[test]
fn t08_the_first_message_is_half_or_an_nth() {
    let first = |algorithm, ranks| count(&all_reduce(algorithm, 0, ranks, MIB / 8)).first_transfer;
    assert_eq!(first(Algorithm::HalvingDoubling, 8), 512 << 10);
    assert_eq!(first(Algorithm::Ring, 8), 128 << 10);
    assert_eq!(first(Algorithm::HalvingDoubling, 64), 512 << 10);
    assert_eq!(first(Algorithm::Ring, 64), 16 << 10);
}

#[test]
fn t09_ring_halves_take_n_minus_one_steps() {
    for ranks in (2..=64).chain([256, 1024]) {
        for op in [OpKind::AllGather, OpKind::ReduceScatter] {
            let counts = count(&shape(op, Algorithm::Ring, 0, ranks, 1));
            let expected = u64::from(ranks - 1);
            assert_eq!((counts.steps, counts.transfers), (expected, expected), "{op} {ranks}");
            assert_eq!(counts.sent_bytes, 8 * expected, "{op} {ranks}");
        }
    }
}

/// Bytes on the critical path: the most any rank sends in each step, summed over the steps.
fn critical_bytes(tasks: &[Vec<Labelled>]) -> u64 {
    let mut most = BTreeMap::<u16, u64>::new();
    for tasks in tasks {
        let mut sent = BTreeMap::<u16, u64>::new();
        for (step, _, _, len) in writes(tasks) {
            *sent.entry(step).or_default() += 8 * len;
        }
        for (step, bytes) in sent {
            let step = most.entry(step).or_default();
            *step = bytes.max(*step);
        }
    }
    most.values().sum()
}

#[test]
fn t10_folding_costs_steps_and_volume_and_nhr_does_not_fold() {
    // 840 elements divide by every slice count here. Volumes in sixtieths of the message.
    let bytes = 840 * 8;
    for (ranks, steps, folded, nhr) in [(5, 6, 210, 96), (6, 6, 210, 100), (12, 8, 225, 110)] {
        let fold = all_reduce(Algorithm::HalvingDoubling, 0, ranks, 840);
        let hierarchical = all_reduce(Algorithm::Nhr, 0, ranks, 840);
        assert_eq!((count(&fold).steps, count(&hierarchical).steps), (steps, steps), "{ranks} ranks");
        assert_eq!(critical_bytes(&all_tasks(&fold)) * 60, folded * bytes, "{ranks} ranks");
        assert_eq!(critical_bytes(&all_tasks(&hierarchical)) * 60, nhr * bytes, "{ranks} ranks");
    }
    // Seven: 3.5 of the message, and 12/7 = 1.714.
    let (fold, nhr) =
        (all_reduce(Algorithm::HalvingDoubling, 0, 7, 840), all_reduce(Algorithm::Nhr, 0, 7, 840));
    assert_eq!((count(&fold).steps, count(&nhr).steps), (6, 6));
    assert_eq!(critical_bytes(&all_tasks(&fold)) * 2, 7 * bytes);
    assert_eq!(critical_bytes(&all_tasks(&nhr)) * 7, 12 * bytes);
}

/// Of 2^a times an odd number of ranks, the slices of a steps lie together, also where the tail makes the last one longer;
/// of the others each goes by itself.
#[test]
fn nhr_moves_the_slices_of_a_step_as_one() {
    let powers = [(2_u32, 1), (4, 2), (8, 3), (64, 6), (1024, 10)];
    let others = [(3, 2), (7, 6), (6, 3), (12, 4), (24, 5), (40, 7), (48, 6), (96, 7), (1000, 127)];
    for (ranks, writes) in powers.into_iter().chain(others) {
        for staging in [Staging::Scratch, Staging::Direct] {
            let n = u64::from(ranks);
            let shape = |rank| Shape { staging, ..all_reduce(Algorithm::Nhr, rank, ranks, 3 * n + 1) };
            for rank in [0, 1, ranks - 1] {
                let counts = count(&shape(rank));
                let steps = 2 * u64::from((ranks - 1).ilog2() + 1);
                assert_eq!((counts.steps, counts.transfers), (steps, 2 * writes), "{ranks} ranks, {staging}");
            }
        }
    }
}

#[test]
fn t10_nhr_takes_two_logarithms_for_any_number_of_ranks() {
    for ranks in (2_u32..=69).chain([256, 1000, 1024]) {
        let n = u64::from(ranks);
        let logarithm = u64::from((ranks - 1).ilog2() + 1);
        for rank in [0, ranks / 3, ranks - 1] {
            let counts = count(&all_reduce(Algorithm::Nhr, rank, ranks, n));
            assert_eq!(counts.steps, 2 * logarithm, "{ranks} ranks");
            assert_eq!(counts.sent_bytes, 2 * (n - 1) * 8, "{ranks} ranks");
        }
        for op in [OpKind::AllGather, OpKind::ReduceScatter] {
            let counts = count(&shape(op, Algorithm::Nhr, 0, ranks, 1));
            assert_eq!((counts.steps, counts.sent_bytes), (logarithm, 8 * (n - 1)), "{op} {ranks}");
        }
    }
}
