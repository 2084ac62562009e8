//! Single facts: what a counterexample says, rings that are too short, operations behind each other, barriers.

use graph_verifier::{
    Collective, Goal, Labelled, Machine, Obligation, Operation, Order, RankTasks, Request, Rings, Submitter,
    verify,
};
use host_launcher::prove::Case;
use task_graph::{ChannelNotify, RegionId, RegionKind, Span, Task, ThreadId};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::Protocol;
use wire::{DataType, Phase, ReduceOp};

use crate::shapes::{case, cases, chunked, exists, expand, proof};

fn all_reduce(algorithm: Algorithm, ranks: u32, count: u64) -> Case {
    case(OpKind::AllReduce, algorithm, Staging::Scratch, ranks, count)
}

/// Rewrites the halving steps of eight ranks to ascending distances: all ranks end up equal, and wrong.
fn ascending(ranks: &mut [RankTasks]) {
    for (rank, tasks) in (0_u32..).zip(ranks) {
        let mut kept = (0, 8);
        for step in 0..3_u16 {
            let (distance, half) = (1 << step, kept.1 / 2);
            let upper = rank & distance != 0;
            let (keep, send) = if upper { (kept.0 + half, kept.0) } else { (kept.0, kept.0 + half) };
            kept = (keep, half);
            let in_step = |task: &&mut Labelled| task.phase == Phase::Run && task.step == step;
            for labelled in tasks.tasks.iter_mut().filter(in_step) {
                let other = rank ^ distance;
                match &mut labelled.task {
                    Task::ChannelRecord { peer, .. } | Task::ChannelWait { peer, .. } => *peer = other,
                    Task::Write { peer, dst, src, .. } => {
                        *peer = other;
                        dst.region = RegionId::of_peer(other, dst.region.kind());
                        (dst.offset, dst.len) = (8 * send, 8 * half);
                        (src.offset, src.len) = (8 * send, 8 * half);
                    }
                    task => panic!("a halving step has no {task}"),
                }
            }
        }
    }
}

#[test]
fn t04_ascending_distances_are_refuted_by_value() {
    let (machine, mut operation) = expand(&all_reduce(Algorithm::HalvingDoubling, 8, 8));
    ascending(&mut operation.ranks);
    let refuted = proof(&machine, &operation).expect_err("the classic mistake");
    assert_eq!(refuted.obligation, Obligation::Order, "{refuted}");
    // Whatever the order: element 0 is right; element 1 is rank 1's alone, as in the golden buffers of the mutant: 101.
    operation.goal = Goal::new(&request(Collective::AllReduce { count: 8 }, 8, Order::Any));
    let refuted = proof(&machine, &operation).expect_err("wrong by value");
    assert_eq!(refuted.obligation, Obligation::Result, "{refuted}");
    let bytes = refuted.bytes.as_ref().expect("says where");
    assert_eq!((bytes.buffer, bytes.range.clone()), (RegionKind::Output, 8..16), "{refuted}");
    assert!(refuted.why.contains("it holds x1, which has not every input exactly once"), "{refuted}");
}

#[test]
fn t37_swapped_notify_indexes_are_refuted() {
    for algorithm in [Algorithm::Nhr, Algorithm::MeshOneShot, Algorithm::MeshTwoShot] {
        let (machine, good) = expand(&all_reduce(algorithm, 4, 64));
        let (mut waits, mut records) = (good.clone(), good);
        for labelled in &mut waits.ranks[0].tasks {
            match &mut labelled.task {
                Task::ThreadWait { index } if labelled.thread == ThreadId(1) => *index ^= 1,
                _ => {}
            }
        }
        for labelled in &mut records.ranks[0].tasks {
            if let Task::ThreadRecord { thread: ThreadId(1), index } = &mut labelled.task {
                *index ^= 1;
            }
        }
        for operation in [waits, records] {
            let refuted = proof(&machine, &operation).expect_err("mixed-up notifies");
            assert_eq!(refuted.obligation, Obligation::Deadlock, "{algorithm}: {refuted}");
        }
    }
}

