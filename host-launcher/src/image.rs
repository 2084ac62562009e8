//! Checked kernel images: reads an aarch64 ELF file and says what to place where in the guest's memory.
//!
//! An [`Image`] is a static, little-endian AArch64 executable whose every byte range was checked when it was parsed,
//! so that placing it is plain copying. Nothing in the file decides how much is allocated: the file is read up to a
//! cap, its tables are read in place. The loader moves nothing and applies no relocation: an image runs where it was
//! linked.
//!
//! The low-level views of the file are those of the `object` crate; what is legal is decided here. Starting the
//! emulator is not done here.

mod header;
pub mod inspect;
mod notes;
mod sections;
mod segments;

use core::fmt::{self, Write as _};
use core::ops::Range;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use wire::ErrorCode;
use wire::image_note::ImageNote;

use crate::error::{Error, Result};

/// Largest image file that is read: 64 MiB. Debug information makes up most of a real one.
pub const MAX_FILE_BYTES: u64 = 64 << 20;
/// Most zeroed memory that the segments of an image may ask for together: 256 MiB.
pub const MAX_ZERO_BYTES: u64 = 256 << 20;

/// A kernel image that may be placed and started.
pub struct Image {
    name: String,
    bytes: Vec<u8>,
    segments: Vec<segments::Checked>,
    entry: u64,
    note: ImageNote,
    build_id: Option<Vec<u8>>,
    sha256: String,
}

/// One piece of the guest's memory that an image fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Where it begins in the guest's physical memory.
    pub guest_address: u64,
    /// What is copied there.
    pub bytes: &'a [u8],
    /// How many bytes after those are zero.
    pub zero_bytes: u64,
    /// Whether the guest writes to it.
    pub writable: bool,
    /// Whether the guest executes it.
    pub executable: bool,
}

/// One piece of an image, relative to the window of memory it is placed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed<'a> {
    /// Where it begins in the window, in bytes.
    pub offset: u64,
    /// What is copied there.
    pub bytes: &'a [u8],
    /// How many bytes after those are zero.
    pub zero_bytes: u64,
}

impl Image {
    /// Reads and checks an image file.
    ///
    /// # Errors
    /// `IMAGE_READ` for what is no readable regular file, `IMAGE_SIZE` above [`MAX_FILE_BYTES`], else as
    /// [`Image::parse`].
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.to_string_lossy();
        let bytes = read_file(path).map_err(|error| located(error, &name))?;
        Self::parse(bytes, &name)
    }

    /// Checks the bytes of an image file; `name` is what messages call it.
    ///
    /// # Errors
    /// One of the codes 2102 to 2127; its place is the name and, where it is a segment or section, its number.
    pub fn parse(bytes: Vec<u8>, name: &str) -> Result<Self> {
        Self::parse_unnamed(bytes, name).map_err(|error| located(error, name))
    }

    fn parse_unnamed(bytes: Vec<u8>, name: &str) -> Result<Self> {
        let tables = header::Tables::parse(&bytes)?;
        let segments = segments::check(&tables, &bytes)?;
        let entry = segments::check_entry(tables.entry, &segments)?;
        sections::check(&tables, &bytes, &segments)?;
        let (notes, fault) = notes::read(&tables, &bytes);
        let note = fault.map_or(Ok(notes.image), Err)?;
        let Some(note) = note else { return Err(Error::new(ErrorCode::NOTE_MISSING, "no note")) };
        let mut sha256 = String::with_capacity(64);
        for byte in Sha256::digest(&bytes) {
            write!(sha256, "{byte:02x}").expect("writing to a string does not fail");
        }
        let build_id = notes.build_id;
        Ok(Self { name: name.to_owned(), segments, entry, note, build_id, sha256, bytes })
    }

    /// Returns what the guest's memory is filled with, in the order of the file; empty segments are left out.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        self.segments.iter().map(|segment| Segment {
            guest_address: segment.address,
            bytes: &self.bytes[segment.file.clone()],
            zero_bytes: segment.zero_bytes,
            writable: segment.writable,
            executable: segment.executable,
        })
    }

    /// Returns where everything goes in a window of guest memory that begins at `ram_base` and has `ram_len` bytes.
    ///
    /// # Errors
    /// `SEGMENT_PLACE` when a segment is not wholly inside the window.
    pub fn place(&self, ram_base: u64, ram_len: u64) -> Result<Vec<Placed<'_>>> {
        self.segments()
            .zip(&self.segments)
            .map(|(Segment { bytes, zero_bytes, .. }, checked)| {
                let offset =
                    checked.offset_in(ram_base, ram_len).map_err(|error| located(error, &self.name))?;
                Ok(Placed { offset, bytes, zero_bytes })
            })
            .collect()
    }

    /// Returns the whole file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the guest address execution begins at.
    #[must_use]
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Returns the linker's build id, where the image has one.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// Returns what the image says about itself; its ABI is ours.
    #[must_use]
    pub fn note(&self) -> &ImageNote {
        &self.note
    }

    /// Returns the SHA-256 of the whole file, 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Checks the file against the hash its manifest gives, hexadecimal digits of either case.
    ///
    /// # Errors
    /// `IMAGE_HASH` when they differ.
    pub fn expect_sha256(&self, expected: &str) -> Result<()> {
        if self.sha256.eq_ignore_ascii_case(expected) {
            return Ok(());
        }
        let message = format!("SHA-256 is {}, the manifest says {expected:?}", self.sha256);
        Err(located(Error::new(ErrorCode::IMAGE_HASH, message), &self.name))
    }
}

/// Leaves out the bytes: they are millions.
impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("name", &self.name)
            .field("segments", &self.segments)
            .field("entry", &self.entry)
            .field("note", &self.note)
            .field("sha256", &self.sha256)
            .finish_non_exhaustive()
    }
}

/// Reads a file up to the cap.
fn read_file(path: &Path) -> Result<Vec<u8>> {
    let unreadable = |error: std::io::Error| Error::new(ErrorCode::IMAGE_READ, error.to_string());
    // Asked before opening: opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Error::new(ErrorCode::IMAGE_READ, "not a regular file"));
    }
    let file = fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// Puts the file's name before the place of an error.
fn located(error: Error, name: &str) -> Error {
    let place = match error.place() {
        Some(place) => format!("{name:?} {place}"),
        None => format!("{name:?}"),
    };
    error.at(place)
}

/// Prints a range of bytes as messages show it.
fn hex(start: u64, len: u64) -> String {
    match start.checked_add(len) {
        Some(end) => format!("{start:#x}..{end:#x}"),
        None => format!("{start:#x}+{len:#x} (beyond 2^64)"),
    }
}

/// Returns the bytes `start..start + len` as indices, where the file has them.
fn file_range(bytes: &[u8], start: u64, len: u64) -> Option<Range<usize>> {
    let end = start.checked_add(len)?;
    let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
    bytes.get(range.clone()).map(|_| range)
}
