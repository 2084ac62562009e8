//! Schedules of the step algorithms: who exchanges which slices with whom in each step.
//!
//! Facts: `features.md` T1…T10 and `algorithms.md` section 2 of the design documents; NHR's formulas were simulated
//! for 2 to 69 ranks there.

use core::num::NonZero;

use task_graph::Rank;
use wire::launch::Algorithm;

use crate::slices::SliceSet;

/// One step of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) to: Rank,
    pub(crate) from: Rank,
    pub(crate) send: SliceSet,
    pub(crate) receive: SliceSet,
}

/// The schedule of one rank among `ranks` (1 or more; halving-doubling: a power of two).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    algorithm: Algorithm,
    rank: u32,
    ranks: NonZero<u32>,
}

impl Schedule {
    pub(crate) fn new(algorithm: Algorithm, rank: u32, ranks: NonZero<u32>) -> Self {
        Self { algorithm, rank, ranks }
    }

    /// Returns the number of steps of either half.
    pub(crate) fn steps(self) -> u32 {
        match self.algorithm {
            Algorithm::Ring => self.ranks.get() - 1,
            _ => ceil_log2(self.ranks),
        }
    }

    /// Returns step `step` of the reduce-scatter half. Afterwards rank r holds slice r, complete.
    #[inline]
    pub(crate) fn reduce_scatter(self, step: u32) -> Step {
        let Self { rank, ranks, .. } = self;
        match self.algorithm {
            Algorithm::Ring => {
                let one = |back| SliceSet::Stepped {
                    first: minus(rank, back, ranks),
                    count: 1,
                    back: 0,
                    parts: ranks,
                };
                Step {
                    to: plus(rank, 1, ranks),
                    from: minus(rank, 1, ranks),
                    send: one(step + 1),
                    receive: one(step + 2),
                }
            }
            // Halving: the distance descends from N/2, each time the half that holds the own slice is kept.
            Algorithm::HalvingDoubling => {
                let distance = ranks.get() >> (step + 1);
                let keep = rank & !(distance - 1);
                Step {
                    to: rank ^ distance,
                    from: rank ^ distance,
                    send: SliceSet::Together { first: keep ^ distance, count: distance },
                    receive: SliceSet::Together { first: keep, count: distance },
                }
            }
            _ => {
                let distance = 1 << step;
                let (to, from) = (minus(rank, distance, ranks), plus(rank, distance, ranks));
                let set = |first| nhr_set(first, step, ranks);
                Step { to, from, send: set(to), receive: set(rank) }
            }
        }
    }

    /// Returns step `step` of the all-gather half: the reduce-scatter half run backwards.
    #[inline]
    pub(crate) fn all_gather(self, step: u32) -> Step {
        match self.algorithm {
            Algorithm::Ring => {
                let Self { rank, ranks, .. } = self;
                let one = |back| SliceSet::Stepped {
                    first: minus(rank, back, ranks),
                    count: 1,
                    back: 0,
                    parts: ranks,
                };
                Step {
                    to: plus(rank, 1, ranks),
                    from: minus(rank, 1, ranks),
                    send: one(step),
                    receive: one(step + 1),
                }
            }
            _ => {
                let back = self.reduce_scatter(self.steps() - 1 - step);
                Step { to: back.from, from: back.to, send: back.receive, receive: back.send }
            }
        }
    }
}

/// The slices the NHR step of distance 2^`step` moves: every second one going down from `first` in units of the
/// distance.
#[inline]
fn nhr_set(first: u32, step: u32, ranks: NonZero<u32>) -> SliceSet {
    let back = 2 << step;
    // In units of 2 · distance, rounded half up.
    let count = (ranks.get() - 1 + (1 << step)) >> (step + 1);
    SliceSet::Stepped { first, count, back, parts: ranks }
}

/// The rank `distance` (at most `ranks`) ahead, around the circle.
#[inline]
fn plus(rank: u32, distance: u32, ranks: NonZero<u32>) -> u32 {
    wrapped(rank + distance, ranks)
}

/// The rank `distance` (at most `ranks`) behind, around the circle.
#[inline]
fn minus(rank: u32, distance: u32, ranks: NonZero<u32>) -> u32 {
    wrapped(rank + ranks.get() - distance, ranks)
}

/// A number below 2 · `ranks`, modulo `ranks`.
#[inline]
pub(crate) fn wrapped(number: u32, ranks: NonZero<u32>) -> u32 {
    number.checked_sub(ranks.get()).unwrap_or(number)
}

/// Returns ⌈log2 n⌉.
fn ceil_log2(n: NonZero<u32>) -> u32 {
    // One more than the place of the highest bit of n − 1.
    u32::BITS - (n.get() - 1).leading_zeros()
}
