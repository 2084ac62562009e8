//! Launches that go right: every descriptor of a small one by hand, and what the status says.

use wire::launch::{Algorithm, CacheOutcome, Launch, OpKind};
use wire::npu::{Protocol, Status, TAILS};
use wire::{
    DataType, ErrorCode, LaunchArgs, Phase, Recorded, ReduceOp, Signature, Sqe, SqeFlags, TraceEvent,
    TraceKind,
};

use crate::rig::{EPOCH, INPUT, OUTPUT, Rig, SCRATCH, Setup, TIMEOUT_MS};

/// What all descriptors of a launch have in common.
fn blank(index: u64, phase: Phase, step: u16) -> Sqe {
    Sqe {
        phase: phase as u8,
        step,
        task: 9 << 32 | index,
        timeout_ms: TIMEOUT_MS,
        peer: Sqe::NO_PEER,
        ..Sqe::default()
    }
}

fn with_peer(opcode: u8, notify: u32, index: u64, step: u16) -> Sqe {
    let channel = if opcode == Sqe::WAIT { 0 } else { 20 };
    Sqe { opcode, notify, channel, peer: 1, ..blank(index, Phase::Run, step) }
}

#[test]
fn every_descriptor_of_a_ring_all_reduce_of_two_ranks() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::new(&[setup], 8);
    let status = rig.run(setup.launch(2));
    let copy = |index, phase, step, src: (u64, u32), dst: (u64, u32)| Sqe {
        opcode: Sqe::COPY,
        src: src.0,
        src_token: src.1,
        dst: dst.0,
        dst_token: dst.1,
        len: 8,
        ..blank(index, phase, step)
    };
    let write = |index, step, offset| Sqe {
        flags: SqeFlags::NOTIFY.bits(),
        src: SCRATCH + offset,
        src_token: 100,
        dst: SCRATCH + (1 << 32) + offset,
        dst_token: 101,
        len: 4,
        ..with_peer(Sqe::WRITE, 7004, index, step)
    };
    let expected = [
        Sqe { opcode: Sqe::WAIT, notify: 0, ..blank(0, Phase::Start, 0) },
        copy(1, Phase::PreCopy, 0, (INPUT, 41), (SCRATCH, 100)),
        // Step 0: the slice of the other rank is reduced there.
        with_peer(Sqe::RECORD_PEER, 7003, 2, 0),
        with_peer(Sqe::WAIT, 300, 3, 0),
        Sqe {
            flags: (SqeFlags::NOTIFY | SqeFlags::REDUCE).bits(),
            dtype: DataType::Int32 as u8,
            reduce: ReduceOp::Sum as u8,
            ..write(4, 0, 4)
        },
        with_peer(Sqe::WAIT, 301, 5, 0),
        // Step 1: the own slice, complete, is copied there.
        with_peer(Sqe::RECORD_PEER, 7003, 6, 1),
        with_peer(Sqe::WAIT, 300, 7, 1),
        write(8, 1, 0),
        with_peer(Sqe::WAIT, 301, 9, 1),
        copy(10, Phase::PostCopy, 2, (SCRATCH, 100), (OUTPUT, 42)),
        Sqe {
            opcode: Sqe::RECORD_HOST,
            flags: SqeFlags::COMPLETE.bits(),
            notify: 5,
            ..blank(11, Phase::Finish, 0)
        },
    ];
    assert_eq!(rig.consume(&setup, 0), expected);
    assert_eq!((status.sequence, status.code, status.chunks, status.steps), (9, 0, 1, 2));
    assert_eq!((status.sqes, status.wqes, status.doorbells, status.kinds), (12, 0, 1, [2, 0, 2, 8]));
    assert_eq!(rig.fake().doorbells, [(0, 12)]);
    assert_eq!(rig.fake().word(TAILS), 12);
}

