//! Each task that silicon would refuse, with the code it is refused with and nothing moved.

mod rig;

use aicpu_device_model::driver::Link;
use aicpu_device_model::fault::Fault;
use rig::{ALL, LABELS, Side, copy, pair, sqe, transfer, wqe};
use wire::npu::{self, Access, Protocol};
use wire::{
    Command, DataType, DeviceAddr, Engine, ErrorCode, Operand, ReduceOp, Reduction, Sqe, Transfer,
    TransferKind, WorkRequest,
};

/// The code that a copy between two 64-byte buffers is refused with after `change`.
fn refused(change: impl FnOnce(&mut Transfer, &Side)) -> ErrorCode {
    let [mut a, _] = pair();
    let (src, dst) = (a.buffer(&[7; 64], Access::READ), a.buffer(&[1; 64], Access::WRITE));
    let mut task = copy(src, dst, 64);
    change(&mut task, &a);
    let code = a.outcome(&Command::Transfer(task));
    assert_eq!(a.bytes(dst, 64), [1; 64], "nothing is moved by a refused task");
    code
}

#[test]
fn operands_are_checked_against_the_region_table() {
    assert_eq!(refused(|task, _| task.src.token = 0), ErrorCode::DMA_UNREGISTERED);
    let token = |task: &mut Transfer, _: &Side| task.dst.token ^= 1 << 31;
    assert_eq!(refused(token), ErrorCode::DMA_TOKEN);
    let free_slot = |task: &mut Transfer, _: &Side| task.src.token ^= 0x200;
    assert_eq!(refused(free_slot), ErrorCode::DMA_UNREGISTERED);
    let released = |task: &mut Transfer, a: &Side| a.npu.deregister(task.src.token).unwrap();
    assert_eq!(refused(released), ErrorCode::DMA_UNREGISTERED);
    let again = |task: &mut Transfer, a: &Side| {
        a.npu.deregister(task.src.token).unwrap();
        a.npu.register(task.src.addr, 64, Access::READ).unwrap();
    };
    assert_eq!(refused(again), ErrorCode::DMA_TOKEN);
    assert_eq!(refused(|task, _| task.len = 65), ErrorCode::DMA_BOUNDS);
    assert_eq!(refused(|task, _| task.src.addr.0 -= 1), ErrorCode::DMA_BOUNDS);
    assert_eq!(refused(|task, _| task.dst.addr.0 += 1), ErrorCode::DMA_BOUNDS);
    assert_eq!(refused(|task, _| task.src.addr = DeviceAddr(u64::MAX)), ErrorCode::DMA_BOUNDS);
    let write_to_source = |task: &mut Transfer, _: &Side| task.dst = task.src;
    assert_eq!(refused(write_to_source), ErrorCode::DMA_ACCESS);
    let read_from_destination = |task: &mut Transfer, _: &Side| task.src = task.dst;
    assert_eq!(refused(read_from_destination), ErrorCode::DMA_ACCESS);
}

#[test]
fn lengths_alignment_and_overlap_are_checked() {
    assert_eq!(refused(|task, _| task.len = 0), ErrorCode::SQE_LENGTH);
    assert_eq!(refused(|task, _| task.len = npu::sdma::MAX_LEN + 1), ErrorCode::SQE_LENGTH);
    assert_eq!(refused(|task, _| task.len = npu::sdma::MAX_LEN), ErrorCode::DMA_BOUNDS);
    let odd = |task: &mut Transfer, _: &Side| {
        task.reduction = Some(Reduction { dtype: DataType::Fp32, op: ReduceOp::Sum });
        task.len = 6;
    };
    assert_eq!(refused(odd), ErrorCode::SQE_LENGTH);
    for shift_source in [true, false] {
        let shifted = |task: &mut Transfer, _: &Side| {
            task.reduction = Some(Reduction { dtype: DataType::Fp32, op: ReduceOp::Sum });
            task.len = 4;
            let end = if shift_source { &mut task.src } else { &mut task.dst };
            end.addr.0 += 2;
        };
        assert_eq!(refused(shifted), ErrorCode::SQE_ALIGNMENT);
    }
    for (src, dst) in [(0, 7), (7, 0), (0, 0)] {
        let [mut a, _] = pair();
        let both = a.buffer(&[7; 64], ALL);
        let at = |offset| Operand { addr: DeviceAddr(both.addr.0 + offset), ..both };
        assert_eq!(a.outcome(&Command::Transfer(copy(at(src), at(dst), 8))), ErrorCode::SQE_OVERLAP);
    }
    let [mut a, _] = pair();
    let both = a.buffer(&[7; 64], ALL);
    let touching = Operand { addr: DeviceAddr(both.addr.0 + 8), ..both };
    assert_eq!(a.outcome(&Command::Transfer(copy(both, touching, 8))), ErrorCode::OK);
}

