//! Launches that are refused: what the host sees, and that its notifies are always answered where there is a thread.

use hal::SharedMemory;
use wire::launch::{Algorithm, Buffer, OpKind, Staging};
use wire::npu::{HEADS, LAUNCH_HEAD, LAUNCH_SLOTS, LAUNCH_TAIL};
use wire::{DataType, DeviceAddr, ErrorCode, LaunchArgs, Sqe, SqeFlags};

use crate::fake::WINDOW;
use crate::rig::{INPUT, OUTPUT, Rig, Setup};

fn buffer(addr: u64, len: u64) -> Buffer {
    Buffer { addr: DeviceAddr(addr), len, token: 1, ..Buffer::default() }
}

/// A two-shot all-reduce over the users' buffers.
fn direct(setup: &Setup, count: u64) -> LaunchArgs {
    let [input, output] = setup.peer_tables();
    let args = setup.launch(count);
    LaunchArgs {
        algorithm: Algorithm::MeshTwoShot as u8,
        staging: Staging::Direct as u8,
        input: Buffer { peers: input, ..args.input },
        output: Buffer { peers: output, ..args.output },
        ..args
    }
}

/// Checks that the launch is refused with `code` and `detail`, and that the host's notifies are answered.
fn refused_with_record(rig: &mut Rig, setup: &Setup, args: LaunchArgs, code: ErrorCode, detail: u64) {
    let status = rig.run(args);
    assert_eq!((ErrorCode(status.code), status.detail), (code, detail));
    let sqes = rig.consume(setup, 0);
    let seen: Vec<_> = sqes.iter().map(|sqe| (sqe.opcode, sqe.notify, sqe.flags)).collect();
    let done = (Sqe::RECORD_HOST, args.done_notify, SqeFlags::COMPLETE.bits());
    assert_eq!(seen, [(Sqe::WAIT, args.start_notify, 0), done], "{code}");
    assert_eq!((status.sqes, status.doorbells), (2, 1));
}

/// Checks that the launch is refused with `code` and that nothing reaches any ring.
fn refused_by_status(rig: &mut Rig, args: LaunchArgs, code: ErrorCode) {
    let rung = rig.fake().doorbells.len();
    assert_eq!(rig.code(args), code);
    assert_eq!(rig.fake().doorbells.len(), rung, "{code}");
}

#[test]
fn launches_without_a_context_are_answered_by_status_alone() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::new(&[setup], 8);
    let good = setup.launch(2);
    let outside = DeviceAddr(WINDOW + (1 << 40));
    for (args, code) in [
        (LaunchArgs { dtype: 99, ..good }, ErrorCode::LAUNCH_DTYPE),
        (LaunchArgs { op: 0, ..good }, ErrorCode::LAUNCH_OP),
        (LaunchArgs { blocks: 2, ..good }, ErrorCode::LAUNCH_BLOCKS),
        (LaunchArgs { context: outside, ..good }, ErrorCode::CONTEXT_ADDRESS),
        (LaunchArgs { context: DeviceAddr(WINDOW), ..good }, ErrorCode::CONTEXT_MAGIC),
        (LaunchArgs { context_len: good.context_len - 1, ..good }, ErrorCode::CONTEXT_LENGTH),
        (LaunchArgs { context_len: u32::MAX, ..good }, ErrorCode::CONTEXT_CAPACITY),
        (LaunchArgs { instance: [11, 23], ..good }, ErrorCode::CONTEXT_STALE),
        (LaunchArgs { epoch: 4, ..good }, ErrorCode::CONTEXT_STALE),
        // On a notify that is not the main thread's the kernel must not wait.
        (LaunchArgs { start_notify: setup.start_notify() + 1, ..good }, ErrorCode::LAUNCH_NOTIFY),
    ] {
        refused_by_status(&mut rig, args, code);
    }
    rig.post_raw(&good);
    rig.kernel.poll();
    assert_eq!(ErrorCode(rig.status().code), ErrorCode::LAUNCH_MAGIC, "not sealed");
    assert_eq!(rig.run(good).code, 0, "the kernel goes on");
}

