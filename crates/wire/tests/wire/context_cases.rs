//! Contexts with one fault each, and the code and byte offset they are refused with.
//!
//! Numbers in names are those of the bad-input catalogue, 77 to 119. Of these, 79 to 81 are in `context_mutations`.
//! The format has no region kind (95), notify owner (102), ring head (105) or boolean (111). The kernel checks what
//! only it can know: scratch too small for an element (109), epoch (115), instance (116) and device (117) of another
//! communicator; here such contexts are legal, which `legal_contexts_parse` says.

use aicpu_wire::ErrorCode;
use aicpu_wire::context::{Context, ContextError};

use crate::samples::{self, Aligned, TOTAL_LEN, Tables, fix_checksums, fix_header_checksum, put_u32};

const LENGTH: ErrorCode = ErrorCode::CONTEXT_LENGTH;
const TABLE: ErrorCode = ErrorCode::CONTEXT_TABLE;
const RESERVED: ErrorCode = ErrorCode::CONTEXT_RESERVED;
const FIELD: ErrorCode = ErrorCode::CONTEXT_FIELD;

/// Bytes of the context of 8 ranks, and where its tables lie.
const LEN: u32 = 1168;
const THREAD_1: u32 = 208 + 32;
const REGION_3: u32 = 464 + 3 * 32;
const CHANNEL_2: u32 = 720 + 2 * 64;
/// Second channel (the first with a queue pair) of the context of 4 ranks.
const PAIR: u32 = 208 + 2 * 32 + 4 * 32 + 64;

const EIGHT_RANKS: usize = 1;
const TWO_SERVERS: usize = 2;

fn parse(bytes: &[u8]) -> Result<(), (ErrorCode, u32)> {
    let aligned = Aligned::new(bytes);
    match Context::parse(aligned.bytes()) {
        Ok(context) => {
            assert_eq!(samples::encode(&context), bytes, "canonical");
            Ok(())
        }
        Err(ContextError { code, offset }) => Err((code, offset)),
    }
}

fn sample(index: usize) -> Tables {
    let [.., (_, tables)] = &samples::contexts()[..=index] else { panic!("no such sample") };
    tables.clone()
}

