//! Time, as an NPU and its host see it: that of this machine, or that of a simulation.
//!
//! A simulated clock stands still until the scheduler of the simulation moves it. Moments are [`Instant`]s in both
//! cases, so that whoever has a deadline need not know which. Kernels count nanoseconds instead, as their hardware does:
//! they read the processor's counter itself, which takes half as long as asking the system, and goes apart from the
//! system's clock by as much as that is corrected meanwhile.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

/// A clock that never goes back. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: Instant,
    source: Source,
}

/// Where the nanoseconds since the origin come from.
#[derive(Clone, Debug)]
enum Source {
    /// The processor's counter, and what it showed at the origin.
    Counter(quanta::Clock, u64),
    /// A simulation.
    Simulated(Arc<AtomicU64>),
}

impl Clock {
    /// Returns the clock of this machine.
    #[must_use]
    pub fn real() -> Self {
        let counter = quanta::Clock::new();
        let start = counter.raw();
        Self { origin: Instant::now(), source: Source::Counter(counter, start) }
    }

    /// Returns a clock at zero that only [`advance_to`](Self::advance_to) moves.
    pub(crate) fn simulated() -> Self {
        Self { origin: Instant::now(), source: Source::Simulated(Arc::default()) }
    }

    /// Returns the present moment.
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.source {
            Source::Counter(..) => Instant::now(),
            Source::Simulated(ticks) => self.origin + Duration::from_nanos(ticks.load(Ordering::Relaxed)),
        }
    }

    /// Returns the time since a moment that this clock gave, zero for one that lies ahead.
    #[must_use]
    pub fn since(&self, moment: Instant) -> Duration {
        self.now().saturating_duration_since(moment)
    }

    /// Returns the nanoseconds since the clock was made.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        match &self.source {
            Source::Counter(counter, start) => counter.delta_as_nanos(*start, counter.raw()),
            Source::Simulated(ticks) => ticks.load(Ordering::Relaxed),
        }
    }

    /// Returns the nanoseconds from the making of a simulated clock to a moment.
    pub(crate) fn ns_at(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Moves a simulated clock to a later moment, nanoseconds since it was made.
    pub(crate) fn advance_to(&self, ns: u64) {
        if let Source::Simulated(ticks) = &self.source {
            // ORDER: one thread runs a simulation.
            ticks.fetch_max(ns, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::Clock;

    #[test]
    fn nanoseconds_and_moments_of_the_real_clock_agree() {
        let clock = Clock::real();
        let (start, start_ns) = (clock.now(), clock.now_ns());
        std::thread::sleep(Duration::from_millis(2));
        let (passed_ns, passed) = (clock.now_ns() - start_ns, clock.since(start));
        assert!(passed_ns >= 2_000_000, "{passed_ns} ns");
        // The system corrects its clock by 0.05 % at most.
        let most = passed + passed / 1000;
        assert!(most >= Duration::from_nanos(passed_ns), "{passed:?} around {passed_ns} ns");
    }

    #[test]
    fn a_simulated_clock_moves_only_when_told_and_never_back() {
        let clock = Clock::simulated();
        let start = clock.now();
        assert_eq!((clock.now_ns(), clock.since(start)), (0, Duration::ZERO));
        clock.advance_to(1500);
        assert_eq!((clock.now_ns(), clock.since(start)), (1500, Duration::from_nanos(1500)));
        clock.advance_to(7);
        assert_eq!(clock.now_ns(), 1500);
        assert_eq!(clock.ns_at(clock.now()), 1500);
        assert_eq!(clock.since(start + Duration::from_secs(1)), Duration::ZERO);
    }
}
