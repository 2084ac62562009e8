//! What outlives the kernel's own memory: ring positions, poisoned contexts, completions.

use hal::SharedMemory;
use wire::npu::{COMPLETIONS, CQ_DEPTH, CQ_HEAD, HEADS, HEARTBEAT, KERNEL_STATE, KernelState, TAILS};
use wire::{Cqe, DeviceAddr, ErrorCode, LaunchArgs, TraceKind};
use zerocopy::{FromZeros, IntoBytes};

use crate::fake::WINDOW;
use crate::rig::{Rig, Setup};

/// One more context than the kernel keeps.
fn setups() -> Vec<Setup> {
    (0..9).map(|slot| Setup { slot, depth: 8, ..Setup::new(0, 2) }).collect()
}

#[test]
fn a_context_decoded_again_leaves_unconsumed_entries_alone() {
    let setups = setups();
    let mut rig = Rig::new(&setups, 8);
    let first = setups[0];
    let empty = |sequence| LaunchArgs { sequence, ..first.launch(0) };
    for sequence in 0..3 {
        assert_eq!(rig.run(empty(sequence)).code, 0);
    }
    for other in &setups[1..] {
        assert_eq!(rig.run(other.launch(0)).code, 0);
    }
    assert_eq!(rig.run(empty(3)).code, 0);
    let decoded = rig.fake().events.iter().filter(|event| event.kind == TraceKind::ContextDecoded as u8);
    assert_eq!(decoded.count(), 10, "the first context was dropped and decoded again");
    // Eight entries are in the ring, none consumed: the next launch must wait for the device.
    rig.post(empty(4));
    rig.kernel.poll();
    assert!(!rig.kernel.poll() && !rig.all_answered());
    let tasks: Vec<_> = rig.consume(&first, 0).iter().map(|sqe| (sqe.task >> 32, sqe.task & 0xff)).collect();
    assert_eq!(tasks, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]);
    rig.kernel.poll();
    assert!(rig.all_answered());
    let tasks: Vec<_> = rig.consume(&first, 0).iter().map(|sqe| (sqe.task >> 32, sqe.task & 0xff)).collect();
    assert_eq!(tasks, [(4, 0), (4, 1)]);
}

#[test]
fn words_that_contradict_each_other_are_refused() {
    let setup = Setup { depth: 8, ..Setup::new(0, 2) };
    for (head, tail, code) in [
        (0, 9, ErrorCode::QUEUE_HEAD),
        (1, 0, ErrorCode::QUEUE_HEAD),
        (u32::MAX - 3, 4, ErrorCode(0)),
        (u32::MAX - 4, 4, ErrorCode::QUEUE_HEAD),
    ] {
        let mut rig = Rig::new(&[setup], 8);
        rig.fake().set_word(HEADS, u64::from(head));
        rig.fake().set_word(TAILS, tail);
        rig.post(setup.launch(0));
        rig.kernel.poll();
        if code.is_ok() {
            assert_eq!(rig.answered(), 0, "accepted, and waits: the ring is full");
        } else {
            assert_eq!((rig.answered(), ErrorCode(rig.status().code)), (1, code), "{head} {tail}");
        }
    }
}

#[test]
fn a_poisoned_context_is_not_forgotten_for_a_sound_one() {
    let setups = setups();
    let mut rig = Rig::new(&setups, 8);
    rig.post(setups[0].launch(2));
    rig.kernel.poll();
    rig.fake().now_ns.set(26_000_000_000);
    rig.kernel.poll();
    assert_eq!(ErrorCode(rig.status().code), ErrorCode::QUEUE_FULL);
    for _ in 0..2 {
        for other in &setups[1..] {
            assert_eq!(rig.run(other.launch(0)).code, 0);
            rig.consume(other, 0);
        }
    }
    assert_eq!(rig.code(setups[0].launch(2)), ErrorCode::CONTEXT_STALE);
}

#[test]
fn a_kernel_started_anew_goes_on_where_the_last_one_stopped() {
    let setup = Setup { depth: 8, ..Setup::new(0, 2) };
    let mut rig = Rig::new(&[setup], 8);
    for sequence in 0..3 {
        assert_eq!(rig.run(LaunchArgs { sequence, ..setup.launch(0) }).code, 0);
    }
    // The device has completed all three; the kernel has taken two.
    let completion = |sequence: u64| Cqe { task: sequence << 32 | 1, phase: 1, ..Cqe::new_zeroed() };
    let write = |rig: &mut Rig, index: u64, cqe: Cqe| {
        let at = WINDOW + COMPLETIONS + index % CQ_DEPTH * 32;
        rig.fake().write(DeviceAddr(at), cqe.as_bytes()).expect("inside the window");
    };
    write(&mut rig, 0, completion(0));
    write(&mut rig, 1, completion(1));
    assert!(rig.kernel.poll());
    assert_eq!(rig.fake().word(CQ_HEAD), 2);
    write(&mut rig, 2, completion(2));
    rig.restart(8, 32);
    rig.fake().events.clear();
    assert!(rig.kernel.poll());
    assert_eq!(rig.fake().word(CQ_HEAD), 3, "each completion is taken once");
    let seen: Vec<_> = rig.fake().events.iter().map(|event| (event.sequence, event.first)).collect();
    assert_eq!(seen, [(2, 1)]);
    assert_eq!(rig.run(LaunchArgs { sequence: 3, ..setup.launch(0) }).sequence, 3);
    assert_eq!(rig.consume(&setup, 0).len(), 8, "six entries of the old kernel, two of the new");
}

#[test]
fn the_heart_beats_while_nothing_happens() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::new(&[setup], 8);
    assert_eq!(rig.fake().word(KERNEL_STATE), KernelState::Ready as u64);
    for _ in 0..3000 {
        assert!(!rig.kernel.poll());
    }
    assert_eq!(rig.fake().word(HEARTBEAT), 2048);
}
