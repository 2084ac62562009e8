//! What a kernel file is, whichever of the two forms: its sections, version, stack, symbols, and every reason why a
//! loader would refuse it.
//!
//! An executable is judged by the rules of our own loader ([`Image`]); a shared object by those of a dynamic loader on
//! an AICPU, as far as they are known: it may ask the process for the public data plane and C's memory functions, and
//! offers one entry point. Nothing is loaded or run.

use core::fmt::Write as _;
use std::path::Path;

use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionFlags};
use serde::Serialize;
use wire::ErrorCode;
use wire::image_note::ImageNote;

use super::header::{Kind, Tables};
use super::{Image, file_range, hex, located, notes, read_file};
use crate::error::{Error, Result};

/// Largest page of an AICPU's system: a segment must be aligned to it, or it cannot be mapped.
const LARGEST_PAGE: u64 = 64 << 10;
/// What every process has, and code may be compiled to.
const MEMORY_FUNCTIONS: [&str; 5] = ["memcpy", "memmove", "memset", "memcmp", "bcmp"];
/// How the names of the public data plane begin.
const DATA_PLANE: &str = "Hcomm";

/// A section that takes room in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Where it lies.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A symbol that the process must offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Undefined {
    /// Its name.
    pub name: String,
    /// Whether it may be missing.
    pub weak: bool,
}

/// What is known about a file.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// `image` or `shared object`.
    pub kind: &'static str,
    /// `aarch64` or `x86-64`.
    pub machine: &'static str,
    /// Bytes of the file.
    pub bytes: u64,
    /// Sections in memory.
    pub sections: Vec<Section>,
    /// The linker's build id, hexadecimal.
    pub build_id: Option<String>,
    /// ABI version of the note, as `1.0`.
    pub abi: Option<String>,
    /// Bytes of stack: of a core, or that a launch takes at most.
    pub max_stack: Option<u32>,
    /// Symbols that others may use.
    pub exports: Vec<String>,
    /// Symbols that the process must offer.
    pub undefined: Vec<Undefined>,
    /// Libraries that must be loaded first.
    pub needed: Vec<String>,
    /// Why a loader would refuse the file; empty for a good one.
    #[serde(serialize_with = "messages")]
    pub refusals: Vec<Error>,
}

fn messages<S: serde::Serializer>(refusals: &[Error], to: S) -> core::result::Result<S::Ok, S::Error> {
    to.collect_seq(refusals.iter().map(|error| format!("{} {}", error.code(), error.message())))
}

