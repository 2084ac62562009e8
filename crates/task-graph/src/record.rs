//! The recorder: the sink that encodes tasks into a graph.

use core::ops::DerefMut;

use wire::npu::{Protocol, TRANSFER_GRANULE};
use wire::{
    Command, Descriptor, Engine, ErrorCode, Labels, Operand, Phase, Reduction, Sqe, Transfer, TransferKind,
    WorkRequest,
};

use crate::encode::{Resources, channel_notify};
use crate::graph::{Block, QueueIndex, TaskGraph};
use crate::pattern::{Pattern, end};
use crate::{Caps, ChannelNotify, Rank, RegionId, Span, Task, TaskSink, ThreadId};

/// Records the tasks of one rank.
#[derive(Debug)]
pub struct Recorder<'a, S> {
    graph: &'a mut TaskGraph<S>,
    resources: Resources<'a>,
    labels: Labels,
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

impl<'a, S: DerefMut<Target = [Block]>> Recorder<'a, S> {
    /// Makes a recorder that appends to `graph`, which the caller has cleared.
    pub fn new(graph: &'a mut TaskGraph<S>, resources: Resources<'a>) -> Self {
        let labels = Labels {
            task: 0,
            phase: Phase::Start,
            step: 0,
            peer: Sqe::NO_PEER,
            timeout_ms: 0,
            complete: false,
        };
        Self { graph, resources, labels }
    }

    /// The labels of the next descriptor: its index within the graph is its task id.
    #[inline]
    fn labels(&self, peer: u16) -> Labels {
        Labels { task: u64::from(self.graph.len()), peer, ..self.labels }
    }

    #[inline]
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

    #[inline]
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

    #[inline]
    fn local(
        &mut self,
        thread: ThreadId,
        dst: Span,
        src: Span,
        reduction: Option<Reduction>,
    ) -> Result<(), ErrorCode> {
        self.resources.thread(thread)?;
        let sdma = reduction.is_none_or(|reduction| self.resources.sdma_reduces(reduction));
        let engine = if sdma { Engine::Sdma } else { Engine::Aicpu };
        let pattern = Pattern::Sqe { src: Some(src.region), dst: Some(dst.region) };
        for (skip, len) in pieces(same_len(dst, src)?, self.resources.sdma_max_len()) {
            let (dst, src) = (dst.part(skip, len), src.part(skip, len));
            let command = Command::Transfer(Transfer {
                kind: TransferKind::Local,
                engine,
                reduction,
                src: operand(src),
                dst: operand(dst),
                len,
                notify: None,
            });
            match reduction {
                Some(_) => self.graph.kinds.reduces += 1,
                None => self.graph.kinds.copies += 1,
            }
            let labels = self.labels(Sqe::NO_PEER);
            self.sqe(thread, &command, labels, pattern, [end(&src), end(&dst)])?;
        }
        Ok(())
    }

    #[inline]
    fn peer(&mut self, thread: ThreadId, transfer: PeerTransfer) -> Result<(), ErrorCode> {
        self.resources.thread(thread)?;
        let (channel, queue) = self.resources.channel(transfer.peer)?;
        let remote_notify = channel.remote_notify;
        let (index, label) = (channel.index, label_of(transfer.peer));
        let over_pair = Protocol::try_from(channel.protocol)?.uses_queue_pair();
        let total = same_len(transfer.remote, transfer.local)?;
        for (skip, len) in pieces(total, channel.max_len) {
            let (local, remote) = (transfer.local.part(skip, len), transfer.remote.part(skip, len));
            // Only the last piece says that the data has landed.
            let last = skip + len == total;
            let notify = transfer.notify.filter(|_| last).map(|notify| channel_notify(remote_notify, notify));
            self.graph.kinds.transfers += 1;
            if over_pair {
                let (local_op, remote_op) = (operand(local), operand(remote));
                let reduction = transfer.reduction;
                let request = if transfer.writes {
                    WorkRequest::Write { local: local_op, remote: remote_op, len, reduction, notify }
                } else {
                    WorkRequest::Read { local: local_op, remote: remote_op, len, reduction }
                };
                let pattern = Pattern::Wqe { local: Some(local.region), remote: Some(remote.region) };
                self.wqe(queue, &request, label, pattern, [end(&local), end(&remote)])?;
                self.post(thread, index, queue, label)?;
            } else {
                self.sdma(thread, index, label, &transfer, [local, remote], notify)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn sdma(
        &mut self,
        thread: ThreadId,
        channel: u16,
        label: u16,
        transfer: &PeerTransfer,
        [local, remote]: [Span; 2],
        notify: Option<u32>,
    ) -> Result<(), ErrorCode> {
        let (kind, src, dst) = if transfer.writes {
            (TransferKind::Write { channel }, local, remote)
        } else {
            (TransferKind::Read { channel }, remote, local)
        };
        let command = Command::Transfer(Transfer {
            kind,
            engine: Engine::Sdma,
            reduction: transfer.reduction,
            src: operand(src),
            dst: operand(dst),
            len: src.len,
            notify,
        });
        let pattern = Pattern::Sqe { src: Some(src.region), dst: Some(dst.region) };
        let labels = self.labels(label);
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
            self.signal(thread, &Command::RecordPeer { channel: index, notify }, label, NO_BASE)
        }
    }
}

/// The pattern of a submission entry without operands.
const NO_BASE: Pattern = Pattern::Sqe { src: None, dst: None };

impl<S: DerefMut<Target = [Block]>> TaskSink for Recorder<'_, S> {
    fn caps(&self, peer: Rank) -> Caps {
        self.resources.caps(peer)
    }

    fn mark(&mut self, phase: Phase, step: u16) {
        (self.labels.phase, self.labels.step) = (phase, step);
        if phase == Phase::Run {
            self.graph.steps = self.graph.steps.max(u32::from(step) + 1);
        }
    }

    #[inline]
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
                self.signal(thread, &Command::Record { notify }, Sqe::NO_PEER, NO_BASE)
            }
            Task::ThreadWait { index } => {
                let notify = self.resources.thread_notify(thread, index)?;
                self.signal(thread, &Command::Wait { notify }, Sqe::NO_PEER, NO_BASE)
            }
            Task::ChannelRecord { peer, notify } => self.channel_record(thread, peer, notify),
            Task::ChannelWait { peer, notify } => {
                let (channel, _) = self.resources.channel(peer)?;
                let notify = channel_notify(channel.local_notify, notify);
                self.signal(thread, &Command::Wait { notify }, label_of(peer), NO_BASE)
            }
            Task::WaitStart => {
                self.signal(thread, &Command::Wait { notify: 0 }, Sqe::NO_PEER, Pattern::Start)
            }
            Task::RecordDone => {
                self.signal(thread, &Command::RecordHost { notify: 0 }, Sqe::NO_PEER, Pattern::Done)
            }
        }
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

/// Cuts `total` bytes into (skip, len) pieces of at most `max` bytes, all but the last whole granules.
#[inline]
fn pieces(total: u64, max: u64) -> impl Iterator<Item = (u64, u64)> {
    // No engine's limit is below one granule.
    let most = (max - max % TRANSFER_GRANULE).max(TRANSFER_GRANULE);
    let mut skip = 0;
    core::iter::from_fn(move || {
        let len = (total - skip).min(most);
        let piece = (skip, len);
        skip += len;
        (len > 0).then_some(piece)
    })
}
