//! A minimal valid kernel image, written byte by byte, and where its fields are.

pub(crate) mod corruptions;

use wire::image_note::{ImageFlags, ImageNoteRecord};
use zerocopy::IntoBytes as _;

/// Beginning of the memory the image is linked for.
pub(crate) const RAM: u64 = 0x4020_0000;
/// Where the program headers begin in the file, and the size of each.
pub(crate) const SEGMENTS: usize = 0x40;
pub(crate) const SEGMENT: usize = 56;
/// Where the sections' headers begin in the file, and the size of each.
pub(crate) const SECTIONS: usize = 0x500;
pub(crate) const SECTION: usize = 64;
/// Where the notes lie: a build id of 36 bytes, then ours.
pub(crate) const NOTES: usize = 0x200;
pub(crate) const OUR_NOTE: usize = NOTES + 36;
/// Where the one relocation lies.
pub(crate) const RELOCATION: usize = 0x420;
/// Where the image ends.
pub(crate) const END: usize = 0x600;

/// Numbers of the segments.
pub(crate) const RODATA: usize = 0;
pub(crate) const TEXT: usize = 1;
pub(crate) const DATA: usize = 2;
pub(crate) const NOTE: usize = 3;
pub(crate) const STACK: usize = 4;

/// Where the fields of a program header are in it.
pub(crate) const KIND: usize = 0;
pub(crate) const FLAGS: usize = 4;
pub(crate) const OFFSET: usize = 8;
pub(crate) const PADDR: usize = 24;
pub(crate) const FILESZ: usize = 32;
pub(crate) const MEMSZ: usize = 40;
pub(crate) const ALIGN: usize = 48;

/// Returns the offset in the file of a field of a program header.
pub(crate) const fn segment_field(number: usize, field: usize) -> usize {
    SEGMENTS + number * SEGMENT + field
}

/// Writes a field of 2, 4 or 8 bytes.
pub(crate) fn put(image: &mut [u8], at: usize, width: usize, value: u64) {
    image[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

/// Builds the image: read-only data with the notes, text, data with zeros, the note segment, a stack marker; sections
/// .text, .rela with one relocation that does nothing, .shstrtab.
pub(crate) fn minimal() -> Vec<u8> {
    let mut image = vec![0; END];
    image[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for (at, width, value) in [
        (0x10, 2, 2),
        (0x12, 2, 183),
        (0x14, 4, 1),
        (0x18, 8, RAM + 0x1308),
        (0x20, 8, SEGMENTS as u64),
        (0x28, 8, SECTIONS as u64),
        (0x34, 2, 64),
        (0x36, 2, 56),
        (0x38, 2, 5),
        (0x3A, 2, 64),
        (0x3C, 2, 4),
        (0x3E, 2, 3),
    ] {
        put(&mut image, at, width, value);
    }
    // Type, flags, offset, address, bytes in the file and in memory, alignment.
    for (number, fields) in [
        [1, 4, 0x200, RAM + 0x200, 0x48, 0x48, 0x1000],
        [1, 5, 0x300, RAM + 0x1300, 0x20, 0x20, 0x1000],
        [1, 6, 0x400, RAM + 0x2400, 0x10, 0x1000, 0x1000],
        [4, 4, 0x200, RAM + 0x200, 0x48, 0x48, 4],
        [0x6474_E551, 6, 0, 0, 0, 0, 16],
    ]
    .into_iter()
    .enumerate()
    {
        let [kind, flags, offset, address, file, memory, align] = fields;
        let places = [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8)];
        for ((at, width), value) in
            places.into_iter().zip([kind, flags, offset, address, address, file, memory, align])
        {
            put(&mut image, segment_field(number, at), width, value);
        }
    }
    // Type, offset, bytes.
    for (number, kind, offset, size) in [(1, 1, 0x300, 0x20), (2, 4, 0x420, 24), (3, 3, 0x440, 0x20)] {
        put(&mut image, SECTIONS + number * SECTION + 4, 4, kind);
        put(&mut image, SECTIONS + number * SECTION + 24, 8, offset);
        put(&mut image, SECTIONS + number * SECTION + 32, 8, size);
    }
    image[NOTES..OUR_NOTE].copy_from_slice(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0build-id-of-20-bytes");
    let note = ImageNoteRecord::new(0x4000, ImageFlags::PANIC_FREE);
    image[OUR_NOTE..OUR_NOTE + 36].copy_from_slice(note.as_bytes());
    image[0x300..0x320].fill(0x1F);
    image[0x400..0x410].fill(0xDA);
    put(&mut image, RELOCATION, 8, RAM + 0x2400);
    image
}
