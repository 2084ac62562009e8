//! All NPUs of a fabric, run by whoever waits for them.
//!
//! [`Machine::run_until`] makes the calling thread drive every NPU: it polls the kernel that is resident there, if
//! any, and drains the rings, following notifies from one NPU to the next, until the caller's condition holds. Small
//! operations never leave that thread. Helper threads join in only while a lot of payload is being moved, and none
//! touches an NPU once `run_until` has returned; between calls nothing runs.
//!
//! Time appears only as the caller's deadline. There is no order among NPUs that a program may rely on.

mod crew;
mod idle;
mod visit;

use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use wire::Cqe;

use crate::counters::Counters;
use crate::engine::Pending;
use crate::fabric::Fabric;
use crate::fault::Fault;
use crew::Crew;
use idle::Idle;
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
    crew: Crew,
}

impl Machine {
    /// Returns a machine over a fabric, of whose windows it is the only device.
    #[must_use]
    pub fn new(fabric: &Fabric, config: MachineConfig) -> Self {
        let floor = Arc::new(Floor::new(fabric));
        let crew = Crew::new(&floor, config.helpers);
        Self { floor, crew }
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
        mut done: impl FnMut() -> bool,
        deadline: Option<Instant>,
        failed: impl Fn() -> Option<u32>,
    ) -> Outcome {
        let mut shift = self.crew.begin();
        let mut turn = Turn::default();
        let mut idle = Idle::default();
        loop {
            if done() {
                return Outcome::Done;
            }
            if let Some(npu) = failed() {
                return Outcome::DeviceError(npu);
            }
            let work = self.floor.pass(&mut turn, shift.budget());
            shift.watch(&work);
            let expired = idle.pause(&work, deadline);
            if expired {
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

    fn unit(&self, npu: u32) -> MutexGuard<'_, Unit> {
        self.floor.lock(npu)
    }
}
