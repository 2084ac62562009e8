//! Kernel images: the one that is right, and every way one may be wrong, each with its code.

mod image;

use core::time::Duration;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use host_launcher::Error;
use host_launcher::image::{Image, MAX_FILE_BYTES, Placed};
use host_launcher::qemu::{Guest, Options};
use image::corruptions::CORRUPTIONS;
use image::{
    ALIGN, DATA, END, FILESZ, KIND, NOTES, OFFSET, OUR_NOTE, RAM, RODATA, SECTIONS, SEGMENT, SEGMENTS, STACK,
    TEXT, minimal, put, segment_field,
};
use wire::ErrorCode;
use wire::boot::WindowPlace;

fn parse(bytes: Vec<u8>) -> host_launcher::Result<Image> {
    Image::parse(bytes, "test.elf")
}

#[test]
fn the_minimal_image_is_accepted() {
    let image = parse(minimal()).unwrap();
    let seen: Vec<_> = image
        .segments()
        .map(|segment| {
            let permissions = (segment.writable, segment.executable);
            (segment.guest_address, segment.bytes.len(), segment.zero_bytes, permissions)
        })
        .collect();
    assert_eq!(
        seen,
        [
            (RAM + 0x200, 0x48, 0, (false, false)),
            (RAM + 0x1300, 0x20, 0, (false, true)),
            (RAM + 0x2400, 0x10, 0xFF0, (true, false)),
        ]
    );
    assert_eq!(image.segments().nth(2).unwrap().bytes, [0xDA; 16]);
    assert_eq!(image.entry(), RAM + 0x1308);
    assert_eq!(image.build_id(), Some(&b"build-id-of-20-bytes"[..]));
    assert_eq!(
        (image.note().abi_major, image.note().max_stack, image.note().flags),
        (wire::ABI_MAJOR, 0x4000, 1)
    );
}

#[test]
fn an_image_without_sections_and_build_id_is_accepted() {
    let mut bytes = minimal();
    bytes.truncate(0x410);
    put(&mut bytes, 0x28, 8, 0);
    put(&mut bytes, 0x3C, 4, 0);
    put(&mut bytes, NOTES + 8, 4, 9);
    assert_eq!(parse(bytes).unwrap().build_id(), None);
}

#[test]
fn placing_is_relative_to_the_window_and_checked_at_both_ends() {
    let image = parse(minimal()).unwrap();
    let placed = image.place(RAM, 0x3400).unwrap();
    assert_eq!(placed[2], Placed { offset: 0x2400, bytes: &[0xDA; 16], zero_bytes: 0xFF0 });
    assert_eq!(placed.iter().map(|placed| placed.offset).collect::<Vec<_>>(), [0x200, 0x1300, 0x2400]);
    for (base, len, segment, message) in [
        (RAM, 0x33FF, 2, "memory 0x40202400..0x40203400 is not inside 0x40200000..0x402033ff"),
        (RAM + 0x201, 1 << 30, 0, "memory 0x40200200..0x40200248 is not inside 0x40200201..0x80200201"),
        (0, 0, 0, "memory 0x40200200..0x40200248 is not inside 0x0..0x0"),
    ] {
        let error = image.place(base, len).unwrap_err();
        assert_eq!((error.code(), error.message()), (ErrorCode::SEGMENT_PLACE, message));
        assert_eq!(error.place(), Some(&*format!("\"test.elf\" segment {segment}")));
    }
}

#[test]
fn each_corruption_has_its_code_place_and_message() {
    for &(what, fields, code, place, message) in CORRUPTIONS {
        let mut bytes = minimal();
        for &(at, width, value) in fields {
            put(&mut bytes, at, width, value);
        }
        let error = parse(bytes).expect_err(what);
        let expected_place = format!("\"test.elf\" {place}");
        assert_eq!(
            (error.code(), error.message(), error.place()),
            (code, message, Some(expected_place.trim_end())),
            "{what}"
        );
    }
}

#[test]
fn a_long_build_id_is_refused() {
    let mut bytes = minimal();
    let note: Vec<u8> = [4u32, 65, 3].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes[0x440..0x44C].copy_from_slice(&note);
    bytes[0x44C..0x450].copy_from_slice(b"GNU\0");
    put(&mut bytes, segment_field(STACK, KIND), 4, 4);
    put(&mut bytes, segment_field(STACK, OFFSET), 8, 0x440);
    put(&mut bytes, segment_field(STACK, FILESZ), 8, 0x60);
    put(&mut bytes, segment_field(STACK, ALIGN), 8, 4);
    let error = parse(bytes).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NOTE_SYNTAX);
    assert_eq!(error.message(), "a build id of 65 bytes, 64 are allowed");
}