#[test]
fn a_bad_byte_in_the_context_is_reported_with_its_offset() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::new(&[setup], 8);
    rig.fake().write(DeviceAddr(WINDOW + setup.at() + 300), &[0xff]).expect("inside the window");
    let status = rig.run(setup.launch(2));
    assert_eq!((ErrorCode(status.code), status.detail), (ErrorCode::CONTEXT_CHECKSUM, 20));
}

#[test]
fn refused_plans_still_answer_the_hosts_notifies() {
    let setup = Setup { scratch: 128, ..Setup::new(1, 3) };
    let mut rig = Rig::new(&[setup], 8);
    let good = setup.launch(6);
    let gather = LaunchArgs { op: OpKind::AllGather as u8, ..good };
    let scatter = LaunchArgs { op: OpKind::ReduceScatter as u8, ..good };
    for (args, code, detail) in [
        (LaunchArgs { count: 7, ..good }, ErrorCode::LAUNCH_BUFFER, 28),
        (gather, ErrorCode::LAUNCH_BUFFER, 72),
        (LaunchArgs { count: u64::MAX / 4, ..good }, ErrorCode::LAUNCH_COUNT, u64::MAX / 4),
        (LaunchArgs { input: buffer(0, 24), ..good }, ErrorCode::LAUNCH_BUFFER, 24),
        (LaunchArgs { output: buffer(INPUT + 20, 24), ..good }, ErrorCode::LAUNCH_OVERLAP, 0),
        (
            LaunchArgs { output: buffer(INPUT, 72), ..gather },
            ErrorCode::LAUNCH_OVERLAP, // rank 1 is in place 24 bytes further on
            0,
        ),
        (
            LaunchArgs { algorithm: Algorithm::HalvingDoubling as u8, output: buffer(OUTPUT, 72), ..gather },
            ErrorCode::PLAN_OP,
            0,
        ),
        (
            LaunchArgs { output: buffer(OUTPUT, 72), ..gather },
            ErrorCode::PLAN_SCRATCH, // three areas of 128 bytes
            384,
        ),
        (
            LaunchArgs { staging: Staging::Direct as u8, ..good },
            ErrorCode::BINDING_MISSING, // no table of the peers' buffers
            0,
        ),
        (
            LaunchArgs {
                staging: Staging::Direct as u8,
                input: Buffer { peers: setup.peer_tables()[0], ..buffer(INPUT, 72) },
                output: Buffer { peers: setup.peer_tables()[1], ..good.output },
                ..scatter
            },
            ErrorCode::PLAN_STAGING,
            0,
        ),
    ] {
        refused_with_record(&mut rig, &setup, args, code, detail);
    }
    let fits = LaunchArgs { output: buffer(INPUT, 24), ..good };
    assert_eq!(rig.run(fits).code, 0, "in place is no overlap");
}

#[test]
fn a_peer_with_a_shorter_buffer_is_found_before_the_first_chunk() {
    let setup = Setup { threads: 3, ..Setup::new(0, 3) };
    let mut rig = Rig::new(&[setup], 8);
    let args = LaunchArgs { chunk: 8, ..direct(&setup, 32) };
    rig.write_peers(&setup, |rank| if rank == 2 { 127 } else { 128 });
    refused_with_record(&mut rig, &setup, args, ErrorCode::BINDING_EXTENT, 2);
    rig.write_peers(&setup, |rank| if rank == 1 { u64::MAX } else { 128 });
    refused_with_record(&mut rig, &setup, args, ErrorCode::BINDING_EXTENT, 1);
    let outside = Buffer { peers: DeviceAddr(8), ..args.input };
    let lost = LaunchArgs { input: outside, ..args };
    refused_with_record(&mut rig, &setup, lost, ErrorCode::CONTEXT_ADDRESS, 0);
    rig.write_peers(&setup, |_| 128);
    assert_eq!(rig.run(args).code, 0);
}