impl Inspection {
    /// Reads a file and says what it is.
    ///
    /// # Errors
    /// `IMAGE_READ` and `IMAGE_SIZE` as [`Image::read`], and what makes it no 64-bit ELF file at all. Everything else
    /// is a refusal in the result.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.to_string_lossy();
        read_file(path).and_then(|bytes| Self::of(&bytes)).map_err(|error| located(error, &name))
    }

    /// Says what these bytes are.
    ///
    /// # Errors
    /// What makes them no 64-bit ELF file at all, or of no processor we know.
    pub fn of(bytes: &[u8]) -> Result<Self> {
        let tables = Tables::parse_kind(bytes, Kind::Any)?;
        let found = Self {
            kind: if tables.is_shared { "shared object" } else { "image" },
            machine: if tables.is_aarch64 { "aarch64" } else { "x86-64" },
            bytes: bytes.len() as u64,
            sections: Vec::new(),
            build_id: None,
            abi: None,
            max_stack: None,
            exports: Vec::new(),
            undefined: Vec::new(),
            needed: Vec::new(),
            refusals: Vec::new(),
        };
        if tables.is_shared {
            Ok(found.shared_object(&tables, bytes))
        } else {
            Ok(found.image(&tables, bytes))
        }
    }

    fn image(mut self, tables: &Tables<'_>, bytes: &[u8]) -> Self {
        self.refusals.extend(Image::parse(bytes.to_vec(), "image").err());
        self.note(tables, bytes);
        if let Ok(file) = ElfFile64::<LE>::parse(bytes) {
            self.sections = sections(&file);
        }
        self
    }

    fn shared_object(mut self, tables: &Tables<'_>, bytes: &[u8]) -> Self {
        let fault = self.note(tables, bytes);
        if !tables.is_aarch64 {
            let message = "machine is 62 (x86-64): the process it is for runs on this host, not on an AICPU";
            self.refuse(ErrorCode::IMAGE_MACHINE, message);
        }
        self.refusals.extend(segments(tables, bytes).into_iter().chain(fault));
        match ElfFile64::<LE>::parse(bytes) {
            Err(error) => self.refuse(ErrorCode::IMAGE_SECTIONS, error.to_string()),
            Ok(file) => {
                self.sections = sections(&file);
                self.symbols(&file);
                if let Err(error) = self.dynamic(&file) {
                    self.refuse(ErrorCode::IMAGE_SECTIONS, error.to_string());
                }
            }
        }
        self
    }

    fn refuse(&mut self, code: ErrorCode, message: impl Into<String>) {
        self.refusals.push(Error::new(code, message));
    }

    /// Reads the notes; returns what is wrong with them.
    fn note(&mut self, tables: &Tables<'_>, bytes: &[u8]) -> Option<Error> {
        let (notes, fault) = notes::read(tables, bytes);
        if let Some(ImageNote { abi_major, abi_minor, max_stack, .. }) = notes.image {
            self.abi = Some(format!("{abi_major}.{abi_minor}"));
            self.max_stack = Some(max_stack);
        }
        self.build_id = notes.build_id.map(|id| {
            id.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        });
        fault
    }

    fn symbols(&mut self, file: &ElfFile64<'_, LE>) {
        for symbol in file.dynamic_symbols() {
            let name = symbol.name().unwrap_or("?").to_owned();
            if symbol.is_undefined() {
                self.undefined.push(Undefined { name, weak: symbol.is_weak() });
            } else if symbol.is_global() {
                self.exports.push(name);
            }
        }
        let known = |name: &str| name.starts_with(DATA_PLANE) || MEMORY_FUNCTIONS.contains(&name);
        let strangers = self.undefined.iter().filter(|symbol| !symbol.weak && !known(&symbol.name));
        let strangers: Vec<_> = strangers.map(|symbol| symbol.name.clone()).collect();
        for name in strangers {
            self.refuse(
                ErrorCode::OBJECT_SYMBOL,
                format!("needs {name:?}, which is none of the data plane's or of C's memory functions"),
            );
        }
        if self.exports.len() != 1 {
            let exports = &self.exports;
            let message = format!("exports {} symbols ({exports:?}), one is allowed", exports.len());
            self.refuse(ErrorCode::OBJECT_EXPORTS, message);
        }
    }

    /// Reads the dynamic table: libraries, and relocations of code.
    fn dynamic(&mut self, file: &ElfFile64<'_, LE>) -> object::read::Result<()> {
        let (sections, endian) = (file.elf_section_table(), LE);
        let Some((entries, strings)) = sections.dynamic(endian, file.data())? else { return Ok(()) };
        let strings = sections.strings(endian, file.data(), strings)?;
        for entry in entries {
            let (tag, value) = (entry.d_tag.get(endian), entry.d_val.get(endian));
            if tag == elf::DT_NEEDED {
                let name = u32::try_from(value).ok().and_then(|at| strings.get(at).ok()).unwrap_or(b"?");
                let name = String::from_utf8_lossy(name).into_owned();
                self.refuse(ErrorCode::OBJECT_NEEDED, format!("needs the library {name:?}"));
                self.needed.push(name);
            } else if tag == elf::DT_TEXTREL {
                self.refuse(ErrorCode::OBJECT_TEXT, "has relocations in code");
            }
        }
        Ok(())
    }
}

fn sections(file: &ElfFile64<'_, LE>) -> Vec<Section> {
    let loaded =
        |flags| matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(elf::SHF_ALLOC));
    let sections = file.sections().filter(|section| section.size() > 0 && loaded(section.flags()));
    sections
        .map(|section| Section {
            name: section.name().unwrap_or("?").to_owned(),
            address: section.address(),
            bytes: section.size(),
        })
        .collect()
}

/// Returns what is wrong with the segments of a shared object.
fn segments(tables: &Tables<'_>, bytes: &[u8]) -> Vec<Error> {
    let mut faults = Vec::new();
    for (number, header) in tables.segments.iter().enumerate() {
        let mut refuse = |code, message: String| {
            faults.push(Error::new(code, format!("segment {number}: {message}")));
        };
        let (kind, flags) = (header.p_type.get(LE), header.p_flags.get(LE));
        let (offset, len) = (header.p_offset.get(LE), header.p_filesz.get(LE));
        if file_range(bytes, offset, len).is_none() {
            let message = format!("bytes {} of a file of {:#x}", hex(offset, len), bytes.len());
            refuse(ErrorCode::SEGMENT_FILE, message);
        }
        if kind == elf::PT_TLS || kind == elf::PT_INTERP {
            refuse(ErrorCode::SEGMENT_KIND, "thread-local storage, or a loader of its own".to_owned());
        }
        if kind == elf::PT_LOAD && flags.contains(elf::PF_W) && flags.contains(elf::PF_X) {
            refuse(ErrorCode::SEGMENT_WRITE_EXECUTE, "writable and executable".to_owned());
        }
        let align = header.p_align.get(LE);
        if kind == elf::PT_LOAD && !align.is_multiple_of(LARGEST_PAGE) {
            let message = format!("aligned to {align:#x}: cannot be mapped with pages of 64 KiB");
            refuse(ErrorCode::SEGMENT_ALIGN, message);
        }
    }
    faults
}
