//! Faults of the words that device and kernel share: completions, heads, ring entries.

mod rig;

use aicpu_device_model::fault::{FalseCompletion, FalseHead, Fault, Mishap, When};
use rig::{LABELS, pair};
use wire::npu::{self, CQ_DEPTH};
use wire::{Command, Cqe, ErrorCode, Labels, Sqe};
use zerocopy::{FromZeros, IntoBytes};

const RECORD: Command = Command::RecordHost { notify: 5 };

fn entry(complete: bool) -> Sqe {
    RECORD.emit(Labels { complete, ..LABELS })
}

fn fault(spared: u32, mishap: Mishap) -> Fault {
    Fault::At(When { spared, ..When::default() }, mishap)
}

/// The tasks of the completions that have been written, in order.
fn completions(npu: &aicpu_device_model::driver::Npu) -> Vec<u64> {
    let completion = |slot: u64| {
        let mut cqe = Cqe::new_zeroed();
        npu.window().read(npu::COMPLETIONS + slot * size_of::<Cqe>() as u64, cqe.as_mut_bytes());
        cqe
    };
    (0..CQ_DEPTH).map(completion).take_while(|cqe| cqe.phase == 1).map(|cqe| cqe.task).collect()
}

#[test]
fn a_completion_is_lost_comes_twice_or_behind_a_stranger_and_the_next_is_right() {
    let task = LABELS.task;
    for (wrong, written) in [
        (FalseCompletion::Lost, vec![task, task]),
        (FalseCompletion::Twice, vec![task; 4]),
        (FalseCompletion::Old, vec![task, task - (1 << 32), task, task]),
        (FalseCompletion::Bogus, vec![task, !task, task, task]),
    ] {
        let [mut a, _] = pair();
        let mut ring = a.thread(8);
        a.engine.inject(fault(1, Mishap::Completion(wrong)));
        // The second of those that report is meant; what reports nothing is not counted.
        for complete in [true, false, true, true] {
            ring.push(&a.npu, entry(complete));
        }
        assert_eq!(a.drain().executed, 4, "{wrong:?}");
        assert_eq!(completions(&a.npu), written, "{wrong:?}");
    }
}

#[test]
fn a_head_goes_beyond_or_back_once() {
    for (wrong, seen) in [(FalseHead::Beyond, 2 ^ 1 << 31), (FalseHead::Back, 0)] {
        let [mut a, _] = pair();
        let mut ring = a.thread(8);
        ring.push(&a.npu, entry(false));
        a.drain();
        a.engine.inject(fault(0, Mishap::Head(wrong)));
        ring.push(&a.npu, entry(false));
        assert_eq!((a.drain().executed, ring.head(&a.npu)), (1, seen), "{wrong:?}");
        // Until there is more to do, or the NPU is repaired.
        ring.push(&a.npu, entry(false));
        assert_eq!((a.drain().executed, ring.head(&a.npu)), (1, 3), "{wrong:?}");
        a.engine.inject(fault(0, Mishap::Head(wrong)));
        ring.push(&a.npu, entry(false));
        a.drain();
        assert_ne!(ring.head(&a.npu), 4, "{wrong:?}");
        a.engine.repair();
        assert_eq!(ring.head(&a.npu), 4, "{wrong:?}");
    }
}

#[test]
fn a_frozen_head_stays_however_much_is_done_until_the_npu_is_repaired() {
    let [mut a, _] = pair();
    let mut ring = a.thread(64);
    ring.push(&a.npu, entry(false));
    a.drain();
    a.engine.inject(fault(1, Mishap::Head(FalseHead::Frozen)));
    // More than an engine executes before it publishes the head on its way.
    (0..60).for_each(|_| ring.write(&a.npu, entry(false)));
    ring.ring(&a.npu);
    assert_eq!((a.drain().executed, ring.head(&a.npu)), (60, 1));
    a.engine.repair();
    assert_eq!(ring.head(&a.npu), 61);
    ring.push(&a.npu, entry(false));
    assert_eq!((a.drain().executed, ring.head(&a.npu)), (1, 62));
}

/// Every bit of an entry that records: labels change nothing, a notify becomes another, and all else is refused.
#[test]
fn a_garbled_entry_is_refused_unless_it_means_something() {
    let (mut refused, mut other, mut same) = (0, 0, 0);
    for bit in 0..512 {
        let [mut a, _] = pair();
        let mut ring = a.thread(4);
        a.engine.inject(fault(0, Mishap::Garble { bit }));
        ring.push(&a.npu, entry(false));
        a.drain();
        match (a.engine.error(), a.npu.host_notify_count(5)) {
            (Some(cqe), 0) => {
                assert!(cqe.code != ErrorCode::OK && cqe.queue == ring.queue.0, "{bit}: {cqe:?}");
                refused += 1;
            }
            (None, 1) => same += 1,
            (None, 0) => other += 1,
            found => panic!("{bit}: {found:?}"),
        }
    }
    // Labels are 128 bits, two phases and the request for a completion; other than the notify, which has 6 bits of use,
    // one opcode means something too: to wait.
    assert_eq!((refused, other, same), (374, 7, 131));
}
