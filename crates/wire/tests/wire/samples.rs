//! Values that several tests start from, and the bytes of a context with its checksums made right.

use aicpu_wire::context::{ChannelEntry, Context, ContextHeader, HEADER_BYTES, RegionEntry, ThreadEntry};
use aicpu_wire::launch::{Algorithm, Buffer, OpKind};
use aicpu_wire::npu::{Protocol, Status, roce, sdma};
use aicpu_wire::script::{self, Action, Instruction, Memory, ScriptEntry, ScriptHeader, Told};
use aicpu_wire::{
    Command, Cqe, DataType, DeviceAddr, Engine, ErrorCode, Labels, LaunchArgs, Operand, Phase, ReduceOp,
    Reduction, Sqe, TraceEvent, TraceKind, Transfer, TransferKind, WorkRequest,
};
use zerocopy::IntoBytes;

/// Offset of `ContextHeader::total_len`.
pub(crate) const TOTAL_LEN: usize = 12;
/// Offset of `ContextHeader::header_crc`.
pub(crate) const HEADER_CRC: usize = 16;
/// Offset of `ContextHeader::body_crc`.
pub(crate) const BODY_CRC: usize = 20;

/// A change of a good value: its name, the change, and what comes of it, the code of the refusal where there is one.
pub(crate) type Fault<T, R = ErrorCode> = (&'static str, fn(&mut T), R);

/// The tables of a context, owned.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) header: ContextHeader,
    pub(crate) threads: Vec<ThreadEntry>,
    pub(crate) regions: Vec<RegionEntry>,
    pub(crate) channels: Vec<ChannelEntry>,
}

impl Tables {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let context = Context {
            header: &self.header,
            threads: &self.threads,
            regions: &self.regions,
            channels: &self.channels,
        };
        encode(&context)
    }
}

/// Encodes `context` into a buffer of the right size.
pub(crate) fn encode(context: &Context<'_>) -> Vec<u8> {
    let (threads, regions, channels) = (context.threads, context.regions, context.channels);
    let mut bytes = vec![0; Context::encoded_len(threads.len(), regions.len(), channels.len())];
    let written = context.encode(&mut bytes).expect("the buffer has the size asked for");
    assert_eq!(written, bytes.len());
    bytes
}

/// Bytes at an address of which the alignment is known.
pub(crate) struct Aligned {
    words: Vec<u64>,
    len: usize,
}

impl Aligned {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut words = vec![0; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        Self { words, len: bytes.len() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.len]
    }
}

pub(crate) fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

fn crc32c(bytes: &[u8]) -> u32 {
    crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(bytes)
}

/// Makes the header's checksum right again, where the context is long enough to have one.
pub(crate) fn fix_header_checksum(bytes: &mut [u8]) {
    if bytes.len() >= HEADER_BYTES {
        put_u32(bytes, HEADER_CRC, 0);
        let header = crc32c(&bytes[..HEADER_BYTES]);
        put_u32(bytes, HEADER_CRC, header);
    }
}

/// Makes both checksums of a context right again, where it is long enough to have them.
pub(crate) fn fix_checksums(bytes: &mut [u8]) {
    if bytes.len() >= HEADER_BYTES {
        let body = crc32c(&bytes[HEADER_BYTES..]);
        put_u32(bytes, BODY_CRC, body);
        fix_header_checksum(bytes);
    }
}

