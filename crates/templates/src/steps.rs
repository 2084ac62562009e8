//! The step algorithms: a reduce-scatter half, an all-gather half, or both, step by step on the main thread.
//!
//! One step, in write form: ACK to the peer I receive from ("you may write"), wait for the ACK of the peer I send
//! to, write my slices with DATA on the last, wait for DATA. Links that cannot reduce while moving write to a
//! landing area, from which the receiver reduces. A slice without bytes is skipped, its notifies are not.

use task_graph::{ChannelNotify, Part, Rank, RegionId, RegionKind, TaskSink, ThreadId, WriteBatch};
use wire::Phase;
use wire::launch::OpKind;

use crate::schedule::{Schedule, Step};
use crate::skeleton::{Emitted, Emitter, own};
use crate::slices::{SliceSet, Slices};

/// The work area of every rank, and the landing area that mirrors it.
#[derive(Clone, Copy)]
struct Areas {
    work: Slices,
    landing: Slices,
}

impl<S: TaskSink> Emitter<'_, S> {
    /// Emits all steps; returns their number.
    pub(crate) fn run_steps(&mut self) -> Result<u16, wire::ErrorCode> {
        let shape = self.plan.shape();
        let (rank, ranks) = (shape.rank, self.plan.ranks());
        // Halving-doubling works on a power of two; the ranks above it are folded in first and out last.
        let core = self.plan.parts();
        let schedule = Schedule::new(shape.algorithm, rank, core);
        let areas =
            Areas { work: self.plan.slices(self.chunk, core), landing: self.plan.landing(self.chunk, core) };
        let folded = core < ranks;
        let (core, ranks) = (core.get(), ranks.get());
        let mut step: u16 = 0;
        if folded {
            self.sink.mark(Phase::Run, step);
            self.fold_in(rank, core, ranks, &areas)?;
            step += 1;
        }
        if shape.op != OpKind::AllGather {
            for index in 0..schedule.steps() {
                self.sink.mark(Phase::Run, step);
                if rank < core {
                    self.reduce_step(schedule.reduce_scatter(index), &areas)?;
                }
                step += 1;
            }
        }
        if shape.op != OpKind::ReduceScatter {
            for index in 0..schedule.steps() {
                self.sink.mark(Phase::Run, step);
                if rank < core {
                    self.gather_step(schedule.all_gather(index), &areas)?;
                }
                step += 1;
            }
        }
        if folded {
            self.sink.mark(Phase::Run, step);
            self.fold_out(rank, core, ranks, &areas)?;
            step += 1;
        }
        Ok(step)
    }

    /// The ranks from `core` on hand everything they have to the rank `core` below.
    fn fold_in(&mut self, rank: u32, core: u32, ranks: u32, areas: &Areas) -> Emitted {
        let all = SliceSet::Together { first: 0, count: core };
        if rank >= core {
            self.send(rank - core, all, areas, true)
        } else if rank + core < ranks {
            self.allow(rank + core)?;
            self.receive(rank + core, all, areas, true)
        } else {
            Ok(())
        }
    }

    /// The ranks from `core` on get the result from the rank `core` below.
    fn fold_out(&mut self, rank: u32, core: u32, ranks: u32, areas: &Areas) -> Emitted {
        let all = SliceSet::Together { first: 0, count: core };
        if rank >= core {
            self.allow(rank - core)?;
            self.receive(rank - core, all, areas, false)
        } else if rank + core < ranks {
            self.send(rank + core, all, areas, false)
        } else {
            Ok(())
        }
    }

    fn reduce_step(&mut self, step: Step, areas: &Areas) -> Emitted {
        self.allow(step.from)?;
        self.send(step.to, step.send, areas, true)?;
        self.receive(step.from, step.receive, areas, true)
    }

    fn gather_step(&mut self, step: Step, areas: &Areas) -> Emitted {
        self.allow(step.from)?;
        self.send(step.to, step.send, areas, false)?;
        self.receive(step.from, step.receive, areas, false)
    }

    /// Tells `from` that it may write.
    fn allow(&mut self, from: Rank) -> Emitted {
        self.record(ThreadId::MAIN, from, ChannelNotify::Ack)
    }

    /// Writes slices to `to` once it allows, and says so with the last.
    #[inline]
    fn send(&mut self, to: Rank, set: SliceSet, areas: &Areas, reducing: bool) -> Emitted {
        self.wait(ThreadId::MAIN, to, ChannelNotify::Ack)?;
        let inline = reducing && self.sink.caps(to).can_reduce(self.plan.reduction());
        let reduction = inline.then(|| self.plan.reduction());
        let (kind, target) = if reducing && !inline {
            (RegionKind::Scratch, areas.landing)
        } else {
            (self.layout.work, areas.work)
        };
        let batch = WriteBatch {
            peer: to,
            dst: RegionId::of_peer(to, kind),
            src: RegionId::own(self.layout.work),
            reduction,
            then: ChannelNotify::Data,
        };
        let parts = set.runs().map(|(first, count)| {
            let (src, len) = areas.work.range(first, count);
            Part { dst: target.range(first, count).0, src, len }
        });
        self.sink.write_batch(ThreadId::MAIN, &batch, parts)
    }

    /// Waits until the slices of `from` have landed, and reduces them where the link could not.
    #[inline]
    fn receive(&mut self, from: Rank, set: SliceSet, areas: &Areas, reducing: bool) -> Emitted {
        self.wait(ThreadId::MAIN, from, ChannelNotify::Data)?;
        if !reducing || self.sink.caps(from).can_reduce(self.plan.reduction()) {
            return Ok(());
        }
        for (first, count) in set.runs() {
            let dst = own(self.layout.work, areas.work.range(first, count));
            let src = own(RegionKind::Scratch, areas.landing.range(first, count));
            self.reduce(ThreadId::MAIN, dst, src)?;
        }
        Ok(())
    }
}
