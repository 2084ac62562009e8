//! Scripts through the kernel: copied once, checked, kept, and told apart by the cache.

use hal::SharedMemory;
use wire::launch::{Algorithm, CacheOutcome};
use wire::script::{Action, Instruction, MAX_ENTRIES, Memory, Place, ScriptEntry, ScriptHeader};
use wire::{DeviceAddr, ErrorCode, LaunchArgs, Sqe};
use zerocopy::IntoBytes;

use crate::fake::WINDOW;
use crate::rig::{INPUT, OUTPUT, Rig, Setup};

/// A script of two ranks whose rank 0 copies these parts, of three, to its output.
fn script(parts: &[u16]) -> (ScriptHeader, Vec<ScriptEntry>) {
    let place = |memory| Place { memory, index: 0 };
    let copy = |&part: &u16| Action::Copy { dst: place(Memory::Output), src: place(Memory::Input), part };
    let entries: Vec<_> =
        parts.iter().map(|part| Instruction { thread: 0, step: 7, action: copy(part) }.entry()).collect();
    let header = ScriptHeader { parts: 3, ranks: 2, threads: 1, op: 1, ..ScriptHeader::default() };
    (header.sealed(&entries).unwrap(), entries)
}

/// A launch of the script at the vector's place.
fn launch(setup: &Setup, count: u64) -> LaunchArgs {
    LaunchArgs { algorithm: Algorithm::File as u8, vector: setup.vector_table(), ..setup.launch(count) }
}

fn write(rig: &mut Rig, setup: &Setup, (header, entries): &(ScriptHeader, Vec<ScriptEntry>)) {
    let bytes = [header.as_bytes(), entries.as_bytes()].concat();
    rig.fake().write(setup.vector_table(), &bytes).unwrap();
}

/// The copies of the main thread: from, to, bytes.
fn copies(rig: &mut Rig, setup: &Setup) -> Vec<(u64, u64, u64)> {
    let sqes = rig.consume(setup, 0);
    let copies = sqes.iter().filter(|sqe| sqe.opcode == Sqe::COPY);
    copies.map(|sqe| (sqe.src - INPUT, sqe.dst - OUTPUT, sqe.len)).collect()
}

#[test]
fn parts_differ_by_one_element_and_the_longer_ones_come_first() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::new(&[setup], 8);
    write(&mut rig, &setup, &script(&[0, 1, 2]));
    for (count, expected) in [
        (11, vec![(0, 0, 16), (16, 16, 16), (32, 32, 12)]),
        (10, vec![(0, 0, 16), (16, 16, 12), (28, 28, 12)]),
        // What has no bytes has no task.
        (2, vec![(0, 0, 4), (4, 4, 4)]),
    ] {
        let status = rig.run(launch(&setup, count));
        assert_eq!((status.code, status.steps), (0, 8), "labelled with the steps of the file");
        assert_eq!(copies(&mut rig, &setup), expected, "{count}");
    }
}

#[test]
fn scripts_at_one_place_are_told_apart_by_what_they_say() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::with_pages(&[setup], 8, 1024);
    let scripts = [script(&[0, 1]), script(&[2, 1])];
    let [miss, hit] = [CacheOutcome::Miss as u8, CacheOutcome::Hit as u8];
    for (turn, outcome) in [(0, miss), (1, miss), (0, hit), (1, hit)] {
        write(&mut rig, &setup, &scripts[turn]);
        let status = rig.run(launch(&setup, 9));
        assert_eq!((status.code, status.cache), (0, outcome));
        let expected = [[(0, 0, 12), (12, 12, 12)], [(24, 24, 12), (12, 12, 12)]];
        assert_eq!(copies(&mut rig, &setup), expected[turn]);
    }
}

