//! The skeleton every template shares: seven phases in one order.
//!
//! PreSync, PreCopy, PreSync, Run, PostSync, PostCopy, PostSync. The syncs are between the main thread and its sub
//! threads. Step algorithms sync at the copy boundary (sub threads share the copies, the main thread alone
//! communicates), mesh algorithms at the communication boundary (the main thread copies, sub threads communicate).
//! Each pair of main and sub thread has two notifies: 0 for the start of communication, 1 for the start of copying.

use core::num::NonZero;

use task_graph::{ChannelNotify, Rank, RegionId, RegionKind, Span, Task, TaskSink, ThreadId};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{ErrorCode, Phase, Reduction};

use crate::plan::{Chunk, Layout, Plan};
use crate::slices::Slices;

/// Which of the two notifies of a main-sub pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boundary {
    Communication = 0,
    Copy = 1,
}

/// Emits the tasks of one chunk.
pub(crate) struct Emitter<'a, S> {
    pub(crate) plan: &'a Plan,
    pub(crate) chunk: Chunk,
    pub(crate) layout: Layout,
    pub(crate) element: u64,
    pub(crate) sink: &'a mut S,
}

pub(crate) type Emitted = Result<(), ErrorCode>;

impl<'a, S: TaskSink> Emitter<'a, S> {
    pub(crate) fn new(plan: &'a Plan, chunk: Chunk, sink: &'a mut S) -> Self {
        let element = plan.shape().dtype.size_bytes();
        Self { plan, chunk, layout: plan.layout(), element, sink }
    }

    pub(crate) fn run(&mut self) -> Emitted {
        if self.plan.shape().ranks == 1 {
            return self.single_rank();
        }
        match self.plan.shape().algorithm {
            Algorithm::Ring | Algorithm::HalvingDoubling | Algorithm::Nhr => self.step_algorithm(),
            Algorithm::MeshOneShot | Algorithm::MeshTwoShot => self.mesh_algorithm(),
        }
    }

    /// One rank: a straight copy, no scratch, no communication.
    fn single_rank(&mut self) -> Emitted {
        self.sink.mark(Phase::Run, 0);
        let bytes = (self.chunk.first * self.element, self.chunk.len * self.element);
        self.copy_unless_in_place(
            ThreadId::MAIN,
            own(RegionKind::Output, bytes),
            own(RegionKind::Input, bytes),
        )
    }

    /// Syncs at the copy boundary.
    fn step_algorithm(&mut self) -> Emitted {
        self.sink.mark(Phase::PreSync, 0);
        self.start_subs(Boundary::Copy)?;
        self.sink.mark(Phase::PreCopy, 0);
        self.pre_copy()?;
        self.sink.mark(Phase::PreSync, 0);
        self.join_subs(Boundary::Communication)?;
        let steps = self.run_steps()?;
        self.sink.mark(Phase::PostSync, steps);
        self.start_subs(Boundary::Communication)?;
        self.sink.mark(Phase::PostCopy, steps);
        self.post_copy()?;
        self.sink.mark(Phase::PostSync, steps);
        self.join_subs(Boundary::Copy)
    }

    /// Syncs at the communication boundary.
    fn mesh_algorithm(&mut self) -> Emitted {
        self.sink.mark(Phase::PreSync, 0);
        self.mesh_ready()?;
        self.sink.mark(Phase::PreCopy, 0);
        self.mesh_pre_copy()?;
        self.sink.mark(Phase::PreSync, 0);
        self.start_subs(Boundary::Communication)?;
        let steps = self.mesh_run()?;
        self.sink.mark(Phase::PostSync, steps);
        self.join_subs(Boundary::Communication)?;
        self.sink.mark(Phase::PostCopy, steps);
        self.mesh_post_copy()?;
        self.sink.mark(Phase::PostSync, steps);
        self.mesh_finish()
    }

    /// The main thread lets every sub thread go.
    pub(crate) fn start_subs(&mut self, boundary: Boundary) -> Emitted {
        for sub in 1..self.plan.threads() {
            let index = boundary as u16;
            self.sink.task(ThreadId::MAIN, &Task::ThreadRecord { thread: ThreadId(sub), index })?;
            self.sink.task(ThreadId(sub), &Task::ThreadWait { index })?;
        }
        Ok(())
    }

    /// The main thread waits for every sub thread.
    pub(crate) fn join_subs(&mut self, boundary: Boundary) -> Emitted {
        for sub in 1..self.plan.threads() {
            // The main thread has two notifies per sub thread.
            let index = 2 * (sub - 1) + boundary as u16;
            self.sink.task(ThreadId(sub), &Task::ThreadRecord { thread: ThreadId::MAIN, index })?;
            self.sink.task(ThreadId::MAIN, &Task::ThreadWait { index })?;
        }
        Ok(())
    }

    /// Copies user data into the work area, shared among the threads.
    fn pre_copy(&mut self) -> Emitted {
        let shape = self.plan.shape();
        let (first, len) = (self.chunk.first * self.element, self.chunk.len * self.element);
        let slices = self.plan.slices(self.chunk, self.plan.ranks());
        match shape.op {
            OpKind::AllReduce => {
                let base = if shape.staging == Staging::Direct { first } else { 0 };
                self.shared_copy((self.layout.work, base), (RegionKind::Input, first))
            }
            OpKind::AllGather => {
                let work = own(self.layout.work, slices.get(shape.rank));
                let input = own(RegionKind::Input, (first, len));
                if shape.staging == Staging::Direct {
                    self.copy_unless_in_place(ThreadId::MAIN, work, input)
                } else {
                    self.copy(ThreadId::MAIN, work, input)
                }
            }
            OpKind::ReduceScatter => {
                for block in 0..shape.ranks {
                    let offset = u64::from(block) * shape.count * self.element + first;
                    let work = own(self.layout.work, slices.get(block));
                    self.copy(self.copier(block), work, own(RegionKind::Input, (offset, len)))?;
                }
                Ok(())
            }
        }
    }

