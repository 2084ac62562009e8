//! `aicpu-ts run`: one operation, again and again, with every byte checked.

use core::time::Duration;
use std::time::Instant;

use serde::Serialize;
use wire::launch::{Algorithm, CacheOutcome, OpKind, Staging};
use wire::npu::Protocol;
use wire::{DataType, ErrorCode, ReduceOp};

use crate::buffer::{SharedBuffer, driver};
use crate::cluster::Cluster;
use crate::communicator::{Communicator, Completed, HOST_OPS, Operation, Place, Program, Slot};
use crate::error::{Error, Result};
use crate::faults::{Conduct, Interruption};
use crate::{oracle, payload};

/// Byte that outputs are filled with before each step.
const POISON: u8 = oracle::UNTOUCHED;
/// Most time between the launches of two ranks whose order is left to chance, nanoseconds.
const LAUNCH_GAP_NS: u64 = 20_000;

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
    /// Reduction.
    pub reduce: &'static str,
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
    /// Kernel launches per step and rank.
    pub launches: u64,
    /// Counts that took turns, the largest of them `count`.
    pub sizes: u64,
    /// How often each launch carried the operation out, as a captured program; 0 without one.
    pub captured: u32,
    /// Doorbells per launch, all ranks.
    pub doorbells: u64,
    /// Descriptors per launch, all ranks: submission and work-queue entries.
    pub descriptors: u64,
    /// Submission entries by kind, all ranks.
    pub kinds: Kinds,
    /// Work-queue entries, all ranks.
    pub wqes: u64,
    /// Bytes moved per launch, all ranks.
    pub bytes_per_link: Links,
    /// Channels connected, all ranks.
    pub channels: u64,
    /// Median time of one operation over all ranks, microseconds, launch to last done notify.
    pub measured_us: f64,
    /// Fastest, microseconds.
    pub measured_min_us: f64,
    /// Launches that replayed a graph, over all ranks and repetitions.
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

/// Bytes and buffers of one run.
#[derive(Debug)]
pub struct Run<'c> {
    operation: Operation,
    /// Input and output, as many pairs as take turns.
    buffers: Vec<(SharedBuffer, SharedBuffer)>,
    /// The pair of the step at hand.
    turn: usize,
    in_place: bool,
    /// The operation several times, with its number of times.
    program: Option<(Program, u32)>,
    /// Counts that take turns, and the largest.
    sizes: (u64, u64),
    seed: u64,
    expected: Vec<Vec<u8>>,
    inputs: Vec<Vec<u8>>,
    comm: Communicator<'c>,
    conduct: Conduct,
    cluster: &'c Cluster,
}

/// How a run is set up, besides the operation.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Elements per chunk that the algorithm works with (the operation's count when it works in one).
    pub chunk: u64,
    /// Seed of the payload.
    pub seed: u64,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// Pairs of buffers that take turns, at least 1.
    pub buffers: u32,
    /// How often a captured program has the operation; 0 to launch it by itself. In place it would work on its own
    /// result.
    pub capture: u32,
}

/// What a run with `buffers` pairs of buffers needs of device memory per rank: buffers, scratch of at most
/// `scratch_bytes`, rings, contexts, tables.
#[must_use]
pub fn memory_for(operation: &Operation, ranks: u32, scratch_bytes: u64, buffers: u32) -> Option<u64> {
    const RING: u64 = 2048 * 64;
    let (input, output) = operation.largest_buffers(ranks).ok()?;
    // At most a ring per thread and one per queue pair, 8 KiB of everything else per rank.
    let rings = 2 * u64::from(ranks) * RING + (8 << 10) * u64::from(ranks);
    let pair = input.max(output).checked_add(output)?;
    pair.checked_mul(u64::from(buffers))?.checked_add(2 * scratch_bytes)?.checked_add(rings + (4 << 20))
}

/// Captures an operation several times over, from the first of two buffers to the second.
fn capture(comm: &mut Communicator<'_>, operation: &Operation, times: u32) -> Result<Program> {
    let mut capture = comm.capture()?;
    for _ in 0..times {
        capture.add(operation, Slot::whole(0), Slot::whole(1))?;
    }
    capture.end()
}

