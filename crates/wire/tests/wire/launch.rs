//! Launch arguments: every refusal of `Launch::parse`, every flipped bit, and arbitrary bytes.
//!
//! `LAUNCH_COUNT`, `LAUNCH_OVERLAP` and `LAUNCH_BUFFER` for a buffer that is too short need the number of ranks and
//! are the kernel's, as are sequences and handles (138..141) and what a region allows (132, 133). Numbers in names are
//! those of the bad-input catalogue.

use aicpu_wire::launch::{Algorithm, Launch, OpKind, Staging};
use aicpu_wire::{DataType, DeviceAddr, ErrorCode, LaunchArgs, ReduceOp};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use crate::samples::{Fault, launch_args};

#[test]
fn good_arguments_mean_what_they_say() {
    let launch = Launch::parse(&launch_args()).expect("good arguments");
    assert_eq!(
        (launch.op, launch.dtype, launch.reduce, launch.algorithm, launch.staging),
        (OpKind::AllReduce, DataType::Fp32, ReduceOp::Max, Algorithm::Nhr, Staging::Scratch)
    );
    assert_eq!((launch.sequence, launch.epoch, launch.instance[0]), (42, 7, 0x0123_4567_89ab_cdef));
    assert_eq!((launch.count, launch.chunk, launch.piece), (1000, 512, 1 << 20));
    assert_eq!(launch.context, (DeviceAddr(0x2000_0000_1000), 1168));
    assert_eq!((launch.input.addr.0, launch.output.addr.0), (0x1000_0000_0000, 0x1000_0001_0000));
    assert_eq!((launch.start_notify, launch.done_notify, launch.timeout_ms), (3, 9, 1_836_000));
}

/// Faults that a right checksum does not hide.
const SEALED_FAULTS: &[Fault<LaunchArgs>] = &[
    ("no block", |args| args.blocks = 0, ErrorCode::LAUNCH_BLOCKS),
    ("two blocks", |args| args.blocks = 2, ErrorCode::LAUNCH_BLOCKS),
    ("reserved byte", |args| args.reserved = 1, ErrorCode::LAUNCH_RESERVED),
    ("a kind that does not exist", |args| args.kind = 2, ErrorCode::LAUNCH_OP),
    ("cache mode", |args| args.cache = 3, ErrorCode::LAUNCH_CACHE),
    ("reserved word", |args| args.reserved1 = 1, ErrorCode::LAUNCH_RESERVED),
    ("reserved tail", |args| args.reserved2[9] = 1 << 63, ErrorCode::LAUNCH_RESERVED),
    ("reserved input word", |args| args.input.reserved = 1, ErrorCode::LAUNCH_RESERVED),
    ("reserved output word", |args| args.output.reserved = 1, ErrorCode::LAUNCH_RESERVED),
    ("operation 0", |args| args.op = 0, ErrorCode::LAUNCH_OP),
    ("operation 255", |args| args.op = 255, ErrorCode::LAUNCH_OP),
    ("algorithm 0", |args| args.algorithm = 0, ErrorCode::LAUNCH_OP),
    ("algorithm 255", |args| args.algorithm = 255, ErrorCode::LAUNCH_OP),
    ("level 255", |args| args.levels[3] = 255, ErrorCode::LAUNCH_OP),
    ("root of an all-reduce", |args| args.root = 1, ErrorCode::LAUNCH_ROOT),
    ("vector of an all-reduce", |args| args.vector.0 = 4096, ErrorCode::LAUNCH_VECTOR),
    (
        "all-to-all-v without a vector",
        |args| (args.op, args.reduce, args.count) = (OpKind::AllToAllV as u8, 0, 0),
        ErrorCode::LAUNCH_VECTOR,
    ),
    (
        "a count beside a vector",
        |args| (args.op, args.reduce, args.vector.0) = (OpKind::AllToAllV as u8, 0, 4096),
        ErrorCode::LAUNCH_VECTOR,
    ),
    (
        "vector off by 4",
        |args| (args.op, args.reduce, args.count, args.vector.0) = (OpKind::AllToAllV as u8, 0, 0, 4100),
        ErrorCode::LAUNCH_ALIGNMENT,
    ),
    ("staging 2", |args| args.staging = 2, ErrorCode::LAUNCH_OP),
    ("125: data type 255", |args| args.dtype = 255, ErrorCode::LAUNCH_DTYPE),
    ("data type 13, a hole", |args| args.dtype = 13, ErrorCode::LAUNCH_DTYPE),
    ("reduction 4", |args| args.reduce = 4, ErrorCode::LAUNCH_REDUCE),
    ("126: type without reductions", |args| args.dtype = DataType::Hif8 as u8, ErrorCode::LAUNCH_REDUCE),
    ("127: reduction of an all-gather", |args| args.op = OpKind::AllGather as u8, ErrorCode::LAUNCH_REDUCE),
    ("131: input wraps", |args| args.input.len = u64::MAX - 0xfff_ffff_ffff, ErrorCode::LAUNCH_BUFFER),
    ("output wraps", |args| args.output.addr = DeviceAddr(u64::MAX - 3), ErrorCode::LAUNCH_BUFFER),
    ("134: input off by 1", |args| args.input.addr.0 += 1, ErrorCode::LAUNCH_ALIGNMENT),
    ("134: input off by 2", |args| args.input.addr.0 += 2, ErrorCode::LAUNCH_ALIGNMENT),
    ("134: output off by 3", |args| args.output.addr.0 += 3, ErrorCode::LAUNCH_ALIGNMENT),
    ("root of an all-reduce", |args| args.root = 1, ErrorCode::LAUNCH_ROOT),
    ("vector of an all-reduce", |args| args.vector = DeviceAddr(0x2000), ErrorCode::LAUNCH_VECTOR),
    ("all-to-all-v without a vector", |args| (args.op, args.reduce) = (9, 0), ErrorCode::LAUNCH_VECTOR),
    (
        "all-to-all-v with a count too",
        |args| (args.op, args.reduce, args.vector) = (9, 0, DeviceAddr(0x2000)),
        ErrorCode::LAUNCH_VECTOR,
    ),
    (
        "vector off by 4",
        |args| (args.op, args.reduce, args.count, args.vector) = (9, 0, 0, DeviceAddr(0x2004)),
        ErrorCode::LAUNCH_ALIGNMENT,
    ),
    ("no timeout", |args| args.timeout_ms = 0, ErrorCode::LAUNCH_TIMEOUT),
    ("start notify past the bank", |args| args.start_notify = 8192, ErrorCode::LAUNCH_NOTIFY),
    ("done notify past the host's", |args| args.done_notify = 64, ErrorCode::LAUNCH_NOTIFY),
];