#[test]
fn what_is_kept_is_the_kernels_own_copy() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::new(&[setup], 8);
    let (header, mut entries) = script(&[0, 1, 2]);
    write(&mut rig, &setup, &(header, entries.clone()));
    assert_eq!(rig.run(launch(&setup, 9)).code, 0);
    rig.consume(&setup, 0);
    // Another entry under the old header is never looked at.
    entries[0].part = 2;
    write(&mut rig, &setup, &(header, entries));
    assert_eq!(rig.run(launch(&setup, 12)).code, 0);
    assert_eq!(copies(&mut rig, &setup), [(0, 0, 16), (16, 16, 16), (32, 32, 16)]);
}

#[test]
fn every_fault_of_a_script_is_answered_with_its_code() {
    let setup = Setup::new(0, 2);
    let refused = |change: &dyn Fn(&mut ScriptHeader, &mut [ScriptEntry]), seal: bool| {
        let mut rig = Rig::new(&[setup], 8);
        let (mut header, mut entries) = script(&[0, 1, 2]);
        change(&mut header, &mut entries);
        let header = if seal { header.sealed(&entries).unwrap() } else { header };
        write(&mut rig, &setup, &(header, entries));
        let status = rig.run(launch(&setup, 9));
        // The host's notifies are answered all the same.
        assert_eq!(status.sqes, 2);
        (ErrorCode(status.code), status.detail)
    };
    assert_eq!(refused(&|header, _| header.magic = 1, false), (ErrorCode::SCRIPT_FORMAT, 0));
    assert_eq!(refused(&|header, _| header.count = 2, false), (ErrorCode::SCRIPT_FORMAT, 0));
    assert_eq!(refused(&|_, entries| entries[2].part = 1, false), (ErrorCode::SCRIPT_DIGEST, 0));
    assert_eq!(refused(&|_, entries| entries[2].part = 3, true), (ErrorCode::SCRIPT_ENTRY, 2));
    let most = u32::try_from(MAX_ENTRIES).unwrap() + 1;
    let full = (ErrorCode::SCRIPT_CAPACITY, u64::from(most));
    assert_eq!(refused(&|header, _| header.count = most, false), full);
    assert_eq!(refused(&|header, _| header.rank = 1, true), (ErrorCode::SCRIPT_MISMATCH, 1));
    assert_eq!(refused(&|header, _| header.ranks = 3, true), (ErrorCode::SCRIPT_MISMATCH, 3));
    assert_eq!(refused(&|header, _| header.op = 8, true), (ErrorCode::SCRIPT_MISMATCH, 0));
    assert_eq!(refused(&|header, _| header.in_place = 1, true), (ErrorCode::SCRIPT_MISMATCH, 0));
    assert_eq!(refused(&|header, _| header.threads = 2, true), (ErrorCode::PLAN_THREADS, 2));
    // The start notify is the main thread's first: no script may have it.
    let notify = (ErrorCode::LAUNCH_NOTIFY, u64::from(setup.start_notify()));
    assert_eq!(refused(&|header, _| header.main_notifies = 1, true), notify);
}

#[test]
fn a_script_goes_with_its_algorithm_only() {
    let setup = Setup::new(0, 2);
    let mut rig = Rig::new(&[setup], 8);
    write(&mut rig, &setup, &script(&[0]));
    let good = launch(&setup, 9);
    for (args, code) in [
        (LaunchArgs { vector: DeviceAddr(0), ..good }, ErrorCode::LAUNCH_VECTOR),
        (LaunchArgs { vector: DeviceAddr(WINDOW + 4), ..good }, ErrorCode::LAUNCH_ALIGNMENT),
        (LaunchArgs { vector: DeviceAddr(WINDOW + (1 << 40)), ..good }, ErrorCode::CONTEXT_ADDRESS),
        (LaunchArgs { algorithm: Algorithm::Ring as u8, ..good }, ErrorCode::LAUNCH_VECTOR),
        (LaunchArgs { op: 9, count: 0, ..good }, ErrorCode::LAUNCH_OP),
        (LaunchArgs { staging: 1, ..good }, ErrorCode::BINDING_MISSING),
        (good, ErrorCode::OK),
    ] {
        assert_eq!(rig.code(args), code);
    }
}