#[test]
fn a_counterexample_names_rank_step_task_bytes_and_the_missing_order() {
    let (machine, mut operation) = expand(&all_reduce(Algorithm::Ring, 3, 3));
    // Rank 1 does not wait for what rank 0 sends it in step 1.
    let found = operation.ranks[1].tasks.iter().position(|labelled| {
        labelled.step == 1 && matches!(labelled.task, Task::ChannelWait { notify: ChannelNotify::Data, .. })
    });
    let dropped = operation.ranks[1].tasks.remove(found.expect("waits"));
    assert_eq!(dropped.phase, Phase::Run);
    let refuted = proof(&machine, &operation).expect_err("a wait is missing");
    let (at, with) = (refuted.at.clone().expect("a task"), refuted.with.clone().expect("another"));
    assert!([at.rank, with.rank].contains(&1), "{refuted}");
    let text = refuted.to_string();
    assert!(text.contains("nothing") && text.contains("task ") && text.contains("step "), "{text}");
}

/// A graph that is right in itself but leaves early: what self-composition is for.
#[test]
fn v11_leaving_before_peers_have_read_is_refuted() {
    let (machine, operation) =
        expand(&case(OpKind::AllReduce, Algorithm::MeshOneShot, Staging::Direct, 3, 4));
    let mut early = operation.clone();
    for tasks in &mut early.ranks {
        tasks.tasks.retain(|labelled| {
            !matches!(
                labelled.task,
                Task::ChannelRecord { notify: ChannelNotify::Fin, .. }
                    | Task::ChannelWait { notify: ChannelNotify::Fin, .. }
            )
        });
    }
    let refuted = proof(&machine, &early).expect_err("inputs are still being read");
    assert_eq!(refuted.obligation, Obligation::Exit, "{refuted}");
    // The same with a handshake at the beginning that cannot collide: then it is the user's new input that does.
    for tasks in &mut early.ranks {
        let start = tasks.tasks[..4].to_vec();
        let again = start.into_iter().map(|mut labelled| {
            if let Task::ChannelRecord { notify, .. } | Task::ChannelWait { notify, .. } = &mut labelled.task
            {
                *notify = ChannelNotify::Data;
            }
            labelled
        });
        tasks.tasks.splice(4..4, again.collect::<Vec<_>>());
    }
    let refuted = proof(&machine, &early).expect_err("inputs are still being read");
    assert_eq!(refuted.obligation, Obligation::Exit, "{refuted}");
    assert_eq!(refuted.bytes.as_ref().map(|bytes| bytes.buffer), Some(RegionKind::Input), "{refuted}");
}

fn with_rings(machine: &Machine, depth: u32, submitter: Submitter) -> Machine {
    Machine { rings: Rings { depth, longest: u64::MAX, submitter }, ..machine.clone() }
}

/// A submitter that stops at a full ring never gets to the record that its first ring waits for; and batches longer
/// than the ring deadlock at the first task (a figure of the design).
#[test]
fn v5_short_rings_block_a_submitter_that_stops() {
    let (sub, each) = (ThreadId(1), Submitter::InOrder { batch: 1 });
    let machine = all_reduce(Algorithm::MeshTwoShot, 4, 1).machine(&Protocol::Hccs);
    let mut crossed = operation(Collective::Barrier, 1, |_| {
        let wait = |index| (ThreadId::MAIN, Task::ThreadWait { index });
        let record = |index| (sub, Task::ThreadRecord { thread: ThreadId::MAIN, index });
        vec![wait(0), wait(1), wait(2), record(0), record(1), record(2)]
    });
    for (depth, fits) in [(1, false), (2, false), (3, true), (4, true)] {
        let result = verify(&with_rings(&machine, depth, each), &[&crossed]);
        assert_eq!(result.is_ok(), fits, "depth {depth}: {result:?}");
        if let Err(refuted) = result {
            assert_eq!(refuted.obligation, Obligation::Deadlock);
        }
        assert!(verify(&with_rings(&machine, depth, Submitter::Skipping), &[&crossed]).is_ok());
    }
    // Not even one that goes on helps where the record is in the next graph.
    crossed.ranks[0].graph_ends.push(3);
    assert!(verify(&with_rings(&machine, 2, Submitter::Skipping), &[&crossed]).is_err());
    assert!(verify(&with_rings(&machine, 3, Submitter::Skipping), &[&crossed]).is_ok());
    let (machine, operation) = expand(&all_reduce(Algorithm::Ring, 8, 64));
    let batches = |depth| with_rings(&machine, depth, Submitter::InOrder { batch: 128 });
    let refuted = proof(&batches(32), &operation).expect_err("the batch never gets full");
    assert_eq!(refuted.at.as_ref().and_then(|at| at.task), Some(0), "{refuted}");
    assert!(proof(&batches(256), &operation).is_ok());
}

