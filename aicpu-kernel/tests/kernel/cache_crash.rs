//! Every access of a kernel to memory, doorbells, clock and trace fails once, while it records and while it replays;
//! and the kernel dies there once. What is left is never half a graph: not in the rings, not in the cache.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use wire::launch::{Algorithm, Buffer, CacheMode, CacheOutcome};
use wire::{Descriptor, DeviceAddr, ErrorCode, LaunchArgs, Sqe};

use crate::cache_bytes::PAGES;
use crate::fake::Blow;
use crate::rig::{Rig, Setup};

const COUNT: u64 = 100;

/// Eight ranks with a mesh of threads: several rings, several doorbells.
fn setup() -> Setup {
    Setup { threads: 8, depth: 256, ..Setup::new(1, 8) }
}

/// A two-shot all-reduce whose input lies elsewhere each time.
fn args(setup: &Setup, sequence: u32) -> LaunchArgs {
    let args = setup.launch(COUNT);
    let addr = DeviceAddr(args.input.addr.0 + (u64::from(sequence) << 20));
    let input = Buffer { addr, ..args.input };
    LaunchArgs { sequence, algorithm: Algorithm::MeshTwoShot as u8, input, ..args }
}

type Rings = Vec<(u16, Vec<Descriptor>)>;

/// What a kernel without a cache writes for each launch.
fn expected(setup: &Setup, sequences: core::ops::Range<u32>) -> Vec<Rings> {
    let mut rig = Rig::with_pages(&[*setup], 64, PAGES);
    let mut fresh = |sequence| {
        let args = LaunchArgs { cache: CacheMode::Off as u8, ..args(setup, sequence) };
        assert_eq!(rig.run(args).code, 0);
        rig.drain(setup)
    };
    sequences.map(&mut fresh).collect()
}

/// Whether every ring has the beginning of what it should have.
fn begins(found: &Rings, expected: &Rings) -> bool {
    found.iter().zip(expected).all(|((queue, found), (other, expected))| {
        queue == other && expected.get(..found.len()).is_some_and(|head| head == found)
    })
}

/// A kernel that has run `before` launches, and the one that goes wrong posted.
fn prepared(setup: &Setup, before: u32) -> Rig {
    let mut rig = Rig::with_pages(&[*setup], 64, PAGES);
    for sequence in 0..before {
        let args = args(setup, sequence);
        assert_eq!(rig.run(args).code, 0);
        rig.drain(setup);
    }
    let args = args(setup, before);
    rig.post(args);
    rig
}

/// Nothing is in hand, and what is kept is kept whole.
fn assert_tidy(rig: &Rig, what: &str) {
    let after = rig.kernel.cache_use();
    assert_eq!(u64::from(after.pages), after.kept.units, "{what}");
    assert!(after.kept.slots <= 1, "{what}");
}

/// The next two launches, of another epoch: what was recorded before serves neither, and both are right.
fn assert_goes_on(rig: &mut Rig, setup: &Setup, expected: &[Rings], what: &str) {
    let next = Setup { epoch: setup.epoch + 1, ..*setup };
    rig.write_context(&next);
    rig.drain(&next);
    for (sequence, outcome) in [(3, CacheOutcome::Miss), (4, CacheOutcome::Hit)] {
        let args = args(&next, sequence);
        let status = rig.run(args);
        assert_eq!((status.code, status.cache), (0, outcome as u8), "{what}");
        assert_eq!(rig.drain(&next), expected[sequence as usize], "{what}");
    }
    assert_tidy(rig, what);
}

/// The access number `at` is refused; `before` is 0 for a recording and 1 for a replay. Returns the code of the launch,
/// `None` when there are no more accesses.
fn refuse(before: u32, at: u64, expected: &[Rings]) -> Option<ErrorCode> {
    let (setup, what) = (setup(), format!("launch {before}, access {at}"));
    let mut rig = prepared(&setup, before);
    rig.fake().fuse.set(Some((at, Blow::Refuse)));
    while rig.kernel.poll() {}
    let unburnt = rig.fake().fuse.take().is_some();
    // The word that says whether there is a launch: it is looked at again.
    while rig.kernel.poll() {}
    let submitted = rig.drain(&setup);
    if unburnt {
        assert_eq!(submitted, expected[before as usize]);
        return None;
    }
    let whole = submitted == expected[before as usize];
    let code = if rig.all_answered() { ErrorCode(rig.status().code) } else { ErrorCode(0) };
    let nothing = submitted.iter().all(|(_, entries)| entries.is_empty());
    let signals = |entries: &[Descriptor]| {
        entries.iter().map(|entry| Sqe::from(*entry).opcode).eq([Sqe::WAIT, Sqe::RECORD_HOST])
    };
    let refused = signals(&submitted[0].1) && submitted[1..].iter().all(|(_, entries)| entries.is_empty());
    assert!(
        if code.is_ok() {
            whole
        } else {
            nothing || refused || begins(&submitted, &expected[before as usize])
        },
        "{what}: {code}"
    );
    assert_tidy(&rig, &what);
    // The same epoch: refused for good once half a launch may be in the rings, else served, and rightly.
    let next = args(&setup, 2);
    let status = rig.run(next);
    match ErrorCode(status.code) {
        ErrorCode::CONTEXT_STALE => assert!(!code.is_ok() && !refused, "{what}: poisoned after {code}"),
        code if code.is_ok() => {
            assert_eq!(rig.drain(&setup), expected[2], "{what}");
            let hit = status.cache == CacheOutcome::Hit as u8;
            assert!(hit || before == 0, "{what}: the entry is lost");
        }
        other => panic!("{what}: {other}"),
    }
    assert_goes_on(&mut rig, &setup, expected, &what);
    Some(code)
}

