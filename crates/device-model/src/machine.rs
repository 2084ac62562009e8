//! All NPUs of a fabric, run by whoever waits for them.
//!
//! [`Machine::run_until`] makes the calling thread drive every NPU: it polls the kernel that is resident there, if
//! any, and drains the rings, following notifies from one NPU to the next, until the caller's condition holds. Small
//! operations never leave that thread. Helper threads join in only while a lot of payload is being moved, and none
//! touches an NPU once `run_until` has returned; between calls nothing runs.
//!
//! A simulated fabric is run by the same loop and the same engines, step by step (`steps`).
//!
//! Time appears only as the caller's deadline. There is no order among NPUs that a program may rely on.

mod crew;
mod idle;
mod steps;
mod visit;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use spin::MutexGuard;
use wire::Cqe;

use crate::counters::Counters;
use crate::engine::Pending;
use crate::fabric::Fabric;
use crate::fault::{Fault, Mishap, Phase};
use crew::{Crew, Shift};
use idle::Idle;
use steps::Steps;
use visit::{Floor, Turn, Unit};

/// A kernel resident on an NPU.
pub trait Aicpu: Send {
    /// Lets the kernel do some work, without blocking, and returns whether it did any.
    fn poll(&mut self) -> bool;
}

/// How a machine is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineConfig {
    /// Threads that may help the caller of [`Machine::run_until`] with large transfers.
    pub helpers: usize,
}

impl Default for MachineConfig {
    /// One thread per core, the caller's included.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, core::num::NonZero::get);
        Self { helpers: cores - 1 }
    }
}

/// How [`Machine::run_until`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The condition holds.
    Done,
    /// The deadline passed first.
    Deadline,
    /// This NPU stopped at an error; see [`Machine::error`].
    DeviceError(u32),
}

/// The NPUs of a fabric with their engines and kernels.
#[derive(Debug)]
pub struct Machine {
    floor: Arc<Floor>,
    drive: Drive,
}

/// What makes the NPUs go.
#[derive(Debug)]
enum Drive {
    /// The threads that wait, and helpers.
    Threads(Crew),
    /// The scheduler of a simulation.
    Simulation(Mutex<Steps>),
}

/// What the loop of whoever waits does between two looks at its condition.
trait Pace {
    /// Lets NPUs do something, or time pass; returns whether the deadline has passed.
    fn advance(&mut self, floor: &Floor, deadline: Option<Instant>) -> bool;
}

/// A thread that runs the NPUs itself.
#[derive(Debug)]
struct Driver<'a> {
    shift: Shift<'a>,
    turn: Turn,
    idle: Idle,
}

impl Pace for Driver<'_> {
    #[inline]
    fn advance(&mut self, floor: &Floor, deadline: Option<Instant>) -> bool {
        let work = floor.pass(&mut self.turn, self.shift.budget());
        self.shift.watch(&work);
        self.idle.pause(&work, deadline)
    }
}

impl Machine {
    /// Returns a machine over a fabric, of whose windows it is the only device. Of a simulated fabric, whoever waits
    /// runs the simulation, and there are no helpers.
    #[must_use]
    pub fn new(fabric: &Fabric, config: MachineConfig) -> Self {
        let floor = Arc::new(Floor::new(fabric));
        let drive = match fabric.simulation() {
            Some(_) => Drive::Simulation(Mutex::default()),
            None => Drive::Threads(Crew::new(&floor, config.helpers)),
        };
        Self { floor, drive }
    }

    /// Makes a kernel resident on an NPU and returns the one it replaces.
    ///
    /// # Panics
    /// As all methods that take an NPU: when there is no such NPU.
    pub fn attach(&self, npu: u32, aicpu: Box<dyn Aicpu>) -> Option<Box<dyn Aicpu>> {
        self.unit(npu).aicpu.replace(aicpu)
    }

    /// Removes the kernel from an NPU.
    pub fn detach(&self, npu: u32) -> Option<Box<dyn Aicpu>> {
        self.unit(npu).aicpu.take()
    }

    /// Runs all NPUs until `done` returns true, the deadline passes, or an NPU stops at an error.
    ///
    /// `done` is called often: a few loads, no system call. Several threads may call this at once; each returns on
    /// its own condition, while the others keep driving.
    ///
    /// The clock is looked at every so many passes and bytes. A visit to an NPU that is under way when the deadline
    /// passes is finished: at most 8 MiB, or one longer transfer. What is done before the clock is looked at is done.
    pub fn run_until(&self, done: impl FnMut() -> bool, deadline: Option<Instant>) -> Outcome {
        self.run(done, deadline, || self.floor.first_failed())
    }

