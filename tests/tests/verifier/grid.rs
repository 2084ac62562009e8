//! Everything the templates emit is proved.

use templates::{Plan, Shape};
use wire::ErrorCode;

use crate::shapes::{expand, proof, shapes};

/// Proves everything that has a plan; returns how many graphs that were.
fn sweep(ranks: impl Iterator<Item = u32>, vary: impl Fn(Shape) -> Shape) -> u32 {
    let mut cases = 0;
    for ranks in ranks {
        let n = u64::from(ranks);
        for count in [0, 1, n - 1, n, n + 1, 1000] {
            for shape in shapes(ranks, count).map(&vary) {
                match Plan::new(&shape) {
                    Ok(_) => {}
                    Err(error) if error.code == ErrorCode::PLAN_STAGING => continue,
                    Err(error) => panic!("{shape:?}: {error:?}"),
                }
                let (machine, operation) = expand(&shape);
                match proof(&machine, &operation) {
                    Ok(proof) => {
                        assert_eq!(proof.unused_bytes, 0, "{shape:?}");
                        assert_eq!(proof.retry, !shape.in_place, "{shape:?}");
                    }
                    Err(refuted) => panic!("{shape:?}\n{refuted}"),
                }
                cases += 1;
            }
        }
    }
    cases
}

fn ranks() -> impl Iterator<Item = u32> {
    (1..=9).chain([12, 16])
}

#[test]
fn links_that_reduce() {
    assert!(sweep(ranks(), |shape| shape) > 800);
}

#[test]
fn links_that_only_move_bytes() {
    assert!(sweep(ranks(), |shape| Shape { inline_reduce: false, ..shape }) > 600);
}

#[test]
fn one_thread_or_three_for_everything() {
    for threads in [1, 3] {
        assert!(sweep(ranks(), |shape| Shape { threads, ..shape }) > 800);
    }
}

#[test]
fn many_chunks() {
    assert!(sweep(ranks(), |shape| Shape { chunk: 7, ..shape }) > 800);
    let small = |shape: Shape| {
        let areas = 2 * u64::from(shape.ranks) * u64::from(shape.ranks);
        Shape { scratch_len: areas * 128, inline_reduce: false, ..shape }
    };
    assert!(sweep(ranks(), small) > 600);
}

#[test]
fn input_and_output_in_one_buffer() {
    assert!(sweep(ranks(), |shape| Shape { in_place: true, ..shape }) > 600);
    assert!(sweep(ranks(), |shape| Shape { in_place: true, inline_reduce: false, chunk: 7, ..shape }) > 600);
}
