//! What is measured and counted over many steps.

use std::sync::Arc;

use serde::Serialize;
use wire::launch::{Algorithm, CacheOutcome, OpKind, Staging};
use wire::npu::Protocol;
use wire::{DataType, ErrorCode, ReduceOp};

use super::{Run, step};
use crate::communicator::{Completed, HOST_OPS, Operation};
use crate::error::{Error, Result};

/// What is measured and counted of a run. Times are measured on this machine, not modelled.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Operation.
    pub op: &'static str,
    /// Algorithm.
    pub algorithm: &'static str,
    /// Where it worked.
    pub staging: &'static str,
    /// Why this algorithm.
    pub why: String,
    /// Ranks.
    pub ranks: u32,
    /// Bytes of the operation per rank (`count` × element size).
    pub bytes: u64,
    /// Elements per rank.
    pub count: u64,
    /// Data type.
    pub dtype: &'static str,
    /// Reduction, of an operation that has one.
    pub reduce: Option<&'static str>,
    /// Whether every byte of every rank was right in every step.
    pub verified: bool,
    /// Repetitions.
    pub repetitions: u64,
    /// Steps of the algorithm, per chunk.
    pub steps: u32,
    /// Chunks.
    pub chunks: u16,
    /// Interactions of the host with each device per launch.
    pub host_ops: u64,
    /// Communicators whose operations are under way at the same time, and kernel launches per step and rank.
    pub launches: u64,
    /// Streams that they take turns on; 0 where they are on none.
    pub streams: u64,
    /// Launches of a step, all ranks, that waited for another one on their stream; the most of all repetitions.
    pub held: u64,
    /// Counts that took turns, the largest of them `count`.
    pub sizes: u64,
    /// How often each launch carried the operation out, as a captured program; 0 without one.
    pub captured: u32,
    /// Doorbells per operation, all ranks.
    pub doorbells: u64,
    /// Descriptors per operation, all ranks: submission and work-queue entries.
    pub descriptors: u64,
    /// Submission entries by kind, all ranks.
    pub kinds: Kinds,
    /// Work-queue entries, all ranks.
    pub wqes: u64,
    /// Bytes moved per operation, all ranks.
    pub bytes_per_link: Links,
    /// Channels connected, all ranks and communicators.
    pub channels: u64,
    /// Median time of a step, over all ranks and communicators, microseconds, first launch to last done notify.
    pub measured_us: f64,
    /// Fastest, microseconds.
    pub measured_min_us: f64,
    /// Launches that replayed a graph, over all ranks, communicators and repetitions.
    pub cache_hits: u64,
    /// Launches that recorded a graph which is kept if it fits.
    pub cache_misses: u64,
    /// Launches that recorded a graph without asking the cache.
    pub cache_bypassed: u64,
    /// Median time the kernels spent expanding in the repetitions that expanded, all ranks, nanoseconds of the
    /// kernels' clocks.
    pub expand_ns: u64,
    /// As much as 95 % of those repetitions took at most.
    pub expand_p95_ns: u64,
    /// Median time the kernels spent binding, copying and announcing descriptors, all ranks, nanoseconds of the
    /// kernels' clocks.
    pub replay_ns: u64,
    /// As much as 95 % of the repetitions took at most.
    pub replay_p95_ns: u64,
    /// What ran the kernels.
    pub aicpu: &'static str,
}

/// Submission entries by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kinds {
    /// Local copies.
    pub copies: u64,
    /// Local reductions.
    pub reduces: u64,
    /// Writes to and reads from peers.
    pub transfers: u64,
    /// Notifies set or waited for.
    pub signals: u64,
}

/// Bytes by link class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Links {
    /// Within a device.
    pub local: u64,
    /// Between devices of one server.
    pub hccs: u64,
    /// Between servers, RDMA over Ethernet.
    pub roce: u64,
    /// Between servers, unified bus.
    pub ub: u64,
}

/// Returns the time that stands at so many hundredths of a sorted list; 0 of an empty one.
fn at_percent(sorted: &[u64], hundredths: usize) -> u64 {
    sorted.get(sorted.len() * hundredths / 100).copied().unwrap_or(0)
}