/// The code that `request` is refused with over a link, given a buffer at either end.
fn posted(protocol: Protocol, request: impl FnOnce(Operand, Operand) -> WorkRequest) -> ErrorCode {
    let [mut a, b] = pair();
    let (channel, ring) = a.connect(1, protocol, 4);
    let (local, remote) = (a.buffer(&[7; 64], ALL), b.buffer(&[1; 64], Access::PEER_WRITE));
    let mut ring = ring.unwrap();
    ring.write(&a.npu, wqe(request(local, remote)));
    let code = a.outcome(&Command::Post { channel, wqe_tail: ring.tail_low() });
    if !code.is_ok() {
        let cqe = a.failure();
        assert_eq!(
            (cqe.queue, cqe.position, cqe.step),
            (ring.queue.0, 0, LABELS.step),
            "the request is named"
        );
        assert_eq!(b.bytes(remote, 64), [1; 64]);
    }
    code
}

fn write(local: Operand, remote: Operand, len: u64) -> WorkRequest {
    WorkRequest::Write { local, remote, len, reduction: None, notify: None }
}

fn write_reduce(reduction: Reduction) -> impl Fn(Operand, Operand) -> WorkRequest {
    move |local, remote| WorkRequest::Write {
        local,
        remote,
        len: 64,
        reduction: Some(reduction),
        notify: None,
    }
}

#[test]
fn each_engine_reduces_its_own_list_and_nothing_else() {
    let in_list = |types: u32, ops: u32, reduction: Reduction| {
        types >> reduction.dtype as u32 & ops >> reduction.op as u32 & 1 == 1
    };
    for dtype in DataType::ALL.iter().copied().filter(|dtype| dtype.can_reduce()) {
        for op in ReduceOp::ALL.iter().copied() {
            let reduction = Reduction { dtype, op };
            let expected = |can| if can { ErrorCode::OK } else { ErrorCode::SQE_REDUCE };
            let [mut a, _] = pair();
            let (src, dst) = (a.buffer(&[0; 64], ALL), a.buffer(&[0; 64], ALL));
            let mut task = Transfer { reduction: Some(reduction), ..copy(src, dst, 64) };
            task.engine = Engine::Aicpu;
            assert_eq!(a.outcome(&Command::Transfer(task)), ErrorCode::OK, "core: {dtype} {op}");
            task.engine = Engine::Sdma;
            let sdma = in_list(npu::sdma::REDUCE_TYPES, npu::sdma::REDUCE_OPS, reduction);
            assert_eq!(a.outcome(&Command::Transfer(task)), expected(sdma), "SDMA: {dtype} {op}");
            let ub = in_list(npu::ub::REDUCE_TYPES, npu::ub::REDUCE_OPS, reduction);
            assert_eq!(posted(Protocol::Ub, write_reduce(reduction)), expected(ub), "UB: {dtype} {op}");
            assert_eq!(posted(Protocol::Roce, write_reduce(reduction)), ErrorCode::SQE_REDUCE);
        }
    }
}

