//! Whether an NPU executes, and why not: errors, faults, pauses, and what ends them.

use std::time::Instant;

use wire::{Cqe, Sqe};

use super::mishap::{Blow, Mishaps};
use super::slots::Hold;
use super::{Engine, Pending, completion, tables};
use crate::fault::{Fault, Mishap, Phase};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    /// Busy with its last task until then; the AI CPU is not.
    Busy(Instant),
    /// Standing still until then, AI CPU and all.
    Paused(Instant),
    Stalled,
    Dead,
    Failed(Cqe),
}

impl Engine {
    /// Ends a pause that is over, lets signals come once more, and returns whether the NPU executes.
    #[inline]
    pub(super) fn wake(&mut self) -> bool {
        let fabric = &self.site.fabric;
        if self.books.mishaps.has_echoes() {
            let now = fabric.clock().now();
            while let Some((npu, notify)) = self.books.mishaps.echo(now) {
                tables::arrive_again(fabric, npu, notify);
            }
        }
        if let State::Busy(until) | State::Paused(until) = self.state
            && fabric.clock().now() >= until
        {
            self.state = State::Running;
        }
        self.state == State::Running
    }

    /// Returns when this NPU goes on by itself, or a signal of its comes once more.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Instant> {
        let until = match self.state {
            State::Busy(until) | State::Paused(until) => Some(until),
            _ => None,
        };
        [until, self.books.mishaps.next_echo()].into_iter().flatten().min()
    }

    /// Returns whether the AI CPU of this NPU works.
    #[inline]
    #[must_use]
    pub fn has_aicpu(&self) -> bool {
        match self.state {
            State::Dead => false,
            State::Paused(until) => self.site.fabric.clock().now() >= until,
            _ => true,
        }
    }

    /// Returns whether this NPU is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    /// Returns the error that stopped this NPU.
    #[must_use]
    pub const fn error(&self) -> Option<Cqe> {
        match self.state {
            State::Failed(cqe) => Some(cqe),
            _ => None,
        }
    }

    /// Returns whether an error has stopped this NPU.
    #[inline]
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// Returns the entry at the head of every queue that has one.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        let window = &self.site.window;
        let pending =
            self.queues.threads.iter().filter(|queue| queue.is_current(window)).filter_map(|queue| {
                let (cursor, memory) = (queue.consumer.cursor(), queue.memory(window));
                let fresh = || {
                    // What a stopped engine has not looked at yet counts too.
                    let mut consumer = queue.consumer.clone();
                    consumer.refresh(&memory).ok()?;
                    consumer.entry(&memory).map(Sqe::from)
                };
                let sqe = queue.held.map(|_| queue.entry).or_else(fresh)?;
                let blocked = matches!(queue.held, Some(Hold::Notify(_) | Hold::Completion));
                Some(Pending { queue: queue.id, position: cursor.head(), sqe, blocked })
            });
        pending.collect()
    }

    /// Puts a fault into this NPU.
    pub fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::DropNotify { notify } => self.site.seat().lose(notify),
            Fault::FlipToken => self.books.flip_token = true,
            Fault::Stall => self.state = State::Stalled,
            Fault::BreakQueuePair { queue } => {
                self.refresh();
                for pair in self.queues.pairs.iter_mut().filter(|pair| pair.id == queue) {
                    pair.is_broken = true;
                }
            }
            Fault::At(when, mishap) => self.books.mishaps.arm(when, mishap),
            Fault::Kill => self.state = State::Dead,
            Fault::Pause(time) if matches!(self.state, State::Running | State::Busy(_)) => {
                self.state = State::Paused(self.site.fabric.clock().now() + time);
            }
            // What has stopped stands still.
            Fault::Pause(_) => {}
            Fault::Slow(time) => self.books.mishaps.slow(time),
            Fault::CutLink { peer } => self.site.fabric.links().cut(self.site.npu, peer),
        }
    }

    /// Returns the mishaps that have struck tasks of this NPU since the last call, and where their operations stood.
    #[must_use]
    pub fn take_struck(&mut self) -> Vec<(Mishap, Phase)> {
        self.books.mishaps.take_struck()
    }

    /// Takes all faults out, and gives life back to an NPU that is dead: the queues it had are gone.
    pub fn repair(&mut self) {
        self.books.mishaps = Mishaps::default();
        self.site.fabric.errant().forgive();
        self.queues.threads.iter_mut().for_each(|queue| queue.correct(&self.site.window));
        if self.is_dead() {
            self.queues.threads.clear();
            self.queues.pairs.clear();
        }
        if !self.has_failed() {
            self.state = State::Running;
        }
    }

    /// Makes a stopped NPU execute again. A queue whose task stopped it is dead until its slot is taken anew; all
    /// others go on where they are. An NPU that runs, or is dead, or will go on by itself, is left alone.
    pub fn reset(&mut self) {
        if matches!(self.state, State::Stalled | State::Failed(_)) {
            self.queues.drop_broken_threads();
            completion::clear_error(&self.site.window);
            self.state = State::Running;
        }
    }
}

impl Blow {
    /// Returns the state that it leaves an NPU in.
    pub(super) const fn state(self) -> State {
        match self {
            Self::Dead => State::Dead,
            Self::Paused(until) => State::Paused(until),
            _ => State::Running,
        }
    }
}
