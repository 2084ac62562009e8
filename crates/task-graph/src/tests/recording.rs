//! Every task on every kind of link, against descriptors computed by hand.

use std::string::String;
use std::vec::Vec;

use wire::{DataType, ErrorCode, Phase, ReduceOp, Reduction, Sqe, SqeFlags, Wqe, npu};

use super::rig::{HCCS, ROCE, ROCE_QUEUE, SUM, UB, UB_QUEUE, contents, graph, peer, record, span};
use crate::{
    BLOCK_ENTRIES, ChannelNotify, Kinds, Listing, Pattern, QueueIndex, RegionId, Task, TaskSink, ThreadId,
};

const INPUT: RegionId = RegionId::INPUT;
const OUTPUT: RegionId = RegionId::OUTPUT;
const SCRATCH: RegionId = RegionId::SCRATCH;
const NO_BASE: Pattern = Pattern::Sqe { src: None, dst: None };

fn blank(task: u64) -> Sqe {
    Sqe { phase: Phase::Run as u8, step: 7, task, peer: Sqe::NO_PEER, ..Sqe::default() }
}

fn blank_wqe(task: u64, peer: u16) -> Wqe {
    Wqe { phase: Phase::Run as u8, step: 7, task, peer, ..Wqe::default() }
}

/// Records one task on thread 1; returns what is in its queue.
fn on_thread_1(task: Task) -> Vec<(Sqe, Pattern)> {
    let mut graph = graph(8);
    record(&mut graph, &[(1, task)]).expect("records");
    assert!(contents(&graph, QueueIndex(0)).is_empty());
    contents(&graph, QueueIndex(1)).into_iter().map(|(entry, pattern)| (Sqe::from(entry), pattern)).collect()
}

#[test]
fn local_transfers() {
    let (dst, src) = (span(OUTPUT, 64, 32), span(INPUT, 128, 32));
    let bases = Pattern::Sqe { src: Some(INPUT), dst: Some(OUTPUT) };
    let copy = Sqe { opcode: Sqe::COPY, src: 128, dst: 64, len: 32, ..blank(0) };
    assert_eq!(on_thread_1(Task::LocalCopy { dst, src }), [(copy, bases)]);
    let reduction = Reduction { dtype: DataType::Bf16, op: ReduceOp::Max };
    let max = Sqe { flags: SqeFlags::REDUCE.bits(), dtype: 11, reduce: 2, ..copy };
    assert_eq!(on_thread_1(Task::LocalReduce { dst, src, reduction }), [(max, bases)]);
    // What the copy engine cannot do: a type, an operation.
    for (reduction, dtype, reduce) in [
        (Reduction { dtype: DataType::Fp64, op: ReduceOp::Sum }, 10, 0),
        (Reduction { dtype: DataType::Int32, op: ReduceOp::Prod }, 2, 1),
    ] {
        let flags = (SqeFlags::REDUCE | SqeFlags::AICPU).bits();
        let by_core = Sqe { flags, dtype, reduce, ..copy };
        assert_eq!(on_thread_1(Task::LocalReduce { dst, src, reduction }), [(by_core, bases)]);
    }
}

#[test]
fn signals() {
    let record = |notify| Sqe { opcode: Sqe::RECORD, notify, ..blank(0) };
    let wait = |notify| Sqe { opcode: Sqe::WAIT, notify, ..blank(0) };
    let to_thread = Task::ThreadRecord { thread: ThreadId(2), index: 5 };
    assert_eq!(on_thread_1(to_thread), [(record(25), NO_BASE)]);
    assert_eq!(on_thread_1(Task::ThreadWait { index: 3 }), [(wait(13), NO_BASE)]);
    let from_peer = Task::ChannelWait { peer: ROCE, notify: ChannelNotify::Fin };
    assert_eq!(on_thread_1(from_peer), [(Sqe { peer: 2, ..wait(122) }, NO_BASE)]);
    assert_eq!(on_thread_1(Task::WaitStart), [(wait(0), Pattern::Start)]);
    let done = Sqe { opcode: Sqe::RECORD_HOST, flags: SqeFlags::COMPLETE.bits(), ..blank(0) };
    assert_eq!(on_thread_1(Task::RecordDone), [(done, Pattern::Done)]);
    assert_eq!(on_thread_1(Task::RecordNext), [(record(0), Pattern::Next)]);
}

