//! Every way to move bytes, between two NPUs, with the bytes compared.

mod rig;

use rig::{ALL, copy, pair, sides, sqe, transfer, wqe};
use wire::npu::{Access, Protocol};
use wire::{Command, DataType, Engine, ReduceOp, Reduction, Sqe, TransferKind, WorkRequest};

const FP32_SUM: Reduction = Reduction { dtype: DataType::Fp32, op: ReduceOp::Sum };

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn a_copy_moves_exactly_its_bytes() {
    let [mut a, _] = pair();
    let (src, dst) = (a.buffer(&[7; 64], Access::READ), a.buffer(&[1; 64], Access::WRITE));
    let mut shifted = dst;
    shifted.addr.0 += 5;
    let mut ring = a.thread(4);
    ring.push(&a.npu, sqe(Command::Transfer(copy(src, shifted, 9))));
    assert_eq!(a.drain().executed, 1);
    let mut expected = [1; 64];
    expected[5..14].fill(7);
    assert_eq!(a.bytes(dst, 64), expected);
    assert_eq!((a.engine.counters().executed(Sqe::COPY), a.engine.counters().local_bytes), (1, 9));
}

#[test]
fn copy_engine_and_core_reduce_locally() {
    let [mut a, _] = pair();
    let src = a.buffer(&floats(&[1.0, 2.5]), Access::READ);
    let dst = a.buffer(&floats(&[10.0, 20.0]), Access::WRITE);
    let mut ring = a.thread(4);
    let mut task = copy(src, dst, 8);
    task.reduction = Some(FP32_SUM);
    ring.push(&a.npu, sqe(Command::Transfer(task)));
    task.engine = Engine::Aicpu;
    task.reduction = Some(Reduction { dtype: DataType::Fp32, op: ReduceOp::Prod });
    ring.push(&a.npu, sqe(Command::Transfer(task)));
    assert_eq!(a.drain().executed, 2);
    assert_eq!(a.bytes(dst, 8), floats(&[11.0, 56.25]));
    assert_eq!(a.engine.counters().reduced_bytes, 16);
}

#[test]
fn writes_and_reads_reach_the_peer_and_notify_it() {
    let [mut a, mut b] = pair();
    let (channel, _) = a.connect(1, Protocol::Hccs, 0);
    let near = a.buffer(&floats(&[1.0, 2.0]), Access::READ | Access::WRITE);
    let far = b.buffer(&floats(&[5.0, 6.0]), Access::PEER_READ | Access::PEER_WRITE);
    let mut ring = a.thread(8);
    let mut write = transfer(TransferKind::Write { channel }, near, far, 8);
    write.reduction = Some(FP32_SUM);
    write.notify = Some(40);
    ring.push(&a.npu, sqe(Command::Transfer(write)));
    ring.push(&a.npu, sqe(Command::Transfer(transfer(TransferKind::Read { channel }, far, near, 8))));
    ring.push(&a.npu, sqe(Command::RecordPeer { channel, notify: 41 }));
    assert_eq!(a.drain().executed, 3);
    assert_eq!(b.bytes(far, 8), floats(&[6.0, 8.0]));
    assert_eq!(a.bytes(near, 8), floats(&[6.0, 8.0]));
    assert_eq!((b.notify(40), b.notify(41), a.notify(40)), (1, 1, 0));
    let counters = a.engine.counters();
    assert_eq!((counters.sent(Protocol::Hccs), counters.received(Protocol::Hccs)), (8, 8));
    assert_eq!(counters.records, 2);
    assert_eq!(b.drain().executed, 0);
}

#[test]
fn a_post_runs_the_queue_pair_up_to_its_tail_and_no_further() {
    for protocol in [Protocol::Roce, Protocol::Ub] {
        let [mut a, b] = pair();
        let (channel, pair) = a.connect(1, protocol, 4);
        let mut pair = pair.unwrap();
        let near = a.buffer(&[1, 2, 3, 4], ALL);
        let far = b.buffer(&[0; 4], ALL);
        let reduction = None;
        let write = WorkRequest::Write { local: near, remote: far, len: 4, reduction, notify: Some(9) };
        pair.write(&a.npu, wqe(write));
        pair.write(&a.npu, wqe(WorkRequest::Record { notify: 10 }));
        let tail = pair.tail_low();
        pair.write(&a.npu, wqe(WorkRequest::Record { notify: 11 }));
        pair.ring(&a.npu);
        let mut ring = a.thread(4);
        assert_eq!(a.drain().executed, 0, "a queue pair's own doorbell starts nothing");
        ring.push(&a.npu, sqe(Command::Post { channel, wqe_tail: tail }));
        assert_eq!(a.drain().executed, 1);
        assert_eq!(b.bytes(far, 4), [1, 2, 3, 4]);
        assert_eq!((b.notify(9), b.notify(10), b.notify(11)), (1, 1, 0));
        assert_eq!((pair.head(&a.npu), a.engine.counters().work_requests), (2, 2));
        assert_eq!(a.engine.counters().sent(protocol), 4);

        let read = WorkRequest::Read { local: near, remote: far, len: 2, reduction };
        pair.write(&a.npu, wqe(read));
        b.npu.write(far.addr, &[9, 9]).unwrap();
        ring.push(&a.npu, sqe(Command::Post { channel, wqe_tail: pair.tail_low() }));
        a.drain();
        assert_eq!(a.bytes(near, 4), [9, 9, 3, 4]);
        assert_eq!((b.notify(11), a.engine.counters().received(protocol)), (1, 2));
    }
}

#[test]
fn ub_reduces_unsigned_types_into_the_peer() {
    let [mut a, b] = pair();
    let (channel, pair) = a.connect(1, Protocol::Ub, 4);
    let mut pair = pair.unwrap();
    let (near, far) = (a.buffer(&[250, 1], ALL), b.buffer(&[10, 2], ALL));
    let reduction = Some(Reduction { dtype: DataType::Uint8, op: ReduceOp::Max });
    let write = WorkRequest::Write { local: near, remote: far, len: 2, reduction, notify: None };
    pair.write(&a.npu, wqe(write));
    let mut ring = a.thread(4);
    ring.push(&a.npu, sqe(Command::Post { channel, wqe_tail: pair.tail_low() }));
    assert_eq!(a.drain().executed, 1);
    assert_eq!(b.bytes(far, 2), [250, 2]);
}

#[test]
fn the_same_address_at_two_npus_is_two_places() {
    let mut config = aicpu_device_model::fabric::FabricConfig::new(2, rig::WINDOW);
    config.bases = vec![wire::DeviceAddr(0x4000_0000); 2];
    let [mut a, b] = sides(&config);
    let (channel, _) = a.connect(1, Protocol::Hccs, 0);
    let (near, far) = (a.buffer(&[1; 64], ALL), b.buffer(&[2; 64], ALL));
    assert_eq!(near.addr, far.addr);
    let mut ring = a.thread(4);
    ring.push(&a.npu, sqe(Command::Transfer(transfer(TransferKind::Write { channel }, near, far, 32))));
    assert_eq!(a.drain().executed, 1);
    assert_eq!(a.bytes(near, 64), [1; 64]);
    assert_eq!(b.bytes(far, 64), [[1; 32], [2; 32]].concat());
}