#[test]
fn work_requests_are_checked_like_tasks() {
    let long = |max| move |local, remote| write(local, remote, max + 1);
    assert_eq!(posted(Protocol::Roce, |local, remote| write(local, remote, 64)), ErrorCode::OK);
    assert_eq!(posted(Protocol::Roce, |local, remote| write(local, remote, 0)), ErrorCode::SQE_LENGTH);
    assert_eq!(posted(Protocol::Roce, long(npu::roce::MAX_LEN)), ErrorCode::SQE_LENGTH);
    assert_eq!(posted(Protocol::Ub, long(npu::ub::MAX_LEN)), ErrorCode::SQE_LENGTH);
    assert_eq!(posted(Protocol::Ub, |local, remote| write(local, remote, 65)), ErrorCode::DMA_BOUNDS);
    let read = |local, remote| WorkRequest::Read { local, remote, len: 8, reduction: None };
    assert_eq!(posted(Protocol::Ub, read), ErrorCode::DMA_ACCESS);
    let foreign = |local: Operand, remote: Operand| {
        write(local, Operand { token: remote.token ^ 1 << 31, ..remote }, 8)
    };
    assert_eq!(posted(Protocol::Ub, foreign), ErrorCode::DMA_TOKEN);
    let unknown = |_, _| WorkRequest::Record { notify: 8192 };
    assert_eq!(posted(Protocol::Ub, unknown), ErrorCode::SQE_CHANNEL);
}

#[test]
fn a_peer_opens_its_memory_to_reads_and_writes_separately() {
    for (access, write_code, read_code) in [
        (Access::PEER_WRITE, ErrorCode::OK, ErrorCode::DMA_ACCESS),
        (Access::PEER_READ, ErrorCode::DMA_ACCESS, ErrorCode::OK),
        (Access::READ | Access::WRITE, ErrorCode::DMA_ACCESS, ErrorCode::DMA_ACCESS),
    ] {
        for (reads, expected) in [(false, write_code), (true, read_code)] {
            let [mut a, b] = pair();
            let (channel, _) = a.connect(1, Protocol::Hccs, 0);
            let (near, far) = (a.buffer(&[7; 64], ALL), b.buffer(&[1; 64], access));
            let task = if reads {
                transfer(TransferKind::Read { channel }, far, near, 64)
            } else {
                transfer(TransferKind::Write { channel }, near, far, 64)
            };
            assert_eq!(a.outcome(&Command::Transfer(task)), expected);
        }
    }
}

#[test]
fn links_carry_only_what_their_protocol_does() {
    for protocol in [Protocol::Roce, Protocol::Ub] {
        for kind in [true, false] {
            let [mut a, b] = pair();
            let (channel, _) = a.connect(1, protocol, 4);
            let (near, far) = (a.buffer(&[7; 64], ALL), b.buffer(&[1; 64], ALL));
            let task = if kind {
                transfer(TransferKind::Write { channel }, near, far, 8)
            } else {
                transfer(TransferKind::Read { channel }, far, near, 8)
            };
            assert_eq!(a.outcome(&Command::Transfer(task)), ErrorCode::DMA_LINK);
        }
        let [mut a, _] = pair();
        let (channel, _) = a.connect(1, protocol, 4);
        assert_eq!(a.outcome(&Command::RecordPeer { channel, notify: 1 }), ErrorCode::DMA_LINK);
    }
    let [mut a, _] = pair();
    let (_, ring) = a.connect(1, Protocol::Roce, 4);
    assert_eq!(ring.unwrap().queue.0, 0, "the queue that a channel without one would name by its 0");
    let (channel, _) = a.connect(1, Protocol::Hccs, 0);
    assert_eq!(a.outcome(&Command::Post { channel, wqe_tail: 0 }), ErrorCode::SQE_CHANNEL);
}

