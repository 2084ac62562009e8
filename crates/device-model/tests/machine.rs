//! The machine: following notifies between NPUs, deadlines, errors, helpers, resident kernels.

mod rig;

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use aicpu_device_model::driver::Npu;
use aicpu_device_model::fabric::{Fabric, FabricConfig};
use aicpu_device_model::fault::Fault;
use aicpu_device_model::machine::{Aicpu, Machine, MachineConfig, Outcome};
use rig::{ALL, Ring, copy, sqe, transfer};
use wire::npu::Protocol;
use wire::{Command, ErrorCode, Operand, TransferKind, WorkRequest};

fn fabric(npus: u32, window: u64) -> (Fabric, Vec<Npu>) {
    let fabric = Fabric::create(&FabricConfig::new(npus, window)).unwrap();
    let npus = (0..npus).map(|npu| Npu::new(&fabric, npu)).collect();
    (fabric, npus)
}

fn machine(fabric: &Fabric, helpers: usize) -> Machine {
    Machine::new(fabric, MachineConfig { helpers })
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(20))
}

/// A token that goes `rounds` times round all NPUs, notify by notify.
fn relay(npus: &[Npu], rounds: u32) -> Vec<Ring> {
    let count = npus.len();
    let ring_of = |(index, npu): (usize, &Npu)| {
        let next = u32::try_from((index + 1) % count).unwrap();
        let channel = rig::connect(npu, next, Protocol::Hccs, 0).0;
        let mut ring = rig::thread(npu, 1024);
        for _ in 0..rounds {
            ring.write(npu, sqe(Command::Wait { notify: 7 }));
            ring.write(npu, sqe(Command::RecordPeer { channel, notify: 7 }));
        }
        if index == 0 {
            ring.write(npu, sqe(Command::Wait { notify: 7 }));
            ring.write(npu, sqe(Command::RecordHost { notify: 2 }));
        }
        ring.ring(npu);
        ring
    };
    npus.iter().enumerate().map(ring_of).collect()
}

#[test]
fn a_token_goes_round_and_nothing_moves_between_calls() {
    for helpers in [0, 1, 3] {
        let (fabric, npus) = fabric(5, rig::WINDOW);
        let machine = machine(&fabric, helpers);
        let _rings = relay(&npus, 100);
        assert!(npus[0].set_notify(7));
        assert_eq!(npus[0].host_notify_count(2), 0);
        assert_eq!(machine.run_until(|| npus[0].host_notify_count(2) == 1, soon()), Outcome::Done);
        for npu in 1..5 {
            assert_eq!((machine.snapshot(npu).waits, machine.snapshot(npu).records), (100, 100));
        }
        assert_eq!((machine.snapshot(0).waits, machine.snapshot(0).records), (101, 101));
    }
}

#[test]
fn a_lost_notify_ends_at_the_deadline_and_the_queues_say_where() {
    let (fabric, npus) = fabric(3, rig::WINDOW);
    let machine = machine(&fabric, 1);
    let rings = relay(&npus, 10);
    machine.inject(2, Fault::DropNotify { notify: 7 });
    npus[0].set_notify(7);
    let deadline = Instant::now() + Duration::from_millis(20);
    let outcome = machine.run_until(|| npus[0].host_notify_count(2) == 1, Some(deadline));
    assert_eq!(outcome, Outcome::Deadline);
    assert!(Instant::now() >= deadline);
    let stuck: Vec<_> = (0..3).map(|npu| machine.pending(npu)).collect();
    for (pending, position) in stuck.iter().zip([2, 2, 0]) {
        assert_eq!(pending.len(), 1);
        assert_eq!((pending[0].position, pending[0].blocked), (position, true));
        assert_eq!(pending[0].sqe, sqe(Command::Wait { notify: 7 }));
        assert_eq!(pending[0].queue, rings[0].queue.0);
    }
    npus[2].set_notify(7);
    assert_eq!(machine.run_until(|| npus[0].host_notify_count(2) == 1, soon()), Outcome::Done);
}

