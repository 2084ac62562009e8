//! Programs: several operations by one launch, each started by the one before.

use wire::launch::{Algorithm, Buffer, CacheMode, CacheOutcome, OpKind, Staging};
use wire::npu::{Protocol, Status};
use wire::program::{ProgramEntry, ProgramHeader, ProgramOperand, Replay};
use wire::{DataType, DeviceAddr, ErrorCode, LaunchArgs};
use zerocopy::IntoBytes;

use crate::plane::{self, Plane};
use crate::rig::{CHANNELS, CONTEXT, Case, Loaded, MEMORY, PEERS, Rig, THREADS, TIMEOUT_S, VECTOR, epilogue};

const PROGRAM: u64 = 0x1_0000;
const BINDINGS: u64 = 0x1_8000;
/// What each operation refers to, in blocks.
const BLOCKS: u64 = 0x4_0000;
const BLOCK: u64 = 0x1_0000;
/// The n-th start notify of every operation.
const NUMBER: u32 = 2;
const HOST: u64 = 0xbeef_0001;

/// A program in the memory of its first operation's rig.
struct Programmed {
    rigs: Vec<Rig>,
    /// For each operation the first one that has the same context.
    places: Vec<usize>,
    header: ProgramHeader,
    entries: Vec<ProgramEntry>,
    args: LaunchArgs,
}

impl Programmed {
    fn new(cases: Vec<Case>) -> Self {
        let first = Rig::new(cases[0].clone());
        let instance = first.args.instance;
        let others = cases.into_iter().skip(1).map(|case| Rig::of(case, instance));
        let mut rigs: Vec<_> = core::iter::once(first).chain(others).collect();
        let contexts: Vec<Vec<u8>> =
            rigs.iter().map(|rig| rig.bytes(CONTEXT, rig.args.context_len as usize).to_vec()).collect();
        let places: Vec<_> = contexts
            .iter()
            .map(|own| contexts.iter().position(|other| other == own).expect("itself"))
            .collect();
        let mut known = Plane { host: HOST, ..Plane::default() };
        let (mut threads, mut channels) = (Vec::new(), Vec::new());
        for (index, &place) in places.iter().enumerate() {
            let rig = &mut rigs[index];
            let (count, peers) = (rig.param.thread_count, rig.param.channel_count);
            let base = 0x10_0000 * (place as u64 + 1);
            let own: Vec<u64> = (0..u64::from(count)).map(|at| base + 16 * at).collect();
            let links: Vec<u64> = (0..u64::from(peers)).map(|at| base + 0x8_0000 + 16 * at).collect();
            let at = known.threads.iter().position(|handle| *handle == own[0]);
            rig.first_thread = u16::try_from(at.unwrap_or(known.threads.len())).expect("few");
            if at.is_none() {
                let others = (0..rig.case.ranks).filter(|peer| *peer != rig.case.rank);
                known.threads.extend(&own);
                known.channels.extend(links.iter().copied().zip(others));
            }
            threads.extend(own);
            channels.extend(links);
        }
        plane::with(|plane| *plane = known);
        let rig = &mut rigs[0];
        rig.write(THREADS, threads.as_bytes());
        rig.write(CHANNELS, channels.as_bytes());
        rig.param.thread_count = u32::try_from(threads.len()).expect("few");
        rig.param.channel_count = u32::try_from(channels.len()).expect("few");
        for (index, bytes) in contexts.iter().enumerate() {
            rig.write(BLOCKS + BLOCK * index as u64, bytes);
        }
        let mut programmed = Self {
            rigs,
            places,
            header: ProgramHeader::default(),
            entries: Vec::new(),
            args: LaunchArgs::default(),
        };
        programmed.bind(0);
        programmed
    }

