//! The skeleton every template shares: seven phases in one order.
//!
//! PreSync, PreCopy, PreSync, Run, PostSync, PostCopy, PostSync. The syncs are between the main thread and its sub
//! threads. Step algorithms sync at the copy boundary (sub threads share the copies, the main thread alone
//! communicates), mesh algorithms at the communication boundary (the main thread copies, sub threads communicate).
//! Where sub threads can copy before the last step is done, they do (`overlap`), as a part of that step.
//! Each pair of main and sub thread has two notifies: 0 for the start of communication, 1 for the start of copying.

use core::num::NonZero;

use heapless::Vec;
use task_graph::{
    ChannelNotify, Part, Rank, RegionId, RegionKind, Span, Task, TaskSink, ThreadId, WriteBatch,
};
use wire::launch::{ElementRange, OpKind, Staging};
use wire::{ErrorCode, Phase, Reduction};

use crate::areas::Area;
use crate::family::{Family, family};
use crate::group::{Group, first_part};
use crate::plan::Plan;
use crate::slices::{Lengths, Slices};
use crate::space::Layout;
use crate::tables::{Half, Tables, Vector};

/// Writes that are handed over at once.
const PARTS: usize = 32;

/// Which of the two notifies of a main-sub pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boundary {
    Communication = 0,
    Copy = 1,
}

/// Emits the tasks of one chunk.
pub(crate) struct Emitter<'a, S> {
    pub(crate) plan: &'a Plan,
    /// The elements of each block, or of the whole, that are at hand.
    pub(crate) chunk: ElementRange,
    pub(crate) tables: &'a Tables<'a>,
    pub(crate) layout: Layout,
    pub(crate) element: u64,
    pub(crate) sink: &'a mut S,
}

pub(crate) type Emitted = Result<(), ErrorCode>;

impl<'a, S: TaskSink> Emitter<'a, S> {
    pub(crate) fn new(plan: &'a Plan, chunk: ElementRange, tables: &'a Tables<'a>, sink: &'a mut S) -> Self {
        let element = plan.shape().dtype.size_bytes();
        Self { plan, chunk, tables, layout: plan.layout(), element, sink }
    }

    pub(crate) fn run(&mut self) -> Emitted {
        let shape = self.plan.shape();
        if shape.ranks == 1 {
            return self.single_rank();
        }
        if let Some(cut) = self.plan.cut() {
            return self.file_algorithm(cut);
        }
        match family(shape.op, shape.algorithm).ok_or(ErrorCode::PLAN_OP)? {
            Family::Steps | Family::Composition => self.step_algorithm(),
            Family::Chunk => self.chunk_algorithm(),
            Family::Mesh => self.mesh_algorithm(),
            // Read in rank order, as the mesh does it.
            Family::Exchange if shape.op.reduces() && shape.staging == Staging::Direct => {
                self.mesh_algorithm()
            }
            Family::Exchange => self.exchange_algorithm(),
        }
    }

    /// One rank: a straight copy, no scratch, no communication.
    fn single_rank(&mut self) -> Emitted {
        self.sink.mark(Phase::Run, 0);
        let Some((input, output)) = self.own_copy() else { return Ok(()) };
        self.copy_unless_in_place(
            ThreadId::MAIN,
            own(RegionKind::Output, output),
            own(RegionKind::Input, input),
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
        let overlap = self.overlap();
        let steps = if self.plan.is_composed() { self.run_composition()? } else { self.run_steps(overlap)? };
        self.sink.mark(Phase::PostSync, steps);
        self.start_subs(if overlap.is_some() { Boundary::Copy } else { Boundary::Communication })?;
        self.sink.mark(Phase::PostCopy, steps);
        match overlap {
            Some(overlap) => self.copy_set(overlap.late, 0)?,
            None => self.post_copy()?,
        }
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

    /// Returns the ranks, numbered from the root on.
    pub(crate) fn group(&self) -> Group<'a> {
        Group::all(self.plan.ranks(), self.plan.shape().root)
    }

    /// Returns the place of a rank's block in the work area.
    pub(crate) fn position(&self, rank: Rank) -> u32 {
        if self.plan.packs() {
            let levels = self.plan.levels();
            levels.position(levels.digits(rank, 0))
        } else {
            self.group().member(rank)
        }
    }

    /// Returns the half of the vector that has a block per rank, and the chunk's part of those blocks.
    fn lengths(&self) -> Option<Lengths<'a>> {
        let shape = self.plan.shape();
        let half = match shape.op {
            OpKind::AllGatherV => Half::Receive,
            OpKind::ReduceScatterV => Half::Send,
            _ => return None,
        };
        let vector = Vector { rows: self.tables.vector, half };
        Some(Lengths { vector, chunk: self.chunk, element: self.element })
    }

