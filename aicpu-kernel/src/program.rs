//! The program that is being replayed, copied out of shared memory once per replay.

use hal::SharedMemory;
use wire::ErrorCode;
use wire::launch::{Buffer, Launch};
use wire::program::{MAX_BINDINGS, MAX_OPERATIONS, Program, ProgramEntry, ProgramHeader, Replay};
use zerocopy::IntoBytes;

use crate::kernel::Fault;

/// A program and the buffers of one replay.
#[derive(Debug)]
pub(crate) struct LoadedProgram {
    header: ProgramHeader,
    entries: [ProgramEntry; MAX_OPERATIONS],
    bindings: [Buffer; MAX_BINDINGS],
    /// [`Replay::NONE`] while nothing is loaded: every replay names a program.
    replay: Replay,
}

impl LoadedProgram {
    pub(crate) const fn new() -> Self {
        Self {
            header: zerocopy::transmute!([0_u8; size_of::<ProgramHeader>()]),
            entries: zerocopy::transmute!([0_u8; MAX_OPERATIONS * size_of::<ProgramEntry>()]),
            bindings: zerocopy::transmute!([0_u8; MAX_BINDINGS * size_of::<Buffer>()]),
            replay: Replay::NONE,
        }
    }

    /// Copies what a replay names and checks it; returns the number of operations.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` for places outside the window, `PROGRAM_*` for bytes that are no good, too many, or another
    /// communicator's, `PROGRAM_BINDINGS` and the number wanted for a list of another length.
    pub(crate) fn load<M: SharedMemory>(&mut self, memory: &M, replay: &Replay) -> Result<usize, Fault> {
        const FULL: ErrorCode = ErrorCode::PROGRAM_CAPACITY;
        self.replay = Replay::NONE;
        let (at, len) = replay.program;
        memory.read(at, self.header.as_mut_bytes())?;
        let header = self.header;
        let count = usize::try_from(header.count).map_err(|_| FULL)?;
        let entries = self.entries.get_mut(..count).ok_or(FULL)?;
        let body = at.checked_add(size_of::<ProgramHeader>() as u64).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        memory.read(body, entries.as_mut_bytes())?;
        Program::new(&self.header, entries)?;
        if header.total_len != len {
            return Err(ErrorCode::PROGRAM_LENGTH.into());
        }
        if (header.instance, header.epoch) != (replay.instance, replay.epoch) {
            return Err(Fault { code: ErrorCode::PROGRAM_STALE, detail: u64::from(header.epoch) });
        }
        let bound = usize::try_from(header.bindings).map_err(|_| FULL)?;
        let bindings = self.bindings.get_mut(..bound).ok_or(FULL)?;
        if size_of_val(bindings) as u64 != replay.bindings.1 {
            return Err(Fault { code: ErrorCode::PROGRAM_BINDINGS, detail: u64::from(header.bindings) });
        }
        memory.read(replay.bindings.0, bindings.as_mut_bytes())?;
        self.replay = *replay;
        Ok(count)
    }

    /// Returns what the operation with this index asks for.
    ///
    /// # Errors
    /// Those of [`Program::launch`]; `PLAN_INTERNAL` when nothing is loaded.
    pub(crate) fn launch(&self, index: usize) -> Result<Launch, ErrorCode> {
        if self.replay == Replay::NONE {
            return Err(ErrorCode::PLAN_INTERNAL);
        }
        let lengths = (usize::try_from(self.header.count), usize::try_from(self.header.bindings));
        let (Ok(count), Ok(bound)) = lengths else { return Err(ErrorCode::PROGRAM_CAPACITY) };
        let entries = self.entries.get(..count).ok_or(ErrorCode::PROGRAM_CAPACITY)?;
        let bindings = self.bindings.get(..bound).ok_or(ErrorCode::PROGRAM_CAPACITY)?;
        Program::trusted(&self.header, entries).launch(index, &self.replay, bindings)
    }
}