#[test]
fn the_start_notify_is_none_that_sub_threads_report_by() {
    let setup = Setup { threads: 3, ..Setup::new(0, 3) };
    let mut rig = Rig::new(&[setup], 8);
    let mesh = LaunchArgs { algorithm: Algorithm::MeshOneShot as u8, ..setup.launch(8) };
    let shared = LaunchArgs { start_notify: 3, ..mesh };
    refused_with_record(&mut rig, &setup, shared, ErrorCode::LAUNCH_NOTIFY, 3);
    assert_eq!(
        rig.run(LaunchArgs { start_notify: 3, ..setup.launch(8) }).code,
        0,
        "a ring has no sub threads"
    );
    assert_eq!(rig.run(LaunchArgs { start_notify: 4, ..mesh }).code, 0);
}

#[test]
fn a_chunk_with_too_many_descriptors_is_refused_as_a_whole() {
    let setup = Setup::new(0, 16);
    let mut rig = Rig::new(&[setup], 1);
    refused_with_record(&mut rig, &setup, setup.launch(16), ErrorCode::GRAPH_FULL, 0);
}

#[test]
fn a_plan_for_almost_all_of_the_address_space_does_not_overflow() {
    let setup = Setup::new(0, 1);
    let mut rig = Rig::new(&[setup], 8);
    let all = buffer(1, u64::MAX - 1);
    let args = LaunchArgs {
        dtype: DataType::Int8 as u8,
        count: u64::MAX - 1,
        input: all,
        output: all,
        ..setup.launch(0)
    };
    refused_with_record(&mut rig, &setup, args, ErrorCode::LAUNCH_COUNT, u64::MAX - 1);
}

#[test]
fn a_head_that_cannot_be_poisons_the_context() {
    let setup = Setup { depth: 4, ..Setup::new(0, 2) };
    let mut rig = Rig::new(&[setup], 8);
    rig.post(setup.launch(2));
    rig.kernel.poll();
    assert_eq!(rig.answered(), 0, "the ring is too small for all");
    rig.fake().set_word(HEADS, 5);
    rig.kernel.poll();
    assert_eq!((rig.answered(), ErrorCode(rig.status().code)), (1, ErrorCode::QUEUE_HEAD));
    assert_eq!(rig.fake().doorbells, [(0, 4)]);
    refused_by_status(&mut rig, setup.launch(2), ErrorCode::CONTEXT_STALE);
}

#[test]
fn a_ring_that_stays_full_ends_20_s_after_the_deadline() {
    let setup = Setup { depth: 4, ..Setup::new(0, 2) };
    let mut rig = Rig::new(&[setup], 8);
    rig.post(setup.launch(2));
    for _ in 0..10 {
        rig.kernel.poll();
    }
    rig.fake().now_ns.set(25_000_000_000);
    assert!(!rig.kernel.poll(), "until then it waits");
    assert_eq!(rig.answered(), 0);
    rig.fake().now_ns.set(25_000_000_001);
    assert!(rig.kernel.poll());
    let status = rig.status();
    assert_eq!((ErrorCode(status.code), status.sqes, status.doorbells), (ErrorCode::QUEUE_FULL, 4, 1));
    refused_by_status(&mut rig, setup.launch(2), ErrorCode::CONTEXT_STALE);
}

#[test]
fn a_mailbox_tail_that_cannot_be_is_not_believed() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::new(&[setup], 8);
    for tail in [LAUNCH_SLOTS + 1, u64::MAX] {
        rig.fake().set_word(LAUNCH_TAIL, tail);
        assert!(!rig.kernel.poll());
        assert_eq!(rig.fake().word(LAUNCH_HEAD), 0);
    }
    assert_eq!(rig.run(setup.launch(2)).code, 0);
}
