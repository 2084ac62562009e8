//! Facts about what the templates do: traces, golden buffers, phases, syncs. Each test is a row of the table of
//! experiments (T1…T4, T33…T37); the rows that count are in `counts`.

use aicpu_tests::reference::{Aliases, FULL_CAPS, Labelled, PLAIN_CAPS, Stopped, World, expand};
use aicpu_tests::variants::{Variant, algorithms};
use task_graph::{RegionId, RegionKind, Task, ThreadId};
use templates::{Needs, Plan, Shape, Tables, scratch_bytes};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, Phase, ReduceOp};

use crate::grid::add;

/// An operation in scratch, with all threads, on links that can do everything.
pub(crate) fn shape(op: OpKind, algorithm: Algorithm, rank: u32, ranks: u32, count: u64) -> Shape {
    Shape {
        op,
        algorithm,
        levels: [None; 4],
        staging: Staging::Scratch,
        rank,
        ranks,
        root: 0,
        count,
        dtype: DataType::Int64,
        reduce: ReduceOp::Sum,
        scratch_len: u64::from(ranks) * (count * 8).next_multiple_of(128).max(128),
        threads: Needs::of(algorithm, ranks).threads,
        inline_reduce: true,
        in_place: false,
        chunk: 0,
        piece: 0,
    }
}

pub(crate) fn all_reduce(algorithm: Algorithm, rank: u32, ranks: u32, count: u64) -> Shape {
    shape(OpKind::AllReduce, algorithm, rank, ranks, count)
}

/// The tasks of every rank.
pub(crate) fn all_tasks(shape: &Shape) -> Vec<Vec<Labelled>> {
    (0..shape.ranks).map(|rank| expand(&Shape { rank, ..*shape }, FULL_CAPS).tasks).collect()
}

/// The writes of a rank: step, peer, first slice and number of slices, for slices of one 8-byte element.
pub(crate) fn writes(tasks: &[Labelled]) -> Vec<(u16, u32, u64, u64)> {
    tasks
        .iter()
        .filter_map(|labelled| match labelled.task {
            Task::Write { peer, dst, .. } => Some((labelled.step, peer, dst.offset / 8, dst.len / 8)),
            _ => None,
        })
        .collect()
}

/// Runs `tasks` on inputs where element j of rank r is 100·r + j; returns a buffer of each rank.
fn run_hundreds(shape: &Shape, tasks: &[Vec<Labelled>], kind: RegionKind) -> Vec<Vec<i64>> {
    let elements = usize::try_from(shape.count).expect("small");
    let scratch = usize::try_from(shape.scratch_len).expect("small");
    let buffers: Vec<[Vec<u8>; 3]> = (0..i64::from(shape.ranks))
        .map(|rank| {
            let input = (0_i64..).take(elements).flat_map(|j| (100 * rank + j).to_le_bytes()).collect();
            [input, vec![0xa5; elements * 8], vec![0xa5; scratch]]
        })
        .collect();
    let mut world = World::new(&buffers, tasks, Aliases::Apart);
    world.run(5, &add).expect("runs to the end");
    let words = |rank| {
        let words = world.buffer(rank, kind).chunks_exact(8).take(elements);
        words.map(|word| i64::from_le_bytes(word.try_into().expect("8"))).collect()
    };
    (0..buffers.len()).map(words).collect()
}

#[test]
fn t01_halving_doubling_trace_of_rank_5() {
    let tasks = all_tasks(&all_reduce(Algorithm::HalvingDoubling, 0, 8, 8));
    let sent = writes(&tasks[5]);
    let peers: Vec<_> = sent.iter().map(|&(_, peer, ..)| peer).collect();
    assert_eq!(peers, [1, 7, 4, 4, 7, 1]);
    let mut interval = (0, 8);
    let mut intervals = vec![interval];
    for &(step, peer, first, len) in &sent {
        let received = writes(&tasks[peer as usize])[usize::from(step)];
        assert_eq!(received.1, 5, "step {step} is an exchange");
        interval = if step < 3 {
            // Halving: what is received is what is kept, beside what is sent.
            assert_eq!((received.2.min(first), received.3 + len), interval);
            (received.2, received.3)
        } else {
            // Doubling: everything held is sent, and what is received lies beside it.
            assert_eq!((first, len), interval);
            (first.min(received.2), len + received.3)
        };
        intervals.push(interval);
    }
    assert_eq!(intervals, [(0, 8), (4, 4), (4, 2), (5, 1), (4, 2), (4, 4), (0, 8)]);
}