    /// Binds other buffers, and writes program and list.
    fn bind(&mut self, set: u64) {
        let mut bindings = Vec::<Buffer>::new();
        self.entries.clear();
        for index in 0..self.rigs.len() {
            let block = BLOCKS + BLOCK * index as u64;
            let rig = &mut self.rigs[index];
            rig.bind(set * 16 + index as u64);
            let tables = [PEERS[0], PEERS[1], VECTOR].map(|at| rig.bytes(at, 0x1000).to_vec());
            let (args, start_base) = (rig.args, 40 + rig.case.start_index());
            let at = |offset: u64, used: DeviceAddr| {
                DeviceAddr(if used.0 == 0 { 0 } else { MEMORY + block + offset })
            };
            let operand = |which: u32, len| ProgramOperand {
                slot: 2 * u32::try_from(index).expect("few") + which,
                reserved: 0,
                offset: 0,
                len,
            };
            self.entries.push(ProgramEntry {
                op: args.op,
                dtype: args.dtype,
                reduce: args.reduce,
                algorithm: args.algorithm,
                staging: args.staging,
                count: args.count,
                vector: at(0x8000, args.vector),
                root: args.root,
                levels: args.levels,
                chunk: args.chunk,
                context: DeviceAddr(MEMORY + BLOCKS + BLOCK * self.places[index] as u64),
                context_len: args.context_len,
                start_base,
                input: operand(0, args.input.len),
                output: operand(1, args.output.len),
                ..ProgramEntry::default()
            });
            bindings.push(Buffer { peers: at(0x4000, args.input.peers), ..args.input });
            bindings.push(Buffer { peers: at(0x6000, args.output.peers), ..args.output });
            for (table, offset) in tables.iter().zip([0x4000, 0x6000, 0x8000]) {
                self.rigs[0].write(block + offset, table);
            }
        }
        let header = ProgramHeader {
            instance: self.rigs[0].args.instance,
            epoch: 3,
            bindings: u32::try_from(bindings.len()).expect("few"),
            ..ProgramHeader::default()
        };
        self.rigs[0].write(BINDINGS, bindings.as_bytes());
        self.write(header);
    }

    /// Seals and writes the program with the entries as they are.
    fn write(&mut self, header: ProgramHeader) {
        self.header = header.sealed(&self.entries).expect("short");
        let bytes = [self.header.as_bytes(), self.entries.as_bytes()].concat();
        self.rigs[0].write(PROGRAM, &bytes);
        self.args = Replay {
            sequence: 1,
            instance: header.instance,
            epoch: header.epoch,
            cache: CacheMode::On,
            program: (DeviceAddr(MEMORY + PROGRAM), self.header.total_len),
            bindings: (DeviceAddr(MEMORY + BINDINGS), 32 * u64::from(header.bindings)),
            start_notify: self.entries[0].start_base + NUMBER,
            done_notify: 5,
            timeout_ms: TIMEOUT_S * 1000 - 1,
        }
        .args();
    }

    fn launch(&mut self, kernel: &Loaded) -> (Status, Vec<String>) {
        let args = self.args;
        self.rigs[0].launch_raw(kernel, &args)
    }

    /// Start of an operation: its main thread, and the notify.
    fn start(&self, index: usize) -> String {
        format!("{} {}", self.rigs[index].first_thread, self.rigs[index].case.start_index() + NUMBER)
    }

    fn prologue(&self) -> Vec<String> {
        vec![
            "acquire \"group\"".into(),
            "batch-start \"\"".into(),
            format!("wait {} {TIMEOUT_S}", self.start(0)),
        ]
    }

    /// The calls that all operations must make.
    fn expected(&self) -> Vec<String> {
        let mut lines = self.prologue();
        for (index, rig) in self.rigs.iter().enumerate() {
            if index > 0 {
                let before = self.rigs[index - 1].first_thread;
                lines.push(format!("record {before} {}", self.start(index)));
                lines.push(format!("wait {} {TIMEOUT_S}", self.start(index)));
            }
            lines.extend(rig.tasks(TIMEOUT_S));
        }
        let last = self.rigs.last().expect("one").first_thread;
        let [done, end, release]: [String; 3] = epilogue().try_into().expect("three");
        lines.extend([done.replacen('0', &last.to_string(), 1), end, release]);
        lines
    }

    /// The calls of a launch that is refused: the host's notifies.
    fn refused(&self) -> Vec<String> {
        [self.prologue(), epilogue()].concat()
    }
}

/// Operations of several algorithms and stagings; the first and the fourth have the same context.
fn cases(ranks: u32, protocol: Protocol) -> Vec<Case> {
    [
        (OpKind::AllReduce, Algorithm::Ring, Staging::Scratch),
        (OpKind::AllGather, Algorithm::Nhr, Staging::Direct),
        (OpKind::AllReduce, Algorithm::MeshTwoShot, Staging::Scratch),
        (OpKind::AllReduce, Algorithm::Ring, Staging::Direct),
        (OpKind::AllToAllV, Algorithm::Pairwise, Staging::Scratch),
        (OpKind::Broadcast, Algorithm::Tree, Staging::Scratch),
    ]
    .map(|(op, algorithm, staging)| {
        let case = Case::new(op, algorithm, ranks).with(|operation| operation.staging = staging);
        Case { protocol, ..case }
    })
    .into_iter()
    .filter(|case| case.plan().is_ok())
    .collect()
}

