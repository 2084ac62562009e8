//! Everything the templates emit is proved.

use host_launcher::prove::Case;

use crate::shapes::{cases, chunked, exists, expand, proof};

/// Proves everything that has a plan; returns how many graphs that were.
fn sweep(ranks: impl Iterator<Item = u32>, vary: impl Fn(Case) -> Case) -> u32 {
    let mut proved = 0;
    for ranks in ranks {
        let n = u64::from(ranks);
        for count in [0, 1, n - 1, n, n + 1, 1000] {
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

/// The variations: powers of two and others.
fn ranks() -> impl Iterator<Item = u32> {
    [1, 2, 3, 5, 6, 8].into_iter()
}

#[test]
fn links_that_reduce() {
    assert!(sweep((1..=9).chain([12, 16]), |case| case) > 4000);
}

#[test]
fn links_that_only_move_bytes() {
    assert!(sweep(ranks(), |case| Case { inline_reduce: false, ..case }) > 1500);
}

#[test]
fn one_thread_or_three_for_everything() {
    for threads in [1, 3] {
        assert!(sweep(ranks(), |case| Case { threads, ..case }) > 2000);
    }
}

#[test]
fn many_chunks() {
    assert!(sweep(ranks(), |case| chunked(case, 7)) > 2000);
    let small = |case: Case| {
        let areas = 2 * u64::from(case.ranks) * u64::from(case.ranks);
        Case { scratch_len: areas * 128, inline_reduce: false, ..case }
    };
    assert!(sweep(ranks(), small) > 1500);
}

#[test]
fn input_and_output_in_one_buffer() {
    assert!(sweep(ranks(), |case| Case { in_place: true, ..case }) > 1200);
    let plain = |case| chunked(Case { in_place: true, inline_reduce: false, ..case }, 7);
    assert!(sweep(ranks(), plain) > 1000);
}
