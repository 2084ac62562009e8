//! Ranks that were asked for different things: found when something is launched for the first time, and named by field
//! and rank, the fewest ranks first.

use std::sync::Arc;

use aicpu_tests::bench::Case;
use aicpu_tests::scene::{FAR, Scene, TIMEOUT, case, warm};
use aicpu_tests::variants::algorithms;
use aicpu_tests::world::{self, Place};
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Compare, Config, Operation, Vector};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp};

fn cluster(ranks: u32) -> Cluster {
    world::threads(ranks, Place::OneServer, 24 << 20)
}

/// Launches an all-reduce by ring on `ranks` ranks, changed on those that `differ`, and returns how it is explained.
fn explained(ranks: u32, differ: &[u32], change: impl Fn(&mut Operation)) -> (ErrorCode, u32, String) {
    let cluster = cluster(ranks);
    // Far: it is found by the signatures, not at the deadline. `failure` asserts that.
    let mut scene = Scene::with_deadline(&cluster, FAR);
    warm(scene.bench(), Algorithm::Ring);
    let mut changed = case(Algorithm::Ring);
    change(&mut changed.operation);
    for rank in 0..ranks {
        let case = if differ.contains(&rank) { changed.clone() } else { case(Algorithm::Ring) };
        scene.bench().launch_on(rank, &case).unwrap();
    }
    let failure = scene.failure();
    let report = failure.error().diagnosis().unwrap().clone();
    scene.recovers();
    (ErrorCode(report.code), report.culprit_rank.unwrap(), report.cause)
}

/// T42, NVIDIA/nccl#1417: different counts hang, or give a wrong tail in silence.
#[test]
fn a_count_that_is_one_less_on_one_rank() {
    let found = explained(4, &[1], |operation| operation.count -= 1);
    let cause = "count is 999 at rank 1, but 1000 at ranks 0, 2, 3.".to_owned();
    assert_eq!(found, (ErrorCode::ARGUMENTS_DIFFER, 1, cause));
}

/// T43, NVIDIA/nccl#296, pytorch/pytorch#117486: each argument in turn, with the least informative message of old.
#[test]
fn every_argument_that_can_differ_is_named() {
    const ARGUMENTS: ErrorCode = ErrorCode::ARGUMENTS_DIFFER;
    type Change = fn(&mut Operation);
    let changes: [(Change, ErrorCode, &str); 7] = [
        (
            |op| op.dtype = DataType::Int32,
            ARGUMENTS,
            "data type is int32 at rank 2, but fp32 at ranks 0, 1, 3.",
        ),
        (|op| op.reduce = ReduceOp::Max, ARGUMENTS, "reduction is max at rank 2, but sum at ranks 0, 1, 3."),
        (
            |op| op.algorithm = Algorithm::Nhr,
            ARGUMENTS,
            "algorithm is nhr at rank 2, but ring at ranks 0, 1, 3.",
        ),
        (|op| op.chunk = 100, ARGUMENTS, "chunk is 100 at rank 2, but 0 at ranks 0, 1, 3."),
        (|op| op.piece = 512, ARGUMENTS, "piece is 512 at rank 2, but 0 at ranks 0, 1, 3."),
        (|op| op.count = 2000, ARGUMENTS, "count is 2000 at rank 2, but 1000 at ranks 0, 1, 3."),
        (
            |op| op.op = OpKind::ReduceScatter,
            ErrorCode::PEER_DIFFERS,
            "operation is reduce-scatter at rank 2, but all-reduce at ranks 0, 1, 3.",
        ),
    ];
    for (change, code, cause) in changes {
        assert_eq!(explained(4, &[2], change), (code, 2, cause.to_owned()));
    }
    let direct = |operation: &mut Operation| operation.staging = Staging::Direct;
    let (code, culprit, cause) = explained(4, &[2], |op| {
        op.algorithm = Algorithm::MeshTwoShot;
        direct(op);
    });
    // What differs first is named; one thing at a time.
    assert_eq!((code, culprit), (ARGUMENTS, 2));
    assert_eq!(cause, "algorithm is mesh-two-shot at rank 2, but ring at ranks 0, 1, 3.");
}

