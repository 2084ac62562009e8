//! What a thread does between two passes when there was nothing to do.

use core::hint;
use core::time::Duration;
use std::thread;
use std::time::Instant;

use super::visit::{MUCH, Work};

/// Passes without progress before the thread offers its core to others.
const SPINS: u32 = 64;
/// Idle time before it sleeps.
const AWAKE: Duration = Duration::from_millis(1);
/// How long it sleeps at a time; the system adds up to as much again.
const NAP: Duration = Duration::from_micros(25);
/// Passes with progress between two looks at the clock, unless much was moved.
const LOOK_EVERY: u32 = 64;

/// How long a thread has had nothing to do.
#[derive(Debug, Default)]
pub(super) struct Idle {
    passes: u32,
    since: Option<Instant>,
    busy_passes: u32,
    /// Bytes moved since the last look at the clock.
    bytes: u64,
}

impl Idle {
    /// Pauses for as long as the last passes suggest, and returns whether the deadline has passed.
    #[inline]
    pub(super) fn pause(&mut self, work: &Work, deadline: Option<Instant>) -> bool {
        if work.progress {
            (self.passes, self.since) = (0, None);
            self.busy_passes += 1;
            self.bytes += work.bytes;
            if self.busy_passes < LOOK_EVERY && self.bytes < MUCH {
                return false;
            }
            (self.busy_passes, self.bytes) = (0, 0);
            return deadline.is_some_and(|deadline| Instant::now() >= deadline);
        }
        self.passes = self.passes.saturating_add(1);
        if self.passes < SPINS {
            hint::spin_loop();
            return false;
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if work.busy || now - since < AWAKE {
            thread::yield_now();
        } else {
            thread::sleep(NAP);
        }
        deadline.is_some_and(|deadline| now >= deadline)
    }
}
