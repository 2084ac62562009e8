//! The producer: space, wrap, doorbells, order, and heads that cannot be.

use aicpu_ring::{Announced, SubmissionRing};
use wire::npu::TAILS;
use wire::{DeviceAddr, ErrorCode};

use crate::fake::{Event, Fake, QUEUE, RING};

/// Just below the wrap of the 32-bit words.
const NEAR_WRAP: u64 = (1 << 32) - 3;

fn ring(depth: u32, start: u64) -> SubmissionRing {
    SubmissionRing::starting_at(QUEUE, DeviceAddr(RING), depth, start)
}

/// Writes `count` entries that hold their own position; returns how many fitted.
fn fill(ring: &mut SubmissionRing, fake: &mut Fake, count: u32) -> Result<u32, ErrorCode> {
    let tail = ring.tail();
    ring.fill(fake, count, |slots| {
        for (slot, position) in slots.iter_mut().zip(tail..) {
            slot.lanes[0] = position;
        }
        slots.len()
    })
}

fn low(position: u64) -> u64 {
    position & 0xffff_ffff
}

#[test]
fn entries_fill_up_to_the_depth_and_wrap() {
    let mut fake = Fake::new(4);
    fake.set_head(low(NEAR_WRAP));
    let mut ring = ring(4, NEAR_WRAP);
    // Slot 1 comes first: three up to the end of the memory, then one.
    assert_eq!(fill(&mut ring, &mut fake, 9), Ok(3));
    assert_eq!(fill(&mut ring, &mut fake, 9), Ok(1));
    assert_eq!(fill(&mut ring, &mut fake, 9), Ok(0), "full");
    assert_eq!(
        [0, 1, 2, 3].map(|slot| fake.entry(slot)),
        [NEAR_WRAP + 3, NEAR_WRAP, NEAR_WRAP + 1, NEAR_WRAP + 2]
    );
    assert_eq!(ring.announce(&mut fake), Ok(Announced { entries: 4, doorbells: 1 }));
    assert_eq!((fake.bell(), fake.word(TAILS + 8 * u64::from(QUEUE))), (1, 1));
    fake.set_head(low(NEAR_WRAP + 2));
    assert_eq!(ring.free(&fake, 4), Ok(2));
    assert_eq!(fill(&mut ring, &mut fake, 2), Ok(2));
    assert_eq!((ring.head(), ring.tail()), (NEAR_WRAP + 2, NEAR_WRAP + 6));
}

#[test]
fn the_head_is_loaded_only_when_the_known_space_does_not_suffice() {
    let mut fake = Fake::new(8);
    let mut ring = ring(8, 0);
    for _ in 0..4 {
        assert_eq!(fill(&mut ring, &mut fake, 2), Ok(2));
    }
    assert_eq!(fake.head_loads.get(), 0);
    fake.set_head(5);
    assert_eq!(fill(&mut ring, &mut fake, 2), Ok(2));
    assert_eq!(fill(&mut ring, &mut fake, 3), Ok(3));
    assert_eq!(fake.head_loads.get(), 1);
    assert_eq!(fill(&mut ring, &mut fake, 1), Ok(0));
    assert_eq!(fake.head_loads.get(), 2);
}

/// What the device is told: stores it waits for or looks at, beside the entries themselves.
fn told(fake: &Fake) -> usize {
    fake.log.borrow().iter().filter(|event| !matches!(event, Event::Entries(..))).count()
}

/// A batch is told in one fence, one doorbell and one tail, whatever its size up to 128; one by one, in as many as
/// there are entries.
#[test]
fn t18_a_batch_costs_one_doorbell_and_never_more_than_one_by_one() {
    for count in 1..=128 {
        let (mut batch, mut single) = (Fake::new(128), Fake::new(128));
        let (mut one, mut other) = (ring(128, 0), ring(128, 0));
        assert_eq!(fill(&mut one, &mut batch, count), Ok(count));
        assert_eq!(one.announce(&mut batch), Ok(Announced { entries: count, doorbells: 1 }));
        for _ in 0..count {
            assert_eq!(fill(&mut other, &mut single, 1), Ok(1));
            assert_eq!(other.announce(&mut single), Ok(Announced { entries: 1, doorbells: 1 }));
        }
        assert_eq!((told(&batch), told(&single)), (3, 3 * count as usize), "{count}");
        assert_eq!(batch.bell(), single.bell());
        assert!((0..u64::from(count)).all(|slot| batch.entry(slot) == single.entry(slot)));
    }
}

#[test]
fn heads_that_go_back_or_pass_the_tail_are_refused_and_not_used() {
    for start in [0, 100, NEAR_WRAP] {
        for bad in [start.wrapping_sub(1), start + 5, start + (1 << 31), start.wrapping_sub(1 << 31)] {
            let mut fake = Fake::new(4);
            fake.set_head(low(start));
            let mut ring = ring(4, start);
            while fill(&mut ring, &mut fake, 4) != Ok(0) {}
            fake.set_head(low(bad));
            assert_eq!(fill(&mut ring, &mut fake, 1), Err(ErrorCode::QUEUE_HEAD), "start {start} head {bad}");
            assert_eq!((ring.head(), ring.tail()), (start, start + 4));
            fake.set_head(low(start + 1));
            assert_eq!(fill(&mut ring, &mut fake, 4), Ok(1), "a good head goes on");
        }
    }
}

