//! The sections: no relocation is left to apply, and nothing follows the image in its file.
//!
//! Sections do not say what is loaded, segments do. They are read because relocations show that an image was not
//! linked for a fixed place, and because the end of the last one is the end of the file.

use object::elf::{self, ProgramHeader64, Rela64, SectionHeader64, SectionType};
use object::endian::LittleEndian as LE;
use object::pod;
use wire::ErrorCode;

use super::header::Tables;
use super::segments::Checked;
use super::{file_range, hex};
use crate::error::{Error, Result};

/// Tables of relocations in forms that AArch64 images do not use.
const FOREIGN_RELOCATIONS: [SectionType; 3] = [elf::SHT_REL, elf::SHT_RELR, elf::SHT_CREL];

/// Checks all sections, and that the file ends where its last part ends.
pub(super) fn check(tables: &Tables<'_>, bytes: &[u8], segments: &[Checked]) -> Result<()> {
    let mut end = tables.segments.iter().map(end_in_file).fold(tables.end, u64::max);
    for (number, section) in tables.sections.iter().enumerate() {
        let contents = contents(number, section, bytes)?;
        end = end.max(contents.end as u64);
        check_relocations(number, section.sh_type.get(LE), &bytes[contents], segments)?;
    }
    if end < bytes.len() as u64 {
        let message = format!("the file has {:#x} bytes, its last part ends at {end:#x}", bytes.len());
        return Err(Error::new(ErrorCode::IMAGE_TRAILING, message));
    }
    Ok(())
}

/// Returns where a segment that is read ends in the file.
fn end_in_file(header: &ProgramHeader64<LE>) -> u64 {
    match header.p_type.get(LE) {
        elf::PT_LOAD | elf::PT_NOTE => header.p_offset.get(LE).saturating_add(header.p_filesz.get(LE)),
        _ => 0,
    }
}

/// Returns a section's bytes in the file.
fn contents(number: usize, section: &SectionHeader64<LE>, bytes: &[u8]) -> Result<core::ops::Range<usize>> {
    let (offset, size) = (section.sh_offset.get(LE), section.sh_size.get(LE));
    if matches!(section.sh_type.get(LE), elf::SHT_NULL | elf::SHT_NOBITS) || size == 0 {
        return Ok(0..0);
    }
    file_range(bytes, offset, size).ok_or_else(|| {
        let message = format!("file range {} exceeds file size {:#x}", hex(offset, size), bytes.len());
        error(ErrorCode::IMAGE_SECTIONS, number, message)
    })
}

/// Allows only relocations that do nothing, inside a segment.
fn check_relocations(number: usize, kind: SectionType, bytes: &[u8], segments: &[Checked]) -> Result<()> {
    let refuse = |message| Err(error(ErrorCode::IMAGE_RELOCATION, number, message));
    if FOREIGN_RELOCATIONS.contains(&kind) && !bytes.is_empty() {
        return refuse(format!("{:#x} bytes of relocations of section type {}", bytes.len(), kind.0));
    }
    if kind != elf::SHT_RELA {
        return Ok(());
    }
    let count = bytes.len() / size_of::<Rela64<LE>>();
    let entries = match pod::slice_from_bytes::<Rela64<LE>>(bytes, count) {
        Ok((entries, [])) => entries,
        _ => return refuse(format!("{:#x} bytes, relocations have 24 each", bytes.len())),
    };
    for (index, entry) in entries.iter().enumerate() {
        let (offset, kind) = (entry.r_offset.get(LE), entry.r_info.get(LE) & 0xFFFF_FFFF);
        if kind != 0 {
            return refuse(format!(
                "relocation {index} at {offset:#x} is of type {kind}, 0 (none) is allowed"
            ));
        }
        if !segments.iter().any(|segment| segment.holds(offset, 8)) {
            let message = format!("relocation {index} at {offset:#x} is in no segment");
            return Err(error(ErrorCode::RELOCATION_RANGE, number, message));
        }
    }
    Ok(())
}

fn error(code: ErrorCode, number: usize, message: String) -> Error {
    Error::new(code, message).at(format!("section {number}"))
}
