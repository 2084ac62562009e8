//! The script of an algorithm that was loaded as data, copied out of shared memory once and checked.

use hal::SharedMemory;
use wire::launch::{Algorithm, Launch};
use wire::script::{MAX_ENTRIES, Script, ScriptEntry, ScriptHeader};
use wire::{DeviceAddr, ErrorCode};
use zerocopy::IntoBytes;

use crate::kernel::Fault;

/// The script that was used last. It stays while launches name one with the same header, whose digest says that the rest
/// is the same too.
#[derive(Debug)]
pub(crate) struct LoadedScript {
    header: ScriptHeader,
    entries: [ScriptEntry; MAX_ENTRIES],
    /// Entries of the script; `None` while there is none.
    count: Option<usize>,
}

impl LoadedScript {
    pub(crate) const fn new() -> Self {
        Self {
            header: zerocopy::transmute!([0_u8; size_of::<ScriptHeader>()]),
            entries: zerocopy::transmute!([0_u8; MAX_ENTRIES * size_of::<ScriptEntry>()]),
            count: None,
        }
    }

    /// Copies the script that a launch names, if it is another than the one that is here.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` for a place outside the window, `SCRIPT_*` for bytes that are no good or too many.
    pub(crate) fn load<M: SharedMemory>(&mut self, memory: &M, launch: &Launch) -> Result<(), Fault> {
        const FULL: ErrorCode = ErrorCode::SCRIPT_CAPACITY;
        if launch.algorithm != Algorithm::File {
            return Ok(());
        }
        let at: DeviceAddr = launch.vector;
        let mut header = ScriptHeader::default();
        memory.read(at, header.as_mut_bytes())?;
        if self.count.is_some() && self.header == header {
            return Ok(());
        }
        self.count = None;
        let count = usize::try_from(header.count).map_err(|_| FULL)?;
        let full = Fault { code: FULL, detail: u64::from(header.count) };
        let entries = self.entries.get_mut(..count).ok_or(full)?;
        let body = at.checked_add(size_of::<ScriptHeader>() as u64).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        memory.read(body, entries.as_mut_bytes())?;
        Script::new(&header, entries).map_err(|(code, detail)| Fault { code, detail })?;
        (self.header, self.count) = (header, Some(count));
        Ok(())
    }

    /// Returns the script of a launch; `None` for a launch that has none.
    pub(crate) fn of(&self, launch: &Launch) -> Option<Script<'_>> {
        let entries = self.entries.get(..self.count?)?;
        (launch.algorithm == Algorithm::File).then(|| Script::trusted(&self.header, entries))
    }
}
