//! The loadable segments: where they lie in file and memory, and the entry point.

use core::ops::Range;

use object::elf::{self, ProgramHeader64};
use object::endian::LittleEndian as LE;
use wire::ErrorCode;

use super::header::Tables;
use super::{MAX_ZERO_BYTES, file_range, hex};
use crate::error::{Error, Result};

/// Largest alignment a segment may ask for: the largest page of AArch64.
const MAX_ALIGN: u64 = 64 << 10;

/// A loadable segment that is in order.
#[derive(Debug)]
pub(super) struct Checked {
    /// Its number among the program headers.
    pub(super) number: usize,
    pub(super) address: u64,
    pub(super) file: Range<usize>,
    pub(super) zero_bytes: u64,
    pub(super) writable: bool,
    pub(super) executable: bool,
}

/// The fields of one program header.
struct Fields {
    number: usize,
    offset: u64,
    virtual_address: u64,
    physical_address: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
    writable: bool,
    executable: bool,
}

/// Checks all segments and returns the loadable ones that are not empty.
pub(super) fn check(tables: &Tables<'_>, bytes: &[u8]) -> Result<Vec<Checked>> {
    let mut segments: Vec<Checked> = Vec::with_capacity(tables.segments.len());
    let mut zeros_left = MAX_ZERO_BYTES;
    for (number, header) in tables.segments.iter().enumerate() {
        check_kind(number, header)?;
        if header.p_type.get(LE) != elf::PT_LOAD {
            continue;
        }
        let segment = Fields::read(number, header).check(bytes, &mut zeros_left)?;
        if segment.size() == 0 {
            continue;
        }
        if let Some(other) = segments.iter().find(|other| other.overlaps(&segment)) {
            let message = format!(
                "memory {} overlaps {} of segment {}",
                segment.memory(),
                other.memory(),
                other.number
            );
            return Err(segment.error(ErrorCode::SEGMENT_OVERLAP, message));
        }
        segments.push(segment);
    }
    if segments.is_empty() {
        return Err(Error::new(ErrorCode::IMAGE_EMPTY, "no loadable segment has any bytes"));
    }
    Ok(segments)
}

/// Allows what is loaded, read, or only informs. The rest needs a loader that does more than copy, or is damage.
fn check_kind(number: usize, header: &ProgramHeader64<LE>) -> Result<()> {
    let name = match header.p_type.get(LE) {
        elf::PT_NULL | elf::PT_LOAD | elf::PT_NOTE | elf::PT_PHDR => return Ok(()),
        elf::PT_GNU_STACK | elf::PT_GNU_RELRO | elf::PT_GNU_EH_FRAME | elf::PT_GNU_PROPERTY => return Ok(()),
        elf::PT_INTERP => "PT_INTERP",
        elf::PT_DYNAMIC => "PT_DYNAMIC",
        elf::PT_TLS => "PT_TLS",
        _ => "of an unknown kind",
    };
    let message =
        format!("is {name} ({:#x}); an image is made of PT_LOAD and PT_NOTE", header.p_type.get(LE).0);
    Err(error(ErrorCode::SEGMENT_KIND, number, message))
}

/// Checks that the entry point is an instruction of the file.
pub(super) fn check_entry(entry: u64, segments: &[Checked]) -> Result<u64> {
    let refuse = |message| Err(Error::new(ErrorCode::IMAGE_ENTRY, message));
    if !entry.is_multiple_of(4) {
        return refuse(format!("entry {entry:#x} is not a multiple of 4"));
    }
    let mut code = segments.iter().filter(|segment| segment.executable);
    if code.clone().any(|segment| segment.holds_file_byte(entry)) {
        return Ok(entry);
    }
    match code.next() {
        Some(first) => {
            refuse(format!("entry {entry:#x} is in no executable segment, the first is {}", first.memory()))
        }
        None => refuse(format!("entry {entry:#x}, and no segment is executable")),
    }
}

impl Fields {
    fn read(number: usize, header: &ProgramHeader64<LE>) -> Self {
        let flags = header.p_flags.get(LE);
        Self {
            number,
            offset: header.p_offset.get(LE),
            virtual_address: header.p_vaddr.get(LE),
            physical_address: header.p_paddr.get(LE),
            file_size: header.p_filesz.get(LE),
            memory_size: header.p_memsz.get(LE),
            align: header.p_align.get(LE),
            writable: flags.contains(elf::PF_W),
            executable: flags.contains(elf::PF_X),
        }
    }