/// T43 again: the root. T47, candle-org/MindAct PR#2498: counts that differ from rank to rank, and are not known alike.
#[test]
fn roots_and_vectors_that_differ_are_named() {
    let cluster = cluster(3);
    let rooted = |root| {
        let operation = Operation { op: OpKind::Broadcast, algorithm: Algorithm::Tree, root, ..ring() };
        Case { operation, ..case(Algorithm::Ring) }
    };
    let vector = |counts: [u64; 3]| {
        let vector = Vector::of_matrix(&[counts.to_vec(), vec![2, 2, 2], vec![3, 3, 3]]);
        let algorithm = Algorithm::Pairwise;
        let vector = Some(Arc::new(vector.expect("a square")));
        let operation = Operation { op: OpKind::AllToAllV, algorithm, count: 0, vector, ..ring() };
        Case { operation, ..case(Algorithm::Ring) }
    };
    let explained = |usual: &Case, other: &Case| {
        let mut scene = Scene::with_deadline(&cluster, FAR);
        scene.bench().run(usual).unwrap();
        for rank in 0..3 {
            scene.bench().launch_on(rank, if rank == 1 { other } else { usual }).unwrap();
        }
        let report = scene.failure().error().diagnosis().unwrap().clone();
        scene.recovers();
        (ErrorCode(report.code), report.culprit_rank, report.cause)
    };
    let root = explained(&rooted(0), &rooted(2));
    let cause = "root is 2 at rank 1, but 0 at ranks 0, 2.".to_owned();
    assert_eq!(root, (ErrorCode::ARGUMENTS_DIFFER, Some(1), cause));
    let (code, culprit, cause) = explained(&vector([1, 2, 3]), &vector([1, 2, 4]));
    assert_eq!((code, culprit), (ErrorCode::ARGUMENTS_DIFFER, Some(1)));
    assert!(cause.starts_with("vector of counts, or algorithm file, is "), "{cause}");
}

fn ring() -> Operation {
    case(Algorithm::Ring).operation
}

/// NVIDIA/nccl#1911 asks for the stragglers, not the ranks that are ahead: the fewest come first.
#[test]
fn the_fewest_ranks_come_first() {
    let less = |operation: &mut Operation| operation.count = 10;
    let found = explained(5, &[0, 3], less);
    let cause = "count is 10 at ranks 0, 3, but 1000 at ranks 1, 2, 4.".to_owned();
    assert_eq!(found, (ErrorCode::ARGUMENTS_DIFFER, 0, cause));
    let found = explained(5, &[0, 1, 2, 4], less);
    let cause = "count is 1000 at rank 3, but 10 at ranks 0-2, 4.".to_owned();
    assert_eq!(found, (ErrorCode::ARGUMENTS_DIFFER, 3, cause));
    let found = explained(2, &[1], less);
    let cause = "count is 10 at rank 1, but 1000 at rank 0.".to_owned();
    assert_eq!(found, (ErrorCode::ARGUMENTS_DIFFER, 1, cause));
}

/// T46, horovod/horovod#2259: nothing to send on some ranks only, and on all.
#[test]
fn no_elements_on_some_ranks_and_on_all() {
    let found = explained(4, &[3], |operation| operation.count = 0);
    let cause = "count is 0 at rank 3, but 1000 at ranks 0-2.".to_owned();
    assert_eq!(found, (ErrorCode::ARGUMENTS_DIFFER, 3, cause));
    let cluster = cluster(4);
    let mut scene = Scene::new(&cluster);
    for algorithm in algorithms(OpKind::AllReduce) {
        let mut empty = case(algorithm);
        empty.operation.count = 0;
        scene.bench().run(&empty).unwrap();
    }
}

