//! The local part: what one rank's kernel sees of its own tasks.

use std::collections::HashSet;

use aicpu_tests::reference::{FULL_CAPS, PLAIN_CAPS};
use graph_verifier::{Checked, Collector, Goal, Labelled, Lengths, Machine, Structure};
use host_launcher::prove::Case;
use task_graph::{ChannelNotify, Part, RegionId, RegionKind, Task, TaskSink, ThreadId, WriteBatch};
use templates::Tables;
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind, Staging};

use crate::mutants::{Mistake, Random};
use crate::mutation::{Subject, subjects};
use crate::shapes::{case, cases, chunked, exists, expand};

fn structure(machine: &Machine, goal: &Goal, rank: u32) -> Structure<Lengths> {
    let [input, output] = goal.buffers(rank);
    let lengths = [input, output, machine.scratch];
    // Of any peer that has one.
    let peers = || (0..goal.ranks()).filter(|peer| *peer != rank).map(|peer| goal.buffers(peer));
    let longest = |kind: usize| peers().map(|buffers| buffers[kind]).max().unwrap_or(0);
    let peer = [longest(0), longest(1), machine.scratch];
    Structure {
        rank,
        ranks: goal.ranks(),
        threads: machine.threads,
        main_notifies: machine.main_notifies,
        sub_notifies: machine.sub_notifies,
        element: 8,
        in_place: goal.in_place(rank),
        extents: Lengths::new(lengths, peer),
    }
}

/// Puts tasks through the check; returns what it says, and how many got through.
fn through(structure: &Structure<Lengths>, tasks: &[Labelled]) -> (Result<(), ErrorCode>, usize) {
    let mut collector = Collector::new(|_| PLAIN_CAPS);
    let mut checked = Checked::new(structure, &mut collector);
    let emitted = tasks.iter().try_for_each(|labelled| checked.task(labelled.thread, &labelled.task));
    let result = emitted.and_then(|()| checked.finish());
    (result, collector.into_tasks().tasks.len())
}

#[test]
fn every_template_passes_chunk_by_chunk_and_comes_out_as_it_went_in() {
    let mut graphs = 0;
    for ranks in [1, 2, 3, 5, 8] {
        for base in cases(ranks, 50) {
            for (inline_reduce, in_place, chunk) in [(true, false, 0), (false, false, 9), (true, true, 9)] {
                let case = chunked(Case { inline_reduce, in_place, ..base.clone() }, chunk);
                if !exists(&case) {
                    continue;
                }
                let caps = if inline_reduce { FULL_CAPS } else { PLAIN_CAPS };
                let (machine, graph) = expand(&case);
                for rank in 0..ranks {
                    let plan = case.plan(rank, Tables::default()).expect("has a plan");
                    let tables = Tables { vector: case.operation.rows(rank), ..Tables::default() };
                    let structure = structure(&machine, &graph.goal, rank);
                    for index in 0..plan.chunks() {
                        let (mut one, mut other) = (Collector::new(|_| caps), Collector::new(|_| caps));
                        let mut checked = Checked::new(&structure, &mut one);
                        plan.emit(index, &tables, &mut checked).expect("passes");
                        checked.finish().expect("no notify is left");
                        plan.emit(index, &tables, &mut other).expect("emits");
                        assert_eq!(one.into_tasks(), other.into_tasks(), "{case:?}");
                        graphs += 1;
                    }
                }
            }
        }
    }
    assert!(graphs > 1000, "{graphs}");
}

/// Whether the notifies of a rank's threads go wrong in the order of emission.
fn mixed_up(tasks: &[Labelled]) -> bool {
    let mut set = HashSet::new();
    tasks.iter().any(|labelled| match labelled.task {
        Task::ThreadRecord { thread, index } => !set.insert((thread, index)),
        Task::ThreadWait { index } => !set.remove(&(labelled.thread, index)),
        _ => false,
    }) || !set.is_empty()
}