type ByteCase = (&'static str, fn(&mut Vec<u8>), ErrorCode, u32);

/// Faults in the bytes of the context of 8 ranks; the checksums are made right afterwards.
const BYTE_CASES: &[ByteCase] = &[
    ("77: length 0", |bytes| bytes.clear(), LENGTH, 0),
    ("78: one byte short of the header", |bytes| bytes.truncate(207), LENGTH, 0),
    ("82: wrong magic", |bytes| bytes[7] = b'x', ErrorCode::CONTEXT_MAGIC, 0),
    ("83: byte-swapped magic", |bytes| bytes[..8].reverse(), ErrorCode::CONTEXT_MAGIC, 0),
    ("84: version 0", |bytes| bytes[8] = 0, ErrorCode::CONTEXT_VERSION, 8),
    ("84: version 65535", |bytes| bytes[8..10].fill(255), ErrorCode::CONTEXT_VERSION, 8),
    ("84: minor version 1", |bytes| bytes[10] = 1, ErrorCode::CONTEXT_VERSION, 10),
    ("85: total length 0", |bytes| put_u32(bytes, TOTAL_LEN, 0), LENGTH, 12),
    ("85: total length one less", |bytes| put_u32(bytes, TOTAL_LEN, LEN - 1), LENGTH, 12),
    ("85: total length one more", |bytes| put_u32(bytes, TOTAL_LEN, LEN + 1), LENGTH, 12),
    ("119: total length 4 GiB - 1", |bytes| put_u32(bytes, TOTAL_LEN, u32::MAX), LENGTH, 12),
    ("87: first table in the header", |bytes| put_u32(bytes, 80, 0), TABLE, 80),
    ("87: second table in the header", |bytes| put_u32(bytes, 96, 80), TABLE, 96),
    ("88: unaligned table", |bytes| put_u32(bytes, 96, 465), TABLE, 96),
    ("88: table offset wraps", |bytes| put_u32(bytes, 112, u32::MAX - 7), TABLE, 112),
    (
        "89: count 2^32-1 with stride 0",
        |bytes| {
            put_u32(bytes, 84, u32::MAX);
            put_u32(bytes, 88, 0);
        },
        TABLE,
        80,
    ),
    ("89: stride of another entry", |bytes| put_u32(bytes, 120, 32), TABLE, 112),
    ("90: count 2^32-1", |bytes| put_u32(bytes, 84, u32::MAX), TABLE, 84),
    ("90: count whose bytes wrap 32 bits", |bytes| put_u32(bytes, 84, 1 << 27), TABLE, 84),
    ("91: two tables overlap", |bytes| put_u32(bytes, 96, 208), TABLE, 96),
    ("91: first table one entry short", |bytes| put_u32(bytes, 84, 7), TABLE, 96),
    ("91: last table one entry long", |bytes| put_u32(bytes, 116, 8), TABLE, 116),
    ("bytes behind the last table", |bytes| put_u32(bytes, 116, 6), LENGTH, LEN - 64),
    ("110: reserved word of a table", |bytes| bytes[92] = 1, RESERVED, 92),
    ("118: twice in a row", |bytes| bytes.extend_from_within(..), LENGTH, 12),
    (
        "118: twice in a row, with its length",
        |bytes| {
            bytes.extend_from_within(..);
            put_u32(bytes, TOTAL_LEN, 2 * LEN);
        },
        LENGTH,
        LEN,
    ),
];

#[test]
fn faults_in_the_frame() {
    let good = sample(EIGHT_RANKS).encode();
    assert_eq!(parse(&good), Ok(()));
    for (name, change, code, offset) in BYTE_CASES {
        let mut bytes = good.clone();
        change(&mut bytes);
        fix_checksums(&mut bytes);
        assert_eq!(parse(&bytes), Err((*code, *offset)), "{name}");
    }
}

#[test]
fn case_86_a_checksum_is_zero() {
    let mut bytes = sample(EIGHT_RANKS).encode();
    put_u32(&mut bytes, samples::BODY_CRC, 0);
    fix_header_checksum(&mut bytes);
    assert_eq!(parse(&bytes), Err((ErrorCode::CONTEXT_CHECKSUM, 20)));
    put_u32(&mut bytes, samples::HEADER_CRC, 0);
    assert_eq!(parse(&bytes), Err((ErrorCode::CONTEXT_CHECKSUM, 16)));
}

#[test]
fn an_unaligned_context_is_refused() {
    let good = sample(EIGHT_RANKS).encode();
    let shifted = Aligned::new(&[&[0], &*good].concat());
    let error = Context::parse(&shifted.bytes()[1..]).map(|_| ());
    assert_eq!(error, Err(ContextError { code: ErrorCode::CONTEXT_ADDRESS, offset: 0 }));
}

#[test]
fn a_context_is_not_encoded_into_too_few_bytes() {
    let bytes = Aligned::new(&sample(EIGHT_RANKS).encode());
    let context = Context::parse(bytes.bytes()).expect("good");
    let short = context.encode(&mut [0; LEN as usize - 1]);
    assert_eq!(short, Err(ContextError { code: LENGTH, offset: 0 }));
}

type FieldCase = (&'static str, usize, fn(&mut Tables), ErrorCode, u32);

/// Faults in single fields, encoded by the encoder itself so that frame and checksums are right.
const FIELD_CASES: &[FieldCase] = &[
    ("97: rank = ranks", EIGHT_RANKS, |t| t.header.rank = 8, FIELD, 44),
    ("98: no rank", EIGHT_RANKS, |t| t.header.ranks = 0, FIELD, 48),
    ("99: ranks above the maximum", EIGHT_RANKS, |t| t.header.ranks = 65_537, FIELD, 48),
    ("ranks without regions", EIGHT_RANKS, |t| t.header.ranks = 9, FIELD, 96),
    ("instance 0", EIGHT_RANKS, |t| t.header.instance = [0; 2], FIELD, 24),
    ("copy engine moves less than a granule", EIGHT_RANKS, |t| t.header.sdma_max_len = 511, FIELD, 64),
    ("112: copy engine reduces int128", EIGHT_RANKS, |t| t.header.sdma_reduce_types |= 1 << 12, FIELD, 72),
    ("112: copy engine has reduction 4", EIGHT_RANKS, |t| t.header.sdma_reduce_ops = 16, FIELD, 76),
    ("113: name without terminator", EIGHT_RANKS, |t| t.header.name = [b'x'; 64], FIELD, 128),
    ("114: name with interior NUL", EIGHT_RANKS, |t| t.header.name[63] = 1, FIELD, 128),
    ("name that is not UTF-8", EIGHT_RANKS, |t| t.header.name[0] = 0xff, FIELD, 128),
    ("110: reserved word of the header", EIGHT_RANKS, |t| t.header.reserved = 1, RESERVED, 200),
    ("links reduce a type that cannot be", EIGHT_RANKS, |t| t.header.link_reduce_types = 1 << 14, FIELD, 192),
    ("links reduce what one does not", EIGHT_RANKS, |t| t.header.link_reduce_types = 1 << 5, FIELD, 192),
    (
        "links do a reduction that does not exist",
        EIGHT_RANKS,
        |t| t.header.link_reduce_ops = 1 << 4,
        FIELD,
        196,
    ),
    ("no thread", EIGHT_RANKS, |t| t.threads.clear(), FIELD, 80),
    (
        "110: reserved half word of a thread",
        EIGHT_RANKS,
        |t| t.threads[1].reserved = 1,
        RESERVED,
        THREAD_1 + 14,
    ),
    ("110: reserved word of a thread", EIGHT_RANKS, |t| t.threads[1].reserved1 = 1, RESERVED, THREAD_1 + 24),
    ("103: depth 0", EIGHT_RANKS, |t| t.threads[1].depth = 0, FIELD, THREAD_1 + 8),
    ("103: depth 1", EIGHT_RANKS, |t| t.threads[1].depth = 1, FIELD, THREAD_1 + 8),
    ("103: depth 3", EIGHT_RANKS, |t| t.threads[1].depth = 3, FIELD, THREAD_1 + 8),
    ("103: depth 2^17", EIGHT_RANKS, |t| t.threads[1].depth = 1 << 17, FIELD, THREAD_1 + 8),
    ("103: depth 2^31", EIGHT_RANKS, |t| t.threads[1].depth = 1 << 31, FIELD, THREAD_1 + 8),
    ("104: unaligned ring", EIGHT_RANKS, |t| t.threads[1].ring += 32, FIELD, THREAD_1),
    ("ring at 0", EIGHT_RANKS, |t| t.threads[1].ring = 0, FIELD, THREAD_1),
    ("ring wraps", EIGHT_RANKS, |t| t.threads[1].ring = u64::MAX - 63, FIELD, THREAD_1),
    ("queue that does not exist", EIGHT_RANKS, |t| t.threads[1].queue = 512, FIELD, THREAD_1 + 12),
    ("106: two queues of one number", EIGHT_RANKS, |t| t.threads[1].queue = 0, FIELD, THREAD_1 + 12),
    ("106: two rings at one base", EIGHT_RANKS, |t| t.threads[1].ring = t.threads[0].ring, FIELD, THREAD_1),
    ("106: rings overlap by an entry", EIGHT_RANKS, |t| t.threads[1].ring -= 64, FIELD, THREAD_1),
    ("94: ring in the own scratch", EIGHT_RANKS, |t| t.regions[5].addr = t.threads[1].ring, FIELD, THREAD_1),
    ("100: threads share a notify", EIGHT_RANKS, |t| t.threads[1].notify_base = 7, FIELD, THREAD_1 + 16),
    ("101: thread notify 65,536", EIGHT_RANKS, |t| t.threads[1].notify_base = 65_536, FIELD, THREAD_1 + 16),
    ("101: last thread notify 8192", EIGHT_RANKS, |t| t.threads[1].notify_base = 8185, FIELD, THREAD_1 + 16),
    ("101: notify count 2^32-1", EIGHT_RANKS, |t| t.threads[1].notify_count = u32::MAX, FIELD, THREAD_1 + 16),
    ("92: region of length 0", EIGHT_RANKS, |t| t.regions[3].len = 0, FIELD, REGION_3 + 8),
    ("93: region wraps", EIGHT_RANKS, |t| t.regions[3].len = u64::MAX, FIELD, REGION_3 + 8),
    ("region at 0", EIGHT_RANKS, |t| t.regions[3].addr = 0, FIELD, REGION_3),
    ("unaligned region", EIGHT_RANKS, |t| t.regions[3].addr += 64, FIELD, REGION_3),
    ("96: region of rank 65,536", EIGHT_RANKS, |t| t.regions[3].rank = 65_536, FIELD, REGION_3 + 24),
    ("96: regions out of order", EIGHT_RANKS, |t| t.regions.swap(3, 4), FIELD, REGION_3 + 24),
    ("region with token 0", EIGHT_RANKS, |t| t.regions[3].token = 0, FIELD, REGION_3 + 16),
    ("server 1 before rank 4", EIGHT_RANKS, |t| t.regions[3].server = 1, FIELD, REGION_3 + 32 + 28),
    ("server skipped", EIGHT_RANKS, |t| t.regions[3].server = 2, FIELD, REGION_3 + 28),
    ("super pod within a server", EIGHT_RANKS, |t| t.regions[3].pod = 1, FIELD, REGION_3 + 30),
    ("107: channel to self", EIGHT_RANKS, |t| t.channels[2].peer = 5, FIELD, CHANNEL_2),
    ("108: missing channel", EIGHT_RANKS, |t| t.channels.truncate(6), FIELD, 112),
    ("108: two channels to one peer", EIGHT_RANKS, |t| t.channels[2].peer = 1, FIELD, CHANNEL_2),
    ("channel that does not exist", EIGHT_RANKS, |t| t.channels[2].index = 1024, FIELD, CHANNEL_2 + 4),
    ("two channels of one index", EIGHT_RANKS, |t| t.channels[2].index = 1, FIELD, CHANNEL_2 + 4),
    ("112: protocol 2", EIGHT_RANKS, |t| t.channels[2].protocol = 2, FIELD, CHANNEL_2 + 6),
    ("112: protocol 255", EIGHT_RANKS, |t| t.channels[2].protocol = 255, FIELD, CHANNEL_2 + 6),
    ("110: reserved byte of a channel", EIGHT_RANKS, |t| t.channels[2].reserved = 1, RESERVED, CHANNEL_2 + 7),
    ("110: reserved half word", EIGHT_RANKS, |t| t.channels[2].reserved1 = 1, RESERVED, CHANNEL_2 + 46),
    ("110: reserved tail", EIGHT_RANKS, |t| t.channels[2].reserved2[1] = 1, RESERVED, CHANNEL_2 + 48),
    ("100: channels share a notify", EIGHT_RANKS, |t| t.channels[2].local_notify -= 1, FIELD, CHANNEL_2 + 8),
    ("100: a thread's notify", EIGHT_RANKS, |t| t.channels[2].local_notify = 63, FIELD, CHANNEL_2 + 8),
    ("101: local notify 65,536", EIGHT_RANKS, |t| t.channels[2].local_notify = 65_536, FIELD, CHANNEL_2 + 8),
    ("101: remote notify 8192", EIGHT_RANKS, |t| t.channels[2].remote_notify = 8190, FIELD, CHANNEL_2 + 12),
    ("101: remote wraps", EIGHT_RANKS, |t| t.channels[2].remote_notify = u32::MAX, FIELD, CHANNEL_2 + 12),
    ("112: link reduces fp8", EIGHT_RANKS, |t| t.channels[2].reduce_types = 1 << 15, FIELD, CHANNEL_2 + 16),
    (
        "112: link has reduction 31",
        EIGHT_RANKS,
        |t| t.channels[2].reduce_ops = 1 << 31,
        FIELD,
        CHANNEL_2 + 20,
    ),
    ("link moves less than a granule", EIGHT_RANKS, |t| t.channels[2].max_len = 511, FIELD, CHANNEL_2 + 24),
    ("ring without queue pair", EIGHT_RANKS, |t| t.channels[2].ring = 64, FIELD, CHANNEL_2 + 32),
    ("depth without queue pair", EIGHT_RANKS, |t| t.channels[2].depth = 4, FIELD, CHANNEL_2 + 40),
    ("queue without queue pair", EIGHT_RANKS, |t| t.channels[2].queue = 99, FIELD, CHANNEL_2 + 44),
    ("103: queue pair of depth 3", TWO_SERVERS, |t| t.channels[1].depth = 3, FIELD, PAIR + 40),
    ("104: unaligned queue pair", TWO_SERVERS, |t| t.channels[1].ring += 1, FIELD, PAIR + 32),
    ("queue pair that does not exist", TWO_SERVERS, |t| t.channels[1].queue = 512, FIELD, PAIR + 44),
    ("106: queue pair on a thread's queue", TWO_SERVERS, |t| t.channels[1].queue = 1, FIELD, PAIR + 44),
    (
        "106: queue pair in a thread's ring",
        TWO_SERVERS,
        |t| t.channels[1].ring = t.threads[0].ring + 64,
        FIELD,
        PAIR + 32,
    ),
    (
        "106: queue pairs at one base",
        TWO_SERVERS,
        |t| t.channels[2].ring = t.channels[1].ring,
        FIELD,
        PAIR + 64 + 32,
    ),
];

#[test]
fn faults_in_the_fields() {
    for (name, base, change, code, offset) in FIELD_CASES {
        let mut tables = sample(*base);
        assert_eq!(parse(&tables.encode()), Ok(()));
        change(&mut tables);
        assert_eq!(parse(&tables.encode()), Err((*code, *offset)), "{name}");
    }
}

#[test]
fn legal_contexts_parse() {
    let named = |t: &mut Tables, name: &[u8]| {
        t.header.name = [0; 64];
        t.header.name[..name.len()].copy_from_slice(name);
    };
    let mut cases: Vec<Tables> = Vec::new();
    let mut add = |change: &dyn Fn(&mut Tables)| {
        let mut tables = sample(EIGHT_RANKS);
        change(&mut tables);
        cases.push(tables);
    };
    add(&|t| named(t, b"")); // no name
    add(&|t| named(t, &[b'x'; 63])); // the longest name
    add(&|t| named(t, b"a/b\n")); // 114: a name identifies nothing, so it may hold anything
    add(&|t| named(t, b"dp_0"));
    add(&|t| named(t, b"dp_00"));
    add(&|t| t.regions[4].addr = t.regions[3].addr); // 94: regions of two ranks are in two address spaces
    add(&|t| t.regions[3].addr = t.threads[1].ring); // likewise a peer's region and a ring of ours
    add(&|t| t.regions.iter_mut().for_each(|region| region.len = 1)); // 109
    add(&|t| t.header.epoch = 6); // 115
    add(&|t| t.header.instance = [1, 0]); // 116
    add(&|t| t.header.device = 77); // 117
    add(&|t| (t.header.sdma_max_len, t.channels[2].max_len) = (512, 513));
    add(&|t| t.threads[1].notify_count = 0);
    add(&|t| (t.threads[7].notify_base, t.threads[1].depth) = (8184, 4));
    add(&|t| (t.channels[0].local_notify, t.channels[0].remote_notify) = (8189, 8189));
    for tables in cases {
        assert_eq!(parse(&tables.encode()), Ok(()));
    }
}

/// A check that compares all pairs of threads would take minutes here.
#[test]
fn hostile_tables_are_refused_in_linear_time() {
    let mut tables = sample(0);
    tables.threads = vec![tables.threads[0]; 1_000_000];
    for (queue, thread) in (0..=u16::MAX).cycle().zip(&mut tables.threads) {
        (thread.queue, thread.notify_count) = (queue, 0);
    }
    assert_eq!(parse(&tables.encode()), Err((FIELD, 208 + 512 * 32 + 12)), "there is no 513th queue");
}