#[test]
fn what_is_no_elf_file_is_refused_by_its_first_bytes() {
    for (bytes, code, message) in [
        (&b""[..], ErrorCode::IMAGE_SIZE, "the file is empty"),
        (
            b"#!/bin/sh\n",
            ErrorCode::IMAGE_MAGIC,
            "begins with 23 21 2f 62, a script; an ELF file begins with 7f 45 4c 46",
        ),
        (
            b"\x1f\x8b\x08\0\0",
            ErrorCode::IMAGE_MAGIC,
            "begins with 1f 8b 08 00, gzip; an ELF file begins with 7f 45 4c 46",
        ),
        (b"\x7fE", ErrorCode::IMAGE_MAGIC, "begins with 7f 45; an ELF file begins with 7f 45 4c 46"),
        (&minimal()[..63], ErrorCode::IMAGE_MAGIC, "63 bytes, an ELF header has 64"),
    ] {
        let error = parse(bytes.to_vec()).unwrap_err();
        assert_eq!((error.code(), error.message()), (code, message));
    }
}

#[test]
fn appended_bytes_are_refused() {
    for extra in [1, 4096] {
        let mut bytes = minimal();
        bytes.resize(END + extra, 0);
        let error = parse(bytes).unwrap_err();
        assert_eq!(error.code(), ErrorCode::IMAGE_TRAILING);
        let message = format!("the file has {:#x} bytes, its last part ends at 0x600", END + extra);
        assert_eq!(error.message(), message);
    }
}

#[test]
fn a_file_must_be_a_readable_regular_file_of_limited_size() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Image::read(&folder.path().join("missing")).unwrap_err();
    assert_eq!(missing.code(), ErrorCode::IMAGE_READ);
    let directory = Image::read(folder.path()).unwrap_err();
    assert_eq!((directory.code(), directory.message()), (ErrorCode::IMAGE_READ, "not a regular file"));
    let device = Image::read(Path::new("/dev/zero")).unwrap_err();
    assert_eq!((device.code(), device.place()), (ErrorCode::IMAGE_READ, Some("\"/dev/zero\"")));

    let huge = folder.path().join("huge");
    fs::File::create(&huge).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
    let error = Image::read(&huge).unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (ErrorCode::IMAGE_SIZE, "the file has more than 67108864 bytes")
    );
}

#[test]
fn a_program_of_the_host_is_no_image() {
    let error = Image::read(&std::env::current_exe().unwrap()).unwrap_err();
    let expected =
        if cfg!(target_arch = "aarch64") { ErrorCode::IMAGE_TYPE } else { ErrorCode::IMAGE_MACHINE };
    assert_eq!(error.code(), expected);
}

#[test]
fn the_hash_is_that_of_the_file_and_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.elf");
    fs::write(&path, minimal()).unwrap();
    let image = Image::read(&path).unwrap();
    assert_eq!(image.sha256(), HASH);
    image.expect_sha256(&HASH.to_uppercase()).unwrap();
    for wrong in ["", &HASH[..63], &HASH.replace('1', "2")] {
        let error = image.expect_sha256(wrong).unwrap_err();
        assert_eq!(error.code(), ErrorCode::IMAGE_HASH);
        assert_eq!(error.message(), format!("SHA-256 is {HASH}, the manifest says {wrong:?}"));
    }
}

/// SHA-256 of the minimal image.
const HASH: &str = "29f6057c1d3023be07e9738f6de0e4071282f748e6d01e019dd5011aa03ec21b";

