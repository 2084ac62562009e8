//! The ELF note by which a kernel image says what it is.
//!
//! An image carries one [`ImageNoteRecord`] in a `PT_NOTE` segment: name `aicpu-ts`, type 1. The launcher's loader
//! refuses images without it or of another ABI, before anything runs.

use bitflags::bitflags;
use core::mem::{offset_of, size_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{ABI_MAJOR, ABI_MINOR};

/// Name of the note, without the terminating zero.
pub const NOTE_NAME: &[u8; 8] = b"aicpu-ts";
/// Type of the note under that name.
pub const NOTE_TYPE: u32 = 1;
/// Section in which an image keeps the note; its linker script puts it into a `PT_NOTE` segment.
pub const NOTE_SECTION: &str = ".note.aicpu-ts";

bitflags! {
    /// What an image promises about itself.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ImageFlags: u32 {
        /// No panic path is linked.
        const PANIC_FREE = 1;
    }
}

/// The note's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ImageNote {
    /// [`crate::ABI_MAJOR`] of the build.
    pub abi_major: u16,
    /// [`crate::ABI_MINOR`] of the build; both are equal on both sides or the image is refused.
    pub abi_minor: u16,
    /// Bytes of stack the image reserves for each core: not zero, a multiple of 16.
    pub max_stack: u32,
    /// [`ImageFlags`]; the other bits are zero.
    pub flags: u32,
}
const _: () = assert!(size_of::<ImageNote>() == 12 && offset_of!(ImageNote, max_stack) == 4);

/// The whole note as it lies in the section: what the image places with `link_section`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ImageNoteRecord {
    name_size: u32,
    desc_size: u32,
    kind: u32,
    name: [u8; 12],
    desc: ImageNote,
}
const _: () = assert!(size_of::<ImageNoteRecord>() == 36 && offset_of!(ImageNoteRecord, desc) == 24);

impl ImageNoteRecord {
    /// Makes the note of an image of this build that reserves `max_stack` bytes of stack for each core.
    #[must_use]
    pub const fn new(max_stack: u32, flags: ImageFlags) -> Self {
        Self {
            name_size: 9,
            desc_size: 12,
            kind: NOTE_TYPE,
            name: *b"aicpu-ts\0\0\0\0",
            desc: ImageNote { abi_major: ABI_MAJOR, abi_minor: ABI_MINOR, max_stack, flags: flags.bits() },
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::{ImageFlags, ImageNoteRecord};

    #[test]
    fn a_record_is_a_note_as_elf_defines_it() {
        let record = ImageNoteRecord::new(0x4000, ImageFlags::PANIC_FREE);
        let expected = b"\x09\0\0\0\x0c\0\0\0\x01\0\0\0aicpu-ts\0\0\0\0\x01\0\0\0\0\x40\0\0\x01\0\0\0";
        assert_eq!(record.as_bytes(), expected);
    }
}
