//! From an operation to launch arguments in a rank's mailbox, with the resources that it needs.

use templates::{Needs, Shape};
use wire::launch::{Algorithm, Staging};
use wire::{ErrorCode, LaunchArgs};

use super::{Communicator, InFlight, Operation, Place, Work};
use crate::buffer::driver;
use crate::error::{Error, Result};
use crate::resources::{RankResources, Resources, START_NOTIFIES};

/// Least scratch that is created, bytes: less saves nothing.
const LEAST_SCRATCH: u64 = 64 << 10;

impl Communicator<'_> {
    /// Launches an operation on one rank and returns without waiting.
    ///
    /// # Errors
    /// `COMM_POISONED` after an earlier error; `LAUNCH_*` for buffers or sizes that make no sense; quotas of the device
    /// when resources cannot be created. Nothing has been launched then. What a kernel refuses,
    /// [`synchronize`](Self::synchronize) reports; [`chunk_elements`](Self::chunk_elements) tells before.
    pub fn launch(
        &mut self,
        rank: u32,
        operation: &Operation,
        input: Place<'_>,
        output: Place<'_>,
    ) -> Result<()> {
        self.check_alive()?;
        self.prepare(operation)?;
        let args = self.arguments(rank, operation, input, output)?;
        self.check_room(rank)?;
        self.post(rank, Work::Operation(*operation), args)
    }

    /// Refuses to go on after an error.
    pub(super) fn check_alive(&self) -> Result<()> {
        if self.suspended {
            return Err(Error::new(ErrorCode::COMM_SUSPENDED, "nothing can be launched on it"));
        }
        if self.aborter.is_aborted() {
            return Err(Error::new(ErrorCode::COMM_ABORTED, "nothing can be launched on it any more"));
        }
        if self.poisoned {
            let message = "an earlier operation of this communicator failed";
            return Err(Error::new(ErrorCode::COMM_POISONED, message));
        }
        Ok(())
    }

    /// Refuses more launches than there are start notifies for.
    pub(super) fn check_room(&self, rank: u32) -> Result<()> {
        let in_flight = self.ranks[rank as usize].in_flight.len();
        if in_flight >= START_NOTIFIES as usize {
            let message = format!("rank {rank} has {in_flight} operations in flight");
            return Err(Error::new(ErrorCode::LAUNCHES_FULL, message).remedy("call synchronize first"));
        }
        Ok(())
    }

    /// Returns the elements per chunk and rank that the kernels will work with.
    ///
    /// # Errors
    /// `PLAN_*` and `LAUNCH_COUNT` for an operation that cannot be carried out.
    pub fn chunk_elements(&self, operation: &Operation, in_place: bool) -> Result<u64> {
        let plan = templates::Plan::new(&self.planned(operation, in_place)).map_err(|error| {
            let summary = error.code.info().map_or("refused", |info| info.summary);
            let sizes = match (error.need, error.limit) {
                (0, 0) => String::new(),
                (need, limit) => format!(" (needs {need}, there is {limit})"),
            };
            Error::new(error.code, format!("{operation}: {summary}{sizes}"))
        })?;
        Ok(plan.chunk_elements())
    }

    /// Returns the shape of an operation as rank 0 plans it.
    pub(super) fn planned(&self, operation: &Operation, in_place: bool) -> Shape {
        Shape {
            scratch_len: self.scratch_for(operation),
            inline_reduce: self.reduces_inline(operation),
            in_place,
            ..self.shape(operation)
        }
    }

    /// Returns whether every link reduces the operation's elements while moving.
    fn reduces_inline(&self, operation: &Operation) -> bool {
        self.cluster
            .topology()
            .reduces_inline(wire::Reduction { dtype: operation.dtype, op: operation.reduce })
    }

    /// Posts launch arguments as they are: start notify, launch.
    pub(super) fn post(&mut self, rank: u32, work: Work, args: LaunchArgs) -> Result<()> {
        let npu = self.cluster.npu(rank);
        let state = &mut self.ranks[rank as usize];
        npu.set_notify(args.start_notify);
        let ticket = npu.post_launch(&args).map_err(driver)?;
        self.cluster.wake(rank);
        state.done_count += 1;
        state.launched = args.sequence;
        state.in_flight.push_back(InFlight {
            sequence: args.sequence,
            work,
            ticket,
            done_at: state.done_count,
        });
        Ok(())
    }

    /// Launches an operation on every rank.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn launch_all(&mut self, operation: &Operation, input: Place<'_>, output: Place<'_>) -> Result<()> {
        (0..self.size()).try_for_each(|rank| self.launch(rank, operation, input, output))
    }

    /// Creates the resources that an operation needs and does not have yet.
    pub(super) fn prepare(&mut self, operation: &Operation) -> Result<()> {
        let key = (operation.algorithm, operation.staging);
        let wanted = self.scratch_for(operation);
        if self.resources.get(&key).is_some_and(|resources| resources.scratch.len >= wanted) {
            return Ok(());
        }
        // More scratch than before: the old context stays until destruction, nothing refers to it any more.
        if let Some(old) = self.resources.remove(&key) {
            self.retired.push(old);
        }
        let mut needs = Needs::of(operation.algorithm, self.size());
        if operation.staging == Staging::Direct {
            // Direct work needs no threads of its own: the copies of one rank go to one place, in order.
            (needs.threads, needs.main_notifies) = (1, 0);
        }
        let resources =
            Resources::create(self.cluster, &self.identity, &needs, wanted, self.config.queue_depth)?;
        self.set_up.channels += resources.channels() as u64;
        self.set_up.contexts += u64::from(self.size());
        self.set_up.scratch_bytes += wanted;
        self.resources.insert(key, resources);
        Ok(())
    }

    /// As much scratch as lets the operation run in one chunk, a power of two within the communicator's bounds.
    fn scratch_for(&self, operation: &Operation) -> u64 {
        let wanted = templates::scratch_bytes(&self.shape(operation));
        let bound = self.config.buffer_bytes.max(LEAST_SCRATCH);
        wanted.checked_next_power_of_two().unwrap_or(bound).clamp(LEAST_SCRATCH, bound)
    }

    fn shape(&self, operation: &Operation) -> Shape {
        Shape {
            op: operation.op,
            algorithm: operation.algorithm,
            staging: operation.staging,
            rank: 0,
            ranks: self.size(),
            count: operation.count,
            dtype: operation.dtype,
            reduce: operation.reduce,
            scratch_len: 0,
            threads: 1,
            inline_reduce: false,
            in_place: false,
            chunk: operation.chunk,
            piece: operation.piece,
        }
    }

    /// Returns the launch arguments of one rank; the resources exist.
    fn arguments(
        &self,
        rank: u32,
        operation: &Operation,
        input: Place<'_>,
        output: Place<'_>,
    ) -> Result<LaunchArgs> {
        let (input_len, output_len) = self.buffer_bytes(operation)?;
        for (name, place, len) in [("input", input, input_len), ("output", output, output_len)] {
            if place.offset.checked_add(len).is_none_or(|end| end > place.buffer.len()) {
                let message = format!(
                    "{name}: {len} bytes at offset {} of a buffer of {} bytes",
                    place.offset,
                    place.buffer.len()
                );
                return Err(Error::new(ErrorCode::LAUNCH_BUFFER, message));
            }
        }
        check_reach(operation, input.offset, output.offset)?;
        let own = self.resources_of(rank, operation)?;
        let state = &self.ranks[rank as usize];
        let sequence = state.launched.wrapping_add(1);
        let args = LaunchArgs {
            blocks: 1,
            sequence,
            instance: self.identity.instance,
            epoch: self.identity.epoch,
            op: operation.op as u8,
            dtype: operation.dtype as u8,
            reduce: operation.reduce as u8,
            algorithm: operation.algorithm as u8,
            count: operation.count,
            chunk: operation.chunk,
            piece: operation.piece,
            context: own.context.0,
            context_len: own.context.1,
            staging: operation.staging as u8,
            cache: self.config.cache as u8,
            input: input.buffer.part(rank, input.offset, input_len),
            output: output.buffer.part(rank, output.offset, output_len),
            start_notify: own.start_base + sequence % START_NOTIFIES,
            done_notify: state.done_notify,
            timeout_ms: self.timeout_ms(),
            ..LaunchArgs::default()
        };
        Ok(args.sealed())
    }

    /// Returns how long a wait on the device may last, milliseconds.
    pub(super) fn timeout_ms(&self) -> u32 {
        u32::try_from(self.config.timeout.as_millis()).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the bytes of input and output per rank.
    pub(super) fn buffer_bytes(&self, operation: &Operation) -> Result<(u64, u64)> {
        operation.buffer_bytes(self.size()).ok_or_else(|| {
            let message = format!("{} elements of {}", operation.count, operation.dtype);
            Error::new(ErrorCode::LAUNCH_COUNT, message)
        })
    }

    /// Returns what a rank has for an operation that has been prepared.
    pub(super) fn resources_of(&self, rank: u32, operation: &Operation) -> Result<&RankResources> {
        let resources = self.resources.get(&(operation.algorithm, operation.staging));
        let own = resources.and_then(|resources| resources.ranks.get(rank as usize));
        own.ok_or_else(|| Error::new(ErrorCode::PLAN_INTERNAL, "the operation's resources do not exist"))
    }
}

/// Checks that peers find what they touch directly: their tables name the start of a buffer. `input` and `output` are
/// the offsets in their buffers.
pub(super) fn check_reach(operation: &Operation, input: u64, output: u64) -> Result<()> {
    let direct = operation.staging == Staging::Direct;
    let mesh = matches!(operation.algorithm, Algorithm::MeshOneShot | Algorithm::MeshTwoShot);
    for (name, offset, touched) in [("input", input, direct && mesh), ("output", output, direct)] {
        if touched && offset > 0 {
            let message = format!("{name}: peers touch it, and it lies at offset {offset} of its buffer");
            let remedy = "work in scratch, or make a buffer of its own for it";
            return Err(Error::new(ErrorCode::LAUNCH_BUFFER, message).remedy(remedy));
        }
    }
    Ok(())
}
