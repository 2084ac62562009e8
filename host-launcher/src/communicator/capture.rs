//! Capture: a sequence of operations, recorded once, replayed by one launch per rank with the buffers of the day.
//!
//! A program names slots, not buffers; each replay binds one buffer to each slot. Replays on one communicator follow
//! the rule of operations: all ranks launch the same, in the same order.

use wire::launch::{Buffer, VectorRow};
use wire::program::{MAX_BINDINGS, MAX_OPERATIONS, ProgramEntry, ProgramHeader, ProgramOperand, Replay};
use wire::{DeviceAddr, ErrorCode};
use zerocopy::IntoBytes;

use super::launch::check_reach;
use super::work::Work;
use super::{Communicator, Operation};
use crate::buffer::{SharedBuffer, driver};
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::resources::START_NOTIFIES;
use crate::stream::Stream;

/// Where an operation of a program finds a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Position in the list of buffers that each replay brings.
    pub index: u32,
    /// First byte within the buffer; 0 where peers touch it, as direct work lets them.
    pub offset: u64,
    /// Bytes by which a rank's first byte lies behind that of the rank before it.
    pub stride: u64,
}

impl Slot {
    /// Returns the slot with this index, whole.
    #[must_use]
    pub const fn whole(index: u32) -> Self {
        Self { index, offset: 0, stride: 0 }
    }

    fn operand(&self, rank: u32, len: u64) -> Result<ProgramOperand> {
        let shift = self.stride.checked_mul(u64::from(rank));
        let offset = shift.and_then(|shift| shift.checked_add(self.offset));
        let offset = offset.filter(|offset| offset.checked_add(len).is_some()).ok_or_else(|| {
            Error::new(ErrorCode::LAUNCH_BUFFER, format!("slot {}: its end does not fit 64 bits", self.index))
        })?;
        Ok(ProgramOperand { slot: self.index, reserved: 0, offset, len })
    }
}

/// A captured sequence of operations. Its memory belongs to the communicator, which frees it at the latest with itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    instance: [u64; 2],
    epoch: u32,
    number: u32,
    work: Work,
    /// Bytes that each slot's buffer must have.
    needs: Vec<u64>,
}

impl Program {
    /// Returns the bytes that the buffer in each slot must have at least; 0 for slots that no operation names.
    #[must_use]
    pub fn needs(&self) -> &[u64] {
        &self.needs
    }
}

/// What a program has on one rank.
#[derive(Debug)]
pub(crate) struct RankProgram {
    program: (DeviceAddr, u32),
    /// As many lists of buffers as replays can be in flight.
    lists: DeviceAddr,
    start_base: u32,
    /// Queues of the main threads of the first and the last operation.
    queues: [u16; 2],
}

impl RankProgram {
    /// Writes a program whose operations have these rows, none where they have no vector.
    fn write(
        cluster: &Cluster,
        rank: u32,
        header: ProgramHeader,
        entries: &mut [ProgramEntry],
        rows: &[&[VectorRow]],
        queues: [u16; 2],
    ) -> Result<Self> {
        let npu = cluster.npu(rank);
        let lists = u64::from(START_NOTIFIES * header.bindings) * size_of::<Buffer>() as u64;
        let program = (size_of::<ProgramHeader>() + size_of_val(entries)) as u64;
        let vectors: usize = rows.iter().map(|rows| size_of_val(*rows)).sum();
        // One piece of memory: the program, then the lists, then the vectors.
        let at = npu.alloc(program + lists + vectors as u64, 64).map_err(driver)?;
        let mut place = DeviceAddr(at.0 + program + lists);
        for (entry, rows) in entries.iter_mut().zip(rows).filter(|(_, rows)| !rows.is_empty()) {
            npu.write(place, rows.as_bytes()).map_err(driver)?;
            entry.vector = place;
            place = DeviceAddr(place.0 + size_of_val(*rows) as u64);
        }
        let header =
            header.sealed(entries).map_err(|code| Error::new(code, format!("{} entries", entries.len())))?;
        npu.write(at, &[header.as_bytes(), entries.as_bytes()].concat()).map_err(driver)?;
        let start_base = entries.first().map_or(0, |entry| entry.start_base);
        let lists = DeviceAddr(at.0 + u64::from(header.total_len));
        Ok(Self { program: (at, header.total_len), lists, start_base, queues })
    }

