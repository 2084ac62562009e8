//! The consumer of completions: phases over several wraps, strangers, errors.

use aicpu_ring::Completions;
use wire::npu::{COMPLETIONS, CQ_DEPTH, CQ_HEAD};
use wire::{Cqe, ErrorCode};
use zerocopy::{FromZeros, IntoBytes};

use crate::fake::Fake;

/// A device that writes completions one after the other.
struct Device {
    written: u64,
}

impl Device {
    fn complete(&mut self, fake: &mut Fake, task: u64, code: ErrorCode) {
        let (pass, slot) = (self.written / CQ_DEPTH, self.written % CQ_DEPTH);
        let phase = if pass.is_multiple_of(2) { 1 } else { 0 };
        let cqe = Cqe { task, code, queue: 7, phase, ..Cqe::new_zeroed() };
        fake.bytes_mut(COMPLETIONS + 32 * slot, 32).copy_from_slice(cqe.as_bytes());
        self.written += 1;
    }
}

fn ok(fake: &mut Fake, completions: &mut Completions) -> Option<u64> {
    completions.poll(fake).expect("the ring is there").map(|cqe| cqe.task)
}

#[test]
fn phases_flip_at_each_wrap() {
    let (mut fake, mut device, mut completions) = (Fake::new(4), Device { written: 0 }, Completions::new());
    assert_eq!(ok(&mut fake, &mut completions), None);
    // Bursts of different lengths, over three wraps and a half.
    let mut next = 0;
    for burst in (1..=CQ_DEPTH).cycle().step_by(37) {
        for task in next..next + burst {
            device.complete(&mut fake, task, ErrorCode(0));
        }
        for task in next..next + burst {
            assert_eq!(ok(&mut fake, &mut completions), Some(task));
            assert_eq!(fake.word(CQ_HEAD), task + 1);
        }
        assert_eq!(ok(&mut fake, &mut completions), None, "old entries are not taken for new");
        next += burst;
        if next > 3 * CQ_DEPTH + CQ_DEPTH / 2 {
            break;
        }
    }
    assert_eq!(completions.strangers(), next);
}

#[test]
fn what_was_expected_completes_once() {
    let (mut fake, mut device, mut completions) = (Fake::new(4), Device { written: 0 }, Completions::new());
    for task in [10, 11, 12] {
        completions.expect(task).expect("room");
    }
    for (task, outstanding, strangers) in
        [(11, 2, 0), (11, 2, 1), (99, 2, 2), (10, 1, 2), (12, 0, 2), (12, 0, 3)]
    {
        device.complete(&mut fake, task, ErrorCode(0));
        assert_eq!(ok(&mut fake, &mut completions), Some(task));
        assert_eq!((completions.outstanding(), completions.strangers()), (outstanding, strangers));
    }
}

#[test]
fn errors_are_returned_and_complete_nothing() {
    let (mut fake, mut device, mut completions) = (Fake::new(4), Device { written: 0 }, Completions::new());
    completions.expect(5).expect("room");
    for task in [5, 6] {
        device.complete(&mut fake, task, ErrorCode::DMA_BOUNDS);
        let cqe = completions.poll(&mut fake).expect("the ring is there").expect("an entry");
        assert_eq!((cqe.task, cqe.code, cqe.queue), (task, ErrorCode::DMA_BOUNDS, 7));
    }
    assert_eq!((completions.outstanding(), completions.strangers()), (1, 0));
    completions.clear();
    assert_eq!(completions.outstanding(), 0);
}

#[test]
fn expectations_are_bounded() {
    let mut completions = Completions::new();
    for task in 0..64 {
        completions.expect(task).expect("room");
    }
    assert_eq!(completions.expect(64), Err(ErrorCode::QUEUE_FULL));
}

#[test]
fn a_consumer_goes_on_in_the_middle_of_the_second_pass() {
    let (mut fake, mut device) = (Fake::new(4), Device { written: CQ_DEPTH + 3 });
    let mut completions = Completions::starting_at(CQ_DEPTH + 3);
    // What the first pass left behind has the other phase.
    fake.bytes_mut(COMPLETIONS, 32 * 256).as_mut().chunks_exact_mut(32).for_each(|entry| entry[31] = 1);
    assert_eq!(ok(&mut fake, &mut completions), None);
    device.complete(&mut fake, 42, ErrorCode(0));
    assert_eq!(ok(&mut fake, &mut completions), Some(42));
    assert_eq!(fake.word(CQ_HEAD), CQ_DEPTH + 4);
}
