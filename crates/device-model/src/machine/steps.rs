//! The scheduler of a simulation: one small step after another, each chosen by the seed.
//!
//! A step is what one party does before any other does something: an AI CPU polls, one of its stores becomes visible,
//! a queue's device executes one entry or moves one piece of a transfer, a signal arrives. All through the code that
//! threads run. Time passes with each step, and jumps where nobody can do anything until a signal arrives, a pause
//! ends, or the host's deadline passes.

use std::time::Instant;

use super::Pace;
use super::visit::Floor;
use crate::engine::{Budget, tables};
use crate::simulation::Simulation;

/// Shortest and longest time that a step takes, nanoseconds.
const STEP_NS: core::ops::Range<u64> = 20..200;
/// Steps per NPU without any progress after which all are looked at.
const IDLE: u32 = 6;
/// Unit of the pieces in which transfers move: a multiple of every element.
const PIECE: u64 = 64;
/// Entries that a device executes in one step.
const ENTRY: u64 = 1;
/// Polls of an AI CPU that stand for those in a long time in which it found nothing to do: enough for a heartbeat.
const IDLE_POLLS: u32 = 1100;
/// What is a long time.
const LONG_NS: u64 = 1_000_000;

/// What happened, for the digest of events.
#[derive(Clone, Copy)]
enum Event {
    Polled = 1,
    Stored = 2,
    Executed = 3,
    Arrived = 4,
    Jumped = 5,
}

/// Where a simulation is.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Steps without progress.
    idle: u32,
    /// How much each NPU is preferred: some are slower than others, all along.
    weights: Vec<u32>,
}

impl Pace for Steps {
    /// One step, and the time it takes.
    fn advance(&mut self, floor: &Floor, deadline: Option<Instant>) -> bool {
        let fabric = floor.fabric();
        let Some(simulation) = fabric.simulation() else { return true };
        let clock = simulation.clock();
        self.deliver(floor, simulation);
        let npu = self.choose(floor, simulation);
        let what = simulation.dice().u8(..3);
        if step(floor, simulation, npu, what) {
            self.idle = 0;
        } else {
            self.idle += 1;
        }
        clock.advance_to(clock.now_ns() + simulation.dice().u64(STEP_NS));
        let limit = deadline.map(|deadline| clock.ns_at(deadline));
        if self.idle > IDLE * fabric.npus() {
            self.idle = 0;
            // Not a matter of chance any more: does anything move at all?
            let moved = (0..fabric.npus())
                .map(|npu| {
                    (0..3).map(|what| step(floor, simulation, npu, what)).filter(|moved| *moved).count()
                })
                .sum::<usize>();
            if moved == 0 && !jump(floor, simulation, limit) {
                return true;
            }
        }
        limit.is_some_and(|limit| clock.now_ns() >= limit)
    }
}

impl Steps {
    fn choose(&mut self, floor: &Floor, simulation: &Simulation) -> u32 {
        let mut dice = simulation.dice();
        if self.weights.is_empty() {
            let weight = |_| if dice.u8(..4) == 0 { dice.u32(1..4) } else { 8 };
            self.weights = (0..floor.fabric().npus()).map(weight).collect();
        }
        let mut mark = dice.u32(..self.weights.iter().sum::<u32>());
        for (npu, weight) in (0..).zip(&self.weights) {
            match mark.checked_sub(*weight) {
                Some(left) => mark = left,
                None => return npu,
            }
        }
        0
    }

    fn deliver(&mut self, floor: &Floor, simulation: &Simulation) {
        let now = simulation.clock().now_ns();
        loop {
            let arrived = simulation.air().arrived(now);
            let Some(signal) = arrived else { return };
            tables::arrive(floor.fabric(), signal.npu, signal.notify);
            simulation.note(Event::Arrived as u64, signal.npu, u64::from(signal.notify));
            self.idle = 0;
        }
    }
}

/// Lets one party of an NPU do something; returns whether it did.
fn step(floor: &Floor, simulation: &Simulation, npu: u32, what: u8) -> bool {
    let mut unit = floor.lock(npu);
    let (event, detail) = match what {
        0 => {
            if !unit.poll() {
                return false;
            }
            (Event::Polled, 0)
        }
        1 => {
            if unit.engine.is_dead() {
                simulation.stores(npu).clear();
                return false;
            }
            let window = floor.fabric().window(npu);
            let Some(offset) = simulation.stores(npu).drain(window, &mut simulation.dice()) else {
                return false;
            };
            (Event::Stored, offset)
        }
        _ => {
            let (from, piece) = {
                let mut dice = simulation.dice();
                (dice.usize(..64), if dice.bool() { u64::MAX } else { PIECE * dice.u64(1..64) })
            };
            let budget = Budget { descriptors: ENTRY, bytes: u64::MAX, piece };
            let (progress, queue) = unit.engine.drain_one(from, budget);
            let Some(queue) = queue else { return false };
            drop(unit);
            floor.note_failure(npu);
            (Event::Executed, u64::from(queue) << 32 | progress.executed << 31 | progress.bytes)
        }
    };
    simulation.note(event as u64, npu, detail);
    true
}

/// Lets time pass until something can happen; returns false when nothing ever will.
fn jump(floor: &Floor, simulation: &Simulation, limit: Option<u64>) -> bool {
    let clock = simulation.clock();
    let npus = 0..floor.fabric().npus();
    let wakes = npus.clone().filter_map(|npu| floor.lock(npu).engine.wakes_at()).map(|at| clock.ns_at(at));
    let next = simulation.air().next_due().into_iter().chain(wakes).chain(limit).min();
    let Some(next) = next else { return false };
    if next > clock.now_ns() + LONG_NS {
        for npu in npus {
            let mut unit = floor.lock(npu);
            (0..IDLE_POLLS).for_each(|_| {
                unit.poll();
            });
        }
    }
    clock.advance_to(next.max(clock.now_ns() + 1));
    simulation.note(Event::Jumped as u64, 0, next);
    true
}
