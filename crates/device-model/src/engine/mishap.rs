//! Faults arranged at tasks: when one strikes, and what it leaves behind.
//!
//! An NPU without faults pays one comparison per task for this.

use core::time::Duration;
use std::time::Instant;

use wire::{ErrorCode, Sqe};

use crate::fabric::Fabric;
use crate::fault::{FalseCompletion, FalseHead, Mishap, Phase, When};
use crate::memory::Span;

/// What a fault does to the task that it struck, or to its NPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    /// The NPU is dead.
    Dead,
    /// Nothing happens on this NPU until then.
    Paused(Instant),
    /// The queue does not know of the task any more.
    Unheard,
    /// The task fails.
    Failed(ErrorCode),
    /// The device reads a bit of the task wrong.
    Garbled(u32),
    /// The head of the task's queue is published wrong.
    Misled(FalseHead),
    /// The task is executed, and something about it is wrong.
    Spoilt,
}

/// A signal that comes once more.
#[derive(Clone, Copy, Debug)]
struct Echo {
    due: Instant,
    npu: u32,
    notify: u32,
}

/// The faults of one NPU.
#[derive(Debug, Default)]
pub(super) struct Mishaps {
    armed: Vec<(When, Mishap)>,
    /// The next signal is lost, or comes again after a while.
    signal: Option<Mishap>,
    /// The next bytes are wrong.
    flip: Option<(u64, bool)>,
    /// The next completion is wrong.
    completion: Option<FalseCompletion>,
    /// How much longer every task takes.
    drag: Option<Duration>,
    echoes: Vec<Echo>,
    /// What has struck, and where the operation stood.
    struck: Vec<(Mishap, Phase)>,
}

impl Mishaps {
    pub(super) fn arm(&mut self, when: When, mishap: Mishap) {
        self.armed.push((when, mishap));
    }

    /// Returns whether a task has to be looked at.
    #[inline]
    pub(super) fn is_armed(&self) -> bool {
        !self.armed.is_empty()
    }

    /// Returns what happens to a task that has come to the head of its queue.
    #[cold]
    pub(super) fn strike(&mut self, task: &Sqe, fabric: &Fabric, npu: u32) -> Option<Blow> {
        let meant = |(when, mishap): &(When, Mishap)| mishap.can_happen_to(task) && when.means(mishap, task);
        let index = self.armed.iter_mut().position(|armed| {
            let spared = meant(armed) && armed.0.spared > 0;
            armed.0.spared -= u32::from(spared);
            meant(armed) && !spared
        })?;
        let (_, mishap) = self.armed.remove(index);
        self.struck.push((mishap, mishap.phase_at(task)));
        let now = fabric.clock().now();
        Some(match mishap {
            Mishap::Kill => Blow::Dead,
            Mishap::Pause(time) => Blow::Paused(now + time),
            Mishap::LoseDoorbell => Blow::Unheard,
            Mishap::Fail(code) => Blow::Failed(code),
            Mishap::Garble { bit } => Blow::Garbled(bit),
            Mishap::Head(head) => Blow::Misled(head),
            Mishap::Completion(completion) => {
                self.completion = Some(completion);
                Blow::Spoilt
            }
            Mishap::Slow(time) => {
                self.drag = Some(time);
                Blow::Spoilt
            }
            Mishap::LoseSignal | Mishap::RepeatSignal(_) => {
                self.signal = Some(mishap);
                Blow::Spoilt
            }
            Mishap::FlipBit { bit, detected } => {
                self.flip = Some((bit, detected));
                Blow::Spoilt
            }
            Mishap::CutLink => {
                fabric.links().cut(npu, u32::from(task.peer));
                Blow::Spoilt
            }
        })
    }

    /// Returns what has struck since the last call, and where the operation of its task stood.
    pub(super) fn take_struck(&mut self) -> Vec<(Mishap, Phase)> {
        core::mem::take(&mut self.struck)
    }

    /// Makes every task take that much longer.
    pub(super) fn slow(&mut self, time: Duration) {
        self.drag = Some(time);
    }

    /// Returns until when the NPU is busy with the task just done.
    #[inline]
    pub(super) fn drag(&self, fabric: &Fabric) -> Option<Instant> {
        self.drag.map(|time| fabric.clock().now() + time)
    }

    /// Returns whether the signal being sent is lost, after arranging that it comes again where it does.
    #[inline]
    pub(super) fn loses_signal(&mut self, fabric: &Fabric, npu: u32, notify: u32) -> bool {
        self.signal.is_some() && self.signal_goes_wrong(fabric, npu, notify)
    }

    #[cold]
    fn signal_goes_wrong(&mut self, fabric: &Fabric, npu: u32, notify: u32) -> bool {
        match self.signal.take() {
            Some(Mishap::RepeatSignal(later)) => {
                self.echoes.push(Echo { due: fabric.clock().now() + later, npu, notify });
                false
            }
            Some(_) => {
                fabric.errant().note_missing(npu, notify);
                true
            }
            None => false,
        }
    }

    /// Returns whether a bit of the bytes just moved is wrong.
    #[inline]
    pub(super) fn flips(&self) -> bool {
        self.flip.is_some()
    }

    /// Makes it wrong, and returns whether the link shows it.
    #[cold]
    pub(super) fn flip(&mut self, written: &Span<'_>) -> bool {
        self.flip.take().is_some_and(|(bit, detected)| {
            written.flip(bit % (8 * written.bytes()));
            detected
        })
    }

    /// Returns what is wrong with the completion being written.
    #[inline]
    pub(super) fn completion(&mut self) -> Option<FalseCompletion> {
        self.completion.take()
    }

    #[inline]
    pub(super) fn has_echoes(&self) -> bool {
        !self.echoes.is_empty()
    }

    /// Returns a notify whose signal comes once more now.
    pub(super) fn echo(&mut self, now: Instant) -> Option<(u32, u32)> {
        let index = self.echoes.iter().position(|echo| echo.due <= now)?;
        let Echo { npu, notify, .. } = self.echoes.swap_remove(index);
        Some((npu, notify))
    }

    /// Returns when the next signal comes once more.
    pub(super) fn next_echo(&self) -> Option<Instant> {
        self.echoes.iter().map(|echo| echo.due).min()
    }
}
