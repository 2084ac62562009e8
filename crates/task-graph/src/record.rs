//! The recorder: the sink that encodes tasks into a graph.

use core::ops::DerefMut;

use wire::context::ChannelEntry;
use wire::npu::Protocol;
use wire::{
    Command, Descriptor, Engine, ErrorCode, Labels, Operand, Phase, Reduction, Sqe, Transfer, TransferKind,
    WorkRequest,
};

use crate::encode::{Resources, channel_notify};
use crate::graph::{Block, QueueIndex, TaskGraph};
use crate::pattern::{Pattern, end};
use crate::region::whole_granules;
use crate::sink::write_singly;
use crate::{Caps, ChannelNotify, Part, Rank, RegionId, Span, Task, TaskSink, ThreadId, WriteBatch};

/// Records the tasks of one rank.
#[derive(Debug)]
pub struct Recorder<'a, S> {
    graph: &'a mut TaskGraph<S>,
    resources: Resources<'a>,
    phase: Phase,
    step: u16,
}

/// A transfer between this rank and a peer, before the protocol has been looked at.
#[derive(Clone, Copy)]
struct PeerTransfer {
    peer: Rank,
    writes: bool,
    local: Span,
    remote: Span,
    reduction: Option<Reduction>,
    notify: Option<ChannelNotify>,
}

impl PeerTransfer {
    /// Takes the longest piece off the front that a link moves in one. Only the last piece says that data landed.
    fn split_off(&mut self, most: u64) -> Self {
        let (local, remote) = (self.local.split_off(most), self.remote.split_off(most));
        Self { local, remote, notify: None, ..*self }
    }
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
        self.resources.thread(thread)?;
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
        self.resources.thread(thread)?;
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

    #[inline(always)]
    fn peer(&mut self, thread: ThreadId, transfer: PeerTransfer) -> Result<(), ErrorCode> {
        self.resources.thread(thread)?;
        let (channel, _) = self.resources.channel(transfer.peer)?;
        same_len(transfer.remote, transfer.local)?;
        if Protocol::try_from(channel.protocol)?.uses_queue_pair() {
            return self.over_pair(thread, transfer);
        }
        let mut rest = transfer;
        while rest.local.len > channel.max_len {
            let piece = rest.split_off(channel.max_len);
            self.sdma(thread, channel, &piece)?;
        }
        if rest.local.len > 0 { self.sdma(thread, channel, &rest) } else { Ok(()) }
    }

