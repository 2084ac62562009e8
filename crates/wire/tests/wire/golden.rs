//! The bytes of format version 1, kept in files that are written once and never again.
//!
//! A difference here means that the format has changed, and that two builds of the same version no longer understand
//! each other: put the layout back or raise `ABI_MAJOR` and start a new folder. A missing file is written when the
//! variable below is set; nothing is ever overwritten.

use std::fs;
use std::path::PathBuf;

use aicpu_wire::context::Context;
use aicpu_wire::launch::Launch;
use aicpu_wire::{Command, DeviceAddr, Sqe, WorkRequest, Wqe};
use zerocopy::{FromBytes, IntoBytes};

use crate::samples::{self, Aligned};

const WRITE_VARIABLE: &str = "AICPU_TS_WRITE_MISSING_GOLDEN_FILES";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/v1").join(name).with_extension("bin")
}

fn golden(name: &str) -> Vec<u8> {
    let path = path(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Everything that has golden bytes.
fn all() -> Vec<(&'static str, Vec<u8>)> {
    let contexts = samples::contexts().map(|(name, tables)| (name, tables.encode()));
    let others = [
        ("launch-args", samples::launch_args().as_bytes().to_vec()),
        ("cqe", samples::cqe().as_bytes().to_vec()),
        ("status", samples::status().as_bytes().to_vec()),
        ("trace-event", samples::trace_event().as_bytes().to_vec()),
    ];
    let (header, entries) = samples::script();
    let script = [header.as_bytes(), entries.as_bytes()].concat();
    let scripts = [("script", script)];
    contexts.into_iter().chain(samples::descriptors()).chain(others).chain(scripts).collect()
}

#[test]
fn this_build_writes_the_golden_bytes() {
    let all = all();
    assert_eq!(all.len(), 20);
    for (name, bytes) in all {
        let path = path(name);
        if std::env::var_os(WRITE_VARIABLE).is_some() && !path.exists() {
            fs::write(&path, &bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        assert_eq!(bytes, golden(name), "{name}");
    }
}

#[test]
fn golden_contexts_parse_and_encode_to_themselves() {
    for (name, tables) in samples::contexts() {
        let file = Aligned::new(&golden(name));
        let context = Context::parse(file.bytes()).expect(name);
        assert_eq!(
            (context.threads, context.regions, context.channels),
            (&*tables.threads, &*tables.regions, &*tables.channels)
        );
        assert_eq!(samples::encode(&context), file.bytes(), "{name}");
    }
}

#[test]
fn golden_descriptors_parse_to_what_was_said() {
    for (name, command) in samples::commands() {
        let sqe = Sqe::read_from_bytes(&golden(name)).expect("64 bytes");
        assert_eq!(Command::parse(&sqe), Ok((command, samples::labels())), "{name}");
    }
    for (name, request) in samples::work_requests() {
        let wqe = Wqe::read_from_bytes(&golden(name)).expect("64 bytes");
        let labels = aicpu_wire::Labels { timeout_ms: 0, complete: false, ..samples::labels() };
        assert_eq!(WorkRequest::parse(&wqe), Ok((request, labels)), "{name}");
    }
}

/// Values read by eye from the specification, so that files and code cannot be wrong together.
#[test]
fn golden_bytes_hold_what_the_specification_says() {
    let context = golden("context-8-ranks-hccs");
    assert_eq!(context.len(), 208 + 8 * 32 + 8 * 32 + 7 * 64);
    assert_eq!(context[..16], *b"AICPUCTX\x01\x00\x00\x00\x90\x04\x00\x00");
    assert_eq!(
        context[40..56],
        [7, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0],
        "epoch, rank, ranks, device"
    );
    assert_eq!(context[80..96], [208, 0, 0, 0, 8, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0], "thread table");
    let launch = golden("launch-args");
    assert_eq!(launch[..12], *b"ATSL\x01\x00\x01\x00\x2a\x00\x00\x00");
    assert_eq!(launch[12..16], 0x2eefe752_u32.to_le_bytes(), "checksum, computed apart from this code");
    assert_eq!(launch[36..40], [1, 4, 2, 3], "all-reduce, fp32, max, NHR");
    let write = golden("sqe-write");
    assert_eq!(write[..8], [2, 0b1011, 11, 1, 3, 0, 0x03, 0x02], "write, flags, bf16, prod, run, step");
    assert_eq!(write[48..56], [0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x05, 0x04], "notify, channel, peer");
    assert_eq!(golden("cqe")[16..18], 5202_u16.to_le_bytes());
    assert_eq!(golden("cqe")[31], 1);
    let script = golden("script");
    assert_eq!(script.len(), 64 + 11 * 16);
    assert_eq!(script[..16], *b"AICPUSCR\x01\x00\x00\x00\xf0\x00\x00\x00");
    assert_eq!(script[24..48], [11, 0, 0, 0, 5, 3, 0, 0, 7, 5, 0, 0, 1, 0, 4, 0, 5, 0, 8, 0, 9, 7, 2, 1]);
    assert_eq!(
        script[64..80],
        [1, 4, 0x10, 0, 0, 0, 4, 3, 0, 0, 2, 0, 0, 9, 0, 0],
        "copy, block 0 to block 2"
    );
    assert_eq!(script[112..128], [4, 4, 0x22, 0, 3, 0, 4, 3, 2, 1, 6, 5, 3, 9, 0, 0], "write, slot to slot");
    let args = aicpu_wire::LaunchArgs::read_from_bytes(&launch).expect("256 bytes");
    let launch = Launch::parse(&args).expect("golden arguments are good");
    assert_eq!((launch.count, launch.context), (1000, (DeviceAddr(0x2000_0000_1000), 1168)));
}
