//! Programs: every refusal, every flipped bit, and what a replay makes of an entry.

use aicpu_wire::launch::{Algorithm, Buffer, CacheMode, OpKind};
use aicpu_wire::program::{Posted, Program, ProgramEntry, ProgramHeader, ProgramOperand, Replay};
use aicpu_wire::{DataType, DeviceAddr, ErrorCode, LaunchArgs};
use zerocopy::IntoBytes;

use crate::samples::{Fault, launch_args};

const REPLAY: Replay = Replay {
    sequence: 5,
    instance: [11, 12],
    epoch: 3,
    cache: CacheMode::On,
    program: (DeviceAddr(0x4000), 256),
    bindings: (DeviceAddr(0x8000), 64),
    start_notify: 103,
    done_notify: 9,
    timeout_ms: 1000,
};

fn entry(start_base: u32) -> ProgramEntry {
    ProgramEntry {
        op: OpKind::AllReduce as u8,
        dtype: DataType::Fp32 as u8,
        algorithm: Algorithm::Nhr as u8,
        count: 16,
        context: DeviceAddr(0x1000),
        context_len: 640,
        start_base,
        input: ProgramOperand { slot: 0, offset: 64, len: 64, ..ProgramOperand::default() },
        output: ProgramOperand { slot: 1, offset: 0, len: 64, ..ProgramOperand::default() },
        ..ProgramEntry::default()
    }
}

fn sample() -> (ProgramHeader, [ProgramEntry; 2]) {
    let header = ProgramHeader { instance: [11, 12], epoch: 3, bindings: 2, ..ProgramHeader::default() };
    let entries = [entry(100), entry(40)];
    (header.sealed(&entries).expect("short"), entries)
}

fn bindings() -> [Buffer; 2] {
    let buffer = |addr, token| Buffer { addr: DeviceAddr(addr), len: 128, token, ..Buffer::default() };
    [buffer(0x10_0000, 7), buffer(0x20_0000, 8)]
}

#[test]
fn an_entry_becomes_a_launch_with_the_buffers_of_the_replay() {
    let (header, entries) = sample();
    let program = Program::new(&header, &entries).expect("a good program");
    assert_eq!((program.len(), program.is_empty(), program.header().count), (2, false, 2));
    let launch = program.launch(1, &REPLAY, &bindings()).expect("a good operation");
    assert_eq!((launch.op, launch.algorithm, launch.count), (OpKind::AllReduce, Algorithm::Nhr, 16));
    assert_eq!((launch.sequence, launch.start_notify, launch.done_notify), (5, 43, 9), "the fourth of each");
    assert_eq!((launch.input.addr, launch.input.len, launch.input.token), (DeviceAddr(0x10_0040), 64, 7));
    assert_eq!((launch.output.addr, launch.output.token), (DeviceAddr(0x20_0000), 8));
    let hccl = Replay { cache: CacheMode::Hccl, ..REPLAY };
    assert_eq!(program.launch(1, &hccl, &bindings()).map(|launch| launch.cache), Ok(CacheMode::Off));
}

#[test]
fn every_flipped_bit_is_refused() {
    let (header, entries) = sample();
    for bit in 0..8 * size_of::<ProgramHeader>() {
        let mut bad = header;
        bad.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
        let code = match bit / 8 {
            0..8 => ErrorCode::PROGRAM_MAGIC,
            8..12 => ErrorCode::PROGRAM_VERSION,
            12..16 | 20..24 => ErrorCode::PROGRAM_LENGTH,
            _ => ErrorCode::PROGRAM_CHECKSUM,
        };
        assert_eq!(Program::new(&bad, &entries), Err(code), "header, bit {bit}");
    }
    for bit in 0..8 * size_of_val(&entries) {
        let mut bad = entries;
        bad.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Program::new(&header, &bad), Err(ErrorCode::PROGRAM_CHECKSUM), "entries, bit {bit}");
    }
}