#[test]
fn each_fault_has_its_code() {
    for (name, change, code) in SEALED_FAULTS {
        let mut args = launch_args();
        change(&mut args);
        assert_eq!(Launch::parse(&args), Err(ErrorCode::LAUNCH_CHECKSUM), "{name}, not sealed");
        assert_eq!(Launch::parse(&args.sealed()), Err(*code), "{name}");
    }
    let wrong = |change: fn(&mut LaunchArgs)| {
        let mut args = launch_args();
        change(&mut args);
        Launch::parse(&args).err()
    };
    assert_eq!(wrong(|args| args.magic = args.magic.swap_bytes()), Some(ErrorCode::LAUNCH_MAGIC));
    assert_eq!(wrong(|args| *args = LaunchArgs::default()), Some(ErrorCode::LAUNCH_MAGIC), "120: all zero");
    assert_eq!(wrong(|args| args.abi = 0), Some(ErrorCode::LAUNCH_VERSION));
    assert_eq!(wrong(|args| args.abi = 2), Some(ErrorCode::LAUNCH_VERSION));
    assert_eq!(wrong(|args| args.checksum = 0), Some(ErrorCode::LAUNCH_CHECKSUM));
}

#[test]
fn limits_are_legal() {
    let legal: [fn(&mut LaunchArgs); 6] = [
        |args| args.count = u64::MAX,
        |args| args.input.len = u64::MAX - args.input.addr.0,
        |args| (args.op, args.reduce, args.dtype) = (OpKind::AllGather as u8, 0, DataType::Fp8E4m3 as u8),
        |args| (args.start_notify, args.done_notify) = (8191, 63),
        |args| args.staging = Staging::Direct as u8,
        |args| args.timeout_ms = u32::MAX,
    ];
    for change in legal {
        let mut args = launch_args();
        change(&mut args);
        assert!(Launch::parse(&args.sealed()).is_ok());
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let good = launch_args();
    for bit in 0..8 * size_of::<LaunchArgs>() {
        let mut args = good;
        args.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
        let code = match bit / 8 {
            0..4 => ErrorCode::LAUNCH_MAGIC,
            4..6 => ErrorCode::LAUNCH_VERSION,
            _ => ErrorCode::LAUNCH_CHECKSUM,
        };
        assert_eq!(Launch::parse(&args), Err(code), "bit {bit}");
    }
}

/// The arguments that a parsed launch came from; magic, version and checksum are filled in.
fn unparse(launch: &Launch) -> LaunchArgs {
    LaunchArgs {
        blocks: 1,
        sequence: launch.sequence,
        instance: launch.instance,
        epoch: launch.epoch,
        op: launch.op as u8,
        dtype: launch.dtype as u8,
        reduce: launch.reduce as u8,
        algorithm: launch.algorithm as u8,
        levels: launch.levels.map(|level| level.map_or(0, |algorithm| algorithm as u8)),
        root: launch.root,
        vector: launch.vector,
        count: launch.count,
        chunk: launch.chunk,
        piece: launch.piece,
        context: launch.context.0,
        context_len: launch.context.1,
        staging: launch.staging as u8,
        cache: launch.cache as u8,
        input: launch.input,
        output: launch.output,
        start_notify: launch.start_notify,
        done_notify: launch.done_notify,
        timeout_ms: launch.timeout_ms,
        ..LaunchArgs::default()
    }
    .sealed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_arguments_are_refused_or_lose_nothing(
        bytes in proptest::collection::vec((0..256_usize, prop_oneof![0_u8..8, any::<u8>()]), 1..6),
        seal in any::<bool>(),
    ) {
        let mut args = launch_args();
        for (offset, value) in bytes {
            args.as_mut_bytes()[offset] = value;
        }
        if seal {
            args = args.sealed();
        }
        if let Ok(launch) = Launch::parse(&args) {
            prop_assert_eq!(unparse(&launch), args);
        } else {
            prop_assert_ne!(args, launch_args());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 256), seal in any::<bool>()) {
        let args = LaunchArgs::read_from_bytes(&bytes).expect("256 bytes");
        let args = if seal { args.sealed() } else { args };
        if let Ok(launch) = Launch::parse(&args) {
            prop_assert_eq!(unparse(&launch), args);
        }
    }
}
