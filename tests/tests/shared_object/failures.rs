//! What goes wrong, each with its code; nothing crashes, and the communicator is always released.

// UNSAFETY: loads shared objects that lack what they need.
#![expect(unsafe_code, reason = "the boundary that is tested")]

use std::sync::mpsc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use wire::launch::{Algorithm, CacheOutcome, OpKind};
use wire::script::{Action, Instruction, Memory, Place, ScriptHeader};
use wire::{DeviceAddr, ErrorCode, LaunchArgs};
use zerocopy::IntoBytes;

use crate::plane;
use crate::rig::{Case, Loaded, MEMORY, NO_ANSWER, Rig, TIMEOUT_S, VECTOR, epilogue, file};

fn case() -> Case {
    Case::new(OpKind::AllReduce, Algorithm::MeshTwoShot, 4)
}

/// Checks that every acquire has its release behind it and every batch its end, inside.
fn check_pairs(lines: &[String]) {
    let count = |what: &str| lines.iter().filter(|line| line.starts_with(what)).count();
    assert_eq!(count("acquire"), count("release"), "{lines:#?}");
    if count("acquire") > 0 {
        assert!(lines[0].starts_with("acquire"), "{lines:#?}");
        assert!(lines[lines.len() - 1].starts_with("release"), "{lines:#?}");
    }
    if count("batch-end") == 0 {
        assert!(count("batch-start") <= 1 && lines.len() == 3, "the start itself failed: {lines:#?}");
    } else {
        assert_eq!((count("batch-start"), count("batch-end")), (1, 1));
        assert!(lines[lines.len() - 2].starts_with("batch-end"), "{lines:#?}");
    }
}

#[test]
fn every_call_that_fails_has_its_code_its_task_and_its_release() {
    let Some(kernel) = Loaded::kernel() else { return };
    let codes = [
        (1, ErrorCode::PLANE_PARAMETER),
        (3, ErrorCode::PLANE_MEMORY),
        (5, ErrorCode::PLANE_UNSUPPORTED),
        (6, ErrorCode::PLANE_MISSING),
        (9, ErrorCode::PLANE_TIMEOUT),
        (20, ErrorCode::PLANE_UNAVAILABLE),
        (21, ErrorCode::PLANE_TRANSFER),
        (-7, ErrorCode::PLANE_FAILED),
    ];
    let all = Rig::new(case()).expected(TIMEOUT_S);
    for at in 0..all.len() {
        // 20 from the first call is "in use", which is another test's.
        let (result, expected) = codes[if at == 0 { 0 } else { at % codes.len() }];
        let mut rig = Rig::new(case());
        plane::with(|plane| plane.fail = Some((at, result)));
        let (status, lines) = rig.launch(&kernel);
        assert_eq!(ErrorCode(status.code), expected, "call {at}: {}", all[at]);
        assert_eq!(lines[..=at], all[..=at], "nothing differs before it");
        let [low, call, thread_low, thread_high, task @ ..] = status.detail.to_le_bytes();
        assert_eq!(i32::from(low), result & 0xff);
        assert_eq!(call, number(&all[at]), "{}", all[at]);
        if at > 1 && at + 2 < all.len() {
            let thread: u16 = all[at].split(' ').nth(1).expect("a thread").parse().expect("its number");
            assert_eq!(u16::from_le_bytes([thread_low, thread_high]), thread, "{}", all[at]);
            // No task of this case is cut: each is one call.
            assert_eq!(u32::from_le_bytes(task) as usize, at - 2, "{}", all[at]);
        }
        if at > 0 {
            check_pairs(&lines);
        }
        // Before anything was acquired nothing has happened; after that the communicator is lost, others are not.
        plane::with(|plane| plane.fail = None);
        let (again, lines) = rig.launch(&kernel);
        if at <= 1 {
            assert_eq!((again.code, lines), (0, all.clone()), "call {at}");
        } else {
            assert_eq!((ErrorCode(again.code), lines.len()), (ErrorCode::CONTEXT_STALE, 0), "call {at}");
        }
        let mut other = Rig::new(case());
        assert_eq!(other.launch(&kernel).0.code, 0);
    }
}