#[test]
fn an_error_ends_the_run_and_a_reset_npu_works_again() {
    let (fabric, npus) = fabric(2, rig::WINDOW);
    let machine = machine(&fabric, 1);
    let mut ring = rig::thread(&npus[1], 4);
    let nowhere = Operand::default();
    ring.push(&npus[1], sqe(Command::Transfer(copy(nowhere, nowhere, 8))));
    assert_eq!(machine.run_until(|| false, soon()), Outcome::DeviceError(1));
    assert_eq!(machine.error(1).unwrap().code, ErrorCode::DMA_UNREGISTERED);
    assert_eq!(machine.run_until(|| false, soon()), Outcome::DeviceError(1));

    npus[1].destroy_queue(ring.queue).unwrap();
    machine.reset(1);
    assert_eq!((machine.error(1), npus[1].device_error()), (None, None));
    let mut ring = rig::thread(&npus[1], 4);
    ring.push(&npus[1], sqe(Command::RecordHost { notify: 0 }));
    assert_eq!(machine.run_until(|| npus[1].host_notify_count(0) == 1, soon()), Outcome::Done);
}

/// A refused task, a doorbell beyond the depth, or a task whose work request is refused; then what is left beside it.
#[test]
fn a_reset_npu_goes_on_without_the_queue_that_failed() {
    let refused = |npu: &Npu, ring: &mut Ring| {
        let nowhere = Operand::default();
        ring.push(npu, sqe(Command::Transfer(copy(nowhere, nowhere, 8))));
    };
    let overrun = |npu: &Npu, ring: &mut Ring| ring.ring_word(npu, 5);
    let request = |npu: &Npu, ring: &mut Ring| {
        let (channel, pair) = rig::connect(npu, 0, Protocol::Roce, 4);
        pair.unwrap().write(npu, rig::wqe(WorkRequest::Record { notify: 9000 }));
        ring.push(npu, sqe(Command::Post { channel, wqe_tail: 1 }));
    };
    for fail in [refused as fn(&Npu, &mut Ring), overrun, request] {
        let (fabric, npus) = fabric(1, rig::WINDOW);
        let (machine, npu) = (machine(&fabric, 0), &npus[0]);
        let [mut before, mut failing, mut after] = [4, 4, 4].map(|depth| rig::thread(npu, depth));
        for ring in [&mut before, &mut after] {
            ring.push(npu, sqe(Command::Wait { notify: 1 }));
            ring.push(npu, sqe(Command::RecordHost { notify: 0 }));
        }
        assert_eq!(machine.run_until(|| false, Some(Instant::now())), Outcome::Deadline);
        fail(npu, &mut failing);
        assert_eq!(machine.run_until(|| false, soon()), Outcome::DeviceError(0));
        assert!(!machine.run_past_errors(|| npu.host_notify_count(0) == 1, Some(Instant::now())));

        machine.reset(0);
        assert_eq!((machine.error(0), npu.device_error()), (None, None));
        for count in [1, 2] {
            npu.set_notify(1);
            assert_eq!(machine.run_until(|| npu.host_notify_count(0) == count, soon()), Outcome::Done);
        }
        failing.push(npu, sqe(Command::RecordHost { notify: 0 }));
        let later = Some(Instant::now() + Duration::from_millis(2));
        assert_eq!(machine.run_until(|| npu.host_notify_count(0) == 3, later), Outcome::Deadline);
        assert!(machine.pending(0).is_empty());
    }
}