/// What every accepted image guarantees, computed again from the public view.
fn assert_sound(image: &Image, what: &str) {
    let segments: Vec<_> = image
        .segments()
        .map(|segment| {
            let len = segment.bytes.len() as u64 + segment.zero_bytes;
            (u128::from(segment.guest_address), u128::from(segment.guest_address) + u128::from(len), segment)
        })
        .collect();
    for (index, &(start, end, segment)) in segments.iter().enumerate() {
        assert!(end <= 1 << 64 && start < end, "{what}");
        assert!(!(segment.writable && segment.executable), "{what}");
        assert!(
            segments[..index].iter().all(|&(other, other_end, _)| end <= other || other_end <= start),
            "{what}"
        );
    }
    assert!(segments.iter().map(|(.., segment)| segment.zero_bytes).sum::<u64>() <= 256 << 20, "{what}");
    let entry = u128::from(image.entry());
    assert!(
        segments.iter().any(|&(start, end, segment)| segment.executable && (start..end).contains(&entry)),
        "{what}"
    );
    assert_eq!(image.note().abi_major, wire::ABI_MAJOR, "{what}");
}

#[test]
fn every_truncation_is_refused() {
    let whole = minimal();
    for len in 0..whole.len() {
        assert!(parse(whole[..len].to_vec()).is_err(), "{len} bytes");
    }
}

/// Bytes of the minimal image of which no bit can change: what kind of file it is, where its tables are and how long,
/// the kinds of its segments, the name and ABI of its note.
fn is_essential(byte: usize) -> bool {
    let kind = |number| segment_field(number, KIND) + 1..segment_field(number, KIND) + 4;
    [
        0..7,
        0x10..0x18,
        0x20..0x30,
        0x34..0x38,
        kind(RODATA),
        kind(TEXT),
        kind(DATA),
        OUR_NOTE + 1..OUR_NOTE + 21,
        OUR_NOTE + 24..OUR_NOTE + 28,
    ]
    .iter()
    .any(|range| range.contains(&byte))
}

#[test]
fn every_single_bit_flip_is_refused_or_sound() {
    let whole = minimal();
    for bit in 0..8 * whole.len() {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(image) = parse(bytes) {
            assert!(!is_essential(bit / 8), "bit {} of byte {:#x} was accepted", bit % 8, bit / 8);
            assert_sound(&image, &format!("bit {bit}"));
        }
    }
}

/// Extreme values for a field of 8 bytes; narrower ones take their lower end.
const EXTREMES: [u64; 14] =
    [0, 1, 2, 3, 0x3F, 0x600, 0x601, 0x7FFF, 0xFFFF, 0x8000_0000, 0xFFFF_FFFF, 1 << 60, 1 << 63, u64::MAX];

#[test]
fn extreme_values_of_any_field_or_pair_of_fields_are_refused_or_sound() {
    let tables: Vec<usize> = (0..SEGMENTS + 5 * SEGMENT).chain(SECTIONS..END).chain(NOTES..0x248).collect();
    let words: Vec<usize> = tables.into_iter().filter(|at| at.is_multiple_of(2)).collect();
    let mut state = 7u64;
    for round in 0..100_000 {
        let mut bytes = minimal();
        for _ in 0..=round % 2 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = usize::try_from(state >> 33).unwrap();
            let at = words[random % words.len()];
            let width = [1, 2, 4, 8][random / 1024 % 4].min(END - at);
            put(&mut bytes, at, width, EXTREMES[random / 4096 % EXTREMES.len()]);
        }
        if let Ok(image) = parse(bytes) {
            assert_sound(&image, &format!("round {round}"));
        }
    }
}

/// Boots the minimal image in an emulator that is a shell script.
fn boot(script: &str, deadline: Duration) -> Error {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("emulator");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    let fabric = tempfile::tempfile().unwrap();
    fabric.set_len(2 << 20).unwrap();
    let windows = [WindowPlace { device_addr: wire::DeviceAddr(1 << 44), offset: 0, len: 2 << 20 }];
    let options = Options { program: program.into(), deadline, ..Options::default() };
    Guest::boot(&parse(minimal()).unwrap(), &windows, &fabric, &options).unwrap_err()
}

#[test]
fn an_emulator_that_ends_says_how_and_what_it_printed() {
    let error = boot("echo no such machine >&2; exit 7", Duration::from_secs(20));
    assert_eq!(error.code(), ErrorCode::EMULATOR_EXIT, "{error}");
    assert!(
        error.message().contains("ended with code 7") && error.message().contains("no such machine"),
        "{error}"
    );
}

#[test]
fn an_emulator_whose_cores_do_not_come_up_is_given_up() {
    let error = boot("exec sleep 100", Duration::from_millis(100));
    assert_eq!(error.code(), ErrorCode::EMULATOR_TIMEOUT, "{error}");
    assert!(error.message().starts_with("after 100ms the cores' states are "), "{error}");
}