    pub(crate) fn free(&self, cluster: &Cluster, rank: u32) -> Result<()> {
        cluster.npu(rank).free(self.program.0).map_err(driver)
    }
}

/// Whether an operation has one buffer for both, at the same place or with a share at its place in the whole.
fn is_in_place(input: Slot, output: Slot) -> bool {
    input.index == output.index && (input == output || input.stride != output.stride)
}

/// A capture under way. Nothing else can be launched meanwhile.
#[derive(Debug)]
pub struct Capture<'a, 'c> {
    comm: &'a mut Communicator<'c>,
    operations: Vec<(Operation, Slot, Slot)>,
}

impl Capture<'_, '_> {
    /// Appends an operation; it starts when the one before it is done on its rank.
    ///
    /// # Errors
    /// `PLAN_*`, `LAUNCH_*` for an operation that cannot be carried out, or that peers could not reach the buffers of.
    /// The capture goes on without it.
    pub fn add(&mut self, operation: &Operation, input: Slot, output: Slot) -> Result<&mut Self> {
        self.comm.chunk_elements(operation, is_in_place(input, output))?;
        for rank in 0..self.comm.size() {
            let at = |slot: Slot| slot.offset.saturating_add(slot.stride.saturating_mul(u64::from(rank)));
            check_reach(operation, rank, at(input), at(output))?;
        }
        self.operations.push((operation.clone(), input, output));
        Ok(self)
    }

    /// Creates what the operations need and writes the program to every rank.
    ///
    /// # Errors
    /// `PROGRAM_CAPACITY` for no operation, too many, or too many slots; quotas of the device.
    pub fn end(self) -> Result<Program> {
        let Self { comm, operations } = self;
        let slots = operations.iter().flat_map(|(_, input, output)| [input.index, output.index]);
        let bindings = slots.max().map_or(0, |last| last as usize + 1);
        let Some((first, ..)) = operations.first().filter(|_| operations.len() <= MAX_OPERATIONS) else {
            let message = format!("{} operations; a program has 1 to {MAX_OPERATIONS}", operations.len());
            return Err(Error::new(ErrorCode::PROGRAM_CAPACITY, message));
        };
        if bindings > MAX_BINDINGS {
            let message = format!("{bindings} slots; a program has at most {MAX_BINDINGS}");
            return Err(Error::new(ErrorCode::PROGRAM_CAPACITY, message));
        }
        // All resources first: a later operation may want more scratch than an earlier one of the same algorithm.
        for (operation, input, output) in &operations {
            comm.prepare(operation)?;
            comm.write_scripts(operation, is_in_place(*input, *output))?;
        }
        let number = comm.captured;
        let work = Work::Replay { program: number, operations: operations.len(), first: first.clone() };
        let mut needs = vec![0; bindings];
        let ranks = comm.write_program(&operations, &mut needs)?;
        comm.captured += 1;
        comm.programs.insert(number, ranks);
        let (instance, epoch) = (comm.identity.instance, comm.identity.epoch);
        Ok(Program { instance, epoch, number, work, needs })
    }
}

impl<'c> Communicator<'c> {
    /// Begins to capture operations.
    ///
    /// # Errors
    /// `COMM_POISONED` after an earlier error.
    pub fn capture(&mut self) -> Result<Capture<'_, 'c>> {
        self.check_alive()?;
        Ok(Capture { comm: self, operations: Vec::new() })
    }

    /// Launches all operations of a program, once, on every rank and returns without waiting. `bindings` has one buffer
    /// for each slot. Whatever is in flight may overlap with it, as operations of different algorithms do; the
    /// operations of the program do not overlap with each other.
    ///
    /// # Errors
    /// `COMM_POISONED`, `PROGRAM_STALE`, `PROGRAM_BINDINGS`, `LAUNCH_BUFFER` for a buffer that is too small,
    /// `BINDING_STALE` for one that is not registered any more on some rank, `LAUNCHES_FULL`. Nothing has been launched
    /// then, on no rank.
    pub fn replay(&mut self, program: &Program, bindings: &[&SharedBuffer]) -> Result<()> {
        self.replay_in(None, program, bindings)
    }