#[test]
fn t02_golden_buffers_of_eight_ranks() {
    for algorithm in algorithms(OpKind::AllReduce) {
        let shape = all_reduce(algorithm, 0, 8, 8);
        let outputs = run_hundreds(&shape, &all_tasks(&shape), RegionKind::Output);
        assert_eq!(outputs, vec![vec![2800, 2808, 2816, 2824, 2832, 2840, 2848, 2856]; 8], "{algorithm}");
    }
}

#[test]
fn t03_after_halving_rank_r_holds_slice_r() {
    for ranks in [2_u32, 4, 8, 16, 32, 64] {
        let shape = all_reduce(Algorithm::HalvingDoubling, 0, ranks, u64::from(ranks));
        let halving = u16::try_from(ranks.ilog2()).expect("small");
        let before = |labelled: &Labelled| match labelled.phase {
            Phase::PreSync | Phase::PreCopy => true,
            Phase::Run => labelled.step < halving,
            _ => false,
        };
        let tasks: Vec<Vec<_>> =
            all_tasks(&shape).into_iter().map(|tasks| tasks.into_iter().filter(before).collect()).collect();
        let scratch = run_hundreds(&shape, &tasks, RegionKind::Scratch);
        let n = i64::from(ranks);
        for (rank, slices) in scratch.iter().enumerate() {
            for (slice, (&value, j)) in slices.iter().zip(0_i64..).enumerate() {
                let complete = value == 100 * n * (n - 1) / 2 + n * j;
                // Rank 0 contributes nothing to slice 0: a sum without it looks complete there.
                assert!(complete == (rank == slice) || j == 0, "{ranks} ranks, rank {rank} slice {slice}");
                assert!(complete || rank != slice, "{ranks} ranks, rank {rank}");
            }
        }
    }
}

