//! What goes over links: transfers and signals, by this device's copy engine or through a queue pair.

use core::ops::DerefMut;

use wire::{Command, Descriptor, Engine, ErrorCode, Labels, Reduction, Transfer, TransferKind, WorkRequest};

use super::{Recorder, operand, same_len};
use crate::encode::Link;
use crate::graph::{Block, QueueIndex};
use crate::pattern::{NO_BASE, Pattern, end};
use crate::{ChannelNotify, Part, Rank, RegionId, Span, ThreadId, WriteBatch};

/// A transfer between this rank and a peer, before the protocol has been looked at.
#[derive(Clone, Copy)]
pub(super) struct PeerTransfer {
    pub(super) writes: bool,
    pub(super) local: Span,
    pub(super) remote: Span,
    pub(super) reduction: Option<Reduction>,
    pub(super) notify: Option<ChannelNotify>,
}

impl PeerTransfer {
    /// Takes the longest piece off the front that a link moves in one. Only the last piece says that data landed.
    fn split_off(&mut self, most: u64) -> Self {
        let (local, remote) = (self.local.split_off(most), self.remote.split_off(most));
        Self { local, remote, notify: None, ..*self }
    }
}

impl<'a, S: DerefMut<Target = [Block]>> Recorder<'a, S> {
    /// A transfer over a link, in pieces that it moves in one.
    #[inline(always)]
    pub(super) fn over(
        &mut self,
        thread: ThreadId,
        link: Link<'a>,
        transfer: PeerTransfer,
    ) -> Result<(), ErrorCode> {
        same_len(transfer.remote, transfer.local)?;
        if link.is_queue_pair() {
            return self.over_pair(thread, link, transfer);
        }
        let mut rest = transfer;
        while rest.local.len > link.channel.max_len {
            let piece = rest.split_off(link.channel.max_len);
            self.sdma(thread, link, &piece)?;
        }
        if rest.local.len > 0 { self.sdma(thread, link, &rest) } else { Ok(()) }
    }

