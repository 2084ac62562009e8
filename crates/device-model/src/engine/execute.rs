//! One submission entry: parse, check, carry out, report.

use core::sync::atomic::Ordering;

use wire::npu::{Access, Protocol};
use wire::{Control, Cqe, Engine as Mover, ErrorCode, Sqe, SqeFlags, Transfer, TransferKind};

use super::slots::{Hold, Queue};
use super::tables::{self, Channel, Limits};
use super::transfer::{End, Move};
use super::{Device, Refusal};
use crate::fabric::Seat;

/// Where an entry stands: its queue and the low half of its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) queue: u16,
    pub(super) position: u32,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is done.
    Done,
    /// It cannot be done yet.
    Held(Hold),
    /// It was refused, and has stopped the NPU.
    Stopped,
}

impl Device<'_> {
    /// Executes the entry at the head of a thread's ring. Whatever is published of it is published here.
    #[inline(always)]
    pub(super) fn execute(&mut self, queue: &mut Queue) -> Step {
        if queue.entry.flags & SqeFlags::COMPLETE.bits() != 0 {
            self.execute_and_report(queue)
        } else {
            self.obey(queue)
        }
    }

    /// Executes an entry that wants a completion, one in many.
    #[inline(never)]
    fn execute_and_report(&mut self, queue: &mut Queue) -> Step {
        let window = &self.site.window;
        if !self.books.completions.has_room(window) {
            return Step::Held(Hold::Completion);
        }
        let step = self.obey(queue);
        if step == Step::Done {
            let cqe = completion_of(&queue.entry, queue.place(), ErrorCode::OK.into());
            match self.books.mishaps.completion() {
                None => self.books.completions.write(window, cqe),
                Some(wrong) => self.books.completions.write_wrong(window, cqe, wrong),
            }
        }
        step
    }

    /// Does what an entry says.
    #[inline(always)]
    fn obey(&mut self, queue: &mut Queue) -> Step {
        // Signals are most of all entries, and small: they stay in registers when they are no variant of a transfer.
        if queue.entry.is_transfer() {
            return self.transfer(queue);
        }
        let step = match Control::parse(&queue.entry) {
            Ok(control) => self.control(control, queue),
            Err(code) => Err(code.into()),
        };
        step.unwrap_or_else(|refusal| self.refuse(queue, refusal))
    }

    /// Apart from signals, which would do without registers for its sake.
    #[inline(never)]
    fn transfer(&mut self, queue: &mut Queue) -> Step {
        let transfer = Transfer::parse(&queue.entry).map_err(Refusal::from);
        let step = transfer.and_then(|transfer| self.carry_out(transfer, &mut queue.moved));
        step.unwrap_or_else(|refusal| self.refuse(queue, refusal))
    }

    #[inline(always)]
    fn control(&mut self, control: Control, queue: &mut Queue) -> Result<Step, Refusal> {
        match control {
            Control::Record { notify } => self.record_on(self.site.npu, self.site.seat(), notify)?,
            Control::Wait { notify } => {
                if !tables::try_wait(&self.site.window, notify)? {
                    return Ok(Step::Held(Hold::Notify(notify)));
                }
                self.books.counters.waits += 1;
            }
            Control::RecordPeer { channel, notify } => {
                let channel = in_server(tables::channel(self.site, channel)?)?;
                self.record_at(&channel, notify)?;
            }
            Control::RecordHost { notify } => self.record_host(notify)?,
            Control::Post { channel, wqe_tail } => return Ok(self.post(queue, channel, wqe_tail)),
        }
        Ok(Step::Done)
    }

    /// Carries a transfer out; `moved` counts the bytes moved so far.
    #[inline(always)]
    fn carry_out(&mut self, transfer: Transfer, moved: &mut u64) -> Result<Step, Refusal> {
        let Transfer { kind, engine, reduction, mut src, dst, len, notify } = transfer;
        if core::mem::take(&mut self.books.flip_token) {
            src.token ^= 1 << 31;
        }
        let window = &self.site.window;
        let link = match kind {
            TransferKind::Local => None,
            TransferKind::Write { channel } | TransferKind::Read { channel } => {
                Some(in_server(tables::channel(self.site, channel)?)?)
            }
        };
        let near = |operand, need| End { window, operand, need };
        let far = |operand, need| End {
            window: link.as_ref().map_or(window, |link| &link.peer.window),
            operand,
            need,
        };
        let (src, dst) = match kind {
            TransferKind::Local => (near(src, Access::READ), near(dst, Access::WRITE)),
            TransferKind::Write { .. } => (near(src, Access::READ), far(dst, Access::PEER_WRITE)),
            TransferKind::Read { .. } => (far(src, Access::PEER_READ), near(dst, Access::WRITE)),
        };
        let own = if engine == Mover::Aicpu { Limits::AICPU } else { Limits::SDMA };
        let limits = link.as_ref().map_or(own, Channel::limits);
        if !self.perform(Move { src, dst, len, reduction, limits }, moved)? {
            return Ok(Step::Held(Hold::Transfer));
        }
        let counters = &mut self.books.counters;
        match (kind, link) {
            (TransferKind::Write { .. }, Some(link)) => {
                counters.count_sent(link.protocol, len);
                notify.map_or(Ok(()), |notify| self.record_at(&link, notify))?;
            }
            (TransferKind::Read { .. }, Some(link)) => counters.count_received(link.protocol, len),
            _ => counters.local_bytes += len,
        }
        Ok(Step::Done)
    }

    /// Performs a transfer, or the next piece of it; returns whether it is done.
    #[inline(always)]
    pub(super) fn perform(&mut self, transfer: Move<'_>, moved: &mut u64) -> Result<bool, Refusal> {
        let Move { len, reduction, dst, .. } = transfer;
        let (now, written) = transfer.perform(*moved, self.books.piece)?;
        self.books.moved += now - *moved;
        if now < len {
            *moved = now;
            return Ok(false);
        }
        *moved = 0;
        if reduction.is_some() {
            self.books.counters.reduced_bytes += len;
        }
        if self.books.mishaps.flips() && self.books.mishaps.flip(&written) {
            return Err(Refusal { code: ErrorCode::DMA_CORRUPT, address: dst.operand.addr });
        }
        Ok(true)
    }

    /// Sets a notify, here or at a peer.
    #[inline(always)]
    fn record_on(&mut self, npu: u32, seat: &Seat, notify: u32) -> Result<(), Refusal> {
        let fabric = &self.site.fabric;
        if !self.books.mishaps.loses_signal(fabric, npu, notify) {
            tables::record(fabric, npu, seat, notify)?;
        }
        self.books.counters.records += 1;
        Ok(())
    }

    /// Sets a notify of the NPU at the other end of a channel.
    #[inline(always)]
    pub(super) fn record_at(&mut self, channel: &Channel<'_>, notify: u32) -> Result<(), Refusal> {
        self.record_on(channel.peer_npu, channel.peer, notify)?;
        channel.peer.mark();
        Ok(())
    }

    fn record_host(&mut self, notify: u32) -> Result<(), Refusal> {
        let word = self.site.window.host_notifies().get(notify as usize).ok_or(ErrorCode::SQE_CHANNEL)?;
        // ORDER: this engine is the only writer; pairs with the host's acquire load.
        word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        self.books.counters.records += 1;
        Ok(())
    }
}

/// Returns the channel if copy engines can reach its peer.
#[inline]
fn in_server(channel: Channel<'_>) -> Result<Channel<'_>, ErrorCode> {
    if channel.protocol == Protocol::Hccs { Ok(channel) } else { Err(ErrorCode::DMA_LINK) }
}

/// Returns the completion that reports on a submission entry.
pub(super) fn completion_of(sqe: &Sqe, place: Place, refusal: Refusal) -> Cqe {
    Cqe {
        task: sqe.task,
        address: refusal.address.0,
        code: refusal.code,
        queue: place.queue,
        step: sqe.step,
        peer: sqe.peer,
        position: place.position,
        skeleton: sqe.phase,
        opcode: sqe.opcode,
        reserved: 0,
        phase: 0,
    }
}
