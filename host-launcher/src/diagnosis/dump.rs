//! Dumps: one file per rank with what a [`Snapshot`] holds, readable without the device, the host or the process.
//!
//! A file has a magic, a version, the host's view as JSON, the fixed tables of the window, the ends of the rings, the
//! programs in flight, what kernels have still to write, and a checksum over everything before it. Lines of the tables that
//! are all zero, as most are, are left out. All integers are little-endian. Reading trusts none of it: every length is
//! checked against the bytes that are there.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use wire::npu::HEAP;
use wire::program::ProgramEntry;
use wire::{DESCRIPTOR_BYTES, ErrorCode, Sqe};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::snapshot::{HostView, ProgramCopy, Ring, Snapshot};
use crate::error::{Error, Result, quote_path};

/// First eight bytes of a dump.
pub const MAGIC: [u8; 8] = *b"AICPUDMP";
/// Version of the format.
pub const VERSION: u32 = 3;
/// Ending of the files' names.
pub const ENDING: &str = "dump";
/// Bytes of a line of the tables.
const LINE: usize = 64;
/// Longest file that is read.
const LARGEST: u64 = 256 << 20;
/// Checksum at the end.
static CRC32C: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);

impl Snapshot {
    /// Returns the bytes of a dump.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let host = serde_json::to_vec(&self.host).unwrap_or_default();
        let mut bytes = MAGIC.to_vec();
        let number = |bytes: &mut Vec<u8>, number: usize| {
            bytes.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
        };
        bytes.extend(VERSION.to_le_bytes());
        number(&mut bytes, host.len());
        bytes.extend(&host);
        let lines = || self.tables.chunks_exact(LINE).enumerate().filter(|(_, line)| is_used(line));
        number(&mut bytes, lines().count());
        for (at, line) in lines() {
            number(&mut bytes, at);
            bytes.extend(line);
        }
        number(&mut bytes, self.rings.len());
        for ring in &self.rings {
            bytes.extend(u32::from(ring.queue).to_le_bytes());
            bytes.extend(ring.head.to_le_bytes());
            for count in [ring.executed.len(), ring.left.len(), ring.announced] {
                number(&mut bytes, count);
            }
            bytes.extend(ring.executed.as_bytes());
            bytes.extend(ring.left.as_bytes());
        }
        number(&mut bytes, self.programs.len());
        for program in &self.programs {
            bytes.extend(program.sequence.to_le_bytes());
            number(&mut bytes, program.entries.len());
            bytes.extend(program.entries.as_bytes());
        }
        number(&mut bytes, usize::from(self.unwritten.is_some()));
        let unwritten = self.unwritten.as_deref().unwrap_or_default();
        number(&mut bytes, unwritten.len());
        bytes.extend(unwritten.as_bytes());
        let checksum = CRC32C.checksum(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// Reads the bytes of a dump.
    ///
    /// # Errors
    /// `DUMP_FORMAT` for bytes that are not a dump, of another version, damaged or cut off.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = |what: &str| Error::new(ErrorCode::DUMP_FORMAT, what.to_owned());
        let rest = bytes.strip_prefix(&MAGIC).ok_or_else(|| bad("these bytes are not a dump of aicpu-ts"))?;
        let (version, _) = u32::read_from_prefix(rest).map_err(|_| bad("it ends within its head"))?;
        if version != VERSION {
            return Err(bad(&format!("it is of version {version}, this build reads version {VERSION}")));
        }
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or_else(|| bad("it ends within its head"))?;
        if CRC32C.checksum(body) != u32::from_le_bytes(*checksum) {
            return Err(bad("it does not match its checksum: it is damaged or cut off"));
        }
        let mut reader = Reader { rest: body.get(MAGIC.len() + size_of::<u32>()..).unwrap_or_default() };
        reader.snapshot().ok_or_else(|| bad("its parts are not as long as it says"))
    }

    /// Writes the dump of this rank to a folder, under the name `rank-0003.dump`, and returns the file's path.
    ///
    /// # Errors
    /// `DUMP_WRITE` when the folder or the file cannot be written.
    pub fn write_to(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join(format!("rank-{:04}.{ENDING}", self.host.rank));
        let write = || {
            fs::create_dir_all(folder)?;
            // A file is there completely or not at all, also when the process ends meanwhile.
            let unfinished = path.with_extension("unfinished");
            fs::write(&unfinished, self.to_bytes())?;
            fs::rename(&unfinished, &path)
        };
        write()
            .map_err(|error| Error::new(ErrorCode::DUMP_WRITE, error.to_string()).at(quote_path(&path)))?;
        Ok(path)
    }
}