    /// The same through a queue pair: a work request and a post for each piece.
    fn over_pair(
        &mut self,
        thread: ThreadId,
        link: Link<'a>,
        transfer: PeerTransfer,
    ) -> Result<(), ErrorCode> {
        let mut rest = transfer;
        while rest.local.len > 0 {
            let mut piece = rest;
            if rest.local.len > link.channel.max_len {
                piece = rest.split_off(link.channel.max_len);
            } else {
                rest.local.len = 0;
            }
            let PeerTransfer { local, remote, reduction, .. } = piece;
            let (local_op, remote_op, len) = (operand(local), operand(remote), local.len);
            let notify = piece.notify.map(|notify| link.remote(notify));
            let request = if piece.writes {
                WorkRequest::Write { local: local_op, remote: remote_op, len, reduction, notify }
            } else {
                WorkRequest::Read { local: local_op, remote: remote_op, len, reduction }
            };
            let pattern = Pattern::Wqe { local: Some(local.region), remote: Some(remote.region) };
            self.graph.kinds.transfers += 1;
            self.wqe(link, &request, pattern, [end(&local), end(&remote)])?;
            self.post(thread, link)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn sdma(&mut self, thread: ThreadId, link: Link<'a>, transfer: &PeerTransfer) -> Result<(), ErrorCode> {
        let PeerTransfer { local, remote, reduction, .. } = *transfer;
        let channel = link.channel.index;
        let (kind, src, dst) = if transfer.writes {
            (TransferKind::Write { channel }, local, remote)
        } else {
            (TransferKind::Read { channel }, remote, local)
        };
        let command = Command::Transfer(Transfer {
            kind,
            engine: Engine::Sdma,
            reduction,
            src: operand(src),
            dst: operand(dst),
            len: src.len,
            notify: transfer.notify.map(|notify| link.remote(notify)),
        });
        self.graph.kinds.transfers += 1;
        let pattern = Pattern::Sqe { src: Some(src.region), dst: Some(dst.region) };
        self.sqe(thread, &command, self.labels(link.label()), pattern, [end(&src), end(&dst)])
    }

    fn wqe(
        &mut self,
        link: Link<'a>,
        request: &WorkRequest,
        pattern: Pattern,
        ends: [u64; 2],
    ) -> Result<(), ErrorCode> {
        let number = self.graph.patterns.intern(pattern, ends)?;
        self.graph.kinds.wqes += 1;
        let wqe = request.emit(self.labels(link.label()));
        self.graph.push(link.queue, Descriptor::from(wqe), number)
    }

    /// Lets the queue pair run up to what has been recorded for it.
    fn post(&mut self, thread: ThreadId, link: Link<'a>) -> Result<(), ErrorCode> {
        let queue = link.queue;
        let command = Command::Post { channel: link.channel.index, wqe_tail: self.graph.queue_len(queue) };
        self.sqe(thread, &command, self.labels(link.label()), Pattern::Post { queue }, [0; 2])
    }

    /// Sets a notify at the other end.
    #[inline(always)]
    pub(super) fn record_over(
        &mut self,
        thread: ThreadId,
        link: Link<'a>,
        notify: ChannelNotify,
    ) -> Result<(), ErrorCode> {
        if link.is_queue_pair() {
            return self.record_over_pair(thread, link, notify);
        }
        let command = Command::RecordPeer { channel: link.channel.index, notify: link.remote(notify) };
        self.signal(thread, &command, link.label(), Pattern::NO_BASE)
    }

    fn record_over_pair(
        &mut self,
        thread: ThreadId,
        link: Link<'a>,
        notify: ChannelNotify,
    ) -> Result<(), ErrorCode> {
        self.graph.kinds.signals += 1;
        let none = Pattern::Wqe { local: None, remote: None };
        self.wqe(link, &WorkRequest::Record { notify: link.remote(notify) }, none, [0; 2])?;
        self.post(thread, link)
    }

    /// Waits for a notify that the other end sets.
    #[inline(always)]
    pub(super) fn wait_over(
        &mut self,
        thread: ThreadId,
        link: Link<'a>,
        notify: ChannelNotify,
    ) -> Result<(), ErrorCode> {
        self.signal(thread, &Command::Wait { notify: link.local(notify) }, link.label(), Pattern::NO_BASE)
    }

    /// A step with one transfer by this device's copy engine: four descriptors. Returns whether that is what it takes, and
    /// whether they have room together; nothing is recorded elsewhere.
    #[inline(always)]
    pub(super) fn exchange_by_sdma(
        &mut self,
        thread: ThreadId,
        from: Link<'a>,
        to: Link<'a>,
        (batch, part, then): (&WriteBatch, Part, ChannelNotify),
    ) -> Result<bool, ErrorCode> {
        let pairs = from.is_queue_pair() || to.is_queue_pair();
        if pairs || part.len == 0 || part.len > to.channel.max_len {
            return Ok(false);
        }
        let (remote, local) = batch.spans(part);
        let pattern = Pattern::Sqe { src: Some(local.region), dst: Some(remote.region) };
        let number = self.graph.patterns.intern(pattern, [end(&local), end(&remote)])?;
        let Self { phase, step, .. } = *self;
        let transfer = Transfer {
            kind: TransferKind::Write { channel: to.channel.index },
            engine: Engine::Sdma,
            reduction: batch.reduction,
            src: operand(local),
            dst: operand(remote),
            len: part.len,
            notify: Some(to.remote(then)),
        };
        let allow =
            Command::RecordPeer { channel: from.channel.index, notify: from.remote(ChannelNotify::Ack) };
        let wait = |link: Link<'a>, notify| Command::Wait { notify: link.local(notify) };
        let labels = |task, link: Link<'a>| Labels {
            task,
            phase,
            step,
            peer: link.label(),
            timeout_ms: 0,
            complete: false,
        };
        let queue = QueueIndex(thread.0);
        let Some((task, [first, second, third, fourth], numbers)) = self.graph.room(queue) else {
            return Ok(false);
        };
        *first = allow.emit(labels(task, from)).into();
        *second = wait(to, ChannelNotify::Ack).emit(labels(task + 1, to)).into();
        *third = Command::Transfer(transfer).emit(labels(task + 2, to)).into();
        *fourth = wait(from, ChannelNotify::Data).emit(labels(task + 3, from)).into();
        *numbers = [NO_BASE, NO_BASE, number, NO_BASE];
        self.graph.kinds.signals += 3;
        self.graph.kinds.transfers += 1;
        Ok(true)
    }

    /// A step of any links and writes.
    #[inline(never)]
    pub(super) fn exchange_in_pieces(
        &mut self,
        thread: ThreadId,
        from: Option<Rank>,
        to: Link<'a>,
        (batch, parts): (&WriteBatch, &[Part]),
    ) -> Result<(), ErrorCode> {
        let from = from.map(|from| self.resources.link(from)).transpose()?;
        if let Some(from) = from {
            self.record_over(thread, from, ChannelNotify::Ack)?;
        }
        self.wait_over(thread, to, ChannelNotify::Ack)?;
        self.write_over(thread, to, batch, parts)?;
        from.map_or(Ok(()), |from| self.wait_over(thread, from, ChannelNotify::Data))
    }

    /// The writes of a batch, the last one with its notify where the link can.
    #[inline(always)]
    pub(super) fn write_over(
        &mut self,
        thread: ThreadId,
        link: Link<'a>,
        batch: &WriteBatch,
        parts: &[Part],
    ) -> Result<(), ErrorCode> {
        let (writes, reduction) = (true, batch.reduction);
        let last = parts.iter().rposition(|part| part.len > 0);
        let fused = batch.then.filter(|_| last.is_some() && link.caps().write_notify);
        for (index, part) in parts.iter().enumerate().filter(|(_, part)| part.len > 0) {
            let (remote, local) = batch.spans(*part);
            let notify = fused.filter(|_| Some(index) == last);
            self.over(thread, link, PeerTransfer { writes, local, remote, reduction, notify })?;
        }
        match batch.then {
            Some(notify) if fused.is_none() => self.record_over(thread, link, notify),
            _ => Ok(()),
        }
    }
}

pub(super) fn check_peer(region: RegionId, peer: Rank) -> Result<(), ErrorCode> {
    if region.peer() == Some(peer) { Ok(()) } else { Err(ErrorCode::PLAN_INTERNAL) }
}
