//! Communicators share their kernels' caches: one with ever-changing sizes does not take another's graphs.

use aicpu_tests::world::{self, Place};
use host_launcher::buffer::SharedBuffer;
use host_launcher::communicator::{Communicator, Config, Place as At};

use crate::rotation::{HIT, Rotation, Step, ring};

/// Sizes of the communicator that changes, and steps of the one that does not.
const SIZES: u64 = 5000;
const STEPS: u64 = 1000;

/// Runs an operation of `count` elements on a communicator whose results do not matter here.
fn run(comm: &mut Communicator<'_>, [input, output]: &[SharedBuffer; 2], count: u64) {
    let place = |buffer| At { buffer, offset: 0 };
    comm.launch_all(&ring(count), place(input), place(output)).unwrap();
    comm.synchronize().unwrap();
}

/// Hits in tenths of a per cent, of the rank that has the fewest.
fn hits(steps: &mut Rotation<'_>, mut between: impl FnMut(u64)) -> u64 {
    let mut hits = [0; 2];
    for seed in 0..STEPS {
        between(seed);
        let pair = usize::try_from(seed % 2).unwrap();
        let step = Step { operation: ring(64), in_place: false, pair, seed };
        for (hits, outcome) in hits.iter_mut().zip(steps.outcomes(&step)) {
            *hits += u64::from(outcome == HIT);
        }
    }
    hits[0].min(hits[1]) * 1000 / STEPS
}

#[test]
fn t31_five_thousand_sizes_do_not_starve_another_communicator() {
    let cluster = world::threads(2, Place::OneServer, 16 << 20);
    let mut changing = Communicator::create(&cluster, Config::default()).unwrap();
    let buffers = [0, 1].map(|_| SharedBuffer::new(&cluster, 4 * SIZES).unwrap());
    for count in 1..=SIZES {
        run(&mut changing, &buffers, count);
    }
    let mut steps = Rotation::new(&cluster, Config::default(), 256, 2);
    assert!(hits(&mut steps, |_| {}) >= 998, "one after the other");
    steps.finish();
    // And with five sizes of the one between two steps of the other.
    let mut steps = Rotation::new(&cluster, Config::default(), 256, 2);
    let found = hits(&mut steps, |step| {
        (1..=5).for_each(|count| run(&mut changing, &buffers, 5 * step + count));
    });
    assert!(found >= 998, "by turns: {found}");
    steps.finish();
    changing.destroy().unwrap();
    buffers.into_iter().for_each(|buffer| buffer.free(&cluster).unwrap());
}