/// Tells whether a line of the tables has anything to say.
fn is_used(line: &[u8]) -> bool {
    line.iter().fold(0, |any, byte| any | byte) != 0
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        let bytes = self.take(size_of::<u32>())?;
        u32::read_from_bytes(bytes).ok()
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    /// Takes the tables; each line that is there is used, and behind the one before.
    fn tables(&mut self) -> Option<Vec<u8>> {
        let mut tables = vec![0; usize::try_from(HEAP).ok()?];
        let mut next = 0;
        for _ in 0..self.count()? {
            let at = self.count().filter(|at| *at >= next)?;
            let line = tables.chunks_exact_mut(LINE).nth(at)?;
            line.copy_from_slice(self.take(LINE).filter(|bytes| is_used(bytes))?);
            next = at + 1;
        }
        Some(tables)
    }

    fn sqes(&mut self, count: usize) -> Option<Vec<Sqe>> {
        let bytes = self.take(count.checked_mul(DESCRIPTOR_BYTES)?)?;
        let sqes = bytes.chunks_exact(DESCRIPTOR_BYTES).map(Sqe::read_from_bytes);
        sqes.collect::<core::result::Result<_, _>>().ok()
    }

    fn ring(&mut self) -> Option<Ring> {
        let queue = u16::try_from(self.number()?).ok()?;
        let head = self.number()?;
        let (executed, left, announced) = (self.count()?, self.count()?, self.count()?);
        if announced > left {
            return None;
        }
        Some(Ring { queue, head, executed: self.sqes(executed)?, left: self.sqes(left)?, announced })
    }

    fn program(&mut self) -> Option<ProgramCopy> {
        let (sequence, count) = (self.number()?, self.count()?);
        let bytes = self.take(count.checked_mul(size_of::<ProgramEntry>())?)?;
        let mut entries = vec![ProgramEntry::new_zeroed(); count];
        entries.as_mut_bytes().copy_from_slice(bytes);
        Some(ProgramCopy { sequence, entries })
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let host = self.count()?;
        let host: HostView = serde_json::from_slice(self.take(host)?).ok()?;
        let tables = self.tables()?;
        let rings = self.count()?;
        let rings = (0..rings).map(|_| self.ring()).collect::<Option<_>>()?;
        let programs = self.count()?;
        let programs = (0..programs).map(|_| self.program()).collect::<Option<_>>()?;
        let is_known = self.number()? != 0;
        let count = self.count()?;
        let unwritten = Some(self.sqes(count)?).filter(|_| is_known);
        let fits = host.rank < host.ranks && self.rest.is_empty();
        fits.then_some(Snapshot { host, tables, rings, programs, unwritten })
    }
}

/// Reads a dump.
///
/// # Errors
/// `DUMP_READ` for a file that cannot be read, is none, or is too long; `DUMP_FORMAT` as [`Snapshot::from_bytes`].
pub fn read(path: &Path) -> Result<Snapshot> {
    let refuse = |what: String| Error::new(ErrorCode::DUMP_READ, what).at(quote_path(path));
    let known = fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => refuse("there is no such file".to_owned()),
        _ => refuse(error.to_string()),
    })?;
    // A pipe would block, a folder has no bytes.
    if !known.is_file() || known.len() > LARGEST {
        return Err(refuse(format!("not a regular file of at most {LARGEST} bytes")));
    }
    let bytes = fs::read(path).map_err(|error| refuse(error.to_string()))?;
    Snapshot::from_bytes(&bytes).map_err(|error| error.at(quote_path(path)))
}

/// Writes dumps of all ranks and says where they are, or why not: a failure to write hides no other failure.
pub(super) fn note(folder: &Path, ranks: &[Snapshot]) -> String {
    match ranks.iter().try_for_each(|rank| rank.write_to(folder).map(drop)) {
        Ok(()) => format!("dumps of all ranks in {}; read them with `aicpu-ts diagnose`", quote_path(folder)),
        Err(error) => format!("no dumps: {} ({})", error.message(), quote_path(folder)),
    }
}