#[test]
fn what_is_wrong_within_a_rank_is_refused_and_nothing_else() {
    let [mut refused, mut passed] = [0; 2];
    for (number, case) in (0..).zip(subjects()) {
        let subject = Subject::new(&case);
        let same_peers = case.operation.op == OpKind::AllReduce;
        for (kind, mistake) in (0..).zip(Mistake::ALL) {
            let mut random = Random(7000 + number * 100 + kind);
            for _ in 0..20 {
                let Some(mutant) = subject.mutant(mistake, &mut random) else { continue };
                for (rank, tasks) in (0..).zip(&mutant.ranks) {
                    if tasks.tasks == subject.graph.ranks[rank as usize].tasks || !same_peers {
                        continue;
                    }
                    let is_input = |task: &Task| {
                        matches!(task,
                        Task::LocalCopy { dst, .. } | Task::LocalReduce { dst, .. } | Task::Write { dst, .. }
                        | Task::Read { dst, .. } if dst.region.kind() == RegionKind::Input)
                    };
                    // Which buffers may be written is a question for the whole.
                    if tasks.tasks.iter().any(|labelled| is_input(&labelled.task)) {
                        continue;
                    }
                    let machine = &subject.machine;
                    let notifies = [machine.main_notifies, machine.sub_notifies];
                    let illegal = tasks
                        .tasks
                        .iter()
                        .any(|labelled| subject.stage.is_illegal(rank, machine.threads, notifies, labelled));
                    let (result, _) =
                        through(&structure(&subject.machine, &subject.graph.goal, rank), &tasks.tasks);
                    let wrong = illegal || mixed_up(&tasks.tasks);
                    assert_eq!(result.is_err(), wrong, "{mistake:?} in {case:?}, rank {rank}: {result:?}");
                    if wrong { refused += 1 } else { passed += 1 }
                }
            }
        }
    }
    assert!(refused > 200 && passed > 1000, "{refused} refused, {passed} passed");
}

#[test]
fn each_refusal_has_its_code_and_the_task_goes_no_further() {
    let subject = Subject::new(&case(OpKind::AllReduce, Algorithm::MeshTwoShot, Staging::Scratch, 3, 6));
    let structure = structure(&subject.machine, &subject.graph.goal, 1);
    let (main, sub) = (ThreadId::MAIN, ThreadId(1));
    let span = |kind, offset, len| task_graph::Span { region: RegionId::own(kind), offset, len };
    let copy = |dst, src| Task::LocalCopy { dst, src };
    let (input, output) = (span(RegionKind::Input, 0, 8), span(RegionKind::Output, 0, 8));
    let read = |peer, region| Task::Read {
        peer,
        dst: output,
        src: task_graph::Span { region, offset: 0, len: 8 },
        reduction: None,
    };
    let peer_input = |peer| RegionId::of_peer(peer, RegionKind::Input);
    let record = Task::ThreadRecord { thread: sub, index: 0 };
    let wait = Task::ThreadWait { index: 0 };
    for (tasks, code) in [
        (vec![(ThreadId(3), copy(output, input))], ErrorCode::VERIFY_STRUCTURE),
        (vec![(main, read(1, peer_input(1)))], ErrorCode::VERIFY_STRUCTURE),
        (vec![(main, read(3, peer_input(3)))], ErrorCode::VERIFY_STRUCTURE),
        (vec![(main, read(0, peer_input(2)))], ErrorCode::VERIFY_STRUCTURE),
        (vec![(main, copy(output, span(RegionKind::Input, 48, 8)))], ErrorCode::VERIFY_BOUNDS),
        (vec![(main, copy(output, span(RegionKind::Input, u64::MAX - 7, 8)))], ErrorCode::VERIFY_BOUNDS),
        (vec![(main, copy(output, span(RegionKind::Input, 4, 8)))], ErrorCode::VERIFY_BOUNDS),
        (vec![(main, copy(output, span(RegionKind::Input, 0, 16)))], ErrorCode::VERIFY_BOUNDS),
        (
            vec![(main, copy(span(RegionKind::Output, 0, 0), span(RegionKind::Input, 0, 0)))],
            ErrorCode::VERIFY_BOUNDS,
        ),
        (
            vec![(main, copy(span(RegionKind::Output, 0, 16), span(RegionKind::Output, 8, 16)))],
            ErrorCode::VERIFY_OVERLAP,
        ),
        (vec![(main, record), (main, record)], ErrorCode::VERIFY_PAIRING),
        (vec![(sub, wait), (main, record)], ErrorCode::VERIFY_DEADLOCK),
        (vec![(main, Task::ThreadRecord { thread: main, index: 0 })], ErrorCode::VERIFY_STRUCTURE),
        (vec![(main, Task::ThreadRecord { thread: sub, index: 2 })], ErrorCode::VERIFY_STRUCTURE),
        (vec![(sub, Task::RecordDone)], ErrorCode::VERIFY_STRUCTURE),
    ] {
        let mut collector = Collector::new(|_| FULL_CAPS);
        let mut checked = Checked::new(&structure, &mut collector);
        let results: Vec<_> = tasks.iter().map(|(thread, task)| checked.task(*thread, task)).collect();
        assert_eq!(results.iter().find_map(|result| result.err()), Some(code), "{tasks:?}");
        let good = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(collector.into_tasks().tasks.len(), good, "{tasks:?}");
    }
    let mut collector = Collector::new(|_| FULL_CAPS);
    let mut left = Checked::new(&structure, &mut collector);
    left.task(main, &record).expect("is set");
    assert_eq!(left.finish(), Err(ErrorCode::VERIFY_PAIRING));
}

