//! Descriptors: what is emitted parses back, what parses was emitted, and every refusal has its code.

use aicpu_wire::{
    Command, Control, DataType, Descriptor, DeviceAddr, Engine, ErrorCode, Labels, Operand, Phase, ReduceOp,
    Reduction, Sqe, SqeFlags, Transfer, TransferKind, WorkRequest, Wqe,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::samples::{self, Fault};

fn labels() -> impl Strategy<Value = Labels> {
    let parts = (any::<u64>(), select(Phase::ALL), any::<u16>(), any::<u16>(), any::<u32>(), any::<bool>());
    parts.prop_map(|(task, phase, step, peer, timeout_ms, complete)| Labels {
        task,
        phase,
        step,
        peer,
        timeout_ms,
        complete,
    })
}

fn operand() -> impl Strategy<Value = Operand> {
    any::<(u64, u32)>().prop_map(|(addr, token)| Operand { addr: DeviceAddr(addr), token })
}

fn reduction() -> impl Strategy<Value = Reduction> {
    let types: Vec<_> = DataType::ALL.iter().copied().filter(|dtype| dtype.can_reduce()).collect();
    (select(types), select(ReduceOp::ALL)).prop_map(|(dtype, op)| Reduction { dtype, op })
}

/// Every transfer that means something: a processor core only reduces locally, only writes notify the peer.
fn transfer() -> impl Strategy<Value = Transfer> {
    let kind = prop_oneof![
        Just(TransferKind::Local),
        any::<u16>().prop_map(|channel| TransferKind::Write { channel }),
        any::<u16>().prop_map(|channel| TransferKind::Read { channel }),
    ];
    let parts = (kind, any::<bool>(), proptest::option::of(reduction()), operand(), operand());
    (parts, any::<u64>(), any::<Option<u32>>()).prop_map(|(parts, len, notify)| {
        let (kind, core, reduction, src, dst) = parts;
        let core = core && kind == TransferKind::Local && reduction.is_some();
        let engine = if core { Engine::Aicpu } else { Engine::Sdma };
        let notify = notify.filter(|_| matches!(kind, TransferKind::Write { .. }));
        Transfer { kind, engine, reduction, src, dst, len, notify }
    })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => transfer().prop_map(Command::Transfer),
        1 => any::<u32>().prop_map(|notify| Command::Record { notify }),
        1 => any::<u32>().prop_map(|notify| Command::Wait { notify }),
        1 => any::<(u16, u32)>().prop_map(|(channel, notify)| Command::RecordPeer { channel, notify }),
        1 => any::<u32>().prop_map(|notify| Command::RecordHost { notify }),
        1 => any::<(u16, u32)>().prop_map(|(channel, wqe_tail)| Command::Post { channel, wqe_tail }),
    ]
}

fn work_request() -> impl Strategy<Value = WorkRequest> {
    let ends = (operand(), operand(), any::<u64>(), proptest::option::of(reduction()));
    let write = (ends, any::<Option<u32>>()).prop_map(|((local, remote, len, reduction), notify)| {
        WorkRequest::Write { local, remote, len, reduction, notify }
    });
    let ends = (operand(), operand(), any::<u64>(), proptest::option::of(reduction()));
    let read =
        ends.prop_map(|(local, remote, len, reduction)| WorkRequest::Read { local, remote, len, reduction });
    prop_oneof![write, read, any::<u32>().prop_map(|notify| WorkRequest::Record { notify })]
}

