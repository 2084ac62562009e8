//! The file header, and the two tables it points to.

use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::endian::LittleEndian as LE;
use object::pod;
use wire::ErrorCode;

use super::{MAX_FILE_BYTES, file_range, hex};
use crate::error::{Error, Result};

/// Most program headers an image may have; real ones have five to ten.
const MAX_SEGMENTS: u16 = 64;
/// `e_type` of a statically linked executable, with what the others are called.
const TYPES: [&str; 5] = ["none", "relocatable", "executable", "shared object or PIE", "core dump"];

/// Which files are let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Executables for AArch64.
    Image,
    /// Those, and shared objects for AArch64 or x86-64.
    Any,
}

/// The parts of a file that its header names, all of them inside the file.
pub(super) struct Tables<'a> {
    pub(super) is_shared: bool,
    pub(super) is_aarch64: bool,
    pub(super) entry: u64,
    pub(super) segments: &'a [ProgramHeader64<LE>],
    pub(super) sections: &'a [SectionHeader64<LE>],
    /// End of the header and of both tables in the file.
    pub(super) end: u64,
}

impl<'a> Tables<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        Self::parse_kind(bytes, Kind::Image)
    }

    pub(super) fn parse_kind(bytes: &'a [u8], allowed: Kind) -> Result<Self> {
        check_size(bytes)?;
        check_magic(bytes)?;
        let Ok((header, _)) = pod::from_bytes::<FileHeader64<LE>>(bytes) else {
            return Err(Error::new(
                ErrorCode::IMAGE_MAGIC,
                format!("{} bytes, an ELF header has 64", bytes.len()),
            ));
        };
        check_kind(header, allowed)?;
        let (segments, segments_end) = program_headers(bytes, header)?;
        let (sections, sections_end) = section_headers(bytes, header)?;
        Ok(Self {
            is_shared: header.e_type.get(LE) == elf::ET_DYN,
            is_aarch64: header.e_machine.get(LE) == elf::EM_AARCH64,
            entry: header.e_entry.get(LE),
            segments,
            sections,
            end: segments_end.max(sections_end).max(size_of::<FileHeader64<LE>>() as u64),
        })
    }
}

fn check_size(bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Err(Error::new(ErrorCode::IMAGE_SIZE, "the file is empty"));
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("the file has more than {MAX_FILE_BYTES} bytes");
        return Err(Error::new(ErrorCode::IMAGE_SIZE, message));
    }
    Ok(())
}

fn check_magic(bytes: &[u8]) -> Result<()> {
    if bytes.starts_with(b"\x7fELF") {
        return Ok(());
    }
    let looks = match bytes {
        [b'#', b'!', ..] => ", a script",
        [0x1f, 0x8b, ..] => ", gzip",
        [b'P', b'K', ..] => ", a ZIP archive",
        [b'!', b'<', b'a', ..] => ", a static library",
        _ => "",
    };
    let start: String = bytes.iter().take(4).map(|byte| format!(" {byte:02x}")).collect();
    let message = format!("begins with{start}{looks}; an ELF file begins with 7f 45 4c 46");
    Err(Error::new(ErrorCode::IMAGE_MAGIC, message))
}

