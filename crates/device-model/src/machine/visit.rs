//! One look at one NPU, and a pass over those worth looking at.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::Aicpu;
use crate::engine::{Budget, Engine};
use crate::fabric::Fabric;

/// Submission entries per visit: bounds how long a deadline or an error goes unnoticed.
const DESCRIPTORS_PER_VISIT: u64 = 4096;

/// Bytes after which a pass ends, and a driving thread looks at the clock: about a millisecond of slow reductions.
pub(super) const MUCH: u64 = 1 << 20;

/// An engine and the kernel that feeds it: whoever runs one runs both.
pub(super) struct Unit {
    pub(super) engine: Engine,
    pub(super) aicpu: Option<Box<dyn Aicpu>>,
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unit").field("engine", &self.engine).field("aicpu", &self.aicpu.is_some()).finish()
    }
}

/// One NPU, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Place {
    unit: Mutex<Unit>,
    failed: AtomicBool,
}

/// All NPUs.
#[derive(Debug)]
pub(super) struct Floor {
    fabric: Fabric,
    places: Box<[Place]>,
    failures: AtomicU32,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// A kernel or an engine made progress.
    pub(super) progress: bool,
    /// Payload bytes moved.
    pub(super) bytes: u64,
    /// Another thread was running an NPU.
    pub(super) busy: bool,
}

/// Where a thread is in its round over the NPUs.
#[derive(Debug, Default)]
pub(super) struct Turn {
    next: u32,
}

impl Floor {
    pub(super) fn new(fabric: &Fabric) -> Self {
        let place = |npu| Place {
            unit: Mutex::new(Unit { engine: Engine::new(fabric, npu), aicpu: None }),
            failed: AtomicBool::new(false),
        };
        let places = (0..fabric.npus()).map(place).collect();
        Self { fabric: fabric.clone(), places, failures: AtomicU32::new(0) }
    }

    pub(super) fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Notes that an NPU has stopped at an error, if it has.
    pub(super) fn note_failure(&self, npu: u32) {
        let failed = self.lock(npu).engine.has_failed();
        if failed && !self.places[npu as usize].failed.swap(true, Ordering::AcqRel) {
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Waits for an NPU. A kernel that panicked while it was polled leaves an engine that is still consistent.
    pub(super) fn lock(&self, npu: u32) -> MutexGuard<'_, Unit> {
        self.places[npu as usize].unit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lowest NPU that stopped at an error.
    #[inline]
    pub(super) fn first_failed(&self) -> Option<u32> {
        if self.failures.load(Ordering::Acquire) == 0 {
            return None;
        }
        (0..self.fabric.npus()).find(|npu| self.places[*npu as usize].failed.load(Ordering::Acquire))
    }

    pub(super) fn clear_failure(&self, npu: u32) {
        if self.places[npu as usize].failed.swap(false, Ordering::AcqRel) {
            self.failures.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Visits the NPUs that got a notify, at most each once on average; all of them when there are none.
    ///
    /// `bytes` bounds what one visit moves; an NPU that used it up is visited again first. The pass ends early when it
    /// has moved [`MUCH`].
    #[inline]
    pub(super) fn pass(&self, turn: &mut Turn, bytes: u64) -> Work {
        let mut work = Work::default();
        let npus = self.fabric.npus();
        let mut visits = 0;
        while visits < npus
            && work.bytes < MUCH
            && let Some(npu) = self.fabric.signals().take(turn.next % npus)
        {
            visits += 1;
            turn.next = npu;
            if !self.visit(npu, bytes, &mut work) {
                turn.next = npu + 1;
            }
        }
        if visits == 0 {
            for step in 0..npus {
                self.visit((turn.next % npus + step) % npus, bytes, &mut work);
                if work.bytes >= MUCH {
                    break;
                }
            }
            turn.next = turn.next % npus + 1;
        }
        work
    }

    /// Polls the kernel and drains the rings of one NPU; returns whether it would go on at once.
    #[inline]
    fn visit(&self, npu: u32, bytes: u64, work: &mut Work) -> bool {
        let place = &self.places[npu as usize];
        let mut unit = match place.unit.try_lock() {
            Ok(unit) => unit,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Whoever has it may be past what the signal was about.
                self.fabric.signals().mark(npu);
                work.busy = true;
                return false;
            }
        };
        let Unit { engine, aicpu } = &mut *unit;
        let polled = engine.has_aicpu() && aicpu.as_mut().is_some_and(|aicpu| aicpu.poll());
        let budget = Budget { descriptors: DESCRIPTORS_PER_VISIT, bytes, piece: u64::MAX };
        let progress = engine.drain(budget);
        work.progress |= polled || progress.executed != 0;
        work.bytes += progress.bytes;
        if engine.has_failed() && !place.failed.swap(true, Ordering::AcqRel) {
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
        let exhausted = progress.executed >= budget.descriptors || progress.bytes >= budget.bytes;
        if polled || exhausted {
            self.fabric.signals().mark(npu);
        }
        exhausted
    }
}
