//! The recorder: the sink that encodes tasks into a graph.

mod links;

use core::ops::DerefMut;

use wire::{
    Command, Descriptor, Engine, ErrorCode, Labels, Operand, Phase, Reduction, Sqe, Transfer, TransferKind,
};

use self::links::{PeerTransfer, check_peer};
use crate::encode::Resources;
use crate::graph::{Block, QueueIndex, TaskGraph};
use crate::pattern::{Pattern, end};
use crate::{Caps, Part, Rank, Span, Task, TaskSink, ThreadId, WriteBatch};

/// Records the tasks of one rank.
#[derive(Debug)]
pub struct Recorder<'a, S> {
    graph: &'a mut TaskGraph<S>,
    resources: Resources<'a>,
    phase: Phase,
    step: u16,
}

impl<'a, S: DerefMut<Target = [Block]>> Recorder<'a, S> {
    /// Makes a recorder that appends to `graph`, which the caller has cleared.
    pub fn new(graph: &'a mut TaskGraph<S>, resources: Resources<'a>) -> Self {
        Self { graph, resources, phase: Phase::Start, step: 0 }
    }

    /// The labels of the next descriptor: its index within the graph is its task id.
    #[inline(always)]
    fn labels(&self, peer: u16) -> Labels {
        Labels {
            task: u64::from(self.graph.len()),
            phase: self.phase,
            step: self.step,
            peer,
            timeout_ms: 0,
            complete: false,
        }
    }

    #[inline(always)]
    fn sqe(
        &mut self,
        thread: ThreadId,
        command: &Command,
        labels: Labels,
        pattern: Pattern,
        ends: [u64; 2],
    ) -> Result<(), ErrorCode> {
        let number = self.graph.patterns.intern(pattern, ends)?;
        self.graph.push(QueueIndex(thread.0), Descriptor::from(command.emit(labels)), number)
    }

    #[inline(always)]
    fn signal(
        &mut self,
        thread: ThreadId,
        command: &Command,
        peer: u16,
        pattern: Pattern,
    ) -> Result<(), ErrorCode> {
        self.graph.kinds.signals += 1;
        let complete = pattern == Pattern::Done;
        let labels = Labels { complete, ..self.labels(peer) };
        self.sqe(thread, command, labels, pattern, [0; 2])
    }

    #[inline(always)]
    fn local(
        &mut self,
        thread: ThreadId,
        mut dst: Span,
        mut src: Span,
        reduction: Option<Reduction>,
    ) -> Result<(), ErrorCode> {
        same_len(dst, src)?;
        let most = self.resources.sdma_max_len();
        while src.len > most {
            let (dst, src) = (dst.split_off(most), src.split_off(most));
            self.copy(thread, dst, src, reduction)?;
        }
        if src.len > 0 { self.copy(thread, dst, src, reduction) } else { Ok(()) }
    }

    /// A local copy or reduction that the engine takes in one.
    #[inline(always)]
    fn copy(
        &mut self,
        thread: ThreadId,
        dst: Span,
        src: Span,
        reduction: Option<Reduction>,
    ) -> Result<(), ErrorCode> {
        let sdma = reduction.is_none_or(|reduction| self.resources.sdma_reduces(reduction));
        let command = Command::Transfer(Transfer {
            kind: TransferKind::Local,
            engine: if sdma { Engine::Sdma } else { Engine::Aicpu },
            reduction,
            src: operand(src),
            dst: operand(dst),
            len: src.len,
            notify: None,
        });
        match reduction {
            Some(_) => self.graph.kinds.reduces += 1,
            None => self.graph.kinds.copies += 1,
        }
        let pattern = Pattern::Sqe { src: Some(src.region), dst: Some(dst.region) };
        self.sqe(thread, &command, self.labels(Sqe::NO_PEER), pattern, [end(&src), end(&dst)])
    }
}

