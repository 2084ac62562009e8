//! Copying out while the last step runs: what is there before it, by the sub threads; the rest afterwards, by all.
//!
//! For algorithms that have sub threads and work in scratch, where the slices that the last step brings, and those that
//! were there, are moved by few copies: all-gathers, which copy block by block anyway, and the all-reduce whose slices are
//! renumbered.

use core::num::NonZero;

use task_graph::{RegionKind, TaskSink, ThreadId};
use wire::Phase;
use wire::launch::{Algorithm, OpKind, Staging};

use crate::schedule::{Pass, Schedule};
use crate::skeleton::{Boundary, Emitted, Emitter};
use crate::slices::SliceSet;
use crate::tables::Half;
use crate::tasks::own;

/// The slices of a result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overlap {
    /// Those that are there before the last step.
    pub(crate) early: SliceSet,
    /// Those that it brings.
    pub(crate) late: SliceSet,
}

impl<S: TaskSink> Emitter<'_, S> {
    /// Returns what can be copied out during the last step, and what cannot; `None` where nothing can.
    pub(crate) fn overlap(&self) -> Option<Overlap> {
        let shape = self.plan.shape();
        let (whole, ranks) = (shape.op == OpKind::AllReduce, self.plan.ranks());
        let fits = match shape.op {
            OpKind::AllReduce => shape.algorithm == Algorithm::Nhr && ranks.get().is_multiple_of(2),
            OpKind::AllGather | OpKind::AllGatherV => {
                matches!(shape.algorithm, Algorithm::Nhr | Algorithm::Nb)
            }
            _ => false,
        };
        if !fits || shape.staging == Staging::Direct || self.plan.threads() == 1 {
            return None;
        }
        let member = self.group().member(shape.rank);
        let schedule = Schedule::new(shape.algorithm, Pass::AllGather, member, ranks);
        let schedule = if whole { schedule.of_free_slices() } else { schedule };
        let last = schedule.steps().checked_sub(1)?;
        let late = schedule.received(last)?;
        let early = match late {
            // From the member's own on, at the same distances.
            SliceSet::Stepped { count, back, parts, .. } => {
                SliceSet::Stepped { base: 0, first: member, count: parts.get() - count, back, parts }
            }
            // The other half.
            SliceSet::Together { first, count } => SliceSet::Together { first: first ^ count, count },
        };
        Some(Overlap { early, late })
    }

    /// The sub threads copy slices out, as a part of step `step`.
    pub(crate) fn copy_early(&mut self, early: SliceSet, step: u16) -> Emitted {
        self.sink.mark(Phase::Run, step);
        self.start_subs(Boundary::Communication)?;
        self.copy_set(early, 1)
    }

    /// Copies slices out, shared among the threads from `first` on.
    pub(crate) fn copy_set(&mut self, set: SliceSet, first: u16) -> Emitted {
        if let (false, SliceSet::Together { first: start, count }) = (self.has_blocks(), set) {
            let Some(count) = NonZero::new(count) else { return Ok(()) };
            let output = (RegionKind::Output, self.chunk.first * self.element);
            return self.copy_slices(output, (self.layout.work, 0), (start, count), first);
        }
        let (parts, threads) = (self.plan.ranks(), self.plan.threads().saturating_sub(first).max(1));
        let slices = self.slices(parts);
        for (index, (rank, _)) in (0_u16..).zip(set.runs(parts, false)) {
            let (work, block) = (own(self.layout.work, slices.get(rank)), self.block(Half::Receive, rank));
            self.copy(ThreadId(first + index % threads), own(RegionKind::Output, block), work)?;
        }
        Ok(())
    }
}