#[test]
fn a_refused_access_leaves_nothing_half_done() {
    let expected = expected(&setup(), 0..5);
    for before in [0, 1] {
        let codes: Vec<_> = (0..).map_while(|at| refuse(before, at, &expected)).collect();
        let failed = codes.iter().filter(|code| !code.is_ok()).count();
        // The launch, the words of the rings, the answer; of a recording the context as well.
        assert!(codes.len() >= 20 && failed >= 10, "{codes:?}");
    }
}

/// The kernel dies at access number `at`; another is started on the same memory. Returns whether it died.
fn crash(before: u32, at: u64, expected: &[Rings]) -> bool {
    let (setup, what) = (setup(), format!("launch {before}, access {at}"));
    let mut rig = prepared(&setup, before);
    rig.fake().fuse.set(Some((at, Blow::Crash)));
    let died = catch_unwind(AssertUnwindSafe(|| while rig.kernel.poll() {})).is_err();
    rig.fake().fuse.set(None);
    // Of what was recorded all is there or nothing, and what was there before still is.
    let kept = rig.kernel.cache_use();
    assert!(kept.kept.slots >= u64::from(before) && kept.kept.slots <= 1, "{what}");
    assert!(kept.stats.inserted == kept.kept.slots, "{what}: a recording under way can be found");
    let submitted = rig.drain(&setup);
    assert!(begins(&submitted, &expected[before as usize]), "{what}");
    rig.restart(64, PAGES);
    assert_tidy(&rig, &what);
    // The host has given the launch up: its communicator goes on under another epoch, behind it.
    while rig.kernel.poll() {}
    assert_goes_on(&mut rig, &setup, expected, &what);
    died
}

#[test]
fn a_kernel_that_dies_leaves_nothing_half_done() {
    let expected = expected(&setup(), 0..5);
    let lives = [0, 1].map(|before| (0..).take_while(|at| crash(before, *at, &expected)).count());
    assert!(lives[0] > 50 && lives[1] > 40, "{lives:?}");
}

/// Memory for recording and for keeping runs out at every point: the operation is refused or runs, whole, and nothing is
/// left of it.
#[test]
fn memory_that_runs_out_anywhere_leaves_nothing_half_done() {
    let (setup, expected) = (setup(), expected(&setup(), 0..2));
    let mut outcomes = [0; 3];
    for blocks in 1..24 {
        for pages in 1..4 {
            let mut rig = Rig::with_pages(&[setup], blocks, pages);
            for sequence in 0..2 {
                let what = format!("{blocks} blocks, {pages} pages, launch {sequence}");
                let args = args(&setup, sequence);
                let code = ErrorCode(rig.run(args).code);
                let submitted = rig.drain(&setup);
                match code {
                    ErrorCode::GRAPH_FULL => outcomes[0] += 1,
                    ErrorCode::PAGES_FULL => outcomes[1] += 1,
                    code => {
                        assert!(code.is_ok(), "{what}: {code}");
                        assert_eq!(submitted, expected[sequence as usize], "{what}");
                        outcomes[2] += 1;
                        continue;
                    }
                }
                let opcodes: Vec<_> = submitted[0].1.iter().map(|entry| Sqe::from(*entry).opcode).collect();
                assert_eq!(opcodes, [Sqe::WAIT, Sqe::RECORD_HOST], "{what}");
                let after = rig.kernel.cache_use();
                assert_eq!((after.kept.slots, after.pages, after.stats.inserted), (0, 0, 0), "{what}");
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count >= 8), "{outcomes:?}");
}

/// What was recorded before an epoch is given back when the next one begins.
#[test]
fn graphs_of_earlier_epochs_are_given_back() {
    let setup = setup();
    let mut rig = Rig::with_pages(&[setup], 64, PAGES);
    for count in [10, 20, 30] {
        assert_eq!(rig.run(LaunchArgs { piece: 128 * count, ..setup.launch(count) }).code, 0);
        rig.drain(&setup);
    }
    assert_eq!(rig.kernel.cache_use().kept.slots, 3);
    let next = Setup { epoch: setup.epoch + 1, ..setup };
    rig.write_context(&next);
    assert_eq!(rig.run(next.launch(10)).cache, CacheOutcome::Miss as u8);
    let after = rig.kernel.cache_use();
    assert_eq!((after.kept.slots, u64::from(after.pages), after.stats.cleared), (1, after.kept.units, 3));
}
