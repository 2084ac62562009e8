//! The five calls of the task cache: a library that writes down the tasks between start and end, and replays them with
//! other addresses for the two buffers.

// UNSAFETY: C functions that the loader finds by their names.
#![expect(unsafe_code, reason = "the public names of the data plane")]

use core::cell::RefCell;
use core::ffi::c_char;
use std::collections::HashMap;

use aicpu_tests::variants::algorithms;
use wire::launch::{Algorithm, CacheMode, CacheOutcome, OpKind, Staging};
use wire::npu::Protocol;
use wire::param::KernelParam;
use wire::{DataType, ErrorCode};

use crate::plane::{self, text};
use crate::rig::{Case, Loaded, Rig, TIMEOUT_S};

#[derive(Default)]
struct Recording {
    addrs: [u64; 2],
    sizes: [u64; 2],
    first: usize,
    lines: Option<Vec<String>>,
}

#[derive(Default)]
struct Library {
    recordings: HashMap<String, Recording>,
    /// Names of the calls.
    calls: Vec<&'static str>,
    /// The call of this name returns this code.
    fail: Option<(&'static str, i32)>,
}

thread_local! {
    static LIBRARY: RefCell<Library> = RefCell::default();
}

fn with<R>(action: impl FnOnce(&mut Library) -> R) -> R {
    LIBRARY.with_borrow_mut(action)
}

impl Library {
    fn enter(&mut self, name: &'static str) -> Result<(), i32> {
        self.calls.push(name);
        self.fail.filter(|(failing, _)| *failing == name).map_or(Ok(()), |(_, code)| Err(code))
    }
}

fn call(name: &'static str, action: impl FnOnce(&mut Library) -> Result<(), i32>) -> i32 {
    with(|library| library.enter(name).and_then(|()| action(library))).err().unwrap_or(0)
}

/// # Safety
/// `addrs` and `sizes` have `count` elements.
unsafe fn pair(of: *const u64, count: u32) -> [u64; 2] {
    assert_eq!(count, 2);
    // SAFETY: the caller says so.
    unsafe { of.cast::<[u64; 2]>().read() }
}

// SAFETY: no other symbol of the process has this name; so below.
#[unsafe(no_mangle)]
extern "C" fn HcommAicpuTsTaskCacheLookup(tag: *const c_char, hit: *mut u32) -> i32 {
    call("lookup", |library| {
        let found = library.recordings.get(&text(tag)).is_some_and(|recording| recording.lines.is_some());
        // SAFETY: the kernel passes a place for it.
        unsafe { hit.write(u32::from(found)) };
        Ok(())
    })
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn HcommAicpuTsTaskCacheStart(
    tag: *const c_char,
    addrs: *const u64,
    sizes: *const u64,
    count: u32,
) -> i32 {
    call("start", |library| {
        // SAFETY: the kernel passes arrays of this length.
        let addrs = unsafe { pair(addrs, count) };
        // SAFETY: as above.
        let sizes = unsafe { pair(sizes, count) };
        let first = plane::with(|plane| plane.lines.len());
        library.recordings.insert(text(tag), Recording { addrs, sizes, first, lines: None });
        Ok(())
    })
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn HcommAicpuTsTaskCacheEnd(tag: *const c_char) -> i32 {
    call("end", |library| {
        let recording = library.recordings.get_mut(&text(tag)).ok_or(6)?;
        recording.lines = Some(plane::with(|plane| plane.lines[recording.first..].to_vec()));
        Ok(())
    })
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn HcommAicpuTsTaskCacheExecute(
    tag: *const c_char,
    addrs: *const u64,
    sizes: *const u64,
    count: u32,
) -> i32 {
    call("execute", |library| {
        // SAFETY: as above.
        let addrs = unsafe { pair(addrs, count) };
        // SAFETY: as above.
        let sizes = unsafe { pair(sizes, count) };
        let recording = library.recordings.get(&text(tag)).ok_or(6)?;
        assert_eq!(sizes, recording.sizes);
        for line in recording.lines.as_ref().ok_or(6)? {
            let words: Vec<String> = line.split(' ').map(|word| rebound(word, recording, addrs)).collect();
            plane::with(|plane| plane.note(words.join(" ")));
        }
        Ok(())
    })
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn HcommAicpuTsTaskCacheClear(tag: *const c_char) -> i32 {
    call("clear", |library| {
        library.recordings.remove(&text(tag));
        Ok(())
    })
}

/// An address of a recorded buffer as one of the new buffer; everything else as it is.
fn rebound(word: &str, recording: &Recording, addrs: [u64; 2]) -> String {
    let address = word.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let moved = address.and_then(|address| {
        let of = recording.addrs.iter().zip(recording.sizes);
        let index =
            of.clone().position(|(first, size)| address.checked_sub(*first).is_some_and(|at| at < size))?;
        Some(address - recording.addrs[index] + addrs[index])
    });
    moved.map_or_else(|| word.to_owned(), |address| format!("{address:#x}"))
}

/// Launches with three sets of buffers; returns what the cache did, and the calls of the library.
fn three(kernel: &Loaded, rig: &mut Rig) -> ([u8; 3], Vec<&'static str>) {
    with(|library| library.calls.clear());
    let outcomes = [0, 1, 2].map(|set| {
        rig.bind(set);
        let (status, lines) = rig.launch(kernel);
        assert_eq!(ErrorCode(status.code), ErrorCode::OK, "{:?}", rig.case);
        assert_eq!(lines, rig.expected(TIMEOUT_S), "{:?}, buffers {set}", rig.case);
        status.cache
    });
    (outcomes, with(|library| library.calls.clone()))
}

const BYPASSED: u8 = CacheOutcome::Bypassed as u8;
const HIT: u8 = CacheOutcome::Hit as u8;
const MISS: u8 = CacheOutcome::Miss as u8;

#[test]
fn the_library_replays_what_it_would_replay_rightly() {
    let Some(kernel) = Loaded::kernel() else { return };
    for &op in OpKind::ALL {
        for algorithm in algorithms(op) {
            for ranks in [1, 2, 5, 8] {
                let case = Case::new(op, algorithm, ranks);
                if case.plan().is_err() {
                    // A composition, on servers of other sizes than it takes.
                    continue;
                }
                let (outcomes, calls) = three(&kernel, &mut Rig::new(case.clone()));
                assert_eq!(outcomes, [MISS, HIT, HIT], "{case:?}");
                let expected = ["lookup", "start", "end", "lookup", "execute", "lookup", "execute"];
                assert_eq!(calls, expected, "{case:?}");
            }
        }
    }
}

#[test]
fn what_it_would_replay_wrongly_the_kernel_replays_itself() {
    let Some(kernel) = Loaded::kernel() else { return };
    let case = Case::new(OpKind::AllReduce, Algorithm::Ring, 4);
    let direct = case.clone().with(|operation| operation.staging = Staging::Direct);
    for case in [Case { in_place: true, ..case }, direct] {
        let (outcomes, calls) = three(&kernel, &mut Rig::new(case.clone()));
        assert_eq!((outcomes, calls), ([MISS, HIT, HIT], vec![]), "{case:?}");
    }
}

#[test]
fn the_mode_of_the_launch_decides_first() {
    let Some(kernel) = Loaded::kernel() else { return };
    let case = Case::new(OpKind::AllReduce, Algorithm::Ring, 4);
    let mut rig = Rig::new(case.clone());
    rig.args.cache = CacheMode::Off as u8;
    assert_eq!(three(&kernel, &mut rig), ([BYPASSED; 3], vec![]));
    // As the field's cache would: not over HCCS, not 64-bit types, but over UB.
    let over_ub = Case { protocol: Protocol::Ub, ..case.clone() };
    for (case, outcomes) in [
        (case, [BYPASSED; 3]),
        (over_ub.clone().with(|operation| operation.dtype = DataType::Int64), [BYPASSED; 3]),
        (over_ub, [MISS, HIT, HIT]),
    ] {
        let mut rig = Rig::new(case.clone());
        rig.args.cache = CacheMode::Hccl as u8;
        assert_eq!(three(&kernel, &mut rig).0, outcomes, "{case:?}");
    }
}

#[test]
fn a_recording_is_of_one_key_and_one_timeout() {
    let Some(kernel) = Loaded::kernel() else { return };
    let mut rig = Rig::new(Case::new(OpKind::AllReduce, Algorithm::Ring, 4));
    assert_eq!(rig.launch(&kernel).0.cache, MISS);
    rig.args.timeout_ms = 60_000;
    let (status, lines) = rig.launch(&kernel);
    assert_eq!((status.cache, lines), (MISS, rig.expected(60)));
    rig.args.start_notify += 1;
    rig.args.done_notify = 6;
    let (status, lines) = rig.launch(&kernel);
    assert_eq!(status.cache, HIT, "the host's notifies are no part of a recording");
    assert!(lines[2].starts_with("wait 0 1 ") && lines[lines.len() - 3] == "record 0 host 6", "{lines:#?}");
}

#[test]
fn a_cache_that_fails_fails_no_operation() {
    let Some(kernel) = Loaded::kernel() else { return };
    let case = Case::new(OpKind::AllReduce, Algorithm::Ring, 4);
    for (failing, outcomes, calls) in [
        ("lookup", [BYPASSED; 3], vec!["lookup"; 3]),
        ("start", [BYPASSED; 3], ["lookup", "start"].repeat(3)),
        ("end", [MISS; 3], ["lookup", "start", "end", "clear"].repeat(3)),
    ] {
        with(|library| library.fail = Some((failing, 7)));
        assert_eq!(three(&kernel, &mut Rig::new(case.clone())), (outcomes, calls), "{failing}");
    }
    with(|library| library.fail = None);
}

#[test]
fn a_replay_that_fails_and_a_task_that_fails_while_recording() {
    let Some(kernel) = Loaded::kernel() else { return };
    let case = Case::new(OpKind::AllReduce, Algorithm::Ring, 4);
    let mut rig = Rig::new(case.clone());
    assert_eq!(rig.launch(&kernel).0.code, 0);
    with(|library| library.fail = Some(("execute", 9)));
    let (status, lines) = rig.launch(&kernel);
    assert_eq!((ErrorCode(status.code), status.detail), (ErrorCode::PLANE_TIMEOUT, 9 | 20 << 8 | 1 << 32));
    assert!(lines.last().is_some_and(|line| line.starts_with("release")), "{lines:#?}");
    with(|library| {
        library.fail = None;
        library.calls.clear();
    });
    let mut rig = Rig::new(case);
    plane::with(|plane| plane.fail = Some((6, 3)));
    assert_eq!(ErrorCode(rig.launch(&kernel).0.code), ErrorCode::PLANE_MEMORY);
    assert_eq!(
        with(|library| library.calls.clone()),
        ["lookup", "start", "end", "clear"],
        "no half recording"
    );
}

#[test]
fn a_library_without_fences_says_so_where_they_are_needed() {
    let Some(kernel) = Loaded::kernel() else { return };
    let case = Case::new(OpKind::AllReduce, Algorithm::Ring, 4);
    let mut rig = Rig::new(Case { protocol: Protocol::Roce, ..case });
    rig.param.flags |= KernelParam::FENCES;
    let (status, lines) = rig.launch(&kernel);
    assert_eq!(ErrorCode(status.code), ErrorCode::PLANE_UNSUPPORTED);
    assert_eq!(status.detail & 0xffff, 5 | 22 << 8, "the fence");
    assert_eq!(lines.last().map(String::as_str), Some("release \"group\""));
}