/// The kernel's own submitter goes on with other rings, so any depth will do.
#[test]
fn v5_the_kernels_submitter_needs_no_depth() {
    for ranks in [2, 5, 8] {
        for case in cases(ranks, 40).map(|case| chunked(case, 9)) {
            let (machine, operation) = expand(&case);
            for depth in [1, 2, 4] {
                let result = proof(&with_rings(&machine, depth, Submitter::Skipping), &operation);
                assert!(result.is_ok(), "{case:?}: {result:?}");
            }
        }
    }
}

/// Long transfers are many entries.
#[test]
fn v5_pieces_of_long_transfers_count() {
    let (machine, operation) = expand(&all_reduce(Algorithm::Ring, 2, 1000));
    let mut machine = with_rings(&machine, 64, Submitter::InOrder { batch: 64 });
    assert!(proof(&machine, &operation).is_ok());
    machine.rings.longest = 8;
    assert!(proof(&machine, &operation).is_ok(), "a batch is announced whenever it is full");
    machine.rings.submitter = Submitter::InOrder { batch: 65 };
    assert!(proof(&machine, &operation).is_err(), "more entries than a ring holds are never announced");
}

/// Operations of one communicator that share threads, notifies and scratch, in any order, with two sizes.
#[test]
fn v12_operations_may_follow_each_other_in_any_order() {
    for ranks in [2, 3, 5] {
        for algorithm in Algorithm::ALL {
            for inline_reduce in [true, false] {
                let all: Vec<Case> = cases(ranks, 24)
                    .chain(cases(ranks, 7))
                    .filter(|case| case.operation.algorithm == *algorithm)
                    .map(|case| Case { inline_reduce, scratch_len: 1 << 16, ..case })
                    .filter(exists)
                    .collect();
                let operations: Vec<_> = all.iter().map(expand).collect();
                for (machine, first) in &operations {
                    for (_, second) in &operations {
                        let result = verify(machine, &[first, second]);
                        let names = (&first.name, &second.name);
                        assert!(result.is_ok(), "{names:?} on {ranks}: {}", result.unwrap_err());
                    }
                }
            }
        }
    }
}

/// Two that are right by themselves and not behind each other: one leaves its scratch to be read later on.
#[test]
fn v12_a_tail_that_disturbs_another_operation_is_refuted() {
    let (machine, good) = expand(&case(OpKind::AllReduce, Algorithm::MeshTwoShot, Staging::Scratch, 2, 4));
    let mut tail = good.clone();
    for tasks in &mut tail.ranks {
        tasks.tasks.retain(|labelled| {
            !matches!(
                labelled.task,
                Task::ChannelRecord { notify: ChannelNotify::Fin, .. }
                    | Task::ChannelWait { notify: ChannelNotify::Fin, .. }
            )
        });
    }
    let refuted = verify(&machine, &[&tail, &good]).expect_err("scratch is still being read");
    assert_eq!(refuted.obligation, Obligation::Composition, "{refuted}");
}

fn request(collective: Collective, ranks: u32, order: Order) -> Request {
    let (dtype, reduce) = (DataType::Int64, ReduceOp::Sum);
    Request { collective, ranks, dtype, reduce, in_place: false, order, chunk: 0 }
}

