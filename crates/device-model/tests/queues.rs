//! Rings, notifies and completions, as a producer and a peer see them.

mod rig;

use core::sync::atomic::Ordering;

use aicpu_device_model::engine::{Budget, Engine};
use aicpu_device_model::fabric::FabricConfig;
use rig::{LABELS, Side, pair, sides, sqe};
use wire::npu::{self, QueueKind};
use wire::{Command, Cqe, ErrorCode, Labels, Sqe};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const RECORD_HOST: Command = Command::RecordHost { notify: 5 };

#[test]
fn the_device_sees_nothing_beyond_the_doorbell() {
    let [mut a, _] = pair();
    let mut ring = a.thread(4);
    ring.write(&a.npu, sqe(RECORD_HOST));
    assert_eq!(a.drain().executed, 0);
    ring.ring(&a.npu);
    ring.write(&a.npu, sqe(RECORD_HOST));
    assert_eq!(a.drain().executed, 1);
    assert_eq!((a.npu.host_notify_count(5), a.engine.counters().doorbells), (1, 1));
    assert_eq!(a.drain().executed, 0, "the same tail again is no news");
    assert_eq!(a.engine.counters().doorbells, 1);
}

#[test]
fn rings_wrap_at_depth_and_at_32_bits() {
    for first_position in [0, (1 << 32) - 6, u64::MAX - 5] {
        let mut config = FabricConfig::new(2, rig::WINDOW);
        config.first_position = first_position;
        let [mut a, _] = sides(&config);
        let mut ring = a.thread(4);
        assert_eq!(ring.head(&a.npu), first_position & 0xffff_ffff);
        for round in 0..8_u64 {
            for _ in 0..=round % 4 {
                ring.write(&a.npu, sqe(RECORD_HOST));
            }
            ring.ring(&a.npu);
            assert_eq!(a.drain().executed, round % 4 + 1);
            assert_eq!(ring.head(&a.npu), ring.tail() & 0xffff_ffff);
        }
        assert_eq!(a.npu.host_notify_count(5), 20);
    }
}

#[test]
fn a_doorbell_beyond_the_depth_or_behind_stops_the_npu() {
    let beyond = |ring: &rig::Ring, npu: &_| ring.ring_word(npu, 5);
    let behind = |ring: &rig::Ring, npu: &_| ring.ring_word(npu, 0xffff_ffff);
    for ring_it in [beyond, behind] {
        let [mut a, _] = pair();
        let ring = a.thread(4);
        ring_it(&ring, &a.npu);
        let cqe = a.failure();
        assert_eq!((cqe.code, cqe.queue, cqe.position), (ErrorCode::SQ_OVERRUN, ring.queue.0, 0));
        assert_eq!(a.engine.counters().executed_total(), 0);
    }
}

#[test]
fn a_wrong_doorbell_is_no_fault_of_the_entry_that_is_held() {
    let [mut a, _] = pair();
    let mut ring = a.thread(4);
    let wait = sqe(Command::Wait { notify: 1 });
    ring.push(&a.npu, wait);
    assert!(a.drain().blocked);
    ring.ring_word(&a.npu, 6);
    assert!(a.npu.set_notify(1));
    let cqe = a.failure();
    assert_eq!((cqe.code, cqe.task, cqe.opcode, cqe.position), (ErrorCode::SQ_OVERRUN, 0, 0, 0));
    let pending = a.engine.pending();
    assert_eq!(pending.iter().map(|entry| entry.sqe).collect::<Vec<_>>(), [wait]);
}

#[test]
fn a_full_ring_runs_whole() {
    let [mut a, _] = pair();
    let mut ring = a.thread(4);
    for _ in 0..4 {
        ring.write(&a.npu, sqe(RECORD_HOST));
    }
    ring.ring(&a.npu);
    assert_eq!(a.drain().executed, 4);
}

#[test]
fn a_blocked_ring_keeps_its_head_and_lets_others_run() {
    let [mut a, _] = pair();
    let (mut first, mut second) = (a.thread(4), a.thread(4));
    first.push(&a.npu, sqe(Command::Wait { notify: 1 }));
    first.push(&a.npu, sqe(RECORD_HOST));
    second.push(&a.npu, sqe(Command::RecordHost { notify: 6 }));
    let progress = a.drain();
    assert_eq!((progress.executed, progress.blocked), (1, true));
    assert_eq!((first.head(&a.npu), second.head(&a.npu)), (0, 1));
    let pending = a.engine.pending();
    assert_eq!(pending.len(), 1);
    assert_eq!((pending[0].queue, pending[0].position, pending[0].blocked), (first.queue.0, 0, true));
    assert_eq!(pending[0].sqe, sqe(Command::Wait { notify: 1 }));

    second.push(&a.npu, sqe(Command::Record { notify: 1 }));
    let progress = a.drain();
    assert_eq!((progress.executed, progress.blocked), (3, false));
    assert_eq!((a.npu.host_notify_count(5), a.notify(1)), (1, 0));
    assert!(a.engine.pending().is_empty());
}