/// Rewrites the halving steps of eight ranks to ascending distances: the classic mistake.
fn ascending(mut tasks: Vec<Vec<Labelled>>) -> (Vec<Vec<Labelled>>, Vec<u64>) {
    let mut owned = Vec::new();
    for (rank, tasks) in (0_u32..).zip(&mut tasks) {
        let mut kept = (0, 8);
        for step in 0..3_u16 {
            let (distance, half) = (1 << step, kept.1 / 2);
            let upper = rank & distance != 0;
            let (keep, send) = if upper { (kept.0 + half, kept.0) } else { (kept.0, kept.0 + half) };
            kept = (keep, half);
            let in_step = |labelled: &&mut Labelled| labelled.phase == Phase::Run && labelled.step == step;
            for labelled in tasks.iter_mut().filter(in_step) {
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
        assert_eq!(kept.1, 1);
        owned.push(kept.0);
    }
    (tasks, owned)
}

#[test]
fn t04_ascending_distances_agree_with_each_other_and_are_wrong() {
    let shape = all_reduce(Algorithm::HalvingDoubling, 0, 8, 8);
    let golden = run_hundreds(&shape, &all_tasks(&shape), RegionKind::Output);
    let (tasks, owned) = ascending(all_tasks(&shape));
    assert_eq!(owned, [0, 4, 2, 6, 1, 5, 3, 7], "ownership is the bit reversal");
    let outputs = run_hundreds(&shape, &tasks, RegionKind::Output);
    assert!(outputs.iter().all(|output| *output == outputs[0]), "comparing ranks finds nothing");
    assert_eq!(outputs[0], [2800, 101, 2816, 303, 404, 2840, 606, 2856]);
    assert_ne!(outputs, golden, "comparing with absolute values does");
}

/// Every shape of `ranks` ranks that has a plan.
fn shapes(ranks: u32) -> impl Iterator<Item = Shape> {
    let all = OpKind::ALL.iter().flat_map(|op| Algorithm::ALL.iter().map(move |algorithm| (*op, *algorithm)));
    let all = all.flat_map(|pair| Staging::ALL.iter().map(move |staging| (pair, *staging)));
    let whole = |shape: Shape| Shape { scratch_len: scratch_bytes(&shape, &Tables::default()), ..shape };
    all.map(move |((op, algorithm), staging)| whole(Shape { staging, ..shape(op, algorithm, 0, ranks, 64) }))
        .filter(|shape| Plan::new(shape, &Tables::default()).is_ok())
}

#[test]
fn t33_every_template_goes_through_the_seven_phases_in_order() {
    let mut seen = 0;
    for ranks in [2, 3, 5, 8] {
        for shape in shapes(ranks) {
            let mut phases: Vec<_> =
                expand(&shape, FULL_CAPS).marks.iter().map(|(phase, _)| *phase).collect();
            phases.dedup();
            let (start, skeleton) = phases.split_first().expect("starts with one");
            assert_eq!(*start, Phase::Start);
            let seven = [
                Phase::PreSync,
                Phase::PreCopy,
                Phase::PreSync,
                Phase::Run,
                Phase::PostSync,
                Phase::PostCopy,
                Phase::PostSync,
            ];
            assert_eq!(skeleton, seven, "{shape:?}");
            seen += 1;
        }
    }
    let without_vector = Variant::all().iter().filter(|variant| !variant.op.has_vector()).count();
    assert!(without_vector >= 50);
    assert_eq!(seen, 4 * without_vector);
}

#[test]
fn t34_one_rank_is_one_copy_and_no_channel() {
    let mut seen = 0;
    for shape in shapes(1).filter(|shape| shape.op != OpKind::Barrier) {
        for caps in [FULL_CAPS, PLAIN_CAPS] {
            let tasks = expand(&shape, caps).tasks;
            assert_eq!(tasks.len(), 1, "{shape:?}");
            assert_eq!(tasks[0].thread, ThreadId::MAIN);
            let Task::LocalCopy { dst, src } = tasks[0].task else { panic!("{}", tasks[0].task) };
            assert_eq!((src.to_string(), dst.to_string()), ("input[0..512]".into(), "output[0..512]".into()));
            seen += 1;
        }
    }
    assert!(seen > 20);
}

#[test]
fn t35_nhr_syncs_before_its_copy_and_mesh_after() {
    for (algorithm, sync_first) in
        [(Algorithm::Nhr, true), (Algorithm::MeshOneShot, false), (Algorithm::MeshTwoShot, false)]
    {
        let tasks = expand(&all_reduce(algorithm, 2, 4, 64), FULL_CAPS).tasks;
        let position = |wanted: fn(&Task) -> bool| tasks.iter().position(|labelled| wanted(&labelled.task));
        let sync = position(|task| matches!(task, Task::ThreadRecord { .. })).expect("has sub threads");
        let copy = position(|task| matches!(task, Task::LocalCopy { .. })).expect("copies");
        assert_eq!(sync < copy, sync_first, "{algorithm}: sync {sync} copy {copy}");
        assert_eq!(tasks[sync].phase, Phase::PreSync);
        assert_eq!(tasks[copy].phase, Phase::PreCopy);
    }
}

#[test]
fn t37_swapped_notify_indexes_are_caught() {
    for algorithm in [Algorithm::Nhr, Algorithm::MeshOneShot, Algorithm::MeshTwoShot] {
        let shape = all_reduce(algorithm, 0, 4, 64);
        let swap = |index: &mut u16| *index ^= 1;
        let good = all_tasks(&shape);
        let (mut waits, mut records) = (good.clone(), good);
        for labelled in &mut waits[0] {
            match &mut labelled.task {
                Task::ThreadWait { index } if labelled.thread == ThreadId(1) => swap(index),
                _ => {}
            }
        }
        for labelled in &mut records[0] {
            if let Task::ThreadRecord { thread: ThreadId(1), index } = &mut labelled.task {
                swap(index);
            }
        }
        for tasks in [waits, records] {
            let elements = vec![0_u8; 512];
            let scratch = vec![0_u8; usize::try_from(shape.scratch_len).expect("small")];
            let buffers = vec![[elements.clone(), elements, scratch]; 4];
            for seed in 0..20 {
                let stopped = World::new(&buffers, &tasks, Aliases::Apart).run(seed, &add);
                let Err(Stopped::Deadlock(blocked)) = &stopped else { panic!("{algorithm}: {stopped:?}") };
                let waits = |(rank, thread, task): &(u32, u16, Task)| {
                    *rank == 0 && *thread == 1 && matches!(task, Task::ThreadWait { .. })
                };
                assert!(blocked.iter().any(waits), "{algorithm}: {blocked:?}");
            }
        }
    }
}