#[test]
fn a_stalled_npu_that_is_reset_goes_on_without_queues_that_were_retired() {
    let (fabric, npus) = fabric(1, rig::WINDOW);
    let (machine, npu) = (machine(&fabric, 0), &npus[0]);
    machine.inject(0, Fault::Stall);
    let [mut stays, mut goes] = [4, 4].map(|depth| rig::thread(npu, depth));
    stays.push(npu, sqe(Command::RecordHost { notify: 0 }));
    goes.push(npu, sqe(Command::RecordHost { notify: 1 }));
    npu.retire_queue(goes.queue).unwrap();
    machine.reset(0);
    assert_eq!(machine.run_until(|| npu.host_notify_count(0) == 1, soon()), Outcome::Done);
    let later = Some(Instant::now() + Duration::from_millis(2));
    assert_eq!(machine.run_until(|| npu.host_notify_count(1) == 1, later), Outcome::Deadline);
    assert_eq!(machine.snapshot(0).executed_total(), 1);
}

/// Polls count while an NPU has stopped, and the other NPU executes.
#[test]
fn a_run_past_errors_serves_kernels_and_the_other_npus() {
    let (fabric, npus) = fabric(2, rig::WINDOW);
    let npus = Arc::new(npus);
    let machine = machine(&fabric, 0);
    let mut failing = rig::thread(&npus[0], 4);
    failing.push(&npus[0], sqe(Command::Record { notify: 9000 }));
    let polls = Arc::new(AtomicU32::new(0));
    let ring = rig::thread(&npus[1], 2);
    machine.attach(1, Box::new(Feeder { npu: Arc::clone(&npus), index: 1, ring, left: 10, polls }));
    assert!(machine.run_past_errors(|| npus[1].host_notify_count(1) == 10, soon()));
    assert_eq!(machine.error(0).unwrap().code, ErrorCode::SQE_CHANNEL);
    assert_eq!(machine.run_until(|| false, soon()), Outcome::DeviceError(0));
}

/// A deadline that has passed is noticed after a mebibyte, however few tasks that is.
#[test]
fn a_deadline_is_looked_at_amid_much_payload() {
    const BYTES: u64 = 512 << 10;
    for npus in [1, 4] {
        let (fabric, npus) = fabric(npus, 4 << 20);
        let machine = machine(&fabric, 0);
        for npu in &npus {
            let src = rig::buffer(npu, &vec![3; 512 << 10], ALL);
            let dst = rig::buffer(npu, &vec![0; 512 << 10], ALL);
            let mut ring = rig::thread(npu, 64);
            (0..64).for_each(|_| ring.write(npu, sqe(Command::Transfer(copy(src, dst, BYTES)))));
            ring.ring(npu);
        }
        assert_eq!(machine.run_until(|| false, Some(Instant::now())), Outcome::Deadline);
        let moved: u64 = (0..).zip(&npus).map(|(index, _)| machine.snapshot(index).local_bytes).sum();
        assert_eq!(moved, 2 * BYTES, "{} NPUs", npus.len());
    }
}

/// Adds one descriptor per poll, as often as told.
struct Feeder {
    npu: Arc<Vec<Npu>>,
    index: usize,
    ring: Ring,
    left: u32,
    polls: Arc<AtomicU32>,
}

impl Aicpu for Feeder {
    fn poll(&mut self) -> bool {
        self.polls.fetch_add(1, Ordering::Relaxed);
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.ring.push(&self.npu[self.index], sqe(Command::RecordHost { notify: 1 }));
        true
    }
}

#[test]
fn resident_kernels_are_polled_until_they_are_done() {
    let (fabric, npus) = fabric(4, rig::WINDOW);
    let npus = Arc::new(npus);
    let machine = machine(&fabric, 1);
    let polls = Arc::new(AtomicU32::new(0));
    for index in 0..4 {
        let ring = rig::thread(&npus[index], 2);
        let (npu, polls) = (Arc::clone(&npus), Arc::clone(&polls));
        let feeder = Feeder { npu, index, ring, left: 50, polls };
        assert!(machine.attach(u32::try_from(index).unwrap(), Box::new(feeder)).is_none());
    }
    let done = || npus.iter().all(|npu| npu.host_notify_count(1) == 50);
    assert_eq!(machine.run_until(done, soon()), Outcome::Done);
    assert!(polls.load(Ordering::Relaxed) >= 200);
    assert!(machine.detach(2).is_some() && machine.detach(2).is_none());
}