#[test]
fn the_operations_of_a_program_make_their_calls_in_turn() {
    let Some(kernel) = Loaded::kernel() else { return };
    for protocol in [Protocol::Hccs, Protocol::Roce, Protocol::Ub] {
        for ranks in [1, 2, 5, 8] {
            let mut program = Programmed::new(cases(ranks, protocol));
            assert!(ranks == 1 || program.places != [0, 1, 2, 3, 4, 5], "a context is used twice");
            for (set, outcome) in [(0, CacheOutcome::Miss), (0, CacheOutcome::Hit), (1, CacheOutcome::Hit)] {
                program.bind(set);
                let (status, lines) = program.launch(&kernel);
                assert_eq!(
                    ErrorCode(status.code),
                    ErrorCode::OK,
                    "{ranks} {protocol:?}: {:#x}",
                    status.detail
                );
                assert_eq!(lines, program.expected(), "{ranks} ranks, {protocol:?}, buffers {set}");
                assert_eq!(status.cache, outcome as u8);
                assert_eq!(status.sqes as usize, lines.len() - 4, "tasks of all operations are counted");
            }
        }
    }
}

#[test]
fn every_call_of_a_program_that_fails_has_its_task_and_its_release() {
    let Some(kernel) = Loaded::kernel() else { return };
    let operations = || cases(3, Protocol::Ub).into_iter().take(3).collect();
    let all = Programmed::new(operations()).expected();
    for at in 2..all.len() - 2 {
        let mut program = Programmed::new(operations());
        plane::with(|plane| plane.fail = Some((at, 9)));
        let (status, lines) = program.launch(&kernel);
        assert_eq!(ErrorCode(status.code), ErrorCode::PLANE_TIMEOUT, "{}", all[at]);
        assert_eq!(status.detail >> 32, at as u64 - 2, "tasks are counted through: {}", all[at]);
        assert_eq!(lines[..=at], all[..=at]);
        assert_eq!(lines[at + 1..], all[all.len() - 2..], "ended and released");
        plane::with(|plane| plane.fail = None);
        let (again, lines) = program.launch(&kernel);
        assert_eq!((ErrorCode(again.code), lines.len()), (ErrorCode::CONTEXT_STALE, 0));
    }
}

#[test]
fn what_can_be_refused_of_any_operation_is_refused_before_the_first() {
    let Some(kernel) = Loaded::kernel() else { return };
    let mut program = Programmed::new(cases(4, Protocol::Hccs));
    let header = program.header;
    // Bytes of the program, and handles: nothing can be served.
    program.rigs[0].write(PROGRAM + 70, &[0x55]);
    let none = |(status, lines): (Status, Vec<String>)| (ErrorCode(status.code), lines.len());
    assert_eq!(none(program.launch(&kernel)), (ErrorCode::PROGRAM_CHECKSUM, 0));
    program.write(ProgramHeader { epoch: 2, ..header });
    program.args = LaunchArgs { epoch: 3, ..program.args }.sealed();
    assert_eq!(none(program.launch(&kernel)), (ErrorCode::PROGRAM_STALE, 0));
    program.write(header);
    program.args.input.len -= 32;
    program.args = program.args.sealed();
    assert_eq!(none(program.launch(&kernel)), (ErrorCode::PROGRAM_BINDINGS, 0));
    program.write(header);
    for change in [-1, 1] {
        let count = program.rigs[0].param.thread_count;
        program.rigs[0].param.thread_count = count.wrapping_add_signed(change);
        assert_eq!(none(program.launch(&kernel)), (ErrorCode::PARAM_HANDLES, 0));
        program.rigs[0].param.thread_count = count;
    }
    // An operation in the middle: the host's notifies are served, and nothing else.
    let good = program.entries.clone();
    for (change, code) in [
        (ProgramEntry { chunk: 0, context: DeviceAddr(MEMORY), ..good[2] }, ErrorCode::CONTEXT_MAGIC),
        (ProgramEntry { dtype: DataType::Int128 as u8, ..good[2] }, ErrorCode::LAUNCH_REDUCE),
        (ProgramEntry { count: 1 << 30, ..good[2] }, ErrorCode::LAUNCH_BUFFER),
    ] {
        program.entries[2] = change;
        program.write(header);
        let (status, lines) = program.launch(&kernel);
        assert_eq!(ErrorCode(status.code), code, "{change:?}");
        assert_eq!(lines, program.refused());
    }
    program.entries = good;
    program.write(header);
    assert_eq!(program.launch(&kernel).0.code, 0, "the communicator is sound");
}