impl<S: DerefMut<Target = [Block]>> TaskSink for Recorder<'_, S> {
    #[inline(always)]
    fn caps(&self, peer: Rank) -> Caps {
        self.resources.caps(peer)
    }

    fn mark(&mut self, phase: Phase, step: u16) {
        (self.phase, self.step) = (phase, step);
        if phase == Phase::Run {
            self.graph.steps = self.graph.steps.max(step.saturating_add(1));
        }
    }

    #[inline(always)]
    fn task(&mut self, thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        self.resources.thread(thread)?;
        match *task {
            Task::LocalCopy { dst, src } => self.local(thread, dst, src, None),
            Task::LocalReduce { dst, src, reduction } => self.local(thread, dst, src, Some(reduction)),
            Task::Write { peer, dst, src, reduction, notify } => {
                check_peer(dst.region, peer)?;
                let transfer = PeerTransfer { writes: true, local: src, remote: dst, reduction, notify };
                self.over(thread, self.resources.link(peer)?, transfer)
            }
            Task::Read { peer, dst, src, reduction } => {
                check_peer(src.region, peer)?;
                let transfer =
                    PeerTransfer { writes: false, local: dst, remote: src, reduction, notify: None };
                self.over(thread, self.resources.link(peer)?, transfer)
            }
            Task::ThreadRecord { thread: waiter, index } => {
                let notify = self.resources.thread_notify(waiter, index)?;
                self.signal(thread, &Command::Record { notify }, Sqe::NO_PEER, Pattern::NO_BASE)
            }
            Task::ThreadWait { index } => {
                let notify = self.resources.thread_notify(thread, index)?;
                self.signal(thread, &Command::Wait { notify }, Sqe::NO_PEER, Pattern::NO_BASE)
            }
            Task::ChannelRecord { peer, notify } => {
                self.record_over(thread, self.resources.link(peer)?, notify)
            }
            Task::ChannelWait { peer, notify } => self.wait_over(thread, self.resources.link(peer)?, notify),
            Task::WaitStart => {
                self.signal(thread, &Command::Wait { notify: 0 }, Sqe::NO_PEER, Pattern::Start)
            }
            Task::RecordDone => {
                self.signal(thread, &Command::RecordHost { notify: 0 }, Sqe::NO_PEER, Pattern::Done)
            }
            Task::RecordNext => {
                self.signal(thread, &Command::Record { notify: 0 }, Sqe::NO_PEER, Pattern::Next)
            }
        }
    }

    /// Looks the peer up once.
    fn write_batch(&mut self, thread: ThreadId, batch: &WriteBatch, parts: &[Part]) -> Result<(), ErrorCode> {
        self.resources.thread(thread)?;
        self.write_over(thread, self.resources.link(batch.peer)?, batch, parts)
    }

    /// Looks each peer up once.
    #[inline(always)]
    fn exchange(
        &mut self,
        thread: ThreadId,
        from: Option<Rank>,
        batch: &WriteBatch,
        parts: &[Part],
    ) -> Result<(), ErrorCode> {
        self.resources.thread(thread)?;
        let to = self.resources.link(batch.peer)?;
        if let (Some(from), [part], Some(then)) = (from, parts, batch.then) {
            let from = self.resources.link(from)?;
            if self.exchange_by_sdma(thread, from, to, (batch, *part, then))? {
                return Ok(());
            }
        }
        self.exchange_in_pieces(thread, from, to, (batch, parts))
    }
}

/// An operand with its base left out.
#[inline]
fn operand(span: Span) -> Operand {
    Operand { addr: wire::DeviceAddr(span.offset), token: 0 }
}

/// Returns the length of both ends of a transfer. One without bytes is no transfer: its notify would be lost.
fn same_len(a: Span, b: Span) -> Result<u64, ErrorCode> {
    if a.len == b.len && a.len > 0 { Ok(a.len) } else { Err(ErrorCode::PLAN_INTERNAL) }
}