#[test]
fn large_transfers_are_shared_with_helpers_and_arrive_whole() {
    const BYTES: usize = 1 << 20;
    let (fabric, npus) = fabric(4, 16 << 20);
    let machine = machine(&fabric, 2);
    let mut expected = Vec::new();
    let mut rings = Vec::new();
    for (index, npu) in npus.iter().enumerate() {
        let byte = u8::try_from(index + 1).unwrap();
        let next = (index + 1) % npus.len();
        let src = rig::buffer(npu, &vec![byte; BYTES], ALL);
        let dst = rig::buffer(&npus[next], &vec![0; BYTES], ALL);
        let channel = rig::connect(npu, u32::try_from(next).unwrap(), Protocol::Hccs, 0).0;
        let mut ring = rig::thread(npu, 64);
        for _ in 0..16 {
            let write = transfer(TransferKind::Write { channel }, src, dst, BYTES as u64);
            ring.write(npu, sqe(Command::Transfer(write)));
        }
        ring.write(npu, sqe(Command::RecordHost { notify: 0 }));
        ring.ring(npu);
        expected.push((next, dst, byte));
        rings.push(ring);
    }
    let done = || npus.iter().all(|npu| npu.host_notify_count(0) == 1);
    assert_eq!(machine.run_until(done, soon()), Outcome::Done);
    for (npu, dst, byte) in expected {
        let mut bytes = vec![0; BYTES];
        npus[npu].read(dst.addr, &mut bytes).unwrap();
        assert!(bytes.iter().all(|found| *found == byte));
    }
    assert_eq!(machine.snapshot(0).sent(Protocol::Hccs), 16 << 20);
}

#[test]
fn several_callers_each_return_on_their_own_condition() {
    let (fabric, npus) = fabric(2, rig::WINDOW);
    let machine = machine(&fabric, 1);
    let mut rings: Vec<_> = npus.iter().map(|npu| rig::thread(npu, 8)).collect();
    std::thread::scope(|scope| {
        for (npu, ring) in npus.iter().zip(&mut rings) {
            let machine = &machine;
            scope.spawn(move || {
                for round in 1..=200 {
                    ring.push(npu, sqe(Command::RecordHost { notify: 3 }));
                    let outcome = machine.run_until(|| npu.host_notify_count(3) == round, soon());
                    assert_eq!(outcome, Outcome::Done);
                }
            });
        }
    });
}

#[test]
fn a_stalled_npu_executes_nothing() {
    let (fabric, npus) = fabric(1, rig::WINDOW);
    let machine = machine(&fabric, 0);
    machine.inject(0, Fault::Stall);
    let mut ring = rig::thread(&npus[0], 4);
    ring.push(&npus[0], sqe(Command::RecordHost { notify: 0 }));
    let later = Some(Instant::now() + Duration::from_millis(2));
    assert_eq!(machine.run_until(|| npus[0].host_notify_count(0) == 1, later), Outcome::Deadline);
    assert_eq!(machine.snapshot(0).executed_total(), 0);
}

struct Defective;

impl Aicpu for Defective {
    fn poll(&mut self) -> bool {
        panic!("a defect in the kernel");
    }
}

#[test]
fn a_kernel_that_panics_takes_no_npu_with_it() {
    let (fabric, npus) = fabric(2, rig::WINDOW);
    let machine = machine(&fabric, 1);
    machine.attach(0, Box::new(Defective));
    let run = core::panic::AssertUnwindSafe(|| machine.run_until(|| false, soon()));
    assert!(std::panic::catch_unwind(run).is_err());
    assert!(machine.detach(0).is_some());
    let mut ring = rig::thread(&npus[0], 4);
    ring.push(&npus[0], sqe(Command::RecordHost { notify: 0 }));
    assert_eq!(machine.run_until(|| npus[0].host_notify_count(0) == 1, soon()), Outcome::Done);
}
