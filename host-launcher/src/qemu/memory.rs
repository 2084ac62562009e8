//! The guest's private memory: a file without a name that the emulator maps.
//!
//! The host reaches it by reads and writes of the file, which see what the guest sees; nothing is mapped here.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};
use wire::ErrorCode;
use wire::boot::{BOOT_INFO, BootInfo, CORE_RECORDS, CoreRecord, RAM_BASE};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Error, Result};

/// Memory of one guest, from `RAM_BASE` on.
#[derive(Debug)]
pub(super) struct PrivateMemory {
    file: File,
}

impl PrivateMemory {
    /// Makes `len` bytes of zeros; they take up room only once they are touched.
    pub(super) fn new(len: u64) -> Result<Self> {
        let file = memfd_create("aicpu-ts-guest", MemfdFlags::CLOEXEC);
        let file = File::from(file.map_err(|error| refused("create the guest's memory", &error.into()))?);
        file.set_len(len).map_err(|error| refused("size the guest's memory", &error))?;
        Ok(Self { file })
    }

    /// Returns the file, for the emulator to map.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Copies bytes to an offset from `RAM_BASE`.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| refused("fill the guest's memory", &error))
    }

    /// Writes the boot block.
    pub(super) fn write_boot_info(&self, boot: &BootInfo) -> Result<()> {
        self.write(BOOT_INFO - RAM_BASE, boot.as_bytes())
    }

    /// Copies the record of a core: complete where its state is not `Off`.
    pub(super) fn record(&self, core: usize) -> Result<CoreRecord> {
        let offset = CORE_RECORDS - RAM_BASE + (core * size_of::<CoreRecord>()) as u64;
        let mut state = [0; 8];
        let mut bytes = [0; size_of::<CoreRecord>()];
        // The state first: what it announces was written before it.
        let read = |into: &mut [u8]| self.file.read_exact_at(into, offset);
        read(&mut state)
            .and_then(|()| read(&mut bytes))
            .map_err(|error| refused("read the guest's memory", &error))?;
        // PANIC: any bytes of this length are a record.
        let record = CoreRecord::read_from_bytes(&bytes).expect("a record of its own length");
        Ok(CoreRecord { state: u64::from_le_bytes(state), ..record })
    }
}

/// Says which step of setting memory up the system refused.
pub(super) fn refused(what: &str, error: &io::Error) -> Error {
    Error::new(ErrorCode::EMULATOR_MEMORY, format!("cannot {what}: {error}"))
}