#[test]
fn every_part_of_a_batch_is_checked() {
    let subject = Subject::new(&case(OpKind::AllReduce, Algorithm::Ring, Staging::Scratch, 3, 6));
    let structure = structure(&subject.machine, &subject.graph.goal, 1);
    let scratch = subject.machine.scratch;
    let batch = |peer| WriteBatch {
        peer,
        dst: RegionKind::Scratch,
        src: RegionKind::Scratch,
        reduction: None,
        then: Some(ChannelNotify::Data),
    };
    let part = |dst| Part { dst, src: 0, len: 8 };
    let run = |peer, parts: &[Part]| {
        let mut collector = Collector::new(|_| FULL_CAPS);
        let mut checked = Checked::new(&structure, &mut collector);
        let result = checked.write_batch(ThreadId::MAIN, &batch(peer), parts);
        (result, collector.into_tasks().tasks.len())
    };
    assert_eq!(run(0, &[part(0), part(8), part(scratch - 8)]), (Ok(()), 3));
    assert_eq!(run(0, &[]), (Ok(()), 1), "the notify alone");
    for at in 0..3 {
        let mut parts = [part(0), part(8), part(16)];
        parts[at].dst = scratch;
        assert_eq!(run(0, &parts).0, Err(ErrorCode::VERIFY_BOUNDS), "part {at}");
    }
    assert_eq!(run(1, &[]).0, Err(ErrorCode::VERIFY_STRUCTURE));
    // A step: the same of its batch, and of the peer that may write. Nothing of a bad one is handed on.
    let step = |from, to, parts: &[Part]| {
        let mut collector = Collector::new(|_| FULL_CAPS);
        let mut checked = Checked::new(&structure, &mut collector);
        let result = checked.exchange(ThreadId::MAIN, from, &batch(to), parts);
        (result, collector.into_tasks().tasks.len())
    };
    assert_eq!(step(Some(2), 0, &[part(0), part(8)]), (Ok(()), 5));
    assert_eq!(step(None, 0, &[part(0)]), (Ok(()), 2));
    assert_eq!(step(Some(2), 0, &[part(0), part(scratch)]), (Err(ErrorCode::VERIFY_BOUNDS), 0));
    assert_eq!(step(Some(1), 0, &[part(0)]), (Err(ErrorCode::VERIFY_STRUCTURE), 0), "this rank itself");
    assert_eq!(step(Some(3), 0, &[part(0)]), (Err(ErrorCode::VERIFY_STRUCTURE), 0), "no rank");
}