#[test]
fn an_hccs_link_is_one_entry_on_the_thread() {
    let (near, far) = (span(SCRATCH, 8, 16), peer(HCCS, 24, 16));
    let with_peer = Sqe { channel: 50, peer: 0, len: 16, ..blank(0) };
    let write = Sqe { opcode: Sqe::WRITE, src: 8, dst: 24, ..with_peer };
    let notify = Some(ChannelNotify::Data);
    let there = Pattern::Sqe { src: Some(SCRATCH), dst: Some(far.region) };
    let plain = Task::Write { peer: HCCS, dst: far, src: near, reduction: None, notify: None };
    assert_eq!(on_thread_1(plain), [(write, there)]);
    let full = Task::Write { peer: HCCS, dst: far, src: near, reduction: SUM, notify };
    let flags = (SqeFlags::REDUCE | SqeFlags::NOTIFY).bits();
    assert_eq!(on_thread_1(full), [(Sqe { flags, dtype: 4, notify: 201, ..write }, there)]);
    let read = Task::Read { peer: HCCS, dst: near, src: far, reduction: SUM };
    let back = Pattern::Sqe { src: Some(far.region), dst: Some(SCRATCH) };
    let flags = SqeFlags::REDUCE.bits();
    let expected = Sqe { opcode: Sqe::READ, flags, dtype: 4, src: 24, dst: 8, ..with_peer };
    assert_eq!(on_thread_1(read), [(expected, back)]);
    let ack = Task::ChannelRecord { peer: HCCS, notify: ChannelNotify::Ack };
    let expected = Sqe { opcode: Sqe::RECORD_PEER, notify: 200, len: 0, ..with_peer };
    assert_eq!(on_thread_1(ack), [(expected, NO_BASE)]);
}

#[test]
fn a_queue_pair_gets_a_request_and_the_thread_a_post() {
    let (near, far) = (span(SCRATCH, 8, 16), peer(ROCE, 24, 16));
    let mut graph = graph(8);
    let tasks = [
        Task::Write { peer: ROCE, dst: far, src: near, reduction: None, notify: None },
        Task::Read { peer: ROCE, dst: near, src: far, reduction: None },
        Task::ChannelRecord { peer: ROCE, notify: ChannelNotify::Data },
        Task::Write { peer: ROCE, dst: far, src: near, reduction: SUM, notify: Some(ChannelNotify::Fin) },
    ];
    record(&mut graph, &tasks.map(|task| (1, task))).expect("records");
    let pair: Vec<_> =
        contents(&graph, ROCE_QUEUE).into_iter().map(|(wqe, pattern)| (Wqe::from(wqe), pattern)).collect();
    let ends = Pattern::Wqe { local: Some(SCRATCH), remote: Some(far.region) };
    let moves = |task| Wqe { local: 8, remote: 24, len: 16, ..blank_wqe(task, 2) };
    let flags = (SqeFlags::REDUCE | SqeFlags::NOTIFY).bits();
    let expected = [
        (Wqe { opcode: Wqe::WRITE, ..moves(0) }, ends),
        (Wqe { opcode: Wqe::READ, ..moves(2) }, ends),
        (
            Wqe { opcode: Wqe::RECORD, notify: 221, ..blank_wqe(4, 2) },
            Pattern::Wqe { local: None, remote: None },
        ),
        (Wqe { opcode: Wqe::WRITE, flags, dtype: 4, notify: 222, ..moves(6) }, ends),
    ];
    assert_eq!(pair, expected);
    let posts: Vec<_> =
        contents(&graph, QueueIndex(1)).into_iter().map(|(sqe, pattern)| (Sqe::from(sqe), pattern)).collect();
    let post = |task, wqe_tail| {
        let sqe = Sqe { opcode: Sqe::POST, channel: 52, peer: 2, wqe_tail, ..blank(task) };
        (sqe, Pattern::Post { queue: ROCE_QUEUE })
    };
    assert_eq!(posts, [post(1, 1), post(3, 2), post(5, 3), post(7, 4)]);
    assert_eq!(graph.kinds(), Kinds { copies: 0, reduces: 0, transfers: 3, signals: 1, wqes: 4 });
    assert_eq!((graph.len(), graph.steps()), (8, 8));
    assert_eq!(graph.queues(), [ROCE_QUEUE, QueueIndex(1)]);
}

#[test]
fn long_local_transfers_are_cut_at_the_engines_limit() {
    let max = npu::sdma::MAX_LEN;
    assert_eq!(max, 0xffff_fe00);
    for (len, pieces) in [
        (max - 1, &[(0, max - 1)][..]),
        (max, &[(0, max)]),
        (max + 1, &[(0, max), (max, 1)]),
        (3 * max, &[(0, max), (max, max), (2 * max, max)]),
    ] {
        let seen = on_thread_1(Task::LocalCopy { dst: span(OUTPUT, 0, len), src: span(INPUT, 64, len) });
        let seen: Vec<_> = seen.iter().map(|(sqe, _)| (sqe.src - 64, sqe.dst, sqe.len)).collect();
        let expected: Vec<_> = pieces.iter().map(|&(skip, len)| (skip, skip, len)).collect();
        assert_eq!(seen, expected, "{len}");
    }
}

