//! Time, as an NPU and its host see it: that of this machine, or that of a simulation.
//!
//! A simulated clock stands still until the scheduler of the simulation moves it. Moments are [`Instant`]s in both
//! cases, so that whoever has a deadline need not know which.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

/// A clock that never goes back. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: Instant,
    /// Nanoseconds since the origin, where the clock is simulated.
    simulated: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// Returns the clock of this machine.
    #[must_use]
    pub fn real() -> Self {
        Self { origin: Instant::now(), simulated: None }
    }

    /// Returns a clock at zero that only [`advance_to`](Self::advance_to) moves.
    pub(crate) fn simulated() -> Self {
        Self { simulated: Some(Arc::default()), ..Self::real() }
    }

    /// Returns the present moment.
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.simulated {
            None => Instant::now(),
            Some(ticks) => self.origin + Duration::from_nanos(ticks.load(Ordering::Relaxed)),
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
        match &self.simulated {
            None => nanoseconds(self.origin.elapsed()),
            Some(ticks) => ticks.load(Ordering::Relaxed),
        }
    }

    /// Returns the nanoseconds from the clock's making to a moment.
    pub(crate) fn ns_at(&self, moment: Instant) -> u64 {
        nanoseconds(moment.saturating_duration_since(self.origin))
    }

    /// Moves a simulated clock to a later moment, nanoseconds since it was made.
    pub(crate) fn advance_to(&self, ns: u64) {
        if let Some(ticks) = &self.simulated {
            // ORDER: one thread runs a simulation.
            ticks.fetch_max(ns, Ordering::Relaxed);
        }
    }
}

/// Returns a duration in nanoseconds, in 64 bits throughout: kernels read the clock at every launch.
const fn nanoseconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
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
        assert!(passed >= Duration::from_nanos(passed_ns), "{passed:?} around {passed_ns} ns");
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
