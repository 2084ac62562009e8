//! One long life: two communicators on one cluster, random operations, re-created again and again, storms of faults.
//!
//! What a short life cannot show: something that stays taken a little at a time, memory that grows, operations that get
//! slower, counters that wrap. The queues' positions start just below the end of their 32-bit words, so that every
//! communicator wraps them. Every byte of every operation is compared, in storms too.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use device_model::driver::Usage;
use device_model::fabric::{Fabric, FabricConfig};
use fastrand::Rng;
use serde::Serialize;
use wire::launch::{Algorithm, CacheMode, OpKind, Staging};
use wire::npu::TAILS;
use wire::{DataType, ErrorCode, ReduceOp};

use super::course::Course;
use super::play::{SCRATCH, carry_out, config};
use super::scenario::{FaultPlan, Limits, Part, Scenario};
use crate::cluster::{Aicpu, Cluster};
use crate::communicator::{Communicator, Operation};
use crate::error::{Error, Result};
use crate::faults::{Conduct, Kind};
use crate::rank_table::RankTable;
use crate::resources::RankResources;
use crate::topology::Topology;

/// Ranks.
const RANKS: u32 = 4;
/// Device memory of each, bytes.
const MEMORY: u64 = 48 << 20;
/// Operations after which both communicators are destroyed and created anew.
const LIFE: u64 = 1_000;
/// Of those, the ones in which a fault strikes: the last tenth.
const STORM: u64 = LIFE / 10;
/// Entries of each ring.
const DEPTH: u32 = 32;
/// Positions that queues start below the end of 32 bits.
const BEFORE_WRAP: u64 = 40;
/// Every so many operations the same one is carried out, to see whether it gets slower.
const PROBE: u64 = 10;
/// Lives before anything is compared, at least: what is reused has been used by then.
const WARM: u64 = 2;
/// How long it may take until everything that is reused has been used, at most; half the run where that is less.
const WARM_UP: Duration = Duration::from_secs(300);

/// What a long life came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Endurance {
    /// Operations carried out or failed as they must.
    pub operations: u64,
    /// Of those, the ones that failed with a code, all in storms.
    pub reported: u64,
    /// Communicators created.
    pub communicators: u64,
    /// Rings whose 32-bit position wrapped.
    pub wraps: u64,
    /// How often something was still taken after both communicators had been destroyed.
    pub left_taken: u64,
    /// The least resident memory between two lives, in the first and in the last half after the warm-up, bytes: what a
    /// leak raises, and memory that is used at times does not.
    pub resident: [u64; 2],
    /// Virtual time that 99.9 % of the probes took at most, in the first and in the last half, nanoseconds.
    pub probe_ns: [u64; 2],
    /// Real time, seconds.
    pub elapsed_s: f64,
}

/// Lives on until `limit` of real time has passed, and at least for two lives of both communicators after the warm-up.
///
/// # Errors
/// The first operation that fails without a fault, or with wrong bytes.
pub fn soak(seed: u64, limit: Duration) -> Result<Endurance> {
    let topology = Topology::new(&RankTable::uniform(RANKS, RANKS)?);
    let first_position = (1 << 32) - BEFORE_WRAP;
    let fabric = FabricConfig { seed: Some(seed), first_position, ..FabricConfig::new(RANKS, MEMORY) };
    let fabric = Fabric::create(&fabric).map_err(|error| Error::new(error.code(), error.to_string()))?;
    let cluster = Cluster::over(&fabric, topology, &Aicpu::Thread)?;
    let start = Instant::now();
    let mut soak = Soak {
        cluster: &cluster,
        seed,
        done: Endurance::default(),
        probes: Vec::new(),
        resident: Vec::new(),
    };
    let before = soak.usage();
    let warm_up = WARM_UP.min(limit / 2);
    let (mut life, mut is_warm) = (0, false);
    while life < WARM + 2 || start.elapsed() < limit {
        soak.life(life)?;
        soak.done.left_taken += u64::from(soak.usage() != before);
        life += 1;
        soak.resident.push(resident());
        if !is_warm && life >= WARM && start.elapsed() >= warm_up {
            is_warm = true;
            soak.probes.clear();
            soak.resident.clear();
        }
    }
    let Soak { mut done, mut probes, resident, .. } = soak;
    let half = probes.len() / 2;
    let (first, last) = probes.split_at_mut(half);
    done.probe_ns = [nearly_longest(first), nearly_longest(last)];
    let (first, last) = resident.split_at(resident.len() / 2);
    done.resident = [first, last].map(|half| half.iter().copied().min().unwrap_or(0));
    done.elapsed_s = start.elapsed().as_secs_f64();
    Ok(done)
}

struct Soak<'c> {
    cluster: &'c Cluster,
    seed: u64,
    done: Endurance,
    /// Virtual nanoseconds of each probe.
    probes: Vec<u64>,
    /// Resident memory after each life, bytes.
    resident: Vec<u64>,
}