/// The three contexts that have golden bytes, with the names of their files.
pub(crate) fn contexts() -> [(&'static str, Tables); 3] {
    [
        ("context-1-rank", tables(0, 1, 1, |_| Protocol::Hccs)),
        ("context-8-ranks-hccs", tables(5, 8, 8, |_| Protocol::Hccs)),
        (
            "context-4-ranks-2-servers",
            tables(1, 4, 2, |peer| if peer < 2 { Protocol::Hccs } else { Protocol::Roce }),
        ),
    ]
}

fn tables(rank: u32, ranks: u32, threads: u16, protocol: impl Fn(u32) -> Protocol) -> Tables {
    let mut name = [0; 64];
    name[..8].copy_from_slice(b"training");
    let header = ContextHeader {
        instance: [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210],
        epoch: 7,
        rank,
        ranks,
        device: rank,
        topology_digest: 0x7070_1091_d16e_5700,
        sdma_max_len: sdma::MAX_LEN,
        sdma_reduce_types: sdma::REDUCE_TYPES,
        sdma_reduce_ops: sdma::REDUCE_OPS,
        name,
        ..ContextHeader::default()
    };
    let regions = (0..ranks).map(|rank| RegionEntry {
        addr: 0x1000_0000_0000 + (u64::from(rank) << 36),
        len: 200 << 20,
        token: 0x0100_0000 | rank << 10,
        generation: 1,
        rank,
        server: 0,
        pod: 0,
    });
    let peers = (0..ranks).filter(|&peer| peer != rank).zip(0_u16..);
    Tables {
        header,
        threads: (0..threads).map(thread).collect(),
        regions: regions.collect(),
        channels: peers.map(|(peer, index)| channel(peer, index, rank, protocol(peer))).collect(),
    }
}

fn thread(index: u16) -> ThreadEntry {
    ThreadEntry {
        ring: 0x2000_0004_0000 + u64::from(index) * 0x2_0000,
        depth: 2048,
        queue: index,
        notify_base: u32::from(index) * 8,
        notify_count: 8,
        ..ThreadEntry::default()
    }
}

fn channel(peer: u32, index: u16, rank: u32, protocol: Protocol) -> ChannelEntry {
    let pair = protocol.uses_queue_pair();
    let (reduce_types, reduce_ops, max_len) = match protocol {
        Protocol::Hccs => (sdma::REDUCE_TYPES, sdma::REDUCE_OPS, sdma::MAX_LEN),
        _ => (roce::REDUCE_TYPES, roce::REDUCE_OPS, roce::MAX_LEN),
    };
    ChannelEntry {
        peer,
        index,
        protocol: protocol as u8,
        local_notify: 1024 + 3 * u32::from(index),
        remote_notify: 1024 + 3 * if peer > rank { rank } else { rank - 1 },
        reduce_types,
        reduce_ops,
        max_len,
        ring: if pair { 0x3000_0000_0000 + u64::from(index) * 0x1_0000 } else { 0 },
        depth: if pair { 1024 } else { 0 },
        queue: if pair { 64 + index } else { 0 },
        ..ChannelEntry::default()
    }
}

/// Launch arguments of an all-reduce of 1000 fp32, sealed.
pub(crate) fn launch_args() -> LaunchArgs {
    let buffer = |addr, token| Buffer { addr: DeviceAddr(addr), len: 4000, token, ..Buffer::default() };
    LaunchArgs {
        blocks: 1,
        sequence: 42,
        instance: [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210],
        epoch: 7,
        op: OpKind::AllReduce as u8,
        dtype: DataType::Fp32 as u8,
        reduce: ReduceOp::Max as u8,
        algorithm: Algorithm::Nhr as u8,
        count: 1000,
        chunk: 512,
        piece: 1 << 20,
        context: DeviceAddr(0x2000_0000_1000),
        context_len: 1168,
        input: buffer(0x1000_0000_0000, 0x0100_0001),
        output: buffer(0x1000_0001_0000, 0x0100_0002),
        start_notify: 3,
        done_notify: 9,
        timeout_ms: 1_836_000,
        ..LaunchArgs::default()
    }
    .sealed()
}

/// Labels with a different value in every byte.
pub(crate) fn labels() -> Labels {
    Labels {
        task: 0x0000_002a_0000_0107,
        phase: Phase::Run,
        step: 0x0203,
        peer: 0x0405,
        timeout_ms: 0x0607_0809,
        complete: true,
    }
}

const SRC: Operand = Operand { addr: DeviceAddr(0x1112_1314_1516_1718), token: 0x2122_2324 };
const DST: Operand = Operand { addr: DeviceAddr(0x3132_3334_3536_3738), token: 0x4142_4344 };
const PROD_BF16: Option<Reduction> = Some(Reduction { dtype: DataType::Bf16, op: ReduceOp::Prod });

fn transfer(kind: TransferKind) -> Transfer {
    let (src, dst, len) = (SRC, DST, 0x5152_5354_5556);
    Transfer { kind, engine: Engine::Sdma, reduction: None, src, dst, len, notify: None }
}

/// One command of each kind, with the name of its golden file.
pub(crate) fn commands() -> [(&'static str, Command); 9] {
    let (channel, notify, wqe_tail) = (0x0a0b, 0x0c0d_0e0f, 0x6162_6364);
    let local = transfer(TransferKind::Local);
    let write = transfer(TransferKind::Write { channel });
    let read = transfer(TransferKind::Read { channel });
    [
        ("sqe-copy", Command::Transfer(local)),
        (
            "sqe-reduce-aicpu",
            Command::Transfer(Transfer { engine: Engine::Aicpu, reduction: PROD_BF16, ..local }),
        ),
        ("sqe-write", Command::Transfer(Transfer { notify: Some(notify), reduction: PROD_BF16, ..write })),
        ("sqe-read", Command::Transfer(read)),
        ("sqe-record", Command::Record { notify }),
        ("sqe-wait", Command::Wait { notify }),
        ("sqe-record-peer", Command::RecordPeer { channel, notify }),
        ("sqe-record-host", Command::RecordHost { notify }),
        ("sqe-post", Command::Post { channel, wqe_tail }),
    ]
}

/// One work request of each kind, with the name of its golden file.
pub(crate) fn work_requests() -> [(&'static str, WorkRequest); 3] {
    let (local, remote, len, notify) = (SRC, DST, 0x5152_5354_5556, 0x0c0d_0e0f);
    [
        ("wqe-write", WorkRequest::Write { local, remote, len, reduction: PROD_BF16, notify: Some(notify) }),
        ("wqe-read", WorkRequest::Read { local, remote, len, reduction: None }),
        ("wqe-record", WorkRequest::Record { notify }),
    ]
}

/// A completion with a different value in every field.
pub(crate) fn cqe() -> Cqe {
    Cqe {
        task: 0x0000_002a_0000_0107,
        address: 0x1112_1314_1516_1718,
        code: ErrorCode::DMA_BOUNDS,
        queue: 0x0102,
        step: 0x0203,
        peer: 0x0405,
        position: 0x2122_2324,
        skeleton: Phase::Run as u8,
        opcode: Sqe::WRITE,
        reserved: 0,
        phase: 1,
    }
}

/// A status with a different value in every field.
pub(crate) fn status() -> Status {
    Status {
        sequence: 42,
        code: ErrorCode::CONTEXT_FIELD.0,
        chunks: 3,
        sqes: 0x0102_0304,
        wqes: 0x0506_0708,
        doorbells: 0x090a_0b0c,
        steps: 0x0f10,
        cache: 1,
        reserved: 0,
        detail: 0x1112_1314_1516_1718,
        expand_ns: 0x2122_2324_2526_2728,
        submit_ns: 0x3132_3334_3536_3738,
        kinds: [0x4142_4344, 0x4546_4748, 0x494a_4b4c, 0x4d4e_4f50],
    }
}

/// A trace event with a different value in every field.
pub(crate) fn trace_event() -> TraceEvent {
    TraceEvent {
        time_ns: 0x1112_1314_1516_1718,
        sequence: 42,
        kind: TraceKind::Doorbell as u8,
        detail: 0,
        queue: 0x0102,
        first: 0x2122_2324_2526_2728,
        second: 0x3132_3334_3536_3738,
    }
}

/// The raw entries of [`commands`] and [`work_requests`].
pub(crate) fn descriptors() -> Vec<(&'static str, Vec<u8>)> {
    let sqes = commands().map(|(name, command)| (name, command.emit(labels()).as_bytes().to_vec()));
    let wqes = work_requests().map(|(name, request)| (name, request.emit(labels()).as_bytes().to_vec()));
    sqes.into_iter().chain(wqes).collect()
}

/// What entries of a script can say, each with a different value in every field.
pub(crate) fn instructions() -> Vec<Instruction> {
    let place = |memory, index| script::Place { memory, index };
    let (input, output, slot) =
        (place(Memory::Input, 0), place(Memory::Output, 2), place(Memory::Scratch, 0x0102));
    let part = 0x0304;
    let actions = [
        Action::Copy { dst: output, src: input, part },
        Action::Reduce { dst: slot, src: output, part },
        Action::Write { peer: 3, slot: 0x0506, src: output, part, last: false },
        Action::Write { peer: 3, slot: 0x0506, src: slot, part, last: true },
        Action::Tell { peer: 3, what: Told::Free },
        Action::Tell { peer: 2, what: Told::Received },
        Action::Await { peer: 3, what: Told::Free },
        Action::Await { peer: 0, what: Told::Landed },
        Action::Await { peer: 2, what: Told::Received },
        Action::Signal { thread: 4, notify: 0x0708 },
        Action::Wait { notify: 7 },
    ];
    (0..).zip(actions).map(|(step, action)| Instruction { thread: 4, step: 0x0900 + step, action }).collect()
}

/// The script of rank 1 of an all-gather on four ranks that says all of this.
pub(crate) fn script() -> (ScriptHeader, Vec<ScriptEntry>) {
    let entries: Vec<_> = instructions().iter().map(Instruction::entry).collect();
    let header = ScriptHeader {
        parts: 0x0305,
        slots: 0x0507,
        rank: 1,
        ranks: 4,
        threads: 5,
        main_notifies: 8,
        sub_notifies: 0x0709,
        op: 2,
        in_place: 1,
        ..ScriptHeader::default()
    };
    (header.sealed(&entries).expect("few entries"), entries)
}
