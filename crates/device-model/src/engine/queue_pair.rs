//! The engine behind RoCE and UB channels: runs a queue pair's work queue up to where a post let it.
//!
//! A work request that is refused puts its queue pair into the error state, where it stays; the queue's slot must be
//! taken anew.

use core::sync::atomic::Ordering;

use wire::npu::Access;
use wire::{Cqe, DeviceAddr, ErrorCode, Operand, WorkRequest, Wqe};

use super::execute::{Place, Step};
use super::mishap::Blow;
use super::slots::{Hold, Queue};
use super::tables::{self, Channel};
use super::transfer::{End, Move};
use super::{Device, Refusal};

/// Why a post failed.
enum Failure {
    /// It was refused itself.
    Refused(Refusal),
    /// A work request that it let run was refused: reported as that entry's.
    Work(Cqe),
}

impl From<ErrorCode> for Failure {
    fn from(code: ErrorCode) -> Self {
        Self::Refused(code.into())
    }
}

impl Device<'_> {
    /// Rings the doorbell of a channel's queue pair and runs it, for the post at the head of a thread's ring.
    #[inline(never)]
    pub(super) fn post(&mut self, queue: &mut Queue, channel: u16, wqe_tail: u32) -> Step {
        match self.run_pair_of(channel, wqe_tail) {
            Ok(true) => Step::Done,
            Ok(false) => Step::Held(Hold::Transfer),
            Err(Failure::Refused(refusal)) => self.refuse(queue, refusal),
            Err(Failure::Work(cqe)) => self.fail(queue, cqe),
        }
    }

    /// Runs a channel's queue pair; returns whether it is through.
    ///
    /// # Errors
    /// `SQE_CHANNEL` when the channel has no queue pair, `SQ_OVERRUN` when the tail is more than the ring holds,
    /// `QP_ERROR` after an earlier error; a work request's own refusal, reported as that request's.
    fn run_pair_of(&mut self, channel: u16, wqe_tail: u32) -> Result<bool, Failure> {
        let window = &self.site.window;
        let channel = tables::channel(self.site, channel)?;
        // The pairs are lent out while one of them runs: the requests need the rest of the device.
        let pairs = core::mem::take(&mut self.pairs);
        let known = pairs.binary_search_by_key(&channel.queue, |pair| pair.id).ok();
        let pair = known.map(|index| &mut pairs[index]).filter(|pair| pair.is_current(window));
        let done = match pair.filter(|_| channel.protocol.uses_queue_pair()) {
            None => Err(ErrorCode::SQE_CHANNEL.into()),
            Some(pair) if pair.is_broken => Err(ErrorCode::QP_ERROR.into()),
            Some(pair) => self.run_pair(pair, &channel, wqe_tail),
        };
        self.pairs = pairs;
        done
    }

    fn run_pair(&mut self, pair: &mut Queue, channel: &Channel<'_>, wqe_tail: u32) -> Result<bool, Failure> {
        let window = &self.site.window;
        let memory = pair.memory(window);
        // ORDER: the entries are the thread's, written before the doorbell of the post; this store is for readers.
        window.doorbells()[usize::from(pair.id)].store(u64::from(wqe_tail), Ordering::Release);
        pair.consumer.refresh(&memory)?;
        while let Some(descriptor) = pair.consumer.entry(&memory) {
            let wqe = Wqe::from(descriptor);
            if self.books.mishaps.is_armed() && pair.moved == 0 {
                match self.strike(&descriptor.into()) {
                    None | Some(Blow::Spoilt) => {}
                    Some(Blow::Failed(code)) => {
                        pair.is_broken = true;
                        pair.consumer.publish(&memory);
                        return Err(Failure::Work(completion_of(&wqe, pair.place(), code.into())));
                    }
                    // The post that let it run is looked at again when, and if, the NPU goes on.
                    Some(blow) => {
                        *self.state = blow.state();
                        pair.consumer.publish(&memory);
                        return Ok(false);
                    }
                }
            }
            let parsed = WorkRequest::parse(&wqe).map_err(Refusal::from);
            match parsed.and_then(|(request, _)| self.request(&request, channel, &mut pair.moved)) {
                Ok(true) => {}
                Ok(false) => {
                    pair.consumer.publish(&memory);
                    return Ok(false);
                }
                Err(refusal) => {
                    pair.is_broken = true;
                    pair.consumer.publish(&memory);
                    return Err(Failure::Work(completion_of(&wqe, pair.place(), refusal)));
                }
            }
            pair.consumer.advance(&memory);
            self.books.counters.work_requests += 1;
        }
        pair.consumer.publish(&memory);
        Ok(true)
    }

    /// Carries out a work request, or the next piece of it; returns whether it is done.
    fn request(
        &mut self,
        request: &WorkRequest,
        channel: &Channel<'_>,
        moved: &mut u64,
    ) -> Result<bool, Refusal> {
        let window = &self.site.window;
        let near = |operand: Operand, need| End { window, operand, need };
        let far = |operand: Operand, need| End { window: &channel.peer.window, operand, need };
        let limits = channel.limits();
        match *request {
            WorkRequest::Write { local, remote, len, reduction, notify } => {
                let (src, dst) = (near(local, Access::READ), far(remote, Access::PEER_WRITE));
                if !self.perform(Move { src, dst, len, reduction, limits }, moved)? {
                    return Ok(false);
                }
                self.books.counters.count_sent(channel.protocol, len);
                notify.map_or(Ok(()), |notify| self.record_at(channel, notify))?;
            }
            WorkRequest::Read { local, remote, len, reduction } => {
                let (src, dst) = (far(remote, Access::PEER_READ), near(local, Access::WRITE));
                if !self.perform(Move { src, dst, len, reduction, limits }, moved)? {
                    return Ok(false);
                }
                self.books.counters.count_received(channel.protocol, len);
            }
            WorkRequest::Record { notify } => self.record_at(channel, notify)?,
        }
        Ok(true)
    }
}

/// Returns the completion that reports on a work request.
fn completion_of(wqe: &Wqe, place: Place, refusal: Refusal) -> Cqe {
    let Refusal { code, address: DeviceAddr(address) } = refusal;
    Cqe {
        task: wqe.task,
        address,
        code,
        queue: place.queue,
        step: wqe.step,
        peer: wqe.peer,
        position: place.position,
        skeleton: wqe.phase,
        opcode: wqe.opcode,
        reserved: 0,
        phase: 0,
    }
}