/// Returns the time that stands at so many hundredths of a sorted list; 0 of an empty one.
fn at_percent(sorted: &[u64], hundredths: usize) -> u64 {
    sorted.get(sorted.len() * hundredths / 100).copied().unwrap_or(0)
}

impl<'c> Run<'c> {
    /// Allocates buffers on all ranks and computes what the outputs must be.
    ///
    /// # Errors
    /// Those of allocation and of the communicator, which is destroyed then: nothing stays taken.
    pub fn prepare(
        cluster: &'c Cluster,
        comm: Communicator<'c>,
        operation: Operation,
        setup: &Setup,
    ) -> Result<Self> {
        let ranks = cluster.topology().ranks();
        let (input_bytes, output_bytes) = operation.largest_buffers(ranks)?;
        let mut run = Self {
            sizes: (1, operation.count),
            operation,
            buffers: Vec::new(),
            turn: 0,
            in_place: setup.in_place,
            program: None,
            seed: setup.seed,
            expected: Vec::new(),
            inputs: Vec::new(),
            comm,
            conduct: Conduct::default(),
            cluster,
        };
        let ready = run.foresee(setup.chunk);
        match ready
            .and_then(|()| run.allocate(setup, input_bytes.max(output_bytes).max(1), output_bytes.max(1)))
        {
            Ok(()) => Ok(run),
            Err(error) => run.abandon().and(Err(error)),
        }
    }

    /// Makes the inputs of the operation, and what its outputs must be.
    fn foresee(&mut self, chunk: u64) -> Result<()> {
        let (operation, ranks) = (&self.operation, self.comm.size());
        let input = |rank| {
            let [elements, _] = operation.elements(rank, ranks)?;
            Ok(payload::fill(self.seed, rank, elements, operation.dtype, operation.reduce))
        };
        self.inputs = (0..ranks).map(input).collect::<Result<_>>()?;
        let groups = self.cluster.topology().groups();
        self.expected = oracle::outputs(operation, self.in_place, chunk, &self.inputs, &groups);
        Ok(())
    }

    /// Lets `sizes` counts take turns from the next [`repeat`](Self::repeat) on: the operation's own and those below it.
    ///
    /// # Errors
    /// `ARGUMENT_VALUE` where there are not as many, or the operation has no count of its own.
    pub fn vary(&mut self, sizes: u64) -> Result<()> {
        let count = self.operation.count;
        if sizes > 1 && (sizes > count || self.program.is_some()) {
            let message = format!("{sizes} sizes: {} has {count} elements", self.operation.op);
            return Err(Error::new(ErrorCode::ARGUMENT_VALUE, message));
        }
        self.sizes = (sizes.max(1), count);
        Ok(())
    }

    /// Takes the count of a repetition.
    fn resize(&mut self, repetition: u64) -> Result<()> {
        let (sizes, largest) = self.sizes;
        if sizes > 1 {
            self.operation.count = largest - repetition % sizes;
            self.foresee(self.comm.chunk_elements(&self.operation, self.in_place)?)?;
        }
        Ok(())
    }

    fn allocate(&mut self, setup: &Setup, input: u64, output: u64) -> Result<()> {
        for _ in 0..setup.buffers.max(1) {
            let input = SharedBuffer::new(self.cluster, input)?;
            match SharedBuffer::new(self.cluster, output) {
                Ok(output) => self.buffers.push((input, output)),
                Err(error) => return input.free(self.cluster).and(Err(error)),
            }
        }
        if setup.capture > 0 {
            self.program = Some((capture(&mut self.comm, &self.operation, setup.capture)?, setup.capture));
        }
        Ok(())
    }

    /// Runs the operation once: fills inputs, poisons outputs, launches, waits, checks every byte of every rank.
    /// Returns the time from first launch to last done notify in microseconds, and the kernels' answers.
    ///
    /// # Errors
    /// Those of the communicator; `RESULT_WRONG` with the first wrong byte.
    pub fn step(&mut self) -> Result<(f64, Vec<Completed>)> {
        self.turn = (self.turn + 1) % self.buffers.len();
        self.fill()?;
        let start = Instant::now();
        self.launch()?;
        if let Some((interruption, after)) = self.conduct.interruption.take() {
            self.interrupt(interruption, after)?;
        }
        let completed = self.comm.synchronize()?;
        let micros = start.elapsed().as_secs_f64() * 1e6;
        self.check()?;
        Ok((micros, completed))
    }

