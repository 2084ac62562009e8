//! Multi-ring: several rings at once, each with its part of the data on a thread of its own.
//!
//! A ring's members are as many ranks apart as its stride. Strides without a divisor in common with the number of ranks
//! visit all of them; strides of at most half of it share no link, in either direction.

use task_graph::{TaskSink, ThreadId};
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind};

use crate::division::Division;
use crate::group::Group;
use crate::levels::strides;
use crate::schedule::{Pass, Schedule};
use crate::skeleton::{Boundary, Emitter};
use crate::slices::Slices;
use crate::steps::Lane;

impl<'a, S: TaskSink> Emitter<'a, S> {
    /// Emits all steps of all rings; returns the number of those that come one after the other.
    pub(crate) fn rings(&mut self) -> Result<u16, ErrorCode> {
        let (shape, ranks) = (self.plan.shape(), self.plan.ranks());
        self.start_subs(Boundary::Communication)?;
        let mut last = 0;
        for (ring, stride) in (0..).zip(strides(ranks)) {
            let group = Group::Circle { stride, ranks };
            // Of a rank's block, each ring has its part; of the whole, as many parts as there are ranks.
            let first = if self.has_blocks() { 0 } else { u32::from(ring) * ranks.get() };
            let lane = Lane {
                thread: self.ring_thread(ring),
                group,
                division: Division::Rotated { first, stride, ranks },
                work: self.part_of_ring(self.blocks_of_work(), ring),
                landing: self.part_of_ring(self.blocks_of_landing(), ring),
            };
            // A thread that has several rings has one after the other.
            let mut step = ring / self.plan.thread_count() * self.steps_of_ring();
            for &pass in Pass::of(shape.op, Algorithm::Ring, false) {
                let schedule = Schedule::new(Algorithm::Ring, pass, group.member(shape.rank), ranks);
                step = self.run_pass(&lane, schedule, (pass.reduces(), None), step)?;
            }
            last = step.max(last);
        }
        self.join_subs(Boundary::Communication)?;
        Ok(last)
    }

    fn steps_of_ring(&self) -> u16 {
        let halves = if self.plan.shape().op == OpKind::AllReduce { 2 } else { 1 };
        u16::try_from(halves * (self.plan.ranks().get() - 1)).unwrap_or(u16::MAX)
    }

    fn ring_thread(&self, ring: u16) -> ThreadId {
        ThreadId(ring % self.plan.thread_count())
    }

    /// The blocks of a ring among others.
    fn part_of_ring(&self, blocks: Slices<'a>, ring: u16) -> Slices<'a> {
        if self.has_blocks() { blocks.part(ring.into(), self.plan.cuts(), self.element) } else { blocks }
    }
}