#[test]
fn t16_one_doorbell_per_128_entries() {
    for (entries, doorbells) in
        [(1, 1), (28, 1), (128, 1), (129, 2), (252, 2), (256, 2), (1000, 8), (2048, 16)]
    {
        for start in [0, NEAR_WRAP - 100] {
            let mut fake = Fake::new(2048);
            fake.set_head(low(start));
            let mut ring = ring(2048, start);
            let mut written = 0;
            while written < entries {
                written += fill(&mut ring, &mut fake, entries - written).expect("room");
            }
            assert_eq!(ring.announce(&mut fake), Ok(Announced { entries, doorbells }));
            let end = start + u64::from(entries);
            let bells: Vec<_> = fake
                .log
                .get_mut()
                .iter()
                .filter_map(
                    |event| if let Event::Bell(QUEUE, tail) = event { Some(u64::from(*tail)) } else { None },
                )
                .collect();
            let expected: Vec<_> =
                (1..=u64::from(doorbells)).map(|bell| low(end.min(start + 128 * bell))).collect();
            assert_eq!(bells, expected);
            assert_eq!(ring.announce(&mut fake), Ok(Announced::default()), "nothing new, nothing rung");
        }
    }
}

#[test]
fn entries_then_fence_then_doorbells_then_software_tail() {
    let mut fake = Fake::new(256);
    let mut ring = ring(256, 250);
    fake.set_head(250);
    for _ in 0..2 {
        fill(&mut ring, &mut fake, 140).expect("room");
    }
    ring.announce(&mut fake).expect("the word is there");
    let expected = [
        Event::Entries(250, 6),
        Event::Entries(0, 140),
        Event::Publish,
        Event::Bell(QUEUE, 378),
        Event::Bell(QUEUE, 396),
        Event::SoftTail(396),
    ];
    assert_eq!(*fake.log.borrow(), expected);
}

#[test]
fn a_queue_pair_is_published_without_a_doorbell() {
    let mut fake = Fake::new(4);
    let mut ring = ring(4, NEAR_WRAP);
    fake.set_head(low(NEAR_WRAP));
    fill(&mut ring, &mut fake, 3).expect("room");
    assert_eq!(ring.publish(&mut fake), Ok(3));
    assert_eq!(ring.publish(&mut fake), Ok(0));
    assert_eq!(*fake.log.borrow(), [Event::Entries(1, 3), Event::Publish, Event::SoftTail(0)]);
}

#[test]
fn a_writer_that_writes_less_leaves_the_rest() {
    let mut fake = Fake::new(4);
    let mut ring = ring(4, 0);
    assert_eq!(ring.fill(&mut fake, 4, |_| 1), Ok(1));
    assert_eq!(ring.fill(&mut fake, 4, |slots| slots.len() + 1), Ok(3), "no more than there are");
    assert_eq!(ring.tail(), 4);
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let mut fake = Fake::new(4);
    let mut ring = SubmissionRing::new(QUEUE, DeviceAddr(RING + 64), 4);
    assert_eq!(fill(&mut ring, &mut fake, 4), Err(ErrorCode::CONTEXT_ADDRESS));
    let mut ring = SubmissionRing::new(QUEUE, DeviceAddr(u64::MAX - 63), 4);
    assert_eq!(fill(&mut ring, &mut fake, 1), Err(ErrorCode::CONTEXT_ADDRESS));
    assert_eq!(ring.tail(), 0, "nothing was written");
}

#[test]
fn a_resumed_ring_keeps_what_is_not_consumed() {
    for (head, tail) in [(0_u32, 0_u32), (0, 4), (u32::MAX, 2), (7, 9)] {
        let mut ring = SubmissionRing::resumed(QUEUE, DeviceAddr(RING), 4, head, tail).expect("in range");
        let mut fake = Fake::new(4);
        fake.set_head(u64::from(head));
        assert_eq!(ring.free(&fake, 4), Ok(4 - tail.wrapping_sub(head)));
        assert_eq!(low(ring.tail()), u64::from(tail));
        fake.set_head(u64::from(tail));
        assert_eq!(ring.free(&fake, 4), Ok(4));
        assert_eq!(ring.announce(&mut fake), Ok(Announced::default()), "all is announced");
    }
    for (head, tail) in [(0, 5), (1, 0), (u32::MAX, 4)] {
        let refused = SubmissionRing::resumed(QUEUE, DeviceAddr(RING), 4, head, tail);
        assert_eq!(refused.map(|ring| ring.tail()), Err(ErrorCode::QUEUE_HEAD));
    }
}