    /// Does in the middle of an operation what a host may do at any time.
    fn interrupt(&mut self, interruption: Interruption, after: Duration) -> Result<()> {
        let until = self.cluster.clock().now().checked_add(after);
        self.cluster.machine().run_past_errors(|| false, until);
        match interruption {
            Interruption::Abort => {
                self.comm.aborter().abort();
                Ok(())
            }
            Interruption::Suspend => {
                self.comm.suspend()?;
                self.comm.resume()?;
                self.fill()?;
                self.launch()
            }
        }
    }

    fn launch(&mut self) -> Result<()> {
        let (first, second) = &self.buffers[self.turn];
        if let Some((program, _)) = &self.program {
            return self.comm.replay(program, &[first, second]);
        }
        let mut ranks: Vec<u32> = (0..self.comm.size()).collect();
        if let Some(dice) = &mut self.conduct.dice {
            dice.shuffle(&mut ranks);
        }
        for rank in ranks {
            let Some(operation) = self.conduct.of(rank, &self.operation) else { continue };
            let (input, output) = self.places(rank);
            self.comm.launch(
                rank,
                &operation,
                Place { buffer: first, offset: input },
                Place { buffer: if self.in_place { first } else { second }, offset: output },
            )?;
            if let Some(dice) = &mut self.conduct.dice {
                let pause = Duration::from_nanos(dice.u64(..LAUNCH_GAP_NS));
                let until = self.cluster.clock().now().checked_add(pause);
                self.cluster.machine().run_past_errors(|| false, until);
            }
        }
        Ok(())
    }

    /// Says how the hosts behave from now on.
    pub fn behave(&mut self, conduct: Conduct) {
        self.conduct = conduct;
    }

    /// Destroys the communicator, then gives the buffers back: what can be done after a failure.
    ///
    /// # Errors
    /// Those of [`Communicator::destroy`] and of the driver.
    pub fn abandon(self) -> Result<()> {
        self.comm.destroy()?;
        self.buffers.into_iter().try_for_each(|(first, second)| {
            first.free(self.cluster)?;
            second.free(self.cluster)
        })
    }