    /// Returns whether the operation has one block per rank, instead of the same elements at all ranks.
    pub(crate) fn has_blocks(&self) -> bool {
        let op = self.plan.shape().op;
        !matches!(op, OpKind::AllReduce | OpKind::Broadcast | OpKind::Reduce | OpKind::Barrier)
    }

    /// Returns the chunk's slices of the work area, by member.
    pub(crate) fn slices(&self, parts: NonZero<u32>) -> Slices<'a> {
        let direct = self.plan.shape().staging == Staging::Direct;
        let first = self.chunk.first * self.element;
        match self.lengths() {
            _ if !self.has_blocks() => {
                Slices::cut(if direct { first } else { 0 }, self.chunk.count, parts, self.element)
            }
            Some(lengths) => Slices::uneven(0, self.layout.area, lengths, parts),
            None => {
                let (base, stride) = if direct {
                    (first, self.plan.shape().count * self.element)
                } else if self.plan.packs() {
                    (0, self.chunk.count * self.element)
                } else {
                    (0, self.layout.area)
                };
                Slices::blocks(base, stride, self.chunk.count * self.element, parts)
            }
        }
    }

    /// Returns the landing slices that mirror [`slices`](Self::slices).
    pub(crate) fn landing(&self, parts: NonZero<u32>) -> Slices<'a> {
        let Layout { landing, area, .. } = self.layout;
        match self.lengths() {
            _ if !self.has_blocks() => Slices::cut(landing, self.chunk.count, parts, self.element),
            Some(lengths) => Slices::uneven(landing, area, lengths, parts),
            None => {
                let len = self.chunk.count * self.element;
                Slices::blocks(landing, if self.plan.packs() { len } else { area }, len, parts)
            }
        }
    }

    /// The chunk's part of elements `range` of a user's buffer, bytes.
    pub(crate) fn clip(&self, range: ElementRange) -> (u64, u64) {
        let ElementRange { first, count } = self.chunk;
        let len = range.count.saturating_sub(first).min(count);
        ((range.first + first.min(range.count)) * self.element, len * self.element)
    }

    /// The chunk's part of the block of rank `index` in the buffer that has one per rank: the input where `half` is
    /// what is sent, the output where it is what is received.
    pub(crate) fn block(&self, half: Half, index: Rank) -> (u64, u64) {
        let shape = self.plan.shape();
        let range = if shape.op.has_vector() {
            Vector { rows: self.tables.vector, half }.block(index)
        } else {
            ElementRange { first: u64::from(index) * shape.count, count: shape.count }
        };
        self.clip(range)
    }

    /// The chunk's part of a buffer that is one block: this rank's own.
    pub(crate) fn share(&self) -> (u64, u64) {
        let shape = self.plan.shape();
        let vector = |half| Vector { rows: self.tables.vector, half }.block(shape.rank).count;
        let count = match shape.op {
            OpKind::AllGatherV => vector(Half::Receive),
            OpKind::ReduceScatterV => vector(Half::Send),
            _ => shape.count,
        };
        self.clip(ElementRange { first: 0, count })
    }

    /// The bytes of this rank's input that are a part of its own output, with their place there; `None` where nothing
    /// stays.
    pub(crate) fn own_copy(&self) -> Option<((u64, u64), (u64, u64))> {
        let shape = self.plan.shape();
        let (sent, received) = (self.block(Half::Send, shape.rank), self.block(Half::Receive, shape.rank));
        Some(match shape.op {
            OpKind::AllReduce => (self.share(), self.share()),
            OpKind::AllGather | OpKind::AllGatherV => (self.share(), received),
            OpKind::ReduceScatter | OpKind::ReduceScatterV => (sent, self.share()),
            OpKind::AllToAll | OpKind::AllToAllV | OpKind::SendReceive => (sent, received),
            _ if shape.rank != shape.root => return None,
            OpKind::Broadcast | OpKind::Reduce => (self.share(), self.share()),
            OpKind::Scatter => (sent, self.share()),
            OpKind::Gather => (self.share(), received),
            OpKind::Barrier => return None,
        })
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
        let root = shape.rank == shape.root;
        match shape.op {
            OpKind::AllReduce | OpKind::Reduce => self.whole_to_work(),
            OpKind::Broadcast if root => self.whole_to_work(),
            OpKind::AllGather | OpKind::AllGatherV | OpKind::Gather => {
                let slices = self.slices(self.plan.ranks());
                let work = own(self.layout.work, slices.get(self.position(shape.rank)));
                let input = own(RegionKind::Input, self.share());
                if shape.staging == Staging::Direct {
                    self.copy_unless_in_place(ThreadId::MAIN, work, input)
                } else {
                    self.copy(ThreadId::MAIN, work, input)
                }
            }
            OpKind::ReduceScatter | OpKind::ReduceScatterV => self.blocks(Half::Send),
            OpKind::Scatter if root => self.blocks(Half::Send),
            _ => Ok(()),
        }
    }

    /// Copies the result out of the work area, shared among the threads; nothing to do where it is the output.
    fn post_copy(&mut self) -> Emitted {
        let shape = self.plan.shape();
        if shape.staging == Staging::Direct {
            return Ok(());
        }
        let root = shape.rank == shape.root;
        let first = self.chunk.first * self.element;
        match shape.op {
            // In place, the root has had the result all along.
            OpKind::Broadcast if root && shape.in_place => Ok(()),
            OpKind::AllReduce | OpKind::Broadcast => {
                self.shared_copy((RegionKind::Output, first), (self.layout.work, 0))
            }
            OpKind::Reduce if root => self.shared_copy((RegionKind::Output, first), (self.layout.work, 0)),
            OpKind::AllGather | OpKind::AllGatherV => self.blocks(Half::Receive),
            OpKind::Gather if root => self.blocks(Half::Receive),
            OpKind::ReduceScatter | OpKind::ReduceScatterV | OpKind::Scatter => {
                let slices = self.slices(self.plan.ranks());
                let work = own(self.layout.work, slices.get(self.position(shape.rank)));
                self.copy(ThreadId::MAIN, own(RegionKind::Output, self.share()), work)
            }
            _ => Ok(()),
        }
    }

    /// Copies the elements at hand from the input to the start of the work area.
    fn whole_to_work(&mut self) -> Emitted {
        let first = self.chunk.first * self.element;
        let base = if self.plan.shape().staging == Staging::Direct { first } else { 0 };
        self.shared_copy((self.layout.work, base), (RegionKind::Input, first))
    }

    /// Copies every rank's block from the input to the work area, or from there to the output.
    fn blocks(&mut self, half: Half) -> Emitted {
        let (slices, group) = (self.slices(self.plan.ranks()), self.group());
        for member in 0..self.plan.shape().ranks {
            let rank = group.rank(member);
            let work = own(self.layout.work, slices.get(self.position(rank)));
            let (thread, block) = (self.copier(rank), self.block(half, rank));
            match half {
                Half::Send => self.copy(thread, work, own(RegionKind::Input, block))?,
                Half::Receive => self.copy(thread, own(RegionKind::Output, block), work)?,
            }
        }
        Ok(())
    }

    /// Copies the chunk's elements, shared among the threads by whole slices.
    fn shared_copy(&mut self, dst: (RegionKind, u64), src: (RegionKind, u64)) -> Emitted {
        let parts = self.plan.cuts();
        let slices = Slices::cut(0, self.chunk.count, parts, self.element);
        let threads = NonZero::<u32>::from(self.plan.thread_count());
        let direct = dst.0 == RegionKind::Output && src.0 == RegionKind::Input;
        let mut first = 0;
        for thread in 0..self.plan.threads() {
            let until = first_part(u32::from(thread) + 1, parts, threads);
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
    pub(crate) fn copy_unless_in_place(&mut self, thread: ThreadId, dst: Span, src: Span) -> Emitted {
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

    /// Hands over a step: lets `from` write, and writes to the batch's peer, in as many batches as it takes.
    #[inline]
    pub(crate) fn exchange(
        &mut self,
        thread: ThreadId,
        from: Option<Rank>,
        batch: &WriteBatch,
        parts: impl Iterator<Item = Part>,
    ) -> Emitted {
        let (mut ready, mut begun) = (Vec::<_, PARTS>::new(), false);
        for part in parts {
            if let Err(part) = ready.push(part) {
                self.write_ahead(thread, from.filter(|_| !begun), batch, (&ready, begun))?;
                begun = true;
                ready.clear();
                ready.extend([part]);
            }
        }
        if !begun {
            return self.sink.exchange(thread, from, batch, &ready);
        }
        self.sink.write_batch(thread, batch, &ready)?;
        from.map_or(Ok(()), |from| self.wait(thread, from, ChannelNotify::Data))
    }

    /// Writes parts of a batch that others follow.
    #[cold]
    fn write_ahead(
        &mut self,
        thread: ThreadId,
        from: Option<Rank>,
        batch: &WriteBatch,
        (parts, begun): (&[Part], bool),
    ) -> Emitted {
        if let Some(from) = from {
            self.record(thread, from, ChannelNotify::Ack)?;
        }
        if !begun {
            self.wait(thread, batch.peer, ChannelNotify::Ack)?;
        }
        self.sink.write_batch(thread, &WriteBatch { then: None, ..*batch }, parts)
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