/// T49, the documents on EI0005: checked only while links are made, so that a difference in step 2 goes unseen.
#[test]
fn a_difference_in_a_later_operation_is_seen_too() {
    let cluster = cluster(4);
    let mut scene = Scene::with_deadline(&cluster, FAR);
    warm(scene.bench(), Algorithm::Ring);
    for step in 0..5 {
        let mut other = case(Algorithm::Ring);
        // The fourth operation in flight differs, and is named by its sequence.
        if step == 3 {
            other.operation.count = 500;
        }
        for rank in 0..4 {
            let case = if rank == 1 { other.clone() } else { case(Algorithm::Ring) };
            scene.bench().launch_on(rank, &case).unwrap();
        }
    }
    let failure = scene.failure();
    let rank = failure.error().diagnosis().unwrap().rank;
    let peer = failure.error().diagnosis().unwrap().peer;
    let report = failure.assert(ErrorCode::ARGUMENTS_DIFFER, 1, rank, peer);
    assert!(report.operation.starts_with("#5 "), "{}", failure.error());
    assert_eq!(report.cause, "count is 500 at rank 1, but 1000 at ranks 0, 2, 3.");
    scene.recovers();
}

/// Two operations that all ranks have done before, in another order on one rank. Without a comparison both end well, with
/// wrong results.
#[test]
fn known_operations_in_another_order_are_not_taken_for_success() {
    let cluster = cluster(3);
    let mut scene = Scene::with_deadline(&cluster, FAR);
    let ring = case(Algorithm::Ring);
    scene.bench().run(&ring).unwrap();
    let mut other = ring.clone();
    other.operation.op = OpKind::AllGather;
    other.operation.count = 300;
    scene.bench().run(&other).unwrap();
    for rank in 0..3 {
        let order: [&Case; 2] = if rank == 2 { [&other, &ring] } else { [&ring, &other] };
        for case in order {
            scene.bench().launch_on(rank, case).unwrap();
        }
    }
    let failure = scene.failure();
    let (rank, peer) = failure.error().diagnosis().map(|report| (report.rank, report.peer)).unwrap();
    let report = failure.assert(ErrorCode::PEER_DIFFERS, 2, rank, peer);
    let cause = "operation is all-gather at rank 2, but all-reduce at ranks 0, 1.";
    assert!(report.cause.starts_with(cause), "{}", failure.error());
    scene.recovers();
}

/// T51, documents: a communicator destroyed before its operations were waited for.
#[test]
fn a_communicator_may_go_before_its_operations_are_waited_for() {
    let cluster = cluster(4);
    let mut scene = Scene::new(&cluster);
    warm(scene.bench(), Algorithm::Nhr);
    let config = host_launcher::communicator::Config::default();
    let mut leaver = aicpu_tests::bench::Bench::new(&cluster, config, 64 << 10).unwrap();
    leaver.launch(&case(Algorithm::Nhr)).unwrap();
    leaver.finish().unwrap();
    warm(scene.bench(), Algorithm::Nhr);
}

/// NVIDIA/nccl#1417 and the field's own check, whose default is the first operation only because of what it costs: off,
/// first and always. Whatever is set, what does end at the deadline is explained by the signatures.
#[test]
fn signatures_are_compared_never_first_or_always() {
    let cluster = cluster(3);
    for compare in [Compare::Off, Compare::First, Compare::Always] {
        let config = Config { compare, timeout: TIMEOUT, ..Config::default() };
        let mut scene = Scene::with(&cluster, config);
        // Two operations that exchange as many signals: without a comparison both are told success.
        let (usual, mut other) = (case(Algorithm::Ring), case(Algorithm::Ring));
        other.operation.reduce = ReduceOp::Max;
        scene.bench().run(&usual).unwrap();
        for rank in 0..3 {
            scene.bench().launch_on(rank, if rank == 1 { &other } else { &usual }).unwrap();
        }
        if compare == Compare::Off {
            scene.bench().communicator().synchronize().expect("nobody looks");
            // What hangs is explained all the same.
            other.operation.op = OpKind::Broadcast;
            (other.operation.reduce, other.operation.algorithm) = (ReduceOp::Sum, Algorithm::Tree);
            for rank in 0..3 {
                scene.bench().launch_on(rank, if rank == 1 { &other } else { &usual }).unwrap();
            }
        }
        let failure = scene.failure();
        let report = failure.error().diagnosis().unwrap();
        assert_eq!(report.culprit_rank, Some(1), "{compare:?}: {}", failure.error());
        let field = if compare == Compare::Off { "operation is broadcast" } else { "reduction is max" };
        assert!(report.cause.starts_with(field), "{compare:?}: {}", report.cause);
        scene.recovers();
    }
}
