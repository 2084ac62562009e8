//! Every interleaving of a producer and a consumer on a ring of four, up to eight steps, from positions around the
//! wrap, against counters that know nothing of slots.

use aicpu_ring::SubmissionRing;
use wire::DeviceAddr;

use crate::fake::{Fake, QUEUE, RING};

const DEPTH: u64 = 4;
const STEPS: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    FillOne,
    FillThree,
    Announce,
    Consume,
}

const ALL: [Step; 4] = [Step::FillOne, Step::FillThree, Step::Announce, Step::Consume];

/// What must be true, in positions.
#[derive(Clone, Copy, Debug)]
struct Model {
    written: u64,
    announced: u64,
    consumed: u64,
}

impl Model {
    /// How many of `wanted` entries fit: up to the consumer, and up to the end of the memory.
    fn fits(&self, wanted: u64) -> u64 {
        wanted.min(DEPTH - (self.written - self.consumed)).min(DEPTH - self.written % DEPTH)
    }
}

/// A device that takes one entry; it believes only the doorbell.
fn consume(fake: &mut Fake, model: &mut Model) {
    let announced = u32::try_from(fake.bell()).expect("32 bits");
    let head = u32::try_from(model.consumed & 0xffff_ffff).expect("32 bits");
    let ahead = announced.wrapping_sub(head);
    assert_eq!(u64::from(ahead), model.announced - model.consumed);
    if ahead > 0 {
        assert_eq!(
            fake.entry(model.consumed % DEPTH),
            model.consumed,
            "the entry is the one written for this position"
        );
        model.consumed += 1;
        fake.set_head(u64::from(head.wrapping_add(1)));
    }
}

fn run(fake: &mut Fake, start: u64, code: u32) {
    let mut ring = SubmissionRing::starting_at(QUEUE, DeviceAddr(RING), 4, start);
    let mut model = Model { written: start, announced: start, consumed: start };
    fake.set_head(start & 0xffff_ffff);
    fake.log.get_mut().clear();
    hal::Doorbell::ring(fake, QUEUE, u32::try_from(start & 0xffff_ffff).expect("32 bits"));
    for step in 0..STEPS {
        let step = ALL[(code >> (2 * step) & 3) as usize];
        match step {
            Step::FillOne | Step::FillThree => {
                let wanted = if step == Step::FillOne { 1 } else { 3 };
                let first = model.written;
                let written = ring.fill(fake, wanted, |slots| {
                    for (slot, position) in slots.iter_mut().zip(first..) {
                        slot.lanes[0] = position;
                    }
                    slots.len()
                });
                assert_eq!(written.map(u64::from), Ok(model.fits(wanted.into())), "{start} {code:#x}");
                model.written += model.fits(wanted.into());
            }
            Step::Announce => {
                let announced = ring.announce(fake).expect("the word is there");
                assert_eq!(u64::from(announced.entries), model.written - model.announced);
                model.announced = model.written;
            }
            Step::Consume => consume(fake, &mut model),
        }
        assert_eq!(ring.tail(), model.written);
        assert!(ring.head() <= model.consumed && ring.tail() - ring.head() <= DEPTH);
    }
    // Whatever happened, everything written reaches the consumer, once and in order.
    ring.announce(fake).expect("the word is there");
    model.announced = model.written;
    while model.consumed < model.written {
        consume(fake, &mut model);
    }
    assert_eq!(ring.free(fake, 4), Ok(4));
}

#[test]
fn every_interleaving_of_eight_steps_around_the_wrap() {
    const WRAP: u64 = 1 << 32;
    let mut fake = Fake::new(4);
    for start in [0, 3, WRAP - 5, WRAP - 2, WRAP - 1, WRAP, 5 * WRAP - 1] {
        for code in 0..1 << (2 * STEPS) {
            run(&mut fake, start, code);
        }
    }
}