#[test]
fn a_context_is_decoded_once() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::new(&[setup], 8);
    for sequence in 1..=40 {
        assert_eq!(rig.run(wire::LaunchArgs { sequence, ..setup.launch(2) }).code, 0);
        rig.consume(&setup, 0);
    }
    let fake = rig.fake();
    let at = setup.launch(2).context.0;
    assert_eq!(fake.reads.borrow().iter().filter(|&&from| from == at).count(), 1);
    let of_kind = |kind: TraceKind| fake.events.iter().filter(move |event| event.kind == kind as u8);
    assert_eq!(of_kind(TraceKind::ContextDecoded).count(), 1);
    let submitted: Vec<_> = of_kind(TraceKind::Submitted).map(|event| event.sequence).collect();
    assert_eq!(submitted, (1..=40).collect::<Vec<_>>());
}

/// What the flight recorder says of a launch that records a graph, of one that replays it, and of one that is refused.
#[test]
fn every_launch_is_recorded_with_what_it_asked_for_and_what_became_of_it() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::with_pages(&[setup], 16, crate::cache_bytes::PAGES);
    let args = |sequence| LaunchArgs { sequence, ..setup.launch(100) };
    let digest = Launch::parse(&args(0).sealed()).unwrap().digest();
    let mut statuses = Vec::new();
    for sequence in 1..=2 {
        statuses.push(rig.run(args(sequence)));
        rig.consume(&setup, 0);
    }
    let refused = rig.run(LaunchArgs { sequence: 3, timeout_ms: 0, ..setup.launch(100) });
    let expected = |index: usize| {
        let sequence = statuses[index].sequence;
        let signature = Signature { epoch: EPOCH, sequence, digest };
        let Status { sqes, wqes, .. } = statuses[index];
        let cache = Some([CacheOutcome::Miss, CacheOutcome::Hit][index]);
        let taken = Recorded::LaunchTaken { signature, comm: 11 };
        let (expand_ns, submit_ns) = (statuses[index].expand_ns, statuses[index].submit_ns);
        let [expand_ns, submit_ns] = [expand_ns, submit_ns].map(|ns| u32::try_from(ns).unwrap());
        [taken, Recorded::Submitted { cache, sqes, wqes, doorbells: 1, expand_ns, submit_ns }]
    };
    let code = ErrorCode::LAUNCH_TIMEOUT;
    assert_eq!(refused.code, code.0);
    let signature = Signature { epoch: EPOCH, sequence: 3, digest: 0 };
    let last = [Recorded::LaunchTaken { signature, comm: 11 }, Recorded::Refused { code, detail: 0 }];
    let is_read = |event: &Recorded| !matches!(event, Recorded::ContextDecoded { .. });
    let seen: Vec<_> = rig.fake().events.iter().filter_map(TraceEvent::recorded).filter(is_read).collect();
    assert_eq!(seen, [expected(0), expected(1), last].concat());
}

/// A ring that has no room for all of a launch is recorded once, however often it is looked at.
#[test]
fn a_full_ring_is_recorded_once() {
    let setup = Setup { depth: 4, ..Setup::new(0, 2) };
    let mut rig = Rig::new(&[setup], 8);
    rig.post(setup.launch(100));
    for _ in 0..10 {
        rig.kernel.poll();
    }
    let held = |rig: &mut Rig| -> Vec<_> {
        let recorded = rig.fake().events.iter().filter_map(TraceEvent::recorded);
        recorded.filter(|event| matches!(event, Recorded::Doorbell { .. })).collect()
    };
    assert_eq!(held(&mut rig), [Recorded::Doorbell { descriptors: 4, doorbells: 1 }]);
}

#[test]
fn nothing_to_move_is_a_wait_and_a_record() {
    let setup = Setup::new(1, 3);
    let mut rig = Rig::new(&[setup], 8);
    let status = rig.run(setup.launch(0));
    assert_eq!((status.code, status.sqes, status.kinds), (0, 2, [0, 0, 0, 2]));
    let opcodes: Vec<_> = rig.consume(&setup, 0).iter().map(|sqe| sqe.opcode).collect();
    assert_eq!(opcodes, [Sqe::WAIT, Sqe::RECORD_HOST]);
}

