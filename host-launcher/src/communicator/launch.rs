//! From an operation to launch arguments in a rank's mailbox, with the resources that it needs.

use templates::Shape;
use wire::context::ContextHeader;
use wire::launch::{Algorithm, OpKind, Staging, VectorRow};
use wire::{DeviceAddr, ErrorCode, LaunchArgs};
use zerocopy::IntoBytes;

use super::operation::refused;
use super::{Communicator, InFlight, Operation, Place, Work};
use crate::buffer::driver;
use crate::error::{Error, Result};
use crate::resources::{self, RankResources, Resources, START_NOTIFIES};
use crate::stream::{Mark, Stream, Ticket};

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
        self.launch_in(None, rank, operation, input, output)
    }

    /// As [`launch`](Self::launch), on a stream, if one is given: it begins when everything launched on the stream before
    /// is done on this rank's NPU, of whatever communicator, and everything launched on this communicator before, as
    /// always.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn launch_in(
        &mut self,
        stream: Option<&Stream>,
        rank: u32,
        operation: &Operation,
        input: Place<'_>,
        output: Place<'_>,
    ) -> Result<()> {
        self.check_alive()?;
        let prepared = self.prepare(operation)?;
        self.launch_prepared(rank, operation, prepared, (input, output), stream)
    }

    /// Launches on one rank; `prepared` is where [`prepare`](Self::prepare) found the operation's resources.
    fn launch_prepared(
        &mut self,
        rank: u32,
        operation: &Operation,
        prepared: usize,
        (input, output): (Place<'_>, Place<'_>),
        stream: Option<&Stream>,
    ) -> Result<()> {
        let mut args = LaunchArgs::default();
        let queue = self.fill(&mut args, prepared, rank, operation, input, output)?;
        let in_place = operation.lies_in_place(rank, self.size(), &args)?;
        self.check_room(rank)?;
        if operation.file.is_some() {
            args.vector = self.script(rank, operation, in_place)?;
        }
        if operation.vector.is_some() {
            args.vector = self.write_vector(rank, operation.rows(rank), args.sequence)?;
        }
        self.post(rank, Work::Operation(operation.clone()), &args.sealed(), [queue; 2], stream)
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
    /// `PLAN_*` and `LAUNCH_COUNT` for an operation that cannot be carried out, `ALGORITHM_MISMATCH` for a file that is
    /// for another one.
    pub fn chunk_elements(&self, operation: &Operation, in_place: bool) -> Result<u64> {
        operation.check_file(self.size())?;
        let (shape, tables) = self.planned(operation, 0, in_place)?;
        let plan = templates::Plan::new(&shape, &tables).map_err(|error| refused(operation, error))?;
        Ok(plan.chunk_elements())
    }

    /// Returns the shape of an operation as a rank plans it, and what it refers to.
    pub(super) fn planned<'a>(
        &'a self,
        operation: &'a Operation,
        rank: u32,
        in_place: bool,
    ) -> Result<(Shape, templates::Tables<'a>)> {
        let script = operation.script(rank, in_place)?;
        let tables =
            templates::Tables { vector: operation.rows(rank), script, ..self.cluster.topology().groups() };
        let shape = Shape {
            scratch_len: self.scratch_for(operation),
            threads: script.map_or(1, |script| script.header().threads),
            inline_reduce: self.reduces_inline(operation),
            in_place,
            ..operation.shape(rank, self.size())
        };
        Ok((shape, tables))
    }

    /// Returns the plan that a rank's kernel makes of a launch, and what it refers to.
    ///
    /// # Errors
    /// As [`chunk_elements`](Self::chunk_elements).
    pub(crate) fn plan_of<'a>(
        &'a self,
        rank: u32,
        operation: &'a Operation,
        args: &LaunchArgs,
    ) -> Result<(templates::Plan, templates::Tables<'a>)> {
        let in_place = operation.lies_in_place(rank, self.size(), args)?;
        let (shape, tables) = self.planned(operation, rank, in_place)?;
        let own = self.resources_of(rank, operation)?;
        let scratch_len = self.resources_for(operation).map_or(0, |resources| resources.scratch.len);
        let threads = u16::try_from(own.threads().len()).unwrap_or(u16::MAX);
        let shape = Shape { scratch_len, threads, ..shape };
        let plan = templates::Plan::new(&shape, &tables).map_err(|error| refused(operation, error))?;
        Ok((plan, tables))
    }

    /// Returns the header of the contexts of a rank.
    pub(crate) fn context_header(&self, rank: u32) -> ContextHeader {
        resources::header(self.cluster, &self.identity, rank)
    }

    /// Returns whether every link reduces the operation's elements while moving.
    fn reduces_inline(&self, operation: &Operation) -> bool {
        self.cluster
            .topology()
            .reduces_inline(wire::Reduction { dtype: operation.dtype, op: operation.reduce })
    }

    /// Posts launch arguments as they are: start notify, launch. Or has that done when what comes before is done.
    ///
    /// `first` and `last` are the queues of the threads that its first and its last task run on.
    pub(super) fn post(
        &mut self,
        rank: u32,
        work: Work,
        args: &LaunchArgs,
        [first, last]: [u16; 2],
        stream: Option<&Stream>,
    ) -> Result<()> {
        let npu = self.cluster.npu(rank);
        let sequence = args.sequence;
        let done_at = self.ranks[rank as usize].done_count + 1;
        let own = self.mark(rank, sequence, done_at);
        let after = self.unfinished(rank, first, stream);
        let ticket = if after.is_empty() {
            npu.set_notify(args.start_notify);
            let ticket = npu.post_launch(args).map_err(driver)?;
            self.cluster.wake(rank);
            Ticket::Posted(ticket)
        } else {
            self.cluster.order().hold(npu.index(), own, after, *args)
        };
        if let Some(stream) = stream {
            self.cluster.order().append(stream, npu.index(), own);
        }
        let state = &mut self.ranks[rank as usize];
        (state.done_count, state.launched) = (done_at, sequence);
        state.in_flight.push_back(InFlight { sequence, work, ticket, done_at, queue: last });
        Ok(())
    }

    /// Returns what a launch that starts on a queue has to wait for. What is in the same queue comes first anyway.
    fn unfinished(&self, rank: u32, queue: u16, stream: Option<&Stream>) -> Vec<Mark> {
        let npu = self.cluster.npu(rank);
        let before = self.ranks[rank as usize].in_flight.back();
        let before = before.filter(|before| before.queue != queue || before.ticket.number().is_none());
        let before = before.map(|before| self.mark(rank, before.sequence, before.done_at));
        let before = before.filter(|before| !before.is_done(npu));
        let last = stream.and_then(|stream| self.cluster.order().last(stream, npu));
        // Of its own communicator everything comes one after the other.
        let last = last.filter(|last| last.number.instance != self.identity.instance);
        before.into_iter().chain(last).collect()
    }

    /// Launches an operation on every rank.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn launch_all(&mut self, operation: &Operation, input: Place<'_>, output: Place<'_>) -> Result<()> {
        self.check_alive()?;
        let prepared = self.prepare(operation)?;
        (0..self.size())
            .try_for_each(|rank| self.launch_prepared(rank, operation, prepared, (input, output), None))
    }

    /// Creates the resources that an operation needs and does not have yet; returns their index, until the next call.
    pub(super) fn prepare(&mut self, operation: &Operation) -> Result<usize> {
        operation.check_file(self.size())?;
        let key = operation.kind();
        let wanted = self.scratch_for(operation);
        let known = self.resources.iter().position(|(kind, _)| *kind == key);
        if let Some(index) = known.filter(|index| self.resources[*index].1.scratch.len >= wanted) {
            return Ok(index);
        }
        self.check_memory(operation)?;
        let needs = operation.needs(self.size(), &self.cluster.topology().groups());
        let resources =
            Resources::create(self.cluster, &self.identity, &needs, wanted, self.config.queue_depth)?;
        // More scratch than before: the old context stays until destruction, nothing refers to it any more.
        if let Some(index) = known {
            self.retired.push(self.resources.remove(index).1);
        }
        self.set_up.channels += resources.channels() as u64;
        self.set_up.contexts += u64::from(self.size());
        self.set_up.scratch_bytes += wanted;
        self.resources.push((key, resources));
        Ok(self.resources.len() - 1)
    }

    /// The scratch that an operation gets.
    pub(super) fn scratch_for(&self, operation: &Operation) -> u64 {
        operation.scratch(self.size(), &self.cluster.topology().groups(), self.config.buffer_bytes)
    }

    /// Writes the rows of one rank to its device, where they stay until the launch has been answered.
    fn write_vector(&mut self, rank: u32, rows: &[VectorRow], sequence: u32) -> Result<DeviceAddr> {
        let bytes = u64::from(self.size()) * size_of::<VectorRow>() as u64;
        // One by one: what an error interrupts is given back with the communicator.
        for rank in u32::try_from(self.vectors.len()).unwrap_or(u32::MAX)..self.size() {
            let npu = self.cluster.npu(rank);
            self.vectors.push(npu.alloc(u64::from(START_NOTIFIES) * bytes, 64).map_err(driver)?);
        }
        // Launches in flight have different numbers, so no kernel reads this place any more.
        let at = self.vectors[rank as usize].0 + u64::from(sequence % START_NOTIFIES) * bytes;
        self.cluster.npu(rank).write(DeviceAddr(at), rows.as_bytes()).map_err(driver)?;
        Ok(DeviceAddr(at))
    }

    /// Fills in the launch arguments of one rank; the resources exist. Returns the queue that it all begins and ends in.
    fn fill(
        &self,
        args: &mut LaunchArgs,
        prepared: usize,
        rank: u32,
        operation: &Operation,
        input: Place<'_>,
        output: Place<'_>,
    ) -> Result<u16> {
        let (input_len, output_len) = operation.buffer_bytes(rank, self.size())?;
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
        check_reach(operation, rank, input.offset, output.offset)?;
        let own = of_rank(self.resources.get(prepared).map(|(_, resources)| resources), rank)?;
        let state = &self.ranks[rank as usize];
        let sequence = state.launched.wrapping_add(1);
        *args = LaunchArgs {
            blocks: 1,
            sequence,
            instance: self.identity.instance,
            epoch: self.identity.epoch,
            op: operation.op as u8,
            dtype: operation.dtype as u8,
            reduce: operation.reduce as u8,
            algorithm: operation.algorithm as u8,
            count: operation.count,
            root: operation.root,
            levels: operation.levels.map(|level| level.map_or(0, |algorithm| algorithm as u8)),
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
        Ok(own.main_queue())
    }

    /// Returns how long a wait on the device may last, milliseconds.
    pub(super) fn timeout_ms(&self) -> u32 {
        u32::try_from(self.config.timeout.as_millis()).unwrap_or(u32::MAX).max(1)
    }

    /// Returns what a rank has for an operation that has been prepared.
    pub(crate) fn resources_of(&self, rank: u32, operation: &Operation) -> Result<&RankResources> {
        of_rank(self.resources_for(operation), rank)
    }
}

