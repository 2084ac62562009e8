//! One look at one NPU, and a pass over those worth looking at.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use spin::{Mutex, MutexGuard};

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

impl Unit {
    /// Lets the kernel do some work, and returns whether it did any.
    #[inline]
    pub(super) fn poll(&mut self) -> bool {
        self.engine.has_aicpu() && self.aicpu.as_mut().is_some_and(|aicpu| aicpu.poll())
    }
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unit").field("engine", &self.engine).field("aicpu", &self.aicpu.is_some()).finish()
    }
}

/// One NPU, on cache lines of its own. Visits are short, often without a rival, and many: the lock is one that is let go
/// with a plain store.
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

/// Where a thread looks for NPUs: ever upwards and round, since data mostly goes that way; so an NPU is met when most of
/// what it waits for is there. Where a lot is moved each thread starts again at a home of its own, so that an NPU tends to
/// stay on the core that has its data.
#[derive(Debug)]
pub(super) struct Turn {
    home: u32,
    /// The NPU to go on with.
    next: u32,
}

impl Turn {
    /// Returns the turn of one of `threads` threads that share `npus` NPUs.
    pub(super) fn new(index: usize, threads: usize, npus: u32) -> Self {
        // CAST: less than `npus`.
        let home = u32::try_from(npus as usize * index / threads).unwrap_or(0);
        Self { home, next: home }
    }
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
        let unit = &self.places[npu as usize].unit;
        loop {
            if let Some(unit) = unit.try_lock() {
                return unit;
            }
            // Whoever has it may move megabytes before it lets go.
            thread::yield_now();
        }
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
        let above = |npu: u32| if npu + 1 < npus { npu + 1 } else { 0 };
        let (mut visits, mut is_finished) = (0, true);
        while visits < npus
            && work.bytes < MUCH
            && let Some(npu) = self.fabric.take_mark(turn.next)
        {
            visits += 1;
            is_finished = !self.visit(npu, bytes, &mut work);
            turn.next = if is_finished { above(npu) } else { npu };
        }
        if visits == 0 {
            for _ in 0..npus {
                self.visit(turn.next, bytes, &mut work);
                turn.next = above(turn.next);
                if work.bytes >= MUCH {
                    // The others first, the next time.
                    return work;
                }
            }
        }
        if work.bytes >= MUCH && is_finished {
            turn.next = turn.home;
        }
        work
    }

    /// Polls the kernel and drains the rings of one NPU; returns whether it would go on at once.
    #[inline]
    fn visit(&self, npu: u32, bytes: u64, work: &mut Work) -> bool {
        let place = &self.places[npu as usize];
        let Some(mut unit) = place.unit.try_lock() else {
            // Whoever has it may be past what the signal was about.
            self.fabric.mark(npu);
            work.busy = true;
            return false;
        };
        let polled = unit.poll();
        let budget = Budget { descriptors: DESCRIPTORS_PER_VISIT, bytes, piece: u64::MAX };
        let progress = unit.engine.drain(budget);
        // As a rule it has done all it had to, and need not be visited again for that.
        let goes_on = polled && unit.poll();
        work.progress |= polled || progress.executed != 0;
        work.bytes += progress.bytes;
        if unit.engine.has_failed() && !place.failed.swap(true, Ordering::AcqRel) {
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
        let exhausted = progress.executed >= budget.descriptors || progress.bytes >= budget.bytes;
        if goes_on || exhausted {
            self.fabric.mark(npu);
        }
        exhausted
    }
}

#[cfg(test)]
mod tests {
    use wire::npu::HEAP;

    use super::{Floor, MUCH, Turn};
    use crate::fabric::{Fabric, FabricConfig};

    #[test]
    fn homes_are_spread_over_the_npus() {
        let homes = |threads, npus| {
            (0..threads).map(|index| Turn::new(index, threads, npus).home).collect::<Vec<_>>()
        };
        assert_eq!(homes(1, 8), [0]);
        assert_eq!(homes(2, 8), [0, 4]);
        assert_eq!(homes(3, 8), [0, 2, 5]);
        assert_eq!(homes(4, 2), [0, 0, 1, 1], "more threads than NPUs");
        assert_eq!(homes(2, 1), [0, 0]);
    }

    #[test]
    fn a_pass_goes_on_upwards_where_the_last_one_ended() {
        let fabric = Fabric::create(&FabricConfig::new(4, HEAP + 0x1_0000)).unwrap();
        let (floor, mut turn) = (Floor::new(&fabric), Turn::new(0, 1, 4));
        let mut pass = |marked: &[u32]| {
            marked.iter().for_each(|npu| fabric.mark(*npu));
            let work = floor.pass(&mut turn, MUCH);
            assert!(!work.progress && !work.busy, "there is nothing to do but to look");
            turn.next
        };
        assert_eq!(pass(&[0, 1]), 2);
        assert_eq!(pass(&[0, 3]), 1, "3 first, then round");
        assert_eq!(pass(&[3]), 0);
        assert_eq!(pass(&[]), 0, "all of them, since none is marked");
    }
}