    /// The same through a queue pair: a work request and a post for each piece.
    fn over_pair(&mut self, thread: ThreadId, transfer: PeerTransfer) -> Result<(), ErrorCode> {
        let (channel, queue) = self.resources.channel(transfer.peer)?;
        let label = label_of(transfer.peer);
        let mut rest = transfer;
        while rest.local.len > 0 {
            let mut piece = rest;
            if rest.local.len > channel.max_len {
                piece = rest.split_off(channel.max_len);
            } else {
                rest.local.len = 0;
            }
            let PeerTransfer { local, remote, reduction, .. } = piece;
            let (local_op, remote_op, len) = (operand(local), operand(remote), local.len);
            let notify = piece.notify.map(|notify| channel_notify(channel.remote_notify, notify));
            let request = if piece.writes {
                WorkRequest::Write { local: local_op, remote: remote_op, len, reduction, notify }
            } else {
                WorkRequest::Read { local: local_op, remote: remote_op, len, reduction }
            };
            let pattern = Pattern::Wqe { local: Some(local.region), remote: Some(remote.region) };
            self.graph.kinds.transfers += 1;
            self.wqe(queue, &request, label, pattern, [end(&local), end(&remote)])?;
            self.post(thread, channel.index, queue, label)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn sdma(
        &mut self,
        thread: ThreadId,
        channel: &ChannelEntry,
        transfer: &PeerTransfer,
    ) -> Result<(), ErrorCode> {
        let PeerTransfer { local, remote, reduction, .. } = *transfer;
        let (kind, src, dst) = if transfer.writes {
            (TransferKind::Write { channel: channel.index }, local, remote)
        } else {
            (TransferKind::Read { channel: channel.index }, remote, local)
        };
        let command = Command::Transfer(Transfer {
            kind,
            engine: Engine::Sdma,
            reduction,
            src: operand(src),
            dst: operand(dst),
            len: src.len,
            notify: transfer.notify.map(|notify| channel_notify(channel.remote_notify, notify)),
        });
        self.graph.kinds.transfers += 1;
        let pattern = Pattern::Sqe { src: Some(src.region), dst: Some(dst.region) };
        let labels = self.labels(label_of(transfer.peer));
        self.sqe(thread, &command, labels, pattern, [end(&src), end(&dst)])
    }

    fn wqe(
        &mut self,
        queue: QueueIndex,
        request: &WorkRequest,
        label: u16,
        pattern: Pattern,
        ends: [u64; 2],
    ) -> Result<(), ErrorCode> {
        let number = self.graph.patterns.intern(pattern, ends)?;
        self.graph.kinds.wqes += 1;
        let wqe = request.emit(self.labels(label));
        self.graph.push(queue, Descriptor::from(wqe), number)
    }

    /// Lets the queue pair run up to what has been recorded for it.
    fn post(
        &mut self,
        thread: ThreadId,
        channel: u16,
        queue: QueueIndex,
        label: u16,
    ) -> Result<(), ErrorCode> {
        let command = Command::Post { channel, wqe_tail: self.graph.queue_len(queue) };
        let labels = self.labels(label);
        self.sqe(thread, &command, labels, Pattern::Post { queue }, [0; 2])
    }

    #[inline]
    fn channel_record(
        &mut self,
        thread: ThreadId,
        peer: Rank,
        notify: ChannelNotify,
    ) -> Result<(), ErrorCode> {
        let (channel, queue) = self.resources.channel(peer)?;
        let (index, label) = (channel.index, label_of(peer));
        let notify = channel_notify(channel.remote_notify, notify);
        if Protocol::try_from(channel.protocol)?.uses_queue_pair() {
            self.resources.thread(thread)?;
            self.graph.kinds.signals += 1;
            let none = Pattern::Wqe { local: None, remote: None };
            self.wqe(queue, &WorkRequest::Record { notify }, label, none, [0; 2])?;
            self.post(thread, index, queue, label)
        } else {
            self.signal(thread, &Command::RecordPeer { channel: index, notify }, label, Pattern::NO_BASE)
        }
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
        match *task {
            Task::LocalCopy { dst, src } => self.local(thread, dst, src, None),
            Task::LocalReduce { dst, src, reduction } => self.local(thread, dst, src, Some(reduction)),
            Task::Write { peer, dst, src, reduction, notify } => {
                check_peer(dst.region, peer)?;
                let transfer =
                    PeerTransfer { peer, writes: true, local: src, remote: dst, reduction, notify };
                self.peer(thread, transfer)
            }
            Task::Read { peer, dst, src, reduction } => {
                check_peer(src.region, peer)?;
                let transfer =
                    PeerTransfer { peer, writes: false, local: dst, remote: src, reduction, notify: None };
                self.peer(thread, transfer)
            }
            Task::ThreadRecord { thread: waiter, index } => {
                let notify = self.resources.thread_notify(waiter, index)?;
                self.signal(thread, &Command::Record { notify }, Sqe::NO_PEER, Pattern::NO_BASE)
            }
            Task::ThreadWait { index } => {
                let notify = self.resources.thread_notify(thread, index)?;
                self.signal(thread, &Command::Wait { notify }, Sqe::NO_PEER, Pattern::NO_BASE)
            }
            Task::ChannelRecord { peer, notify } => self.channel_record(thread, peer, notify),
            Task::ChannelWait { peer, notify } => {
                let (channel, _) = self.resources.channel(peer)?;
                let notify = channel_notify(channel.local_notify, notify);
                self.signal(thread, &Command::Wait { notify }, label_of(peer), Pattern::NO_BASE)
            }
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

    /// Resolves peer, pattern and labels once; then each write is one descriptor that differs in four lanes.
    #[inline]
    fn write_batch(
        &mut self,
        thread: ThreadId,
        batch: &WriteBatch,
        parts: impl Iterator<Item = Part>,
    ) -> Result<(), ErrorCode> {
        check_peer(batch.dst, batch.peer)?;
        self.resources.thread(thread)?;
        let (channel, _) = self.resources.channel(batch.peer)?;
        if Protocol::try_from(channel.protocol)?.uses_queue_pair() {
            return write_singly(self, thread, batch, parts);
        }
        let mut writes = Writes::new(self, thread, channel, batch)?;
        for part in parts {
            writes.push(self, part)?;
        }
        let fused = self.caps(batch.peer).write_notify && writes.count > 0;
        writes.finish(self, channel, fused.then_some(batch.then));
        if fused { Ok(()) } else { self.channel_record(thread, batch.peer, batch.then) }
    }
}

/// The writes of a batch: one descriptor to copy, with four lanes to fill in.
struct Writes {
    queue: QueueIndex,
    transfer: Transfer,
    labels: Labels,
    descriptor: Descriptor,
    number: u16,
    /// Longest of one transfer, bytes.
    most: u64,
    count: u32,
    ends: [u64; 2],
    pattern: Pattern,
}

impl Writes {
    // Inlined: returned through memory, its pieces would be loaded whole before they are there.
    #[inline(always)]
    fn new<S: DerefMut<Target = [Block]>>(
        recorder: &mut Recorder<'_, S>,
        thread: ThreadId,
        channel: &ChannelEntry,
        batch: &WriteBatch,
    ) -> Result<Self, ErrorCode> {
        let transfer = Transfer {
            kind: TransferKind::Write { channel: channel.index },
            engine: Engine::Sdma,
            reduction: batch.reduction,
            src: Operand::default(),
            dst: Operand::default(),
            len: 0,
            notify: None,
        };
        let pattern = Pattern::Sqe { src: Some(batch.src), dst: Some(batch.dst) };
        let labels = recorder.labels(label_of(batch.peer));
        let descriptor = Descriptor::from(Command::Transfer(transfer).emit(labels));
        let number = recorder.graph.patterns.intern(pattern, [0; 2])?;
        let (queue, most) = (QueueIndex(thread.0), channel.max_len);
        Ok(Self { queue, transfer, labels, descriptor, number, most, count: 0, ends: [0; 2], pattern })
    }

    /// Writes a part, in as many pieces as the engine needs.
    #[inline(always)]
    fn push<S: DerefMut<Target = [Block]>>(
        &mut self,
        recorder: &mut Recorder<'_, S>,
        mut part: Part,
    ) -> Result<(), ErrorCode> {
        while part.len > 0 {
            let len = if part.len > self.most { whole_granules(self.most) } else { part.len };
            let [head, _, _, _, _, tokens, signal, launch] = self.descriptor.lanes;
            let task = u64::from(recorder.graph.len());
            let lanes = [head, task, part.src, part.dst, len, tokens, signal, launch];
            for (end, start) in self.ends.iter_mut().zip([part.src, part.dst]) {
                *end = (*end).max(start.saturating_add(len));
            }
            recorder.graph.push(self.queue, Descriptor { lanes }, self.number)?;
            self.count += 1;
            part = Part { dst: part.dst + len, src: part.src + len, len: part.len - len };
        }
        Ok(())
    }

    /// Notes how far the writes reach, and lets the last one set a notify.
    #[inline(always)]
    fn finish<S: DerefMut<Target = [Block]>>(
        self,
        recorder: &mut Recorder<'_, S>,
        channel: &ChannelEntry,
        then: Option<ChannelNotify>,
    ) {
        recorder.graph.kinds.transfers += self.count;
        // The pattern exists, so this finds it.
        let _ = recorder.graph.patterns.intern(self.pattern, self.ends);
        let Some(last) = recorder.graph.last_mut(self.queue).filter(|_| then.is_some()) else { return };
        let notify = then.map(|notify| channel_notify(channel.remote_notify, notify));
        let notifying = Command::Transfer(Transfer { notify, ..self.transfer }).emit(self.labels);
        let [head, _, _, _, _, _, signal, _] = Descriptor::from(notifying).lanes;
        let [_, task, src, dst, len, tokens, _, launch] = last.lanes;
        last.lanes = [head, task, src, dst, len, tokens, signal, launch];
    }
}

/// An operand with its base left out.
#[inline]
fn operand(span: Span) -> Operand {
    Operand { addr: wire::DeviceAddr(span.offset), token: 0 }
}

/// The peer label of a descriptor: 16 bits; ranks above are labelled as no peer.
#[inline]
fn label_of(peer: Rank) -> u16 {
    u16::try_from(peer).unwrap_or(Sqe::NO_PEER)
}

fn check_peer(region: RegionId, peer: Rank) -> Result<(), ErrorCode> {
    if region.peer() == Some(peer) { Ok(()) } else { Err(ErrorCode::PLAN_INTERNAL) }
}

/// Returns the length of both ends of a transfer. One without bytes is no transfer: its notify would be lost.
fn same_len(a: Span, b: Span) -> Result<u64, ErrorCode> {
    if a.len == b.len && a.len > 0 { Ok(a.len) } else { Err(ErrorCode::PLAN_INTERNAL) }
}