/// An operation of `ranks` ranks with these tasks, its order of reduction free.
fn operation(collective: Collective, ranks: u32, tasks: impl Fn(u32) -> Vec<(ThreadId, Task)>) -> Operation {
    let label = |(thread, task)| Labelled { thread, phase: Phase::Run, step: 0, task };
    let of = |rank| RankTasks { tasks: tasks(rank).into_iter().map(label).collect(), graph_ends: Vec::new() };
    let goal = Goal::new(&request(collective, ranks, Order::Any));
    Operation { name: "by hand".to_owned(), goal, ranks: (0..ranks).map(of).collect() }
}

fn record(peer: u32, notify: ChannelNotify) -> (ThreadId, Task) {
    (ThreadId::MAIN, Task::ChannelRecord { peer, notify })
}

fn wait(peer: u32, notify: ChannelNotify) -> (ThreadId, Task) {
    (ThreadId::MAIN, Task::ChannelWait { peer, notify })
}

#[test]
fn v8_a_barrier_waits_for_everybody() {
    use ChannelNotify::{Ack, Data};
    let machine = all_reduce(Algorithm::Ring, 3, 1).machine(&Protocol::Hccs);
    let barrier = |tasks: &dyn Fn(u32) -> Vec<_>| operation(Collective::Barrier, 3, tasks);
    let round = |rank: u32, notify| {
        let others = || (0..3).filter(move |peer| *peer != rank);
        others().map(move |peer| record(peer, notify)).chain(others().map(move |peer| wait(peer, notify)))
    };
    let twice = barrier(&|rank| round(rank, Ack).chain(round(rank, Data)).collect());
    assert!(proof(&machine, &twice).is_ok());
    // One round is a barrier, but a rank may come to the next one before another has taken its notify.
    let once = barrier(&|rank| round(rank, Ack).collect());
    assert!(verify(&machine, &[&once]).is_ok());
    assert_eq!(proof(&machine, &once).expect_err("collides with itself").obligation, Obligation::Exit);
    let next = barrier(&|rank| vec![record((rank + 1) % 3, Ack), wait((rank + 2) % 3, Ack)]);
    let refuted = verify(&machine, &[&next]).expect_err("only the neighbour is waited for");
    assert_eq!(refuted.obligation, Obligation::Result, "{refuted}");
}

/// Free orders: any is fine as long as all ranks have the same.
#[test]
fn v10_a_free_order_must_be_the_same_everywhere() {
    let case = all_reduce(Algorithm::Ring, 4, 8);
    let (machine, mut ring) = expand(&case);
    let goal = |ranks, order| Goal::new(&request(Collective::AllReduce { count: 8 }, ranks, order));
    ring.goal = goal(4, Order::Any);
    assert!(proof(&machine, &ring).is_ok());
    ring.goal = goal(4, Order::Rank);
    let refuted = proof(&machine, &ring).expect_err("rank order is another order");
    assert_eq!(refuted.obligation, Obligation::Order, "{refuted}");
    // Two ranks reduce for themselves, each beginning with the own input.
    let span = |region, len| Span { region, offset: 0, len };
    let reduction = Some(wire::Reduction { dtype: DataType::Int64, op: ReduceOp::Sum });
    let two = operation(Collective::AllReduce { count: 8 }, 2, |rank| {
        let (peer, output) = (1 - rank, span(RegionId::OUTPUT, 64));
        let input = span(RegionId::of_peer(peer, RegionKind::Input), 64);
        let copy = Task::LocalCopy { dst: output, src: span(RegionId::INPUT, 64) };
        let read = Task::Read { peer, dst: output, src: input, reduction };
        let (ack, fin) = (ChannelNotify::Ack, ChannelNotify::Fin);
        let main = |task| (ThreadId::MAIN, task);
        vec![record(peer, ack), wait(peer, ack), main(copy), main(read), record(peer, fin), wait(peer, fin)]
    });
    let machine = all_reduce(Algorithm::Ring, 2, 8).machine(&Protocol::Hccs);
    let refuted = proof(&machine, &two).expect_err("x0 · x1 is not x1 · x0");
    assert_eq!(refuted.obligation, Obligation::Order, "{refuted}");
}

