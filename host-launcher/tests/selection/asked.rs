//! What `HCCL_ALGO`, `HCCL_DETERMINISTIC` and the caller demand.

use std::ffi::OsString;

use host_launcher::select::{Choice, Question, choose};
use host_launcher::settings::Settings;
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind, Staging};

use super::topology;

fn settings(variables: &[(&str, &str)]) -> Settings {
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Settings::from_env(variables).unwrap()
}

fn chosen(question: &Question, world: (u32, u32), variables: &[(&str, &str)]) -> Choice {
    choose(question, &topology(world.0, world.1), &settings(variables)).unwrap()
}

#[track_caller]
fn assert_refused(question: &Question, world: (u32, u32), algo: &str, expected: &str) {
    let error = choose(question, &topology(world.0, world.1), &settings(&[("HCCL_ALGO", algo)])).unwrap_err();
    assert_eq!((error.code(), error.message()), (ErrorCode::PLAN_OP, expected));
}

fn question(op: OpKind) -> Question {
    Question { op, count: 4096, ..Question::default() }
}

#[test]
fn one_level_takes_the_flat_algorithm() {
    let all_reduce = question(OpKind::AllReduce);
    for (algo, expected) in [
        ("level0:ring", Algorithm::Ring),
        ("level0:NA;level1:H-D_R", Algorithm::HalvingDoubling),
        ("level0:NHR;level1:ring", Algorithm::Nhr),
        ("allreduce=level0:NB/allgather=level0:ring", Algorithm::Nb),
    ] {
        let choice = chosen(&all_reduce, (1, 8), &[("HCCL_ALGO", algo)]);
        assert_eq!(choice.algorithm, expected, "{algo}");
        assert!(choice.why.starts_with("asked for by HCCL_ALGO, "), "{}", choice.why);
    }
    // One device in each server: the level between servers is the only one.
    let choice = chosen(&all_reduce, (4, 1), &[("HCCL_ALGO", "level0:NHR;level1:ring")]);
    assert_eq!(choice.algorithm, Algorithm::Ring);
    // A full mesh is one-shot or two-shot, by size.
    let small = chosen(&Question { count: 16, ..all_reduce }, (1, 8), &[("HCCL_ALGO", "level0:fullmesh")]);
    let large =
        chosen(&Question { count: 1 << 22, ..all_reduce }, (1, 8), &[("HCCL_ALGO", "level0:fullmesh")]);
    assert_eq!([small.algorithm, large.algorithm], [Algorithm::MeshOneShot, Algorithm::MeshTwoShot]);
}

#[test]
fn several_levels_take_a_composition() {
    let all_reduce = question(OpKind::AllReduce);
    for (algo, algorithm, levels) in [
        (
            "level0:fullmesh;level1:ring",
            Algorithm::TwoLevel,
            [Some(Algorithm::MeshTwoShot), Some(Algorithm::Ring), None, None],
        ),
        (
            "level0:ring;level1:NHR",
            Algorithm::TwoLevel,
            [Some(Algorithm::Ring), Some(Algorithm::Nhr), None, None],
        ),
        ("level0:NA;level1:pipeline", Algorithm::Pipeline, [None; 4]),
        ("level0:ring;level1:AHC", Algorithm::Ahc, [Some(Algorithm::Ring), None, None, None]),
    ] {
        let choice = chosen(&all_reduce, (2, 4), &[("HCCL_ALGO", algo)]);
        assert_eq!((choice.algorithm, choice.levels), (algorithm, levels), "{algo}");
    }
    // With one level open, the other's algorithm runs over all ranks or is a composition's, as is faster.
    let choice = chosen(&all_reduce, (2, 4), &[("HCCL_ALGO", "level0:NA;level1:ring")]);
    match choice.algorithm {
        Algorithm::TwoLevel => assert_eq!(choice.levels, [None, Some(Algorithm::Ring), None, None]),
        flat => assert_eq!(flat, Algorithm::Ring),
    }
    // The caller's levels outrank it; with nothing but levels, it is a composition.
    let levels = [Some(Algorithm::Ring), Some(Algorithm::HalvingDoubling), None, None];
    let asked = Question { levels, ..all_reduce };
    let choice = chosen(&asked, (2, 4), &[("HCCL_ALGO", "level0:fullmesh;level1:NHR")]);
    assert_eq!((choice.algorithm, choice.levels), (Algorithm::TwoLevel, levels));
}