#[test]
fn sealed_faults_have_their_code() {
    let faults: [Fault<(ProgramHeader, [ProgramEntry; 2])>; 5] = [
        ("reserved", |(header, _)| header.reserved[1] = 1, ErrorCode::PROGRAM_FIELD),
        ("reserved of an entry", |(_, entries)| entries[1].reserved[2] = 1, ErrorCode::PROGRAM_FIELD),
        ("reserved of an operand", |(_, entries)| entries[0].output.reserved = 1, ErrorCode::PROGRAM_FIELD),
        ("input slot", |(_, entries)| entries[1].input.slot = 2, ErrorCode::PROGRAM_FIELD),
        ("fewer slots", |(header, _)| header.bindings = 1, ErrorCode::PROGRAM_FIELD),
    ];
    for (name, change, code) in faults {
        let mut value = sample();
        change(&mut value);
        let header = value.0.sealed(&value.1).expect("short");
        assert_eq!(Program::new(&header, &value.1), Err(code), "{name}");
    }
    let none = sample().0.sealed(&[]).expect("short");
    assert_eq!(Program::new(&none, &[]), Err(ErrorCode::PROGRAM_FIELD));
}

#[test]
fn operands_and_numbers_are_checked_at_the_replay() {
    let faults: [Fault<ProgramEntry>; 7] = [
        ("past the end", |entry| entry.input.offset = 65, ErrorCode::BINDING_EXTENT),
        ("wraps", |entry| entry.output.offset = u64::MAX, ErrorCode::BINDING_EXTENT),
        ("misaligned", |entry| entry.input.offset = 2, ErrorCode::LAUNCH_ALIGNMENT),
        ("operation", |entry| entry.op = 0, ErrorCode::LAUNCH_OP),
        ("type", |entry| entry.dtype = 255, ErrorCode::LAUNCH_DTYPE),
        ("reduction", |entry| entry.reduce = 9, ErrorCode::LAUNCH_REDUCE),
        ("start notify", |entry| entry.start_base = 8190, ErrorCode::LAUNCH_NOTIFY),
    ];
    for (name, change, code) in faults {
        let (header, mut entries) = sample();
        change(&mut entries[1]);
        let header = header.sealed(&entries).expect("short");
        let program = Program::new(&header, &entries).expect("the header is good");
        assert_eq!(program.launch(1, &REPLAY, &bindings()), Err(code), "{name}");
        assert!(program.launch(0, &REPLAY, &bindings()).is_ok(), "{name}");
    }
    let (header, entries) = sample();
    let program = Program::new(&header, &entries).expect("a good program");
    assert_eq!(program.launch(2, &REPLAY, &bindings()), Err(ErrorCode::PROGRAM_FIELD));
    assert_eq!(program.launch(0, &REPLAY, &bindings()[..1]), Err(ErrorCode::PROGRAM_BINDINGS));
    let early = Replay { start_notify: 99, ..REPLAY };
    assert_eq!(program.launch(0, &early, &bindings()), Err(ErrorCode::LAUNCH_NOTIFY));
}

#[test]
fn launch_arguments_are_an_operation_or_a_replay() {
    assert_eq!(Posted::parse(&REPLAY.args()), Ok(Posted::Replay(REPLAY)));
    assert!(matches!(Posted::parse(&launch_args()), Ok(Posted::Operation(launch)) if launch.sequence == 42));
    let faults: [Fault<LaunchArgs>; 7] = [
        ("another kind", |args| args.kind = 2, ErrorCode::LAUNCH_OP),
        ("an operation", |args| args.op = 1, ErrorCode::LAUNCH_RESERVED),
        ("a count", |args| args.count = 1, ErrorCode::LAUNCH_RESERVED),
        ("an output", |args| args.output.len = 1, ErrorCode::LAUNCH_RESERVED),
        ("peers", |args| args.input.peers.0 = 8, ErrorCode::LAUNCH_RESERVED),
        ("no timeout", |args| args.timeout_ms = 0, ErrorCode::LAUNCH_TIMEOUT),
        ("cache mode", |args| args.cache = 3, ErrorCode::LAUNCH_CACHE),
    ];
    for (name, change, code) in faults {
        let mut args = REPLAY.args();
        change(&mut args);
        assert_eq!(Posted::parse(&args), Err(ErrorCode::LAUNCH_CHECKSUM), "{name}, not sealed");
        assert_eq!(Posted::parse(&args.sealed()), Err(code), "{name}");
    }
}
