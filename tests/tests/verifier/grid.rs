//! Everything the templates emit is proved.

use std::sync::Arc;

use host_launcher::communicator::{Operation, Vector};
use host_launcher::prove::Case;
use templates::Tables;
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind, Staging};

use crate::shapes::{case, cases, chunked, exists, expand, proof};

/// Proves everything that has a plan; returns how many graphs that were.
fn sweep(
    ranks: impl Iterator<Item = u32>,
    counts: impl Fn(u64) -> Vec<u64>,
    vary: impl Fn(Case) -> Case,
) -> u32 {
    let mut proved = 0;
    for ranks in ranks {
        for count in counts(u64::from(ranks)) {
            for case in cases(ranks, count).map(&vary).filter(exists) {
                let (machine, graph) = expand(&case);
                match proof(&machine, &graph) {
                    Ok(proof) => {
                        // In place the root of a broadcast is sent what it has.
                        assert!(proof.unused_bytes == 0 || case.in_place, "{case:?}: {proof:?}");
                        assert!(proof.retry || case.in_place, "{case:?}");
                    }
                    Err(refuted) => panic!("{case:?}\n{refuted}"),
                }
                proved += 1;
            }
        }
    }
    proved
}

/// Variations of the resources: powers of two and others, with fewer counts.
fn varied(vary: impl Fn(Case) -> Case) -> u32 {
    sweep([1, 2, 3, 5, 8].into_iter(), |n| vec![0, n - 1, n + 1, 60], vary)
}

#[test]
fn links_that_reduce() {
    let edges = |n| vec![0, 1, n - 1, n, n + 1, 1000];
    assert!(sweep((1..=9).chain([12, 16]), edges, |case| case) > 5000);
}

/// The same with more counts, as many graphs as [`asked_for`](crate::asked_for) or 50,000.
#[test]
#[ignore = "minutes; run with --release"]
fn as_many_graphs_as_asked_for() {
    let number = crate::asked_for(50_000);
    let mut proved = sweep(1..=16, |n| vec![7 * n - 1, 7 * n, 7 * n + 1, 1000], |case| case);
    proved += sweep([24, 32].into_iter(), |n| vec![n - 1, n + 1], |case| case);
    // Then count by count.
    for count in 0.. {
        if proved >= number {
            break;
        }
        proved += sweep(1..=16, |_| vec![count], |case| case);
    }
    println!("{proved} graphs proved");
}

#[test]
fn links_that_only_move_bytes() {
    assert!(varied(|case| Case { inline_reduce: false, ..case }) > 1000);
}

#[test]
fn one_thread_or_three_for_everything() {
    for threads in [1, 3] {
        assert!(varied(|case| Case { threads, ..case }) > 1000);
    }
}

#[test]
fn many_chunks() {
    assert!(varied(|case| chunked(case, 7)) > 1000);
    let small = |case: Case| {
        let areas = 2 * u64::from(case.ranks) * u64::from(case.ranks);
        Case { scratch_len: areas * 128, inline_reduce: false, ..case }
    };
    assert!(varied(small) > 1000);
}

#[test]
fn input_and_output_in_one_buffer() {
    assert!(varied(|case| Case { in_place: true, ..case }) > 900);
    let plain = |case| chunked(Case { in_place: true, inline_reduce: false, ..case }, 7);
    assert!(varied(plain) > 900);
}

#[test]
fn steps_of_more_writes_than_are_handed_over_at_once() {
    // 35 slices that do not lie together move in one step of 70 ranks.
    for inline_reduce in [true, false] {
        let some = |case: &Case| {
            matches!(case.operation.algorithm, Algorithm::Nhr | Algorithm::Nb)
                && matches!(case.operation.op, OpKind::AllGather | OpKind::ReduceScatter)
        };
        let cases = cases(70, 3).map(|case| Case { inline_reduce, ..case });
        let mut proved = 0;
        for case in cases.filter(some).filter(exists) {
            let (machine, graph) = expand(&case);
            proof(&machine, &graph).unwrap_or_else(|refuted| panic!("{case:?}\n{refuted}"));
            proved += 1;
        }
        assert!(proved > 3, "{proved}");
    }
}

/// Blocks of an all-to-all-v that stay where they are can be exchanged in place, others cannot.
#[test]
fn blocks_that_stay_are_exchanged_in_place() {
    for (ranks, algorithm) in
        (2..6).flat_map(|ranks| [Algorithm::Pairwise, Algorithm::MeshOneShot].map(|own| (ranks, own)))
    {
        let own = case(OpKind::AllToAllV, algorithm, Staging::Scratch, ranks, 3);
        let in_place = |counts: &[Vec<u64>]| {
            let vector = Vector::of_matrix(counts).map(Arc::new);
            Case { operation: Operation { vector, ..own.operation.clone() }, in_place: true, ..own.clone() }
        };
        let mut counts = vec![vec![3; ranks as usize]; ranks as usize];
        let (machine, graph) = expand(&in_place(&counts));
        let result = proof(&machine, &graph);
        assert!(result.is_ok(), "{algorithm} on {ranks}: {}", result.unwrap_err());
        counts[0][1] = 1;
        let refused = in_place(&counts).plan(0, Tables::default()).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::LAUNCH_OVERLAP, "{refused}");
    }
}