#[test]
fn six_hundred_mib_over_ub_are_three_requests_of_which_the_last_notifies() {
    const MIB: u64 = 1 << 20;
    let (far, near) = (peer(UB, 0, 600 * MIB), span(INPUT, 512, 600 * MIB));
    let notify = Some(ChannelNotify::Data);
    let mut graph = graph(8);
    record(&mut graph, &[(0, Task::Write { peer: UB, dst: far, src: near, reduction: SUM, notify })])
        .expect("records");
    let pair: Vec<_> = contents(&graph, UB_QUEUE)
        .into_iter()
        .map(|(entry, _)| Wqe::from(entry))
        .map(|wqe| (wqe.local, wqe.remote, wqe.len, wqe.notify, wqe.flags))
        .collect();
    let (reduce, both) = (SqeFlags::REDUCE.bits(), (SqeFlags::REDUCE | SqeFlags::NOTIFY).bits());
    let expected = [
        (512, 0, 256 * MIB, 0, reduce),
        (512 + 256 * MIB, 256 * MIB, 256 * MIB, 0, reduce),
        (512 + 512 * MIB, 512 * MIB, 88 * MIB, 231, both),
    ];
    assert_eq!(pair, expected);
    assert_eq!(contents(&graph, QueueIndex(0)).len(), 3);
    assert_eq!(graph.kinds().transfers, 3);
}

#[test]
fn tasks_that_the_context_cannot_express_are_refused() {
    let (near, far) = (span(SCRATCH, 0, 16), peer(HCCS, 0, 16));
    let write = |peer, dst, src| Task::Write { peer, dst, src, reduction: None, notify: None };
    for (thread, task) in [
        (3, Task::ThreadWait { index: 0 }),
        (0, Task::ThreadWait { index: 6 }),
        (0, Task::ThreadRecord { thread: ThreadId(3), index: 0 }),
        (0, Task::ThreadRecord { thread: ThreadId(1), index: 6 }),
        (3, Task::LocalCopy { dst: near, src: near }),
        (0, Task::LocalCopy { dst: near, src: span(INPUT, 0, 15) }),
        (0, Task::LocalCopy { dst: span(SCRATCH, 0, 0), src: span(INPUT, 0, 0) }),
        (3, write(HCCS, far, near)),
        (0, write(1, peer(1, 0, 16), near)),
        (0, write(4, peer(4, 0, 16), near)),
        (0, write(HCCS, peer(ROCE, 0, 16), near)),
        (0, write(HCCS, near, near)),
        (0, write(HCCS, far, span(SCRATCH, 0, 17))),
        (0, write(HCCS, peer(HCCS, 0, 0), span(SCRATCH, 0, 0))),
        (0, Task::Read { peer: HCCS, dst: near, src: near, reduction: None }),
        (0, Task::ChannelRecord { peer: 1, notify: ChannelNotify::Ack }),
        (3, Task::ChannelRecord { peer: ROCE, notify: ChannelNotify::Ack }),
        (0, Task::ChannelWait { peer: 4, notify: ChannelNotify::Ack }),
        (3, Task::WaitStart),
    ] {
        let mut graph = graph(8);
        assert_eq!(record(&mut graph, &[(thread, task)]), Err(ErrorCode::PLAN_INTERNAL), "{thread} {task}");
        assert!(graph.is_empty(), "{thread} {task}");
    }
}

#[test]
fn a_queue_longer_than_a_block_keeps_its_order() {
    let mut graph = graph(8);
    let waits = 0..u16::try_from(3 * BLOCK_ENTRIES + 1).expect("small");
    for index in waits.clone() {
        record(&mut graph, &[(index % 2, Task::ThreadWait { index: index % 6 })]).expect("records");
    }
    for thread in 0..2 {
        let tasks: Vec<_> =
            contents(&graph, QueueIndex(thread)).iter().map(|(entry, _)| entry.lanes[1]).collect();
        let expected: Vec<_> = waits.clone().filter(|index| index % 2 == thread).map(u64::from).collect();
        assert_eq!(tasks, expected);
    }
}

#[test]
fn a_listing_of_a_small_operation() {
    let mut listing =
        Listing::new(String::new(), crate::Caps { reduce_types: 0, reduce_ops: 0, write_notify: true });
    let notify = Some(ChannelNotify::Data);
    listing.mark(Phase::PreCopy, 0);
    listing
        .task(ThreadId(0), &Task::LocalCopy { dst: span(SCRATCH, 0, 8), src: span(INPUT, 0, 8) })
        .expect("prints");
    listing.mark(Phase::Run, 12);
    for task in [
        Task::ChannelRecord { peer: 0, notify: ChannelNotify::Ack },
        Task::ChannelWait { peer: 2, notify: ChannelNotify::Ack },
        Task::Write { peer: 2, dst: peer(2, 4, 4), src: span(SCRATCH, 4, 4), reduction: SUM, notify },
        Task::Read { peer: 0, dst: span(OUTPUT, 0, 4), src: peer(0, 0, 4), reduction: None },
        Task::ThreadRecord { thread: ThreadId(1), index: 0 },
    ] {
        listing.task(ThreadId(10), &task).expect("prints");
    }
    listing.mark(Phase::Finish, 0);
    listing.task(ThreadId(0), &Task::RecordDone).expect("prints");
    let expected = "  0  pre-copy/0   copy scratch[0..8] <- input[0..8]
 10       run/12  record peer 0 Ack
 10       run/12  wait peer 2 Ack
 10       run/12  write peer 2 scratch[4..8] <- scratch[4..8] sum fp32 then Data
 10       run/12  read output[0..4] <- peer 0 scratch[0..4]
 10       run/12  record thread 1 notify 0
  0    finish/0   record done
";
    assert_eq!(listing.into_inner(), expected);
}