/// Checks what kind of ELF file this is, the most telling difference first.
fn check_kind(header: &FileHeader64<LE>, allowed: Kind) -> Result<()> {
    let refuse = |code, message| Err(Error::new(code, message));
    let ident = &header.e_ident;
    if ident.class != elf::ELFCLASS64 {
        return refuse(ErrorCode::IMAGE_CLASS, format!("class is {}, 2 (64-bit) is allowed", ident.class.0));
    }
    if ident.data != elf::ELFDATA2LSB {
        let message = format!("byte order is {}, 1 (little-endian) is allowed", ident.data.0);
        return refuse(ErrorCode::IMAGE_ENDIAN, message);
    }
    let versions = (ident.version.0, header.e_version.get(LE));
    if versions != (1, 1) {
        let message = format!("versions are {} and {}, 1 is allowed", versions.0, versions.1);
        return refuse(ErrorCode::IMAGE_VERSION, message);
    }
    let machine = header.e_machine.get(LE);
    let kind = header.e_type.get(LE);
    let is_object = allowed == Kind::Any && kind == elf::ET_DYN;
    if machine != elf::EM_AARCH64 && !(is_object && machine == elf::EM_X86_64) {
        let name = match machine {
            elf::EM_X86_64 => " (x86-64)",
            elf::EM_ARM => " (32-bit Arm)",
            elf::EM_RISCV => " (RISC-V)",
            _ => "",
        };
        let message = format!("machine is {}{name}, 183 (AArch64) is allowed", machine.0);
        return refuse(ErrorCode::IMAGE_MACHINE, message);
    }
    if kind != elf::ET_EXEC && !is_object {
        let name = TYPES.get(usize::from(kind.0)).unwrap_or(&"unknown");
        return refuse(
            ErrorCode::IMAGE_TYPE,
            format!("type is {} ({name}), 2 (executable) is allowed", kind.0),
        );
    }
    Ok(())
}

/// Returns the program headers and their end in the file.
fn program_headers<'a>(
    bytes: &'a [u8],
    header: &FileHeader64<LE>,
) -> Result<(&'a [ProgramHeader64<LE>], u64)> {
    let refuse = |message| Err(Error::new(ErrorCode::IMAGE_HEADERS, message));
    let (header_size, size) = (header.e_ehsize.get(LE), header.e_phentsize.get(LE));
    let (offset, count) = (header.e_phoff.get(LE), header.e_phnum.get(LE));
    if header_size != 64 {
        return refuse(format!("e_ehsize is {header_size}, 64 is allowed"));
    }
    if count == 0 {
        return Err(Error::new(ErrorCode::IMAGE_EMPTY, "e_phnum is 0: no segment"));
    }
    if size != 56 {
        return refuse(format!("e_phentsize is {size}, 56 is allowed"));
    }
    if count > MAX_SEGMENTS {
        return refuse(format!("e_phnum is {count}, at most {MAX_SEGMENTS} are allowed"));
    }
    match table(bytes, offset, count) {
        Some(table) => Ok(table),
        None => {
            let range = hex(offset, u64::from(count) * 56);
            refuse(format!("{count} program headers at {range}, the file has {:#x} bytes", bytes.len()))
        }
    }
}

/// Returns the section headers, none where the file was stripped of them, and their end in the file.
fn section_headers<'a>(
    bytes: &'a [u8],
    header: &FileHeader64<LE>,
) -> Result<(&'a [SectionHeader64<LE>], u64)> {
    let refuse = |message| Err(Error::new(ErrorCode::IMAGE_SECTIONS, message));
    let (offset, count, size) = (header.e_shoff.get(LE), header.e_shnum.get(LE), header.e_shentsize.get(LE));
    let names = header.e_shstrndx.get(LE).0;
    if (offset, count, names) == (0, 0, 0) {
        return Ok((&[], 0));
    }
    if offset == 0 || count == 0 {
        return refuse(format!("e_shoff is {offset:#x} and e_shnum is {count}: both or neither must be 0"));
    }
    if size != 64 {
        return refuse(format!("e_shentsize is {size}, 64 is allowed"));
    }
    if names >= count {
        return refuse(format!("e_shstrndx is {names}, there are {count} sections"));
    }
    match table(bytes, offset, count) {
        Some(table) => Ok(table),
        None => {
            let range = hex(offset, u64::from(count) * 64);
            refuse(format!("{count} section headers at {range}, the file has {:#x} bytes", bytes.len()))
        }
    }
}

/// Views `count` entries at `offset`, and returns them with their end; `None` when they are not in the file.
fn table<T: pod::Pod>(bytes: &[u8], offset: u64, count: u16) -> Option<(&[T], u64)> {
    let range = file_range(bytes, offset, u64::from(count) * size_of::<T>() as u64)?;
    let end = range.end as u64;
    let (entries, _) = pod::slice_from_bytes(&bytes[range], usize::from(count)).ok()?;
    Some((entries, end))
}