/// Returns what is a rank's of the resources of an operation.
fn of_rank(resources: Option<&Resources>, rank: u32) -> Result<&RankResources> {
    let own = resources.and_then(|resources| resources.ranks.get(rank as usize));
    own.ok_or_else(|| Error::new(ErrorCode::PLAN_INTERNAL, "the operation's resources do not exist"))
}

/// Checks that peers find what they touch of a rank's buffers directly: their tables name the start of a buffer. `input`
/// and `output` are the offsets in their buffers.
pub(super) fn check_reach(operation: &Operation, rank: u32, input: u64, output: u64) -> Result<()> {
    let steps = matches!(
        operation.algorithm,
        Algorithm::Ring | Algorithm::HalvingDoubling | Algorithm::Nhr | Algorithm::Nb | Algorithm::Tree
    );
    let root = rank == operation.root;
    // What is reduced on the way is read from the inputs; passes over slices work in the outputs.
    let (reads, writes) = match operation.op {
        OpKind::AllReduce => (!steps, true),
        OpKind::ReduceScatter => (true, false),
        OpKind::Reduce => (!root, false),
        OpKind::Gather => (false, root),
        OpKind::Scatter | OpKind::Broadcast if !steps => (false, !root),
        _ => (false, true),
    };
    let direct = operation.staging == Staging::Direct;
    for (name, offset, touched) in [("input", input, direct && reads), ("output", output, direct && writes)] {
        if touched && offset > 0 {
            let message = format!("{name}: peers touch it, and it lies at offset {offset} of its buffer");
            let remedy = "work in scratch, or make a buffer of its own for it";
            return Err(Error::new(ErrorCode::LAUNCH_BUFFER, message).remedy(remedy));
        }
    }
    Ok(())
}
