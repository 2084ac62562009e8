//! What has no plan, and how much scratch is enough.

use templates::{Needs, Plan, PlanError, Shape, Tables, scratch_bytes};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode};

use crate::facts::{all_reduce, shape};

fn refusal(shape: Shape) -> PlanError {
    Plan::new(&shape, &Tables::default()).expect_err("has no plan")
}

#[test]
fn shapes_without_a_plan() {
    let ring = all_reduce(Algorithm::Ring, 0, 4, 100);
    let mesh = Shape { staging: Staging::Direct, ..all_reduce(Algorithm::MeshTwoShot, 0, 4, 100) };
    let scatter = shape(OpKind::ReduceScatter, Algorithm::Nhr, 0, 4, 100);
    for (shape, code, need, limit) in [
        (Shape { ranks: 0, ..ring }, ErrorCode::PLAN_RANKS, 1, 0),
        (Shape { rank: 4, ..ring }, ErrorCode::PLAN_RANKS, 5, 4),
        (Shape { ranks: 32_769, ..ring }, ErrorCode::PLAN_RANKS, 32_769, 32_768),
        (Shape { threads: 0, ..ring }, ErrorCode::PLAN_THREADS, 1, 0),
        (
            Shape { op: OpKind::AllGather, algorithm: Algorithm::HalvingDoubling, ..ring },
            ErrorCode::PLAN_OP,
            0,
            0,
        ),
        (Shape { op: OpKind::ReduceScatter, ..mesh }, ErrorCode::PLAN_OP, 0, 0),
        (Shape { staging: Staging::Direct, ..scatter }, ErrorCode::PLAN_STAGING, 0, 0),
        (Shape { inline_reduce: false, ..mesh }, ErrorCode::PLAN_STAGING, 0, 0),
        (Shape { in_place: true, ..mesh }, ErrorCode::PLAN_STAGING, 0, 0),
        (Shape { count: 1 << 61, ..ring }, ErrorCode::LAUNCH_COUNT, 1 << 61, u64::MAX),
        // The bytes fit 64 bits, rounded up to whole chunks of every rank they do not.
        (
            Shape { ranks: 1, dtype: DataType::Int8, count: u64::MAX - 100, ..ring },
            ErrorCode::LAUNCH_COUNT,
            u64::MAX - 100,
            u64::MAX,
        ),
        (Shape { scratch_len: 127, ..ring }, ErrorCode::PLAN_SCRATCH, 128, 127),
    ] {
        assert_eq!(refusal(shape), PlanError { code, need, limit }, "{shape:?}");
    }
}

/// All shapes that depend on the length of scratch.
fn scratch_shapes() -> impl Iterator<Item = Shape> {
    let base = [2, 3, 7, 16, 40].into_iter().flat_map(|ranks| {
        OpKind::ALL.iter().flat_map(move |op| {
            Algorithm::ALL.iter().map(move |algorithm| shape(*op, *algorithm, 1, ranks, 1000))
        })
    });
    let varied = base.flat_map(|shape| {
        [(true, Staging::Scratch), (false, Staging::Scratch), (false, Staging::Direct)]
            .map(|(inline_reduce, staging)| Shape { inline_reduce, staging, ..shape })
    });
    let varied =
        varied.flat_map(|shape| [DataType::Int8, DataType::Fp64].map(|dtype| Shape { dtype, ..shape }));
    varied.filter(|shape| {
        Plan::new(&Shape { scratch_len: 0, ..*shape }, &Tables::default())
            .is_err_and(|error| error.code == ErrorCode::PLAN_SCRATCH)
    })
}

#[test]
fn the_scratch_a_refusal_asks_for_is_enough_and_less_is_not() {
    let mut seen = 0;
    for shape in scratch_shapes() {
        let need = refusal(Shape { scratch_len: 0, ..shape }).need;
        assert!(Plan::new(&Shape { scratch_len: need, ..shape }, &Tables::default()).is_ok(), "{shape:?}");
        let less = refusal(Shape { scratch_len: need - 1, ..shape });
        let expected = PlanError { code: ErrorCode::PLAN_SCRATCH, need, limit: need - 1 };
        assert_eq!(less, expected, "{shape:?}");
        let wide = Shape { dtype: DataType::Fp64, ..shape };
        assert!(need <= Needs::of(wide.algorithm, wide.ranks).least_scratch, "{shape:?}");
        seen += 1;
    }
    assert!(seen >= 5 * 2 * 81, "ranks × types × combinations: {seen}");
}

#[test]
fn scratch_bytes_hold_the_operation_in_one_chunk() {
    for shape in scratch_shapes() {
        let enough = Shape { scratch_len: scratch_bytes(&shape, &Tables::default()), ..shape };
        assert_eq!(Plan::new(&enough, &Tables::default()).map(|plan| plan.chunks()), Ok(1), "{enough:?}");
        let bounded = Shape { chunk: 10, ..shape };
        let enough = Shape { scratch_len: scratch_bytes(&bounded, &Tables::default()), ..bounded };
        assert_eq!(Plan::new(&enough, &Tables::default()).map(|plan| plan.chunks()), Ok(100), "{enough:?}");
    }
}
