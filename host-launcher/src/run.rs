//! `aicpu-ts run`: one operation, again and again, with every byte checked.

mod bytes;
mod memory;
mod moments;
mod summary;

use core::slice;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use device_model::fault::Phase;
use wire::ErrorCode;

use crate::buffer::SharedBuffer;
use crate::cluster::Cluster;
use crate::communicator::{Communicator, Completed, Operation, Place, Program, Slot};
use crate::error::{Error, Result};
use crate::faults::Conduct;
use crate::stream::Stream;
use crate::{oracle, payload};

pub use memory::{check_memory, memory_for};
pub(crate) use moments::REACH;
pub use summary::{Kinds, Links, Summary, repeat};

/// Most time between the launches of two ranks whose order is left to chance, nanoseconds.
const LAUNCH_GAP_NS: u64 = 20_000;

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
    /// Entries that each NPU had executed when the step began, and events of the simulation.
    executed: Vec<u64>,
    first_event: u64,
    stream: Option<Arc<Stream>>,
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

/// Captures an operation several times over, from the first of two buffers to the second.
fn capture(comm: &mut Communicator<'_>, operation: &Operation, times: u32) -> Result<Program> {
    let mut capture = comm.capture()?;
    for _ in 0..times {
        capture.add(operation, Slot::whole(0), Slot::whole(1))?;
    }
    capture.end()
}

/// A step that is done.
struct Step {
    /// Time from first launch to last done notify, microseconds.
    micros: f64,
    /// The kernels' answers.
    completed: Vec<Completed>,
    /// Launches that had to wait for others when all had been made.
    held: usize,
}

/// Runs the operations of several communicators once, all of them under way at the same time as far as their streams let
/// them.
fn step(runs: &mut [Run<'_>]) -> Result<Step> {
    runs.iter_mut().try_for_each(Run::begin)?;
    let start = Instant::now();
    runs.iter_mut().try_for_each(Run::launch)?;
    let held = runs.first().map_or(0, |run| run.cluster.held());
    let mut completed = Vec::new();
    for run in &mut *runs {
        run.strike_running()?;
        completed.extend(run.comm.synchronize()?);
    }
    let micros = start.elapsed().as_secs_f64() * 1e6;
    runs.iter().try_for_each(Run::check)?;
    runs.iter_mut().try_for_each(Run::strike_collected)?;
    Ok(Step { micros, completed, held })
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
        if setup.in_place {
            (0..ranks).try_for_each(|rank| operation.check_in_place(rank, ranks))?;
        }
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
            executed: Vec::new(),
            first_event: 0,
            stream: None,
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
            let op = self.operation.op;
            let message = match op.has_vector() {
                true => format!("{sizes} sizes: {op} has counts of its own for each rank"),
                false => format!("{sizes} sizes of at most {count} elements"),
            };
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
        let step = step(slice::from_mut(self))?;
        Ok((step.micros, step.completed))
    }

    /// Takes the next pair of buffers, fills the inputs and poisons the outputs.
    fn begin(&mut self) -> Result<()> {
        self.turn = (self.turn + 1) % self.buffers.len();
        self.mark();
        self.fill()
    }

    fn launch(&mut self) -> Result<()> {
        if let Some((program, _)) = &self.program {
            let (first, second) = &self.buffers[self.turn];
            let stream = self.stream.as_deref();
            return self.comm.replay_in(stream, program, &[first, second]);
        }
        let mut ranks: Vec<u32> = (0..self.comm.size()).collect();
        if let Some(dice) = &mut self.conduct.dice {
            dice.shuffle(&mut ranks);
        }
        if let Some(last) = self.conduct.launched_last() {
            ranks.sort_by_key(|rank| *rank == last);
        }
        for rank in ranks {
            let wrong = self.conduct.fault_of(rank).map(|kind| (kind, Phase::BeforeDoorbell));
            self.conduct.struck.extend(wrong);
            let Some(operation) = self.conduct.of(rank, &self.operation) else { continue };
            let (first, second) = &self.buffers[self.turn];
            let (input, output) = self.places(rank);
            let input = Place { buffer: first, offset: input };
            let output = Place { buffer: if self.in_place { first } else { second }, offset: output };
            self.comm.launch_in(self.stream.as_deref(), rank, &operation, input, output)?;
            self.strike_launched(rank)?;
            if let Some(dice) = &mut self.conduct.dice {
                let pause = Duration::from_nanos(dice.u64(..LAUNCH_GAP_NS));
                self.pass(self.cluster.clock().now().checked_add(pause))?;
            }
        }
        Ok(())
    }

    /// As [`repeat`], of this run alone.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn repeat(&mut self, repetitions: u64, why: String, progress: impl FnMut(u64)) -> Result<Summary> {
        repeat(slice::from_mut(self), repetitions, why, progress)
    }

    /// Says how the hosts behave from now on.
    pub fn behave(&mut self, conduct: Conduct) {
        self.conduct = conduct;
    }

    /// Returns how the hosts behave from now on, with what has struck so far.
    #[must_use]
    pub fn conduct(&self) -> &Conduct {
        &self.conduct
    }

    /// Puts everything that is launched from now on on a stream.
    pub fn put_on(&mut self, stream: Arc<Stream>) {
        self.stream = Some(stream);
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
}
