//! The notes: the linker's build id, and our own, without which a file is no kernel image.

use object::elf::{self, FileHeader64, ProgramHeader64};
use object::endian::LittleEndian as LE;
use object::read::elf::{NoteIterator, ProgramHeader as _};
use wire::image_note::{ImageFlags, ImageNote, NOTE_NAME, NOTE_TYPE};
use wire::{ABI_MAJOR, ABI_MINOR, ErrorCode};
use zerocopy::FromBytes;

use super::header::Tables;
use super::{file_range, hex};
use crate::error::{Error, Result};

/// Longest build id, in bytes; linkers write 8, 16, 20 or 32.
const MAX_BUILD_ID: usize = 64;

/// What the notes of a file say.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) image: Option<ImageNote>,
    pub(super) build_id: Option<Vec<u8>>,
}

/// Reads the notes of all segments, up to the first fault; ours is there when there is none.
pub(super) fn read(tables: &Tables<'_>, bytes: &[u8]) -> (Notes, Option<Error>) {
    let mut notes = Notes::default();
    let fault = fill(&mut notes, tables, bytes).err();
    (notes, fault)
}

fn fill(found: &mut Notes, tables: &Tables<'_>, bytes: &[u8]) -> Result<()> {
    for (number, header) in tables.segments.iter().enumerate() {
        if header.p_type.get(LE) != elf::PT_NOTE {
            continue;
        }
        let syntax = |message: String| error(ErrorCode::NOTE_SYNTAX, number, message);
        let (start, contents) = contents(header, bytes).map_err(syntax)?;
        let notes = NoteIterator::<FileHeader64<LE>>::new(LE, header.p_align(LE), contents);
        let notes = notes.map_err(|error| syntax(format!("{error}, at {start:#x}")))?;
        for note in notes {
            let note =
                note.map_err(|error| syntax(format!("{error}, in {}", hex(start, contents.len() as u64))))?;
            match (note.name(), note.n_type(LE)) {
                (b"GNU", elf::NT_GNU_BUILD_ID) => {
                    if note.desc().len() > MAX_BUILD_ID {
                        let len = note.desc().len();
                        return Err(syntax(format!("a build id of {len} bytes, {MAX_BUILD_ID} are allowed")));
                    }
                    found.build_id = Some(note.desc().to_vec());
                }
                (name, kind) if name == NOTE_NAME && kind.0 == NOTE_TYPE => {
                    if found.image.is_some() {
                        return Err(syntax("a second aicpu-ts note".to_owned()));
                    }
                    found.image = ImageNote::read_from_bytes(note.desc()).ok();
                    check(number, note.desc())?;
                }
                _ => {}
            }
        }
    }
    if found.image.is_none() {
        let message = "no PT_NOTE segment has a note \"aicpu-ts\" of type 1";
        return Err(Error::new(ErrorCode::NOTE_MISSING, message));
    }
    Ok(())
}

/// Returns where a segment of notes begins in the file, and its bytes.
fn contents<'a>(header: &ProgramHeader64<LE>, bytes: &'a [u8]) -> Result<(u64, &'a [u8]), String> {
    let (offset, size) = header.file_range(LE);
    match file_range(bytes, offset, size) {
        Some(range) => Ok((offset, &bytes[range])),
        None => Err(format!("file range {} exceeds file size {:#x}", hex(offset, size), bytes.len())),
    }
}

/// Checks the descriptor of our note.
fn check(number: usize, descriptor: &[u8]) -> Result<()> {
    let refuse = |code, message| Err(error(code, number, message));
    let Ok(note) = ImageNote::read_from_bytes(descriptor) else {
        let message = format!("the aicpu-ts note has {} bytes, 12 are allowed", descriptor.len());
        return refuse(ErrorCode::NOTE_SYNTAX, message);
    };
    if (note.abi_major, note.abi_minor) != (ABI_MAJOR, ABI_MINOR) {
        let found = format!("{}.{}", note.abi_major, note.abi_minor);
        let message = format!("the image has ABI {found}, {ABI_MAJOR}.{ABI_MINOR} is allowed");
        return refuse(ErrorCode::NOTE_ABI, message);
    }
    if note.max_stack == 0 || !note.max_stack.is_multiple_of(16) {
        let message = format!("stack of {} bytes, a multiple of 16 is allowed", note.max_stack);
        return refuse(ErrorCode::NOTE_SYNTAX, message);
    }
    if ImageFlags::from_bits(note.flags).is_none() {
        let message = format!("flags {:#x}, {:#x} are known", note.flags, ImageFlags::all().bits());
        return refuse(ErrorCode::NOTE_SYNTAX, message);
    }
    Ok(())
}

fn error(code: ErrorCode, number: usize, message: String) -> Error {
    Error::new(code, message).at(format!("segment {number}"))
}