/// Everything about sizes is symbolic: 8 GiB cost nothing, and a length is never narrowed.
#[test]
fn sizes_around_4_gib_and_above_are_proved() {
    for bytes in [(1 << 32) - 8, 1 << 32, (1 << 32) + 8, 8 << 30, 1 << 40] {
        for algorithm in [Algorithm::Ring, Algorithm::HalvingDoubling, Algorithm::MeshTwoShot] {
            let (machine, operation) = expand(&all_reduce(algorithm, 4, bytes / 8));
            let result = proof(&machine, &operation);
            assert!(result.is_ok(), "{algorithm} {bytes}: {result:?}");
        }
    }
}

/// In one order the main thread takes the first of two notifies, in another the sub thread does, and nothing goes on.
#[test]
fn v4_two_threads_may_not_wait_for_one_notify() {
    let (ack, data) = (ChannelNotify::Ack, ChannelNotify::Data);
    let machine = all_reduce(Algorithm::MeshTwoShot, 2, 1).machine(&Protocol::Hccs);
    let graph = operation(Collective::Barrier, 2, |rank| {
        if rank == 0 {
            let sub = (ThreadId(1), Task::ChannelWait { peer: 1, notify: ack });
            vec![wait(1, ack), record(1, data), sub]
        } else {
            vec![record(0, ack), wait(0, data), record(0, ack)]
        }
    });
    let refuted = verify(&machine, &[&graph]).expect_err("whose notify is it?");
    assert_eq!(refuted.obligation, Obligation::Pairing, "{refuted}");
}

#[test]
fn v4_a_notify_that_is_left_over_is_refuted() {
    let machine = all_reduce(Algorithm::Ring, 2, 1).machine(&Protocol::Hccs);
    let graph = operation(Collective::Send { count: 0, from: 0, to: 1 }, 2, |rank| {
        if rank == 0 { vec![record(1, ChannelNotify::Fin)] } else { Vec::new() }
    });
    let refuted = verify(&machine, &[&graph]).expect_err("nobody takes it");
    assert_eq!(refuted.obligation, Obligation::Pairing, "{refuted}");
}

/// What another operation left in scratch is as good as nothing.
#[test]
fn v7_bytes_of_an_earlier_operation_are_undefined() {
    let machine = all_reduce(Algorithm::Ring, 1, 8).machine(&Protocol::Hccs);
    let span = |region| Span { region, offset: 0, len: 64 };
    let copy = |dst, src| (ThreadId::MAIN, Task::LocalCopy { dst: span(dst), src: span(src) });
    let through = |tasks: &[_]| operation(Collective::AllReduce { count: 8 }, 1, |_| tasks.to_vec());
    let (fill, take) = (copy(RegionId::SCRATCH, RegionId::INPUT), copy(RegionId::OUTPUT, RegionId::SCRATCH));
    let (good, stale) = (through(&[fill, take]), through(&[take]));
    assert!(verify(&machine, &[&good, &good]).is_ok());
    let refuted = verify(&machine, &[&good, &stale]).expect_err("the bytes are those of the one before");
    assert_eq!(refuted.obligation, Obligation::Undefined, "{refuted}");
}

#[test]
fn v13_labels_that_go_back_are_refuted() {
    let (machine, good) = expand(&all_reduce(Algorithm::Ring, 3, 6));
    let run = |labelled: &Labelled| labelled.phase == Phase::Run && labelled.step == 2;
    for (phase, step) in [(Phase::Run, 1), (Phase::PreCopy, 0)] {
        let mut wrong = good.clone();
        let last = wrong.ranks[1].tasks.iter().rposition(run).expect("has steps");
        (wrong.ranks[1].tasks[last].phase, wrong.ranks[1].tasks[last].step) = (phase, step);
        let refuted = proof(&machine, &wrong).expect_err("labels go back");
        assert_eq!(refuted.obligation, Obligation::Labels, "{refuted}");
        assert_eq!(refuted.at.and_then(|at| at.task), Some(last));
    }
}