/// The number of the call that wrote a line.
fn number(line: &str) -> u8 {
    let plain = line.ends_with('-');
    match line.split(' ').next() {
        Some("copy") => 1,
        Some("reduce") => 2,
        Some("record") => 3,
        Some("wait") => 4,
        Some("write") if plain => 5,
        Some("write-reduce") if plain => 6,
        Some("write") => 7,
        Some("write-reduce") => 8,
        Some("read") => 9,
        Some("read-reduce") => 10,
        Some("channel-record") => 11,
        Some("channel-wait") => 12,
        Some("batch-start") => 13,
        Some("batch-end") => 14,
        Some("acquire") => 15,
        Some("release") => 16,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_communicator_in_use_is_waited_for_up_to_a_limit() {
    let Some(kernel) = Loaded::kernel() else { return };
    let mut rig = Rig::new(case());
    plane::with(|plane| plane.busy = 100);
    assert_eq!(rig.launch(&kernel).0.code, 0);
    rig.param.acquire_ms = 20;
    plane::with(|plane| plane.busy = -1);
    let started = std::time::Instant::now();
    let (status, lines) = rig.launch(&kernel);
    assert_eq!((ErrorCode(status.code), lines.len()), (ErrorCode::PLANE_BUSY, 0));
    assert!(started.elapsed().as_millis() >= 5, "it has waited");
    plane::with(|plane| plane.busy = 0);
    assert_eq!(rig.launch(&kernel).0.code, 0, "and nothing is lost");
}

#[test]
fn each_bad_param_has_its_code() {
    let Some(kernel) = Loaded::kernel() else { return };
    assert_eq!(kernel.call(core::ptr::null()), ErrorCode::PARAM_MAGIC);
    let mut rig = Rig::new(case());
    let odd = (&raw const rig.param).wrapping_byte_add(4);
    assert_eq!(kernel.call(odd), ErrorCode::PARAM_MAGIC);
    let good = rig.param;
    macro_rules! refused {
        ($($field:ident = $value:expr => $code:ident, $answered:literal;)+) => {
            $({
                rig.param = good;
                rig.param.$field = $value;
                let (status, lines) = rig.launch(&kernel);
                assert_eq!(ErrorCode(status.code), ErrorCode::$code, stringify!($field = $value));
                assert_eq!(status.detail != NO_ANSWER, $answered, stringify!($field = $value));
                assert!(lines.is_empty(), stringify!($field = $value));
            })+
        };
    }
    refused! {
        magic = 0 => PARAM_MAGIC, false;
        abi = 2 => PARAM_VERSION, false;
        size = 255 => PARAM_FIELD, false;
        flags = 4 => PARAM_FIELD, false;
        reserved = [0, 0, 0, 0, 1] => PARAM_FIELD, false;
        comm = [b'x'; 128] => PARAM_FIELD, false;
        comm = [0; 128] => PARAM_FIELD, false;
        thread_count = 0 => PARAM_FIELD, false;
        channels = DeviceAddr(0) => PARAM_FIELD, false;
        mapped = 0 => PARAM_FIELD, false;
        mapped = good.mapped + 8 => PARAM_FIELD, false;
        mapped = u64::MAX - 63 => PARAM_FIELD, false;
        memory = DeviceAddr(u64::MAX - 63) => PARAM_FIELD, false;
        memory_len = 64 => CONTEXT_ADDRESS, false;
        args = DeviceAddr(0) => CONTEXT_ADDRESS, true;
        args = DeviceAddr(u64::MAX) => CONTEXT_ADDRESS, true;
        threads = DeviceAddr(1) => CONTEXT_ADDRESS, true;
        thread_count = good.thread_count + 1 => PARAM_HANDLES, true;
        channel_count = good.channel_count - 1 => PARAM_HANDLES, true;
        channel_count = u32::MAX => PARAM_HANDLES, true;
    }
    // An answer that has no place is no failure: the entry returns as much.
    rig.param = good;
    rig.param.status = DeviceAddr(u64::MAX - 63);
    let (status, lines) = rig.launch(&kernel);
    assert_eq!((status.code, status.detail, lines), (0, NO_ANSWER, rig.expected(TIMEOUT_S)));
}

#[test]
fn launches_and_contexts_are_refused_as_by_every_build() {
    let Some(kernel) = Loaded::kernel() else { return };
    let mut rig = Rig::new(case());
    let good = rig.args;
    let mut refused = |args: LaunchArgs, code: ErrorCode| {
        let (status, lines) = rig.launch_raw(&kernel, &args);
        assert_eq!((ErrorCode(status.code), lines.len()), (code, 0), "{args:?}");
    };
    refused(LaunchArgs { context_len: 208, ..good }.sealed(), ErrorCode::CONTEXT_LENGTH);
    refused(LaunchArgs { abi: 2, ..good.sealed() }, ErrorCode::LAUNCH_VERSION);
    refused(LaunchArgs { count: 7, ..good.sealed() }, ErrorCode::LAUNCH_CHECKSUM);
    refused(LaunchArgs { kind: LaunchArgs::REPLAY, ..good }.sealed(), ErrorCode::LAUNCH_RESERVED);
    refused(LaunchArgs { blocks: 2, ..good }.sealed(), ErrorCode::LAUNCH_BLOCKS);
    refused(LaunchArgs { start_notify: 1, ..good }.sealed(), ErrorCode::LAUNCH_NOTIFY);
    // A context of another communicator, and of an epoch that is over.
    refused(LaunchArgs { instance: [1, 1], ..good }.sealed(), ErrorCode::CONTEXT_STALE);
    refused(LaunchArgs { epoch: 2, ..good }.sealed(), ErrorCode::CONTEXT_STALE);
    assert_eq!(rig.launch(&kernel).0.code, 0, "the communicator is sound");
    let mut rig = Rig::new(case());
    rig.damage_context(30);
    let (status, lines) = rig.launch(&kernel);
    assert_eq!((ErrorCode(status.code), lines.len()), (ErrorCode::CONTEXT_CHECKSUM, 0));
}

#[test]
fn a_plan_that_is_refused_serves_the_hosts_notifies() {
    let Some(kernel) = Loaded::kernel() else { return };
    let mut rig = Rig::new(Case { scratch: 128, ..case() });
    let (status, lines) = rig.launch(&kernel);
    assert_eq!(ErrorCode(status.code), ErrorCode::PLAN_SCRATCH);
    assert_eq!(lines, [rig.prologue(TIMEOUT_S), epilogue()].concat());
}

#[test]
fn tasks_that_the_verifier_refuses_are_never_submitted() {
    let Some(kernel) = Loaded::kernel() else { return };
    let mut rig = Rig::new(Case::new(OpKind::AllReduce, Algorithm::Ring, 2));
    let place = |index| Place { memory: Memory::Scratch, index };
    let copy = |dst| Action::Copy { dst: place(dst), src: place(0), part: 0 };
    let mut launch = |dst| {
        let entries = [Instruction { thread: 0, step: 0, action: copy(dst) }.entry()];
        let header = ScriptHeader {
            parts: 1,
            slots: 2,
            rank: 1,
            ranks: 2,
            threads: 1,
            op: 1,
            ..ScriptHeader::default()
        };
        let header = header.sealed(&entries).expect("short");
        rig.write(VECTOR, &[header.as_bytes(), entries.as_bytes()].concat());
        rig.args.algorithm = Algorithm::File as u8;
        rig.args.vector = DeviceAddr(MEMORY + VECTOR);
        let (status, lines) = rig.launch(&kernel);
        (ErrorCode(status.code), lines.len())
    };
    // Host's notifies, session, and the copy.
    assert_eq!(launch(1), (ErrorCode::OK, 7));
    // A copy of a slot onto itself: in order for a script, which says nothing of memory.
    assert_eq!(launch(0), (ErrorCode::VERIFY_OVERLAP, 6));
    assert_eq!(launch(1), (ErrorCode::OK, 7), "the communicator is sound");
}

#[test]
fn one_launch_at_a_time_is_inside_for_each_communicator() {
    let Some(kernel) = Loaded::kernel() else { return };
    let mut rig = Rig::new(case());
    let (inside, entered) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let instance = rig.args.instance;
    std::thread::scope(|scope| {
        let kernel = &kernel;
        scope.spawn(move || {
            let mut same = Rig::of(case(), instance);
            plane::with(|plane| plane.hold = Some((inside, wait)));
            assert_eq!(same.launch(kernel).0.code, 0);
        });
        entered.recv().expect("the other is inside");
        rig.param.acquire_ms = 5;
        let (status, lines) = rig.launch(kernel);
        assert_eq!((ErrorCode(status.code), lines.len()), (ErrorCode::KERNEL_BUSY, 0));
        go.send(()).expect("it waits");
    });
    rig.param.acquire_ms = 20_000;
    assert_eq!(rig.launch(&kernel).0.code, 0);
}

#[test]
fn two_kernels_in_one_process_know_nothing_of_each_other() {
    // The same file under another name is another object to the loader; those of two versions are in `versions.rs`.
    let (Some(first), Some(second)) = (Loaded::kernel(), Loaded::kernel()) else { return };
    let mut rig = Rig::new(case());
    let outcomes = [&first, &second, &first, &second].map(|kernel| {
        let (status, lines) = rig.launch(kernel);
        assert_eq!((status.code, lines), (0, rig.expected(TIMEOUT_S)));
        status.cache
    });
    let [miss, hit] = [CacheOutcome::Miss as u8, CacheOutcome::Hit as u8];
    assert_eq!(outcomes, [miss, miss, hit, hit]);
}

#[test]
fn a_defect_becomes_a_status_and_the_communicator_is_released() {
    let Some(kernel) = Loaded::open("libaicpu_ts_defect.so") else { return };
    let mut rig = Rig::new(case());
    let (status, lines) = rig.launch(&kernel);
    assert_eq!(ErrorCode(status.code), ErrorCode::KERNEL_PANIC);
    check_pairs(&lines);
    assert!(lines.len() > 4, "in the middle of the tasks: {lines:#?}");
    let (status, lines) = rig.launch(&kernel);
    assert_eq!((ErrorCode(status.code), lines.len()), (ErrorCode::KERNEL_PANIC, 0), "it serves nothing more");
}

#[test]
fn a_loader_refuses_another_processor() {
    let Some(path) = file("libaicpu_ts_kernel.so") else { return };
    let other = path.parent().and_then(|dir| dir.parent()).expect("two levels");
    let other = other.join("aarch64").join("libaicpu_ts_kernel.so");
    // SAFETY: it has no constructors, and does not even load.
    let loaded = unsafe { Library::open(Some(&other), RTLD_NOW | RTLD_LOCAL) };
    assert!(loaded.is_err() || cfg!(target_arch = "aarch64"), "{}", other.display());
}