#[test]
fn what_does_not_exist_is_refused() {
    let unknown = [
        Command::RecordPeer { channel: 0, notify: 1 },
        Command::RecordPeer { channel: u16::MAX, notify: 1 },
        Command::Post { channel: 3, wqe_tail: 0 },
        Command::Record { notify: 8192 },
        Command::Wait { notify: u32::MAX },
        Command::RecordHost { notify: 64 },
    ];
    for command in unknown {
        let [mut a, _] = pair();
        assert_eq!(a.outcome(&command), ErrorCode::SQE_CHANNEL, "{command:?}");
    }
    let [mut a, _] = pair();
    let (channel, _) = a.connect(1, Protocol::Hccs, 0);
    a.npu.disconnect(channel).unwrap();
    assert_eq!(a.outcome(&Command::RecordPeer { channel, notify: 1 }), ErrorCode::SQE_CHANNEL);
    let [mut a, _] = pair();
    let channel = a.npu.connect(Link { peer_npu: 1, protocol: Protocol::Roce, depth: 4 }).unwrap();
    a.npu.destroy_queue(channel.queue.unwrap()).unwrap();
    let post = Command::Post { channel: channel.index, wqe_tail: 0 };
    assert_eq!(a.outcome(&post), ErrorCode::SQE_CHANNEL);
}

#[test]
fn entries_that_mean_nothing_are_refused() {
    let entry = sqe(Command::Record { notify: 1 });
    let broken = [
        (Sqe { opcode: 99, ..entry }, ErrorCode::SQE_OPCODE),
        (Sqe { reserved: 1, ..entry }, ErrorCode::SQE_FIELD),
        (Sqe { flags: 0x80, ..entry }, ErrorCode::SQE_FIELD),
        (Sqe { len: 1, ..entry }, ErrorCode::SQE_FIELD),
    ];
    for (entry, code) in broken {
        let [mut a, _] = pair();
        let mut ring = a.thread(4);
        ring.push(&a.npu, entry);
        assert_eq!(a.failure().code, code);
        assert_eq!(a.notify(1), 0);
    }
}

#[test]
fn the_first_error_names_its_task_and_stops_every_queue() {
    let [mut a, _] = pair();
    let src = a.buffer(&[7; 64], Access::READ);
    let mut ring = a.thread(4);
    let mut other = a.thread(4);
    ring.push(&a.npu, sqe(Command::Record { notify: 3 }));
    ring.push(&a.npu, sqe(Command::Transfer(copy(src, src, 8))));
    ring.push(&a.npu, sqe(Command::Record { notify: 4 }));
    other.push(&a.npu, sqe(Command::Record { notify: 5 }));
    let cqe = a.failure();
    assert_eq!((cqe.code, cqe.address), (ErrorCode::DMA_ACCESS, src.addr.0));
    assert_eq!((cqe.task, cqe.step, cqe.peer), (LABELS.task, LABELS.step, LABELS.peer));
    assert_eq!((cqe.queue, cqe.position), (ring.queue.0, 1));
    assert_eq!((cqe.opcode, cqe.skeleton), (Sqe::COPY, LABELS.phase as u8));
    assert_eq!((a.notify(3), a.notify(4), a.notify(5)), (1, 0, 0));
    assert_eq!(ring.head(&a.npu), 1);
    assert_eq!(a.drain().executed, 0);
}

#[test]
fn a_broken_queue_pair_refuses_every_post() {
    let [mut a, b] = pair();
    let (channel, ring) = a.connect(1, Protocol::Roce, 4);
    let mut ring = ring.unwrap();
    a.engine.inject(Fault::BreakQueuePair { queue: ring.queue.0 });
    ring.write(&a.npu, wqe(WorkRequest::Record { notify: 1 }));
    assert_eq!(a.outcome(&Command::Post { channel, wqe_tail: ring.tail_low() }), ErrorCode::QP_ERROR);
    assert_eq!((b.notify(1), ring.head(&a.npu)), (0, 0));
}

#[test]
fn a_flipped_token_is_noticed() {
    let [mut a, _] = pair();
    let (src, dst) = (a.buffer(&[7; 64], ALL), a.buffer(&[1; 64], ALL));
    a.engine.inject(Fault::FlipToken);
    assert_eq!(a.outcome(&Command::Transfer(copy(src, dst, 8))), ErrorCode::DMA_TOKEN);
}