    /// Gives the buffers back and returns the communicator.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn end(self) -> Result<Communicator<'c>> {
        for (first, second) in self.buffers {
            first.free(self.cluster)?;
            second.free(self.cluster)?;
        }
        Ok(self.comm)
    }

    /// Returns the communicator.
    #[must_use]
    pub fn communicator(&mut self) -> &mut Communicator<'c> {
        &mut self.comm
    }

    /// Offsets of input and output in their buffers: in place, a rank's share lies at its place in the whole.
    fn places(&self, rank: u32) -> (u64, u64) {
        if self.in_place { self.operation.in_place(rank) } else { (0, 0) }
    }

    fn fill(&self) -> Result<()> {
        let (first, second) = &self.buffers[self.turn];
        for (rank, input) in (0..).zip(&self.inputs) {
            let npu = self.cluster.npu(rank);
            let poison = |buffer: &SharedBuffer| {
                let addr = buffer.addr(rank);
                let offset = npu.window().offset(addr, buffer.len()).unwrap_or(0);
                npu.window().fill(offset, buffer.len(), POISON);
            };
            poison(first);
            poison(second);
            let at = first.addr(rank).0 + self.places(rank).0;
            npu.write(wire::DeviceAddr(at), input).map_err(driver)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let size = usize::try_from(self.operation.dtype.size_bytes()).unwrap_or(1);
        // A rank that did not call was told nothing.
        let called = |(rank, _): &(u32, &Vec<u8>)| !self.conduct.absent.contains(rank);
        for (rank, expected) in (0..).zip(&self.expected).filter(called) {
            let (first, second) = &self.buffers[self.turn];
            let buffer = if self.in_place { first } else { second };
            let at = buffer.addr(rank).0 + self.places(rank).1;
            let mut got = vec![0; expected.len()];
            self.cluster.npu(rank).read(wire::DeviceAddr(at), &mut got).map_err(driver)?;
            if let Some(byte) = got.iter().zip(expected).position(|(got, expected)| got != expected) {
                let first = byte / size * size;
                let message = format!(
                    "rank {rank}, element {}: got {:02x?}, expected {:02x?}",
                    first / size,
                    &got[first..(first + size).min(got.len())],
                    &expected[first..(first + size).min(got.len())],
                );
                return Err(Error::new(ErrorCode::RESULT_WRONG, message));
            }
        }
        Ok(())
    }

    /// Runs `repetitions` times and sums up; `progress` is told after each.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn repeat(
        &mut self,
        repetitions: u64,
        why: String,
        mut progress: impl FnMut(u64),
    ) -> Result<Summary> {
        let mut times = Vec::new();
        let (mut expand, mut submit) = (Vec::new(), Vec::new());
        let mut last = Vec::new();
        let (mut hits, mut misses, mut bypassed) = (0, 0, 0);
        let before = self.links();
        for repetition in 0..repetitions {
            self.resize(repetition)?;
            let (micros, completed) = self.step()?;
            times.push(micros);
            let outcome = |which: CacheOutcome| {
                completed.iter().filter(|done| done.status.cache == which as u8).count() as u64
            };
            hits += outcome(CacheOutcome::Hit);
            misses += outcome(CacheOutcome::Miss);
            bypassed += outcome(CacheOutcome::Bypassed);
            expand.push(completed.iter().map(|done| done.status.expand_ns).sum::<u64>());
            submit.push(completed.iter().map(|done| done.status.submit_ns).sum::<u64>());
            last = completed;
            progress(repetition + 1);
        }
        let after = self.links();
        times.sort_by(f64::total_cmp);
        expand.retain(|expanded| *expanded > 0);
        expand.sort_unstable();
        submit.sort_unstable();
        let middle = times.len() / 2;
        let total = |count: fn(&Completed) -> u64| last.iter().map(count).sum::<u64>();
        let wqes = total(|done| u64::from(done.status.wqes));
        let per_operation = |before: u64, after: u64| (after - before) / repetitions.max(1);
        let Operation { op, algorithm, staging, dtype, reduce, .. } = self.operation;
        let (sizes, count) = self.sizes;
        let count = self.operation.vector.as_ref().map_or(count, |vector| vector.largest());
        Ok(Summary {
            op: OpKind::name(op),
            algorithm: Algorithm::name(algorithm),
            staging: Staging::name(staging),
            why,
            ranks: self.comm.size(),
            bytes: count * dtype.size_bytes(),
            count,
            dtype: DataType::name(dtype),
            reduce: ReduceOp::name(reduce),
            verified: repetitions > 0,
            repetitions,
            steps: last.iter().map(|done| u32::from(done.status.steps)).max().unwrap_or(0),
            chunks: last.iter().map(|done| done.status.chunks).max().unwrap_or(0),
            host_ops: HOST_OPS,
            launches: 1,
            sizes,
            captured: self.program.as_ref().map_or(0, |(_, times)| *times),
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
            channels: self.comm.set_up().channels,
            measured_us: times.get(middle).copied().unwrap_or(0.0),
            measured_min_us: times.first().copied().unwrap_or(0.0),
            cache_hits: hits,
            cache_misses: misses,
            cache_bypassed: bypassed,
            expand_ns: at_percent(&expand, 50),
            expand_p95_ns: at_percent(&expand, 95),
            replay_ns: at_percent(&submit, 50),
            replay_p95_ns: at_percent(&submit, 95),
            aicpu: self.cluster.aicpu(),
        })
    }

    fn links(&self) -> Links {
        let mut links = Links::default();
        for rank in 0..self.comm.size() {
            let counters = self.cluster.machine().snapshot(self.cluster.npu(rank).index());
            let moved = |protocol| counters.sent(protocol) + counters.received(protocol);
            links.local += counters.local_bytes;
            links.hccs += moved(Protocol::Hccs);
            links.roce += moved(Protocol::Roce);
            links.ub += moved(Protocol::Ub);
        }
        links
    }
}