    /// Checks everything that concerns this segment alone; takes its zeros from what is left of them.
    fn check(&self, bytes: &[u8], zeros_left: &mut u64) -> Result<Checked> {
        let file = self.file(bytes)?;
        let zero_bytes = self.zero_bytes(zeros_left)?;
        self.check_address()?;
        if self.writable && self.executable {
            return Err(self.error(ErrorCode::SEGMENT_WRITE_EXECUTE, "flags W and X; one of them is allowed"));
        }
        Ok(Checked {
            number: self.number,
            address: self.physical_address,
            file,
            zero_bytes,
            writable: self.writable,
            executable: self.executable,
        })
    }

    /// Returns its bytes in the file; where there are none the offset means nothing.
    fn file(&self, bytes: &[u8]) -> Result<Range<usize>> {
        if self.file_size == 0 {
            return Ok(0..0);
        }
        file_range(bytes, self.offset, self.file_size).ok_or_else(|| {
            let range = hex(self.offset, self.file_size);
            self.error(
                ErrorCode::SEGMENT_FILE,
                format!("file range {range} exceeds file size {:#x}", bytes.len()),
            )
        })
    }

    fn zero_bytes(&self, zeros_left: &mut u64) -> Result<u64> {
        let Some(zeros) = self.memory_size.checked_sub(self.file_size) else {
            let message =
                format!("p_filesz {:#x} is more than p_memsz {:#x}", self.file_size, self.memory_size);
            return Err(self.error(ErrorCode::SEGMENT_MEMORY, message));
        };
        if self.physical_address.checked_add(self.memory_size).is_none() {
            let message = format!("memory {} wraps", hex(self.physical_address, self.memory_size));
            return Err(self.error(ErrorCode::SEGMENT_MEMORY, message));
        }
        *zeros_left = zeros_left.checked_sub(zeros).ok_or_else(|| {
            let message =
                format!("{zeros:#x} zero bytes, {zeros_left:#x} of {MAX_ZERO_BYTES:#x} are left for it");
            self.error(ErrorCode::SEGMENT_ZEROS, message)
        })?;
        Ok(zeros)
    }

    fn check_address(&self) -> Result<()> {
        let Self { offset, virtual_address, physical_address, align, .. } = *self;
        if virtual_address != physical_address {
            let message = format!("p_vaddr {virtual_address:#x} is not p_paddr {physical_address:#x}");
            return Err(self.error(ErrorCode::SEGMENT_ADDRESS, message));
        }
        let refuse = |message| Err(self.error(ErrorCode::SEGMENT_ALIGN, message));
        // 0 and 1 both ask for nothing.
        if align > 1 && (!align.is_power_of_two() || align > MAX_ALIGN) {
            return refuse(format!("p_align {align:#x}, a power of two up to {MAX_ALIGN:#x} is allowed"));
        }
        if align > 1 && self.file_size > 0 && offset % align != virtual_address % align {
            return refuse(format!(
                "p_offset {offset:#x} and p_vaddr {virtual_address:#x} differ modulo p_align {align:#x}"
            ));
        }
        Ok(())
    }

    fn error(&self, code: ErrorCode, message: impl Into<String>) -> Error {
        error(code, self.number, message)
    }
}

impl Checked {
    /// Bytes in memory; the sum was checked not to wrap.
    fn size(&self) -> u64 {
        self.file.len() as u64 + self.zero_bytes
    }

    fn end(&self) -> u64 {
        self.address + self.size()
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.address < other.end() && other.address < self.end()
    }

    fn holds_file_byte(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.file.len() as u64)
    }

    /// Returns whether `len` bytes at `address` are inside.
    pub(super) fn holds(&self, address: u64, len: u64) -> bool {
        address >= self.address && address.checked_add(len).is_some_and(|end| end <= self.end())
    }

    /// Returns where in a window of memory it begins.
    pub(super) fn offset_in(&self, base: u64, len: u64) -> Result<u64> {
        let offset = self.address.checked_sub(base);
        offset.filter(|offset| offset.checked_add(self.size()).is_some_and(|end| end <= len)).ok_or_else(
            || {
                let message = format!("memory {} is not inside {}", self.memory(), hex(base, len));
                self.error(ErrorCode::SEGMENT_PLACE, message)
            },
        )
    }

    fn memory(&self) -> String {
        hex(self.address, self.size())
    }

    fn error(&self, code: ErrorCode, message: impl Into<String>) -> Error {
        error(code, self.number, message)
    }
}

fn error(code: ErrorCode, number: usize, message: impl Into<String>) -> Error {
    Error::new(code, message).at(format!("segment {number}"))
}