    /// Copies the result out of the work area, shared among the threads; nothing to do where it is the output.
    fn post_copy(&mut self) -> Emitted {
        let shape = self.plan.shape();
        if shape.staging == Staging::Direct {
            return Ok(());
        }
        let (first, len) = (self.chunk.first * self.element, self.chunk.len * self.element);
        let slices = self.plan.slices(self.chunk, self.plan.ranks());
        match shape.op {
            OpKind::AllReduce => self.shared_copy((RegionKind::Output, first), (self.layout.work, 0)),
            OpKind::AllGather => {
                for block in 0..shape.ranks {
                    let offset = u64::from(block) * shape.count * self.element + first;
                    let work = own(self.layout.work, slices.get(block));
                    self.copy(self.copier(block), own(RegionKind::Output, (offset, len)), work)?;
                }
                Ok(())
            }
            OpKind::ReduceScatter => {
                let work = own(self.layout.work, slices.get(shape.rank));
                self.copy(ThreadId::MAIN, own(RegionKind::Output, (first, len)), work)
            }
        }
    }

    /// Copies the chunk's elements, shared among the threads by whole slices.
    fn shared_copy(&mut self, dst: (RegionKind, u64), src: (RegionKind, u64)) -> Emitted {
        let parts = self.plan.shape().ranks;
        let slices = Slices::cut(0, self.chunk.len, self.plan.ranks(), self.element);
        let threads = NonZero::<u32>::from(self.plan.thread_count());
        let direct = dst.0 == RegionKind::Output && src.0 == RegionKind::Input;
        let mut first = 0;
        for thread in 0..self.plan.threads() {
            let until = parts * (u32::from(thread) + 1) / threads;
            if until > first {
                let (offset, len) = slices.range(first, until - first);
                let (to, from) = (own(dst.0, (dst.1 + offset, len)), own(src.0, (src.1 + offset, len)));
                if direct {
                    self.copy_unless_in_place(ThreadId(thread), to, from)?;
                } else {
                    self.copy(ThreadId(thread), to, from)?;
                }
            }
            first = until;
        }
        Ok(())
    }

    /// The thread that copies block `block`: all threads share.
    fn copier(&self, block: u32) -> ThreadId {
        ThreadId(u16::try_from(block % NonZero::<u32>::from(self.plan.thread_count())).unwrap_or(0))
    }

    /// Copies unless there is nothing to copy.
    #[inline(always)]
    pub(crate) fn copy(&mut self, thread: ThreadId, dst: Span, src: Span) -> Emitted {
        if src.len == 0 { Ok(()) } else { self.sink.task(thread, &Task::LocalCopy { dst, src }) }
    }

    /// Copies input to output, unless they are the same memory.
    fn copy_unless_in_place(&mut self, thread: ThreadId, dst: Span, src: Span) -> Emitted {
        if self.plan.shape().in_place { Ok(()) } else { self.copy(thread, dst, src) }
    }

    /// Reduces unless there is nothing to reduce.
    #[inline(always)]
    pub(crate) fn reduce(&mut self, thread: ThreadId, dst: Span, src: Span) -> Emitted {
        if src.len == 0 {
            return Ok(());
        }
        let reduction = self.plan.reduction();
        self.sink.task(thread, &Task::LocalReduce { dst, src, reduction })
    }

    /// Writes to a peer unless there is nothing to write; the notify is set in any case.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        thread: ThreadId,
        peer: Rank,
        dst: Span,
        src: Span,
        reduction: Option<Reduction>,
        then: Option<ChannelNotify>,
    ) -> Emitted {
        let fused = then.filter(|_| src.len > 0 && self.sink.caps(peer).write_notify);
        if src.len > 0 {
            self.sink.task(thread, &Task::Write { peer, dst, src, reduction, notify: fused })?;
        }
        match then {
            Some(notify) if fused.is_none() => self.record(thread, peer, notify),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    pub(crate) fn record(&mut self, thread: ThreadId, peer: Rank, notify: ChannelNotify) -> Emitted {
        self.sink.task(thread, &Task::ChannelRecord { peer, notify })
    }

    #[inline(always)]
    pub(crate) fn wait(&mut self, thread: ThreadId, peer: Rank, notify: ChannelNotify) -> Emitted {
        self.sink.task(thread, &Task::ChannelWait { peer, notify })
    }
}

/// Bytes `(offset, len)` of one of this rank's buffers.
#[inline]
pub(crate) fn own(kind: RegionKind, (offset, len): (u64, u64)) -> Span {
    Span { region: RegionId::own(kind), offset, len }
}

/// Bytes `(offset, len)` of one of a peer's buffers.
#[inline]
pub(crate) fn at(peer: Rank, kind: RegionKind, (offset, len): (u64, u64)) -> Span {
    Span { region: RegionId::of_peer(peer, kind), offset, len }
}