    /// As [`replay`](Self::replay), on a stream, if one is given: [`launch_in`](Self::launch_in) says what that means.
    ///
    /// # Errors
    /// As [`replay`](Self::replay).
    pub fn replay_in(
        &mut self,
        stream: Option<&Stream>,
        program: &Program,
        bindings: &[&SharedBuffer],
    ) -> Result<()> {
        self.check_replay(program, bindings)?;
        (0..self.size()).try_for_each(|rank| self.check_room(rank))?;
        (0..self.size()).try_for_each(|rank| self.post_replay(stream, rank, program, bindings))
    }

    /// Launches all operations of a program on one rank.
    ///
    /// # Errors
    /// As [`replay`](Self::replay).
    pub fn replay_on(&mut self, rank: u32, program: &Program, bindings: &[&SharedBuffer]) -> Result<()> {
        self.check_replay(program, bindings)?;
        self.check_room(rank)?;
        self.post_replay(None, rank, program, bindings)
    }

    /// Frees a program. Replaying it is refused from then on.
    ///
    /// # Errors
    /// `PROGRAM_STALE` for one of another communicator or freed already, `PROGRAM_BUSY` while a replay is in flight.
    pub fn free_program(&mut self, program: &Program) -> Result<()> {
        self.check_program(program)?;
        let mut in_flight = self.ranks.iter().flat_map(|state| &state.in_flight);
        if in_flight.any(|launched| launched.work == program.work) {
            let message = format!("program {} is being replayed", program.number);
            return Err(Error::new(ErrorCode::PROGRAM_BUSY, message));
        }
        let ranks = self.programs.remove(&program.number).unwrap_or_default();
        (0..).zip(&ranks).try_for_each(|(rank, own)| own.free(self.cluster, rank))
    }

    /// Writes a program to every rank, all or none, and notes how long the buffers must be.
    fn write_program(
        &self,
        operations: &[(Operation, Slot, Slot)],
        needs: &mut [u64],
    ) -> Result<Vec<RankProgram>> {
        let mut ranks = Vec::new();
        for rank in 0..self.size() {
            match self.write_rank(rank, operations, needs) {
                Ok(own) => ranks.push(own),
                Err(error) => {
                    (0..)
                        .zip(&ranks)
                        .try_for_each(|(rank, own)| RankProgram::free(own, self.cluster, rank))?;
                    return Err(error);
                }
            }
        }
        Ok(ranks)
    }

    fn write_rank(
        &self,
        rank: u32,
        operations: &[(Operation, Slot, Slot)],
        needs: &mut [u64],
    ) -> Result<RankProgram> {
        let mut entries: Vec<_> = operations
            .iter()
            .map(|(operation, input, output)| self.entry(rank, operation, *input, *output))
            .collect::<Result<_>>()?;
        for operand in entries.iter().flat_map(|entry| [&entry.input, &entry.output]) {
            let need = &mut needs[operand.slot as usize];
            *need = (*need).max(operand.offset + operand.len);
        }
        let header = ProgramHeader {
            instance: self.identity.instance,
            epoch: self.identity.epoch,
            // At most MAX_BINDINGS.
            bindings: u32::try_from(needs.len()).unwrap_or(u32::MAX),
            ..ProgramHeader::default()
        };
        let rows: Vec<_> = operations.iter().map(|(operation, ..)| operation.rows(rank)).collect();
        let queue = |end: Option<&(Operation, Slot, Slot)>| {
            end.map_or(Ok(u16::MAX), |(operation, ..)| Ok(self.resources_of(rank, operation)?.main_queue()))
        };
        let queues = [queue(operations.first())?, queue(operations.last())?];
        RankProgram::write(self.cluster, rank, header, &mut entries, &rows, queues)
    }