#[test]
fn a_level_that_is_open_leaves_the_choice() {
    let gather = question(OpKind::AllGather);
    for algo in ["level0:NA", "level0:NA;level1:NA", "allreduce=level0:ring"] {
        let free = chosen(&gather, (1, 8), &[]);
        assert_eq!(chosen(&gather, (1, 8), &[("HCCL_ALGO", algo)]), free, "{algo}");
    }
}

#[test]
fn what_does_not_exist_is_refused_by_name_and_column() {
    assert_refused(
        &question(OpKind::AllReduce),
        (1, 8),
        "level0:NA;level1:NHR_V1",
        "HCCL_ALGO asks for \"NHR_V1\" at column 18: there is no such algorithm here",
    );
    assert_refused(
        &question(OpKind::AllGather),
        (1, 8),
        "allgather=level0:H-D_R",
        "HCCL_ALGO asks for \"H-D_R\" at column 18: all-gather is not carried out by halving-doubling; it is by \
         ring, nhr, mesh-one-shot, nb, pairwise, multi-ring, two-level, three-level, pipeline",
    );
    assert_refused(
        &question(OpKind::Scatter),
        (2, 4),
        "scatter=level0:ring;level1:ring",
        "HCCL_ALGO asks for \"ring\" at column 28: scatter is not carried out level by level with these algorithms",
    );
}

#[test]
fn strict_order_where_it_is_asked_for() {
    let strict = [("HCCL_DETERMINISTIC", "strict")];
    for (op, expected) in [
        (OpKind::AllReduce, Algorithm::Strict),
        (OpKind::ReduceScatter, Algorithm::Strict),
        (OpKind::Reduce, Algorithm::Star),
    ] {
        let choice = chosen(&question(op), (1, 8), &strict);
        assert_eq!(choice.algorithm, expected, "{op}");
        assert!(choice.why.contains("HCCL_DETERMINISTIC"), "{}", choice.why);
    }
    // It outranks HCCL_ALGO, and the caller outranks it. What reduces nothing has no order.
    let both = [("HCCL_DETERMINISTIC", "strict"), ("HCCL_ALGO", "level0:ring")];
    assert_eq!(chosen(&question(OpKind::AllReduce), (1, 8), &both).algorithm, Algorithm::Strict);
    let ring = Question { algorithm: Some(Algorithm::Ring), ..question(OpKind::AllReduce) };
    let choice = chosen(&ring, (1, 8), &both);
    assert_eq!(choice.algorithm, Algorithm::Ring);
    assert!(choice.why.contains("asked for by --algo"), "{}", choice.why);
    let gather = question(OpKind::AllGather);
    assert_eq!(chosen(&gather, (1, 8), &strict), chosen(&gather, (1, 8), &[]));
    // Nobody gets it who has not asked.
    assert_ne!(chosen(&question(OpKind::AllReduce), (1, 8), &[]).algorithm, Algorithm::Strict);
}

#[test]
fn what_the_caller_demands_is_not_replaced() {
    let demand = Question { algorithm: Some(Algorithm::HalvingDoubling), ..question(OpKind::AllGather) };
    let error = choose(&demand, &topology(1, 4), &Settings::default()).unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            ErrorCode::PLAN_OP,
            "all-gather is not carried out by halving-doubling; it is by ring, nhr, mesh-one-shot, nb, pairwise, \
             multi-ring, two-level, three-level, pipeline"
        )
    );
    let staged = Question { staging: Some(Staging::Scratch), ..question(OpKind::AllReduce) };
    assert_eq!(chosen(&staged, (1, 8), &[]).staging, Staging::Scratch);
    let direct = Question {
        algorithm: Some(Algorithm::Ring),
        staging: Some(Staging::Direct),
        ..question(OpKind::ReduceScatter)
    };
    let error = choose(&direct, &topology(1, 4), &Settings::default()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PLAN_STAGING);
}