/// Words of which the first looks like the start of a descriptor often enough to get past the first checks.
fn plausible_lanes() -> impl Strategy<Value = [u64; 8]> {
    let opcode = prop_oneof![0_u8..10, 0x20_u8..0x25, any::<u8>()];
    let head = (opcode, 0_u8..20, 0_u8..20, 0_u8..5, 0_u8..8);
    let lane = prop_oneof![3 => Just(0_u64), 1 => any::<u64>()];
    (head, any::<u16>(), proptest::array::uniform8(lane)).prop_map(|(head, step, mut lanes)| {
        let (opcode, flags, dtype, reduce, phase) = head;
        let [low, high] = step.to_le_bytes();
        lanes[0] = u64::from_le_bytes([opcode, flags, dtype, reduce, phase, 0, low, high]);
        lanes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn commands_survive_emit_and_parse(command in command(), labels in labels()) {
        prop_assert_eq!(Command::parse(&command.emit(labels)), Ok((command, labels)));
    }

    #[test]
    fn work_requests_survive_emit_and_parse(request in work_request(), labels in labels()) {
        let kept = Labels { timeout_ms: 0, complete: false, ..labels };
        prop_assert_eq!(WorkRequest::parse(&request.emit(labels)), Ok((request, kept)));
    }

    #[test]
    fn what_parses_is_what_would_be_emitted(lanes in prop_oneof![any::<[u64; 8]>(), plausible_lanes()]) {
        let descriptor = Descriptor { lanes };
        if let Ok((command, labels)) = Command::parse(&descriptor.into()) {
            prop_assert_eq!(Descriptor::from(command.emit(labels)), descriptor);
        }
        if let Ok((request, labels)) = WorkRequest::parse(&descriptor.into()) {
            prop_assert_eq!(Descriptor::from(request.emit(labels)), descriptor);
        }
    }

    #[test]
    fn entries_keep_every_bit_on_their_way_into_a_ring(lanes in any::<[u64; 8]>()) {
        let descriptor = Descriptor { lanes };
        prop_assert_eq!(Descriptor::from(Sqe::from(descriptor)), descriptor);
        prop_assert_eq!(Descriptor::from(Wqe::from(descriptor)), descriptor);
    }

    #[test]
    fn rebasing_adds_to_each_lane_alone(lanes in any::<[u64; 8]>(), base in any::<[u64; 8]>()) {
        let rebased = Descriptor { lanes }.rebased(&aicpu_wire::Base(base));
        for lane in 0..8 {
            prop_assert_eq!(rebased.lanes[lane].wrapping_sub(base[lane]), lanes[lane]);
        }
    }
}

fn sqe_error(change: impl FnOnce(&mut Sqe)) -> Option<ErrorCode> {
    let (_, command) = samples::commands()[0];
    let mut sqe = command.emit(samples::labels());
    change(&mut sqe);
    Command::parse(&sqe).err()
}

fn wqe_error(change: impl FnOnce(&mut Wqe)) -> Option<ErrorCode> {
    let (_, request) = samples::work_requests()[1];
    let mut wqe = request.emit(samples::labels());
    change(&mut wqe);
    WorkRequest::parse(&wqe).err()
}

#[test]
fn a_submission_entry_is_refused_with_its_code() {
    let (opcode, field, reduce) = (ErrorCode::SQE_OPCODE, ErrorCode::SQE_FIELD, ErrorCode::SQE_REDUCE);
    let complete = SqeFlags::COMPLETE.bits();
    let cases: [Fault<Sqe>; 14] = [
        ("opcode 0", |sqe| sqe.opcode = 0, opcode),
        ("opcode after the last", |sqe| sqe.opcode = Sqe::POST + 1, opcode),
        ("work request opcode", |sqe| sqe.opcode = Wqe::WRITE, opcode),
        ("unknown flag", |sqe| sqe.flags = 1 << 4, field),
        ("unknown phase", |sqe| sqe.phase = 7, field),
        ("reserved byte", |sqe| sqe.reserved = 1, field),
        ("channel of a local copy", |sqe| sqe.channel = 1, field),
        ("notify without its flag", |sqe| sqe.notify = 1, field),
        ("work-queue tail of a copy", |sqe| sqe.wqe_tail = 1, field),
        ("data type without reduction", |sqe| sqe.dtype = 4, field),
        ("copy that notifies", |sqe| sqe.flags |= SqeFlags::NOTIFY.bits(), field),
        ("core that only copies", |sqe| sqe.flags |= SqeFlags::AICPU.bits(), field),
        ("data type 13", |sqe| (sqe.flags, sqe.dtype) = (sqe.flags | 1, 13), field),
        ("reduction of int128", |sqe| (sqe.flags, sqe.dtype) = (sqe.flags | 1, 12), reduce),
    ];
    assert_eq!(sqe_error(|sqe| sqe.flags = complete), None, "the entry is good before it is changed");
    for (name, change, code) in cases {
        assert_eq!(sqe_error(change), Some(code), "{name}");
    }
    let remote_core = |sqe: &mut Sqe| (sqe.opcode, sqe.flags) = (Sqe::WRITE, 0b101);
    assert_eq!(sqe_error(remote_core), Some(field), "core that writes to a peer");
}

#[test]
fn a_transfer_is_no_control_and_a_control_no_transfer() {
    let opcode = ErrorCode::SQE_OPCODE;
    for (name, command) in samples::commands() {
        let sqe = command.emit(samples::labels());
        let halves = (Transfer::parse(&sqe), Control::parse(&sqe));
        let is_transfer = matches!(command, Command::Transfer(_));
        assert_eq!(sqe.is_transfer(), is_transfer, "{name}");
        assert_eq!(
            (halves.0.err(), halves.1.err()),
            if is_transfer { (None, Some(opcode)) } else { (Some(opcode), None) }
        );
    }
}

#[test]
fn a_control_is_refused_for_every_field_that_it_does_not_use() {
    let controls = [
        Command::Record { notify: 9 },
        Command::Wait { notify: 9 },
        Command::RecordHost { notify: 9 },
        Command::RecordPeer { channel: 3, notify: 9 },
        Command::Post { channel: 3, wqe_tail: 5 },
    ];
    let field = ErrorCode::SQE_FIELD;
    let unused: [Fault<Sqe>; 9] = [
        ("source", |sqe| sqe.src = 1 << 63, field),
        ("destination", |sqe| sqe.dst = 1, field),
        ("length", |sqe| sqe.len = 1 << 40, field),
        ("source token", |sqe| sqe.src_token = 1 << 31, field),
        ("destination token", |sqe| sqe.dst_token = 1, field),
        ("data type", |sqe| sqe.dtype = 4, field),
        ("reduction", |sqe| sqe.reduce = 1, field),
        ("reserved byte", |sqe| sqe.reserved = 128, field),
        ("flag of a transfer", |sqe| sqe.flags |= SqeFlags::REDUCE.bits(), field),
    ];
    for command in controls {
        let sqe = command.emit(samples::labels());
        assert!(Control::parse(&sqe).is_ok(), "{command:?}");
        for (name, change, code) in unused {
            let mut changed = sqe;
            change(&mut changed);
            assert_eq!(Control::parse(&changed), Err(code), "{command:?} with a {name}");
        }
        let has = |channel: bool, notify: bool, tail: bool| {
            let mut changed = sqe;
            (changed.channel, changed.notify) = (u16::from(channel) << 15, u32::from(notify) << 31);
            changed.wqe_tail = u32::from(tail) << 31;
            Control::parse(&changed).is_ok()
        };
        let (channel, notify, tail) = match command {
            Command::RecordPeer { .. } => (true, true, false),
            Command::Post { .. } => (true, false, true),
            _ => (false, true, false),
        };
        assert_eq!(
            (has(true, false, false), has(false, true, false), has(false, false, true)),
            (channel, notify, tail)
        );
    }
}

#[test]
fn a_work_request_is_refused_with_its_code() {
    let (opcode, field, reduce) = (ErrorCode::SQE_OPCODE, ErrorCode::SQE_FIELD, ErrorCode::SQE_REDUCE);
    let cases: [Fault<Wqe>; 11] = [
        ("opcode 0", |wqe| wqe.opcode = 0, opcode),
        ("submission opcode", |wqe| wqe.opcode = Sqe::WRITE, opcode),
        ("completion flag", |wqe| wqe.flags = SqeFlags::COMPLETE.bits(), field),
        ("core flag", |wqe| wqe.flags = SqeFlags::AICPU.bits(), field),
        ("unknown phase", |wqe| wqe.phase = 7, field),
        ("reserved byte", |wqe| wqe.reserved = 1, field),
        ("reserved half word", |wqe| wqe.reserved1 = 1, field),
        ("reserved lane", |wqe| wqe.reserved2 = 1 << 63, field),
        ("read that notifies", |wqe| wqe.flags = SqeFlags::NOTIFY.bits(), field),
        ("reduction 4", |wqe| (wqe.flags, wqe.reduce) = (1, 4), field),
        ("reduction of fp8", |wqe| (wqe.flags, wqe.dtype) = (1, 15), reduce),
    ];
    assert_eq!(wqe_error(|_| ()), None, "the entry is good before it is changed");
    for (name, change, code) in cases {
        assert_eq!(wqe_error(change), Some(code), "{name}");
    }
}

#[test]
fn data_types_have_their_public_numbers_and_sizes() {
    let known: Vec<_> = DataType::ALL.iter().map(|&dtype| (dtype as u8, dtype.size_bytes())).collect();
    let sizes = [1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2, 16, 1, 1, 1, 1];
    let numbers = (0..=12).chain(14..=17);
    assert_eq!(known, numbers.zip(sizes).collect::<Vec<_>>());
    for number in 0..=u8::MAX {
        let parsed = DataType::try_from(number).map(|dtype| dtype as u8);
        let expected = if number <= 17 && number != 13 { Ok(number) } else { Err(ErrorCode::LAUNCH_DTYPE) };
        assert_eq!(parsed, expected);
    }
}