/// Runs the operations of several communicators `repetitions` times, one step after the other, and sums up; `progress` is
/// told after each. All of them carry the same operation out, on the same ranks.
///
/// # Errors
/// As [`Run::step`].
pub fn repeat(
    runs: &mut [Run<'_>],
    repetitions: u64,
    why: String,
    mut progress: impl FnMut(u64),
) -> Result<Summary> {
    let communicators = runs.len() as u64;
    let mut times = Vec::new();
    let (mut expand, mut submit) = (Vec::new(), Vec::new());
    let mut last = Vec::new();
    let (mut hits, mut misses, mut bypassed, mut held) = (0, 0, 0, 0);
    let before = links(runs);
    for repetition in 0..repetitions {
        runs.iter_mut().try_for_each(|run| run.resize(repetition))?;
        let step = step(runs)?;
        let outcome = |which: CacheOutcome| {
            step.completed.iter().filter(|done| done.status.cache == which as u8).count() as u64
        };
        hits += outcome(CacheOutcome::Hit);
        misses += outcome(CacheOutcome::Miss);
        bypassed += outcome(CacheOutcome::Bypassed);
        expand.push(step.completed.iter().map(|done| done.status.expand_ns).sum::<u64>());
        submit.push(step.completed.iter().map(|done| done.status.submit_ns).sum::<u64>());
        times.push(step.micros);
        held = held.max(step.held as u64);
        last = step.completed;
        progress(repetition + 1);
    }
    let after = links(runs);
    times.sort_by(f64::total_cmp);
    expand.retain(|expanded| *expanded > 0);
    expand.sort_unstable();
    submit.sort_unstable();
    let middle = times.len() / 2;
    let total = |count: fn(&Completed) -> u64| last.iter().map(count).sum::<u64>() / communicators.max(1);
    let wqes = total(|done| u64::from(done.status.wqes));
    let per_operation = |before: u64, after: u64| (after - before) / (repetitions * communicators).max(1);
    let Some(first) = runs.first() else {
        return Err(Error::new(ErrorCode::ARGUMENT_VALUE, "no communicator to run anything on"));
    };
    let Operation { op, algorithm, staging, dtype, reduce, .. } = first.operation;
    let (sizes, count) = first.sizes;
    let count = first.operation.vector.as_ref().map_or(count, |vector| vector.largest());
    Ok(Summary {
        op: OpKind::name(op),
        algorithm: Algorithm::name(algorithm),
        staging: Staging::name(staging),
        why,
        ranks: first.comm.size(),
        bytes: count * dtype.size_bytes(),
        count,
        dtype: DataType::name(dtype),
        reduce: op.reduces().then(|| ReduceOp::name(reduce)),
        verified: repetitions > 0,
        repetitions,
        steps: last.iter().map(|done| u32::from(done.status.steps)).max().unwrap_or(0),
        chunks: last.iter().map(|done| done.status.chunks).max().unwrap_or(0),
        host_ops: HOST_OPS,
        launches: communicators,
        streams: distinct(runs),
        held,
        sizes,
        captured: first.program.as_ref().map_or(0, |(_, times)| *times),
        doorbells: total(|done| u64::from(done.status.doorbells)),
        descriptors: total(|done| u64::from(done.status.sqes)) + wqes,
        kinds: Kinds {
            copies: total(|done| u64::from(done.status.kinds[0])),
            reduces: total(|done| u64::from(done.status.kinds[1])),
            transfers: total(|done| u64::from(done.status.kinds[2])),
            signals: total(|done| u64::from(done.status.kinds[3])),
        },
        wqes,
        bytes_per_link: Links {
            local: per_operation(before.local, after.local),
            hccs: per_operation(before.hccs, after.hccs),
            roce: per_operation(before.roce, after.roce),
            ub: per_operation(before.ub, after.ub),
        },
        channels: runs.iter().map(|run| run.comm.set_up().channels).sum(),
        measured_us: times.get(middle).copied().unwrap_or(0.0),
        measured_min_us: times.first().copied().unwrap_or(0.0),
        cache_hits: hits,
        cache_misses: misses,
        cache_bypassed: bypassed,
        expand_ns: at_percent(&expand, 50),
        expand_p95_ns: at_percent(&expand, 95),
        replay_ns: at_percent(&submit, 50),
        replay_p95_ns: at_percent(&submit, 95),
        aicpu: first.cluster.aicpu(),
    })
}

/// Returns the number of streams that there are runs on.
fn distinct(runs: &[Run<'_>]) -> u64 {
    let mut streams: Vec<_> = runs.iter().filter_map(|run| run.stream.as_ref()).map(Arc::as_ptr).collect();
    streams.sort_unstable();
    streams.dedup();
    streams.len() as u64
}

/// Returns what the devices have moved so far.
fn links(runs: &[Run<'_>]) -> Links {
    let mut links = Links::default();
    let Some(run) = runs.first() else { return links };
    for rank in 0..run.comm.size() {
        let counters = run.cluster.machine().snapshot(run.cluster.npu(rank).index());
        let moved = |protocol| counters.sent(protocol) + counters.received(protocol);
        links.local += counters.local_bytes;
        links.hccs += moved(Protocol::Hccs);
        links.roce += moved(Protocol::Roce);
        links.ub += moved(Protocol::Ub);
    }
    links
}