    /// As [`run_until`](Self::run_until), but goes on when NPUs have stopped at errors: their kernels are polled, and
    /// the other NPUs execute. Returns whether the condition holds.
    pub fn run_past_errors(&self, done: impl FnMut() -> bool, deadline: Option<Instant>) -> bool {
        self.run(done, deadline, || None) == Outcome::Done
    }

    fn run(
        &self,
        done: impl FnMut() -> bool,
        deadline: Option<Instant>,
        failed: impl Fn() -> Option<u32>,
    ) -> Outcome {
        match &self.drive {
            Drive::Threads(crew) => {
                let mut driver =
                    Driver { shift: crew.begin(), turn: crew.turn(&self.floor), idle: Idle::default() };
                self.go(&mut driver, done, deadline, failed)
            }
            Drive::Simulation(steps) => {
                // A step that panicked has left its place; where the next one goes is for the dice to say.
                let mut steps = steps.lock().unwrap_or_else(PoisonError::into_inner);
                self.go(&mut *steps, done, deadline, failed)
            }
        }
    }

    #[inline]
    fn go(
        &self,
        pace: &mut impl Pace,
        mut done: impl FnMut() -> bool,
        deadline: Option<Instant>,
        failed: impl Fn() -> Option<u32>,
    ) -> Outcome {
        loop {
            if done() {
                return Outcome::Done;
            }
            if let Some(npu) = failed() {
                return Outcome::DeviceError(npu);
            }
            if pace.advance(&self.floor, deadline) {
                return if done() { Outcome::Done } else { Outcome::Deadline };
            }
        }
    }

    /// Returns what an NPU has done so far.
    #[must_use]
    pub fn snapshot(&self, npu: u32) -> Counters {
        *self.unit(npu).engine.counters()
    }

    /// Returns the entry at the head of each queue of an NPU that has one: where a run that does not end stands.
    #[must_use]
    pub fn pending(&self, npu: u32) -> Vec<Pending> {
        self.unit(npu).engine.pending()
    }

    /// Returns the error that stopped an NPU.
    #[must_use]
    pub fn error(&self, npu: u32) -> Option<Cqe> {
        self.unit(npu).engine.error()
    }

    /// Puts a fault into an NPU.
    pub fn inject(&self, npu: u32, fault: Fault) {
        self.unit(npu).engine.inject(fault);
    }

    /// Returns the mishaps that have struck tasks of an NPU since the last call, and where their operations stood.
    #[must_use]
    pub fn take_struck(&self, npu: u32) -> Vec<(Mishap, Phase)> {
        self.unit(npu).engine.take_struck()
    }

    /// Makes a stopped NPU execute again. A queue whose task stopped it is dead until its slot is taken anew; all
    /// others go on where they are. An NPU that runs is left alone.
    ///
    /// Waits until no thread is executing tasks of this NPU: of queues that were retired before the call none is
    /// executed after it.
    pub fn reset(&self, npu: u32) {
        let mut unit = self.unit(npu);
        unit.engine.reset();
        self.floor.clear_failure(npu);
    }

    /// Takes all faults out of an NPU, cut links too, and gives life back to one that is dead: its AI CPU runs no kernel
    /// until one is attached, and the queues it had are gone.
    pub fn repair(&self, npu: u32) {
        let mut unit = self.unit(npu);
        if unit.engine.is_dead() {
            unit.aicpu = None;
        }
        unit.engine.repair();
        self.floor.fabric().links().mend(npu);
    }

    /// Returns whether an NPU is dead: it executes nothing, and will not before it is [repaired](Self::repair).
    #[must_use]
    pub fn is_dead(&self, npu: u32) -> bool {
        self.unit(npu).engine.is_dead()
    }

    /// Returns whether no signal and no store is under way between the NPUs: with threads, always.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let simulation = self.floor.fabric().simulation();
        simulation.is_none_or(|simulation| simulation.is_quiet(|npu| !self.is_dead(npu)))
    }

    fn unit(&self, npu: u32) -> MutexGuard<'_, Unit> {
        self.floor.lock(npu)
    }
}
