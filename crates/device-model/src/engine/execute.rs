//! One submission entry: parse, check, carry out, report.

use core::sync::atomic::Ordering;

use wire::npu::{self, Access, Protocol};
use wire::{Control, Cqe, Engine as Mover, ErrorCode, Sqe, SqeFlags, Transfer, TransferKind};

use super::slots::{Hold, Queue};
use super::tables::{self, Channel, Limits};
use super::transfer::{End, Move};
use super::{Device, Refusal, Site};
use crate::memory::Window;

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
}

/// Why a task failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The submission entry was refused.
    Refused(Refusal),
    /// A work request that it let run was refused: reported as that entry's.
    Work(Cqe),
}

impl Failure {
    /// Returns the completion that reports it, of the entry at the head of `queue`.
    #[cold]
    fn report(self, queue: &Queue) -> Box<Cqe> {
        Box::new(match self {
            Self::Refused(refusal) => completion_of(&queue.entry, queue.place(), refusal),
            Self::Work(cqe) => cqe,
        })
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ErrorCode> for Failure {
    fn from(code: ErrorCode) -> Self {
        Self::Refused(code.into())
    }
}

impl Device<'_> {
    /// Executes the entry at the head of a thread's ring.
    ///
    /// # Errors
    /// The completion that reports the refusal, rare and large; nothing has been published yet.
    #[inline]
    pub(super) fn execute(&mut self, queue: &mut Queue) -> Result<Step, Box<Cqe>> {
        if queue.entry.flags & SqeFlags::COMPLETE.bits() != 0 {
            self.execute_and_report(queue)
        } else {
            self.obey(queue)
        }
    }

    /// Executes an entry that wants a completion, one in many.
    #[inline(never)]
    fn execute_and_report(&mut self, queue: &mut Queue) -> Result<Step, Box<Cqe>> {
        let window = &self.site.window;
        if !self.books.completions.has_room(window) {
            return Ok(Step::Held(Hold::Completion));
        }
        let step = self.obey(queue)?;
        if step == Step::Done {
            let cqe = completion_of(&queue.entry, queue.place(), ErrorCode::OK.into());
            match self.books.mishaps.completion() {
                None => self.books.completions.write(window, cqe),
                Some(wrong) => self.books.completions.write_wrong(window, cqe, wrong),
            }
        }
        Ok(step)
    }

    /// Does what an entry says.
    #[inline(always)]
    fn obey(&mut self, queue: &mut Queue) -> Result<Step, Box<Cqe>> {
        // Signals are most of all entries, and small: they stay in registers when they are no variant of a transfer.
        if queue.entry.is_transfer() {
            return self.transfer(queue);
        }
        let control = match Control::parse(&queue.entry) {
            Ok(control) => control,
            Err(code) => return Err(Failure::from(code).report(queue)),
        };
        match self.control(control) {
            Ok(step) => Ok(step),
            Err(failure) => Err(failure.report(queue)),
        }
    }

    /// Apart from signals, which would do without registers for its sake.
    #[inline(never)]
    fn transfer(&mut self, queue: &mut Queue) -> Result<Step, Box<Cqe>> {
        let transfer = Transfer::parse(&queue.entry).map_err(Failure::from);
        let step = transfer.and_then(|transfer| self.carry_out(transfer, &mut queue.moved));
        step.map_err(|failure| failure.report(queue))
    }

    #[inline(always)]
    fn control(&mut self, control: Control) -> Result<Step, Failure> {
        let Site { npu, window, .. } = self.site;
        match control {
            Control::Record { notify } => self.record_on(*npu, window, notify)?,
            Control::Wait { notify } => {
                if !tables::try_wait(window, notify)? {
                    return Ok(Step::Held(Hold::Notify(notify)));
                }
                self.books.counters.waits += 1;
            }
            Control::RecordPeer { channel, notify } => {
                let channel = in_server(tables::channel(self.site, channel)?)?;
                self.record_at(&channel, notify)?;
            }
            Control::RecordHost { notify } => self.record_host(notify)?,
            Control::Post { channel, wqe_tail } => {
                if !self.post(channel, wqe_tail)? {
                    return Ok(Step::Held(Hold::Transfer));
                }
            }
        }
        Ok(Step::Done)
    }

    /// Carries a transfer out; `moved` counts the bytes moved so far.
    #[inline(always)]
    fn carry_out(&mut self, transfer: Transfer, moved: &mut u64) -> Result<Step, Failure> {
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
        let far =
            |operand, need| End { window: link.as_ref().map_or(window, |link| link.peer), operand, need };
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
        let before = *moved;
        let written = transfer.perform(moved, self.books.piece)?;
        self.books.moved += *moved - before;
        let done = *moved == len;
        if done {
            *moved = 0;
            self.books.counters.reduced_bytes += if reduction.is_some() { len } else { 0 };
            if let Some((bit, detected)) = self.books.mishaps.flip() {
                written.flip(bit % (8 * len));
                if detected {
                    return Err(Refusal { code: ErrorCode::DMA_CORRUPT, address: dst.operand.addr });
                }
            }
        }
        Ok(done)
    }

    /// Sets a notify, here or at a peer.
    #[inline(always)]
    fn record_on(&mut self, npu: u32, window: &Window, notify: u32) -> Result<(), Refusal> {
        let fabric = &self.site.fabric;
        if !self.books.mishaps.loses_signal(fabric, npu, notify) {
            tables::record(fabric, npu, window, notify)?;
        }
        self.books.counters.records += 1;
        Ok(())
    }

    /// Sets a notify of the NPU at the other end of a channel.
    #[inline(always)]
    pub(super) fn record_at(&mut self, channel: &Channel<'_>, notify: u32) -> Result<(), Refusal> {
        self.record_on(channel.peer_npu, channel.peer, notify)?;
        self.site.fabric.signals().mark(channel.peer_npu);
        Ok(())
    }

    fn record_host(&mut self, notify: u32) -> Result<(), Refusal> {
        if u64::from(notify) >= npu::HOST_NOTIFIES {
            return Err(ErrorCode::SQE_CHANNEL.into());
        }
        let word = self.site.window.word(npu::HOST_NOTIFY + 8 * u64::from(notify));
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