impl<'c> Soak<'c> {
    fn usage(&self) -> Vec<Usage> {
        (0..RANKS).map(|rank| self.cluster.npu(rank).usage()).collect()
    }

    /// Creates two communicators, lets them take turns, and destroys them. One that fails takes the other with it: an
    /// error stops the devices that they share.
    fn life(&mut self, life: u64) -> Result<()> {
        let mut pair = [self.create()?, self.create()?];
        for turn in 0..LIFE {
            let number = life * LIFE + turn;
            let [own, other] = pair;
            let storm = turn >= LIFE - STORM;
            if turn == LIFE - STORM {
                self.done.wraps += self.wrapped(&own) + self.wrapped(&other);
            }
            pair = match self.turn(own, number, storm)? {
                // They take turns.
                Some(own) => [other, own],
                None => {
                    other.destroy()?;
                    (0..RANKS).try_for_each(|rank| self.cluster.repair(rank))?;
                    [self.create()?, self.create()?]
                }
            };
        }
        pair.into_iter().try_for_each(Communicator::destroy)
    }

    /// Rings of a communicator whose position has wrapped.
    fn wrapped(&self, comm: &Communicator<'_>) -> u64 {
        let of = |rank: u32| {
            let window = self.cluster.npu(rank).window();
            let queues = comm.resources_on(rank).flat_map(RankResources::queues);
            // ORDER: nothing is in flight.
            queues
                .filter(|queue| window.word(TAILS + 8 * u64::from(queue.0)).load(Ordering::Acquire) < 1 << 31)
                .count()
        };
        (0..RANKS).map(|rank| of(rank) as u64).sum()
    }

    fn create(&mut self) -> Result<Communicator<'c>> {
        self.done.communicators += 1;
        // Of one depth, so that probes can be compared.
        let scenario = Scenario { queue_depth: DEPTH, ..self.scenario(0, 0) };
        Communicator::create(self.cluster, config(&scenario, CacheMode::On))
    }

    /// What operation `number` is, and the fault that may strike it.
    fn scenario(&self, number: u64, faults: u32) -> Scenario {
        let seed = self.seed.wrapping_add(number);
        let limits = Limits {
            ranks: Some(RANKS),
            operations: Some(1),
            faults: FaultPlan::Seeded(faults),
            ..Limits::default()
        };
        let mut scenario = Scenario::new(seed, &limits);
        // Flips that nothing but a comparison can show are not for a run whose bytes must be right.
        scenario.faults.retain(|fault| !matches!(fault.kind, Kind::FlipBit { silent: true, .. }));
        scenario.fit(self.cluster.topology());
        scenario
    }

    /// Carries operation `number` out on one communicator, and returns it; `None` when it failed, as it must in a storm, or
    /// its ranks are not at the same operation any more, and is gone.
    fn turn(
        &mut self,
        mut comm: Communicator<'c>,
        number: u64,
        storm: bool,
    ) -> Result<Option<Communicator<'c>>> {
        let scenario = self.scenario(number, u32::from(storm));
        let dice = Some(Rng::with_seed(scenario.seed));
        let mut conduct = Conduct { dice, ..Conduct::default() };
        let struck =
            scenario.faults.iter().filter(|fault| fault.apply(self.cluster, &mut conduct)).count() > 0;
        let mut course = Course::default();
        for part in &scenario.parts {
            let times = part.times;
            match carry_out(self.cluster, comm, (scenario.seed, 0), part, &mut conduct, &mut course) {
                Ok(own) => comm = own,
                Err(error) if struck && error.code() != ErrorCode::RESULT_WRONG => {
                    self.done.operations += 1;
                    self.done.reported += 1;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
            self.done.operations += times;
        }
        if struck {
            // A fault that found nothing to strike must not wait for the next operation.
            (0..RANKS).try_for_each(|rank| self.cluster.repair(rank))?;
        }
        if scenario.faults.iter().any(|fault| fault.kind == Kind::Absent) {
            // Nothing had to be moved, so that nobody missed the rank that did not launch: from now on it is one behind.
            return comm.destroy().map(|()| None);
        }
        if number.is_multiple_of(PROBE) && !storm {
            comm =
                carry_out(self.cluster, comm, (number, 0), &probe(), &mut Conduct::default(), &mut course)?;
            self.done.operations += 1;
            self.probes.push(u64::try_from(course.noticed.as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(Some(comm))
    }
}

/// The operation whose time is watched.
fn probe() -> Part {
    let operation = Operation {
        op: OpKind::AllReduce,
        count: 256,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        algorithm: Algorithm::Ring,
        staging: Staging::Scratch,
        ..Operation::default()
    };
    Part { operation, in_place: false, times: 1 }
}

/// Returns what 99.9 % of the values are at most.
fn nearly_longest(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get((values.len() * 999).div_ceil(1000).saturating_sub(1)).copied().unwrap_or(0)
}

/// Returns the resident memory of this process, bytes; 0 where the system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    line.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) << 10
}

const _: () = assert!(SCRATCH * 8 < MEMORY, "two communicators with room for several algorithms each");
