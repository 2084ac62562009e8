//! What a simulated fabric has besides its memory: a clock, a source of chance, signals and stores under way.
//!
//! A simulation is one thread, one seed. Everything that silicon may do sooner or later is under way for a while here:
//! a signal between NPUs ([`Air`]), a store of an AI CPU ([`store_buffer`]), a transfer, which moves in pieces. The
//! scheduler (`machine::steps`) decides what happens next. The same seed gives the same events in the same order, and
//! [`Simulation::digest`] says so in one number.
//!
//! Nothing here executes a descriptor: engines and kernels are those of any other fabric.

mod air;
pub(crate) mod store_buffer;

use std::sync::{Mutex, MutexGuard, PoisonError};

use fastrand::Rng;

use crate::clock::Clock;
pub(crate) use air::Air;
use store_buffer::StoreBuffer;

/// What is under way in a simulated fabric.
#[derive(Debug)]
pub(crate) struct Simulation {
    clock: Clock,
    dice: Mutex<Rng>,
    air: Mutex<Air>,
    /// The store buffer of each NPU's AI CPU.
    stores: Box<[Mutex<StoreBuffer>]>,
    /// Number of events, and their digest.
    events: Mutex<(u64, u64)>,
}

/// Locks what only one thread uses: a panic elsewhere left it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Simulation {
    pub(crate) fn new(npus: u32, seed: u64) -> Self {
        Self {
            clock: Clock::simulated(),
            dice: Mutex::new(Rng::with_seed(seed)),
            air: Mutex::default(),
            stores: (0..npus).map(|_| Mutex::default()).collect(),
            events: Mutex::new((0, seed)),
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn dice(&self) -> MutexGuard<'_, Rng> {
        lock(&self.dice)
    }

    pub(crate) fn air(&self) -> MutexGuard<'_, Air> {
        lock(&self.air)
    }

    /// Returns the store buffer of an NPU's AI CPU.
    pub(crate) fn stores(&self, npu: u32) -> MutexGuard<'_, StoreBuffer> {
        lock(&self.stores[npu as usize])
    }

    /// Notes an event: what, where, and a number that says more.
    pub(crate) fn note(&self, what: u64, npu: u32, detail: u64) {
        let mut events = lock(&self.events);
        let (count, digest) = &mut *events;
        *count += 1;
        for word in [what << 32 | u64::from(npu), detail, self.clock.now_ns()] {
            *digest = wire::digest::with(*digest, word);
        }
    }

    /// Returns a number that depends on every event so far, and its time.
    pub(crate) fn digest(&self) -> u64 {
        lock(&self.events).1
    }

    /// Returns how many events there have been.
    pub(crate) fn events(&self) -> u64 {
        lock(&self.events).0
    }

    /// Returns whether no signal is under way, and no store of an NPU that lives: those of a dead one never arrive.
    pub(crate) fn is_quiet(&self, lives: impl Fn(u32) -> bool) -> bool {
        let settled = |(npu, stores): (u32, &Mutex<StoreBuffer>)| lock(stores).is_empty() || !lives(npu);
        self.air().is_empty() && (0..).zip(&self.stores).all(settled)
    }
}