#[test]
fn a_record_before_its_wait_is_kept() {
    let [mut a, _] = pair();
    let mut ring = a.thread(4);
    ring.push(&a.npu, sqe(Command::Record { notify: 8191 }));
    assert_eq!((a.drain().executed, a.notify(8191)), (1, 1));
    ring.push(&a.npu, sqe(Command::Wait { notify: 8191 }));
    assert_eq!((a.drain().executed, a.notify(8191)), (1, 0));
    assert_eq!((a.engine.counters().records, a.engine.counters().waits), (1, 1));
}

#[test]
fn a_second_record_before_the_wait_is_an_error() {
    let [mut a, _] = pair();
    let mut ring = a.thread(4);
    ring.push(&a.npu, sqe(Command::Record { notify: 2 }));
    ring.push(&a.npu, sqe(Command::Record { notify: 2 }));
    let cqe = a.failure();
    assert_eq!((cqe.code, cqe.position), (ErrorCode::NOTIFY_TWICE, 1));
    assert_eq!(cqe.address, a.npu.window().base().0 + npu::NOTIFIES + 8);
}

#[test]
fn the_host_starts_a_thread_by_a_notify() {
    let [mut a, _] = pair();
    let mut ring = a.thread(4);
    ring.push(&a.npu, sqe(Command::Wait { notify: 0 }));
    assert!(a.drain().blocked);
    assert!(a.npu.set_notify(0));
    assert!(!a.npu.set_notify(0), "it was set already");
    assert_eq!(a.drain().executed, 1);
}

#[test]
fn a_budget_ends_a_drain_between_two_entries() {
    let [mut a, _] = pair();
    let mut ring = a.thread(8);
    for _ in 0..8 {
        ring.write(&a.npu, sqe(RECORD_HOST));
    }
    ring.ring(&a.npu);
    let budget = Budget { descriptors: 3, ..Budget::UNLIMITED };
    let executed: Vec<_> = (0..4).map(|_| a.engine.drain(budget).executed).collect();
    assert_eq!(executed, [3, 3, 2, 0]);
}

#[test]
fn a_queue_taken_anew_starts_over() {
    let [mut a, _] = pair();
    let mut ring = a.thread(4);
    ring.push(&a.npu, sqe(RECORD_HOST));
    ring.push(&a.npu, sqe(Command::Wait { notify: 1 }));
    a.drain();
    a.npu.destroy_queue(ring.queue).unwrap();
    assert_eq!((a.drain().blocked, a.npu.set_notify(1)), (false, true));
    let mut again = a.thread(8);
    assert_eq!(again.queue, ring.queue, "the lowest free slot");
    for _ in 0..2 {
        again.push(&a.npu, sqe(RECORD_HOST));
    }
    assert_eq!((a.drain().executed, again.head(&a.npu)), (2, 2));
    assert_eq!((a.npu.host_notify_count(5), a.notify(1)), (3, 1), "the old wait is gone");
}

#[test]
fn a_retired_queue_is_dropped_and_keeps_ring_and_slot() {
    let [mut a, _] = pair();
    let free = a.npu.free_bytes();
    let (mut gone, mut stays) = (a.thread(4), a.thread(4));
    for ring in [&mut gone, &mut stays] {
        ring.push(&a.npu, sqe(Command::Wait { notify: 1 }));
        ring.push(&a.npu, sqe(RECORD_HOST));
    }
    assert!(a.drain().blocked);
    a.npu.retire_queue(gone.queue).unwrap();
    a.npu.retire_queue(gone.queue).unwrap();
    assert!(a.npu.set_notify(1));
    assert_eq!(
        (a.drain().executed, a.npu.host_notify_count(5)),
        (2, 1),
        "the notify went to the other queue"
    );
    assert_eq!((gone.head(&a.npu), a.engine.pending()), (0, vec![]));

    let mut entry = [0; 64];
    a.npu.read(a.npu.ring(gone.queue).unwrap(), &mut entry).unwrap();
    assert_eq!(entry, sqe(Command::Wait { notify: 1 }).as_bytes(), "the ring can be read");
    assert_ne!(a.thread(4).queue, gone.queue, "the slot is taken");
    a.npu.destroy_queue(gone.queue).unwrap();
    assert!(a.npu.retire_queue(gone.queue).is_err() && a.npu.destroy_queue(gone.queue).is_err());
    let mut again = a.thread(4);
    assert_eq!(again.queue, gone.queue, "the lowest free slot");
    again.push(&a.npu, sqe(RECORD_HOST));
    assert_eq!((a.drain().executed, a.npu.free_bytes()), (1, free - 3 * 256));
}