#[test]
fn one_rank_copies_and_needs_no_peer() {
    let setup = Setup::new(0, 1);
    let mut rig = Rig::new(&[setup], 8);
    assert_eq!(rig.run(setup.launch(100)).kinds, [1, 0, 0, 2]);
    let copy = rig.consume(&setup, 0)[1];
    assert_eq!((copy.src, copy.dst, copy.len), (INPUT, OUTPUT, 400));
}

#[test]
fn chunks_follow_each_other_in_one_operation() {
    let setup = Setup::new(1, 2);
    let mut rig = Rig::new(&[setup], 8);
    let status = rig.run(wire::LaunchArgs { chunk: 4, ..setup.launch(10) });
    assert_eq!((status.code, status.chunks, status.steps), (0, 3, 2));
    // Ten per chunk, and the wait and record around all.
    assert_eq!((status.sqes, status.doorbells, status.kinds), (32, 3, [6, 0, 6, 20]));
    let sqes = rig.consume(&setup, 0);
    let tasks: Vec<_> = sqes.iter().map(|sqe| sqe.task & 0xffff_ffff).collect();
    assert_eq!(tasks, (0..32).collect::<Vec<_>>());
    let copies: Vec<_> = sqes.iter().filter(|sqe| sqe.opcode == Sqe::COPY).map(|sqe| sqe.src).collect();
    assert_eq!(
        copies,
        [INPUT, SCRATCH + (1 << 32), INPUT + 16, SCRATCH + (1 << 32), INPUT + 32, SCRATCH + (1 << 32)]
    );
    assert_eq!(sqes.iter().filter(|sqe| sqe.opcode == Sqe::RECORD_HOST).count(), 1);
}

#[test]
fn reductions_that_no_engine_does_are_left_to_a_core() {
    let setup = Setup { protocol: Protocol::Hccs, ..Setup::new(0, 2) };
    let mut rig = Rig::new(&[setup], 8);
    let args = wire::LaunchArgs { reduce: ReduceOp::Prod as u8, ..setup.launch(2) };
    assert_eq!(rig.run(args).kinds, [2, 1, 2, 8]);
    let sqes = rig.consume(&setup, 0);
    let reduction = sqes.iter().find(|sqe| sqe.flags & SqeFlags::REDUCE.bits() != 0).expect("reduces");
    assert_eq!(reduction.flags, (SqeFlags::REDUCE | SqeFlags::AICPU).bits());
    // Work area and landing area: half of the scratch buffer each.
    let landing = SCRATCH + setup.scratch / 2;
    assert_eq!((reduction.dst, reduction.src, reduction.len), (SCRATCH, landing, 4));
}

#[test]
fn a_doorbell_announces_at_most_128() {
    let setup = Setup { depth: 4096, ..Setup::new(0, 126) };
    let mut rig = Rig::new(&[setup], 64);
    let args =
        wire::LaunchArgs { op: OpKind::AllGather as u8, algorithm: Algorithm::Ring as u8, ..setup.launch(1) };
    let args = wire::LaunchArgs { output: wire::launch::Buffer { len: 4 * 126, ..args.output }, ..args };
    let status = rig.run(args);
    // Four per step, a copy in, 126 copies out, wait and record.
    assert_eq!((status.code, status.sqes), (0, 4 * 125 + 1 + 126 + 2));
    assert_eq!(status.doorbells, status.sqes.div_ceil(128));
    let tails: Vec<_> = rig.fake().doorbells.iter().map(|(_, tail)| *tail).collect();
    assert_eq!(tails, [128, 256, 384, 512, 629]);
}

#[test]
fn a_poll_expands_one_chunk() {
    let setup = Setup::new(1, 2);
    let mut rig = Rig::new(&[setup], 8);
    rig.post(wire::LaunchArgs { chunk: 4, ..setup.launch(10) });
    for (chunks, tail) in [(1, 11), (2, 21), (3, 32)] {
        assert!(rig.kernel.poll());
        assert_eq!(rig.fake().doorbells.last(), Some(&(0, tail)));
        assert_eq!(rig.all_answered(), chunks == 3);
    }
}