    fn entry(&self, rank: u32, operation: &Operation, input: Slot, output: Slot) -> Result<ProgramEntry> {
        let (input_len, output_len) = operation.buffer_bytes(rank, self.size())?;
        let own = self.resources_of(rank, operation)?;
        Ok(ProgramEntry {
            op: operation.op as u8,
            dtype: operation.dtype as u8,
            reduce: operation.reduce as u8,
            algorithm: operation.algorithm as u8,
            staging: operation.staging as u8,
            reserved: [0; 3],
            count: operation.count,
            // Where rows lie is known once there is memory for them.
            vector: self.written_script(rank, operation, is_in_place(input, output)),
            root: operation.root,
            levels: operation.levels.map(|level| level.map_or(0, |algorithm| algorithm as u8)),
            chunk: operation.chunk,
            piece: operation.piece,
            context: own.context.0,
            context_len: own.context.1,
            start_base: own.start_base,
            input: input.operand(rank, input_len)?,
            output: output.operand(rank, output_len)?,
        })
    }

    fn check_program(&self, program: &Program) -> Result<()> {
        let stale = |what: &str| {
            Err(Error::new(ErrorCode::PROGRAM_STALE, format!("program {}: {what}", program.number)))
        };
        if (program.instance, program.epoch) != (self.identity.instance, self.identity.epoch) {
            return stale("captured on another communicator");
        }
        if self.programs.contains_key(&program.number) { Ok(()) } else { stale("freed") }
    }

    fn check_replay(&self, program: &Program, bindings: &[&SharedBuffer]) -> Result<()> {
        self.check_alive()?;
        self.check_program(program)?;
        if bindings.len() != program.needs.len() {
            let message = format!("{} buffers for {} slots", bindings.len(), program.needs.len());
            return Err(Error::new(ErrorCode::PROGRAM_BINDINGS, message));
        }
        for (slot, (buffer, need)) in bindings.iter().zip(&program.needs).enumerate() {
            if buffer.len() < *need {
                let message = format!("slot {slot}: {need} bytes wanted, the buffer has {}", buffer.len());
                return Err(Error::new(ErrorCode::LAUNCH_BUFFER, message));
            }
            if let Some(rank) = (0..self.size()).find(|&rank| !buffer.is_registered(self.cluster, rank)) {
                let message = format!("slot {slot}: the buffer is not registered at rank {rank}");
                return Err(Error::new(ErrorCode::BINDING_STALE, message));
            }
        }
        Ok(())
    }

    /// Writes the list of buffers, then posts the launch. Checked, and there is room.
    fn post_replay(
        &mut self,
        stream: Option<&Stream>,
        rank: u32,
        program: &Program,
        bindings: &[&SharedBuffer],
    ) -> Result<()> {
        let state = &self.ranks[rank as usize];
        let sequence = state.launched.wrapping_add(1);
        let number = sequence % START_NOTIFIES;
        let gone = || Error::new(ErrorCode::PROGRAM_STALE, format!("program {}: freed", program.number));
        let ranks = self.programs.get(&program.number).ok_or_else(gone)?;
        let own = ranks.get(rank as usize).ok_or_else(gone)?;
        let list: Vec<Buffer> = bindings.iter().map(|buffer| buffer.part(rank, 0, buffer.len())).collect();
        // Launches in flight have different numbers, so no kernel reads this list any more.
        let at = DeviceAddr(own.lists.0 + u64::from(number) * size_of_val(&*list) as u64);
        self.cluster.npu(rank).write(at, list.as_bytes()).map_err(driver)?;
        let replay = Replay {
            sequence,
            instance: self.identity.instance,
            epoch: self.identity.epoch,
            cache: self.config.cache,
            program: own.program,
            bindings: (at, size_of_val(&*list) as u64),
            start_notify: own.start_base + number,
            done_notify: state.done_notify,
            timeout_ms: self.timeout_ms(),
        };
        let queues = own.queues;
        self.post(rank, program.work.clone(), &replay.args(), queues, stream)
    }
}