#[test]
fn queues_made_before_a_slot_was_ever_seen_are_found() {
    let [mut a, _] = pair();
    let (first, mut second) = (a.thread(4), a.thread(4));
    a.npu.destroy_queue(first.queue).unwrap();
    second.push(&a.npu, sqe(RECORD_HOST));
    assert_eq!(a.drain().executed, 1);
}

#[test]
fn a_malformed_slot_is_no_queue() {
    let [mut a, _] = pair();
    let mut ring = a.thread(4);
    let slot = npu::QUEUES + 32 * u64::from(ring.queue.0);
    a.npu.window().word(slot).store(0x10, Ordering::Release);
    ring.push(&a.npu, sqe(RECORD_HOST));
    assert_eq!((a.drain().executed, a.engine.error()), (0, None));
}

/// Reads completion `position` the way a consumer does: by its phase.
fn completion(side: &Side, position: u64) -> Option<Cqe> {
    let mut bytes = [0; size_of::<Cqe>()];
    side.npu.window().read(npu::COMPLETIONS + 32 * (position % npu::CQ_DEPTH), &mut bytes);
    let cqe = Cqe::read_from_bytes(&bytes).unwrap();
    let odd_pass = (position / npu::CQ_DEPTH).is_multiple_of(2);
    (cqe.phase == u8::from(odd_pass)).then_some(cqe)
}

#[test]
fn completions_are_reported_in_order_and_never_overwritten() {
    let [mut a, _] = pair();
    let mut ring = a.thread(1024);
    let total = 2 * npu::CQ_DEPTH + 8;
    for task in 0..total {
        let labels = Labels { task, complete: true, ..LABELS };
        ring.write(&a.npu, RECORD_HOST.emit(labels));
    }
    ring.ring(&a.npu);
    assert_eq!(completion(&a, 0), None);
    let mut read = 0;
    for expected in [npu::CQ_DEPTH, npu::CQ_DEPTH, 8] {
        let progress = a.drain();
        assert_eq!((progress.executed, progress.blocked), (expected, read + expected < total));
        assert_eq!(a.drain().executed, 0, "the ring is full until somebody reads");
        for position in read..read + expected {
            let cqe = completion(&a, position).expect("the phase says new");
            assert_eq!((cqe.task, cqe.code, u64::from(cqe.position)), (position, ErrorCode::OK, position));
            assert_eq!((cqe.queue, cqe.opcode), (ring.queue.0, Sqe::RECORD_HOST));
        }
        assert_eq!(completion(&a, read + expected), None);
        read += expected;
        a.npu.window().word(npu::CQ_HEAD).store(read, Ordering::Release);
    }
    assert_eq!(a.npu.host_notify_count(5), total);
}

#[test]
fn a_bogus_completion_head_stalls_instead_of_overwriting() {
    let [mut a, _] = pair();
    a.npu.window().word(npu::CQ_HEAD).store(7, Ordering::Release);
    let mut ring = a.thread(4);
    ring.push(&a.npu, RECORD_HOST.emit(Labels { complete: true, ..LABELS }));
    let progress = a.drain();
    assert_eq!((progress.executed, progress.blocked), (0, true));
}

#[test]
fn a_failed_task_is_reported_in_the_completion_ring_too() {
    let [mut a, _] = pair();
    let mut ring = a.thread(4);
    ring.push(&a.npu, sqe(Command::Record { notify: 9000 }));
    let failure = a.failure();
    let cqe = completion(&a, 0).expect("reported");
    assert_eq!(Cqe { phase: 0, ..cqe }, failure);
    assert_eq!(cqe.code, ErrorCode::SQE_CHANNEL);
}

#[test]
fn a_queue_pair_slot_is_not_run_as_a_thread() {
    let [a, _] = pair();
    let queue = a.npu.create_queue(QueueKind::QueuePair, 4, 0).unwrap();
    a.npu.write(a.npu.ring(queue).unwrap(), Sqe::new_zeroed().as_bytes()).unwrap();
    a.npu.window().word(npu::DOORBELLS + 8 * u64::from(queue.0)).store(1, Ordering::Release);
    let mut engine = Engine::new(a.npu.fabric(), 0);
    assert_eq!((engine.drain(Budget::UNLIMITED).executed, engine.error()), (0, None));
}
