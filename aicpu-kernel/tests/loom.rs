//! Launches racing with the end of their communicator, in every interleaving with three switches: the real kernel against a
//! host that posts a launch, stops the communicator, gives its memory to another and launches that.
//! `RUSTFLAGS="--cfg loom" cargo test -p aicpu-kernel --test loom --release`.
//!
//! Each piece of memory that one party writes and the other reads has a loom cell beside it, so that an access that is
//! not ordered is reported as a race. The last test does not wait for the kernel's answer, and must fail.
#![cfg(loom)]
// UNSAFETY: `hal::SharedMemory` is an unsafe trait; the memory is one shared allocation.
#![expect(unsafe_code, reason = "implements an unsafe trait of hal")]

#[expect(dead_code, reason = "only what makes contexts and launches is needed here")]
#[path = "kernel/fake.rs"]
mod fake;
#[expect(dead_code, reason = "only what makes contexts and launches is needed here")]
#[path = "kernel/rig.rs"]
mod rig;

use core::cell::UnsafeCell;

use aicpu_kernel::{Block, Kernel, LARGEST_GRAPH_PAGES, Page};
use hal::{Clock, DmaFence, Doorbell, Platform, Rebase, SharedMemory, Trace};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use wire::launch::CacheOutcome;
use wire::npu::{ABORTED, LAUNCH_HEAD, LAUNCH_TAIL, LAUNCHES, STATUSES, Status, TAILS};
use wire::{DESCRIPTOR_BYTES, Descriptor, DeviceAddr, ErrorCode, LaunchArgs, Sqe, TraceEvent};
use zerocopy::{FromBytes, IntoBytes};

use fake::WINDOW;
use rig::Setup;

const DEPTH: u32 = 64;
/// Descriptors of the launch: a ring all-reduce of two ranks.
const LEN: usize = 12;

/// A communicator whose context and ring lie where those of every other do.
fn setup(life: u32) -> Setup {
    Setup { instance: [11, u64::from(life)], scratch_token: 1000 * life, depth: DEPTH, ..Setup::new(0, 2) }
}

fn ring() -> u64 {
    setup(1).at() + 0x1_0000
}

/// What lies where, for loom's eyes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Mailbox,
    Status,
    Context,
    Ring,
    /// Words of which only one party has any.
    Rest,
}

fn piece(offset: u64) -> Piece {
    let context = setup(1).at();
    match offset {
        LAUNCHES..STATUSES => Piece::Mailbox,
        STATUSES..0x3000 => Piece::Status,
        offset if offset >= ring() => Piece::Ring,
        offset if offset >= context => Piece::Context,
        _ => Piece::Rest,
    }
}

struct Shared {
    tail: AtomicU64,
    head: AtomicU64,
    aborted: AtomicU64,
    access: [loom::cell::UnsafeCell<()>; 4],
    memory: UnsafeCell<Vec<Descriptor>>,
}

// SAFETY:
// 1. Loom runs one thread at a time, and switches only at its own operations: no two accesses overlap.
// 2. That accesses are ordered as they must be is what `access` checks.
unsafe impl Sync for Shared {}
// SAFETY: 1. Nothing in it belongs to a thread.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Self {
        let bytes = usize::try_from(ring()).expect("small") + DEPTH as usize * DESCRIPTOR_BYTES;
        let shared = Self {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
            access: [(); 4].map(|()| loom::cell::UnsafeCell::new(())),
            memory: UnsafeCell::new(vec![Descriptor::default(); bytes / DESCRIPTOR_BYTES]),
        };
        shared.put(setup(1).at(), &setup(1).encode());
        shared
    }

    /// Notes an access.
    fn touch(&self, offset: u64, writes: bool) {
        let piece = piece(offset);
        if piece != Piece::Rest {
            let cell = &self.access[piece as usize];
            if writes { cell.with_mut(|_| ()) } else { cell.with(|_| ()) }
        }
    }

    #[expect(clippy::mut_from_ref, reason = "see below")]
    fn bytes(&self, offset: u64, len: usize) -> &mut [u8] {
        // SAFETY: 1. No other thread runs before the borrow ends, see `Shared`.
        let memory = unsafe { &mut *self.memory.get() };
        let at = usize::try_from(offset).expect("small");
        &mut memory.as_mut_bytes()[at..at + len]
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        self.touch(offset, true);
        self.bytes(offset, bytes.len()).copy_from_slice(bytes);
    }

    fn get<T: FromBytes>(&self, offset: u64) -> T {
        self.touch(offset, false);
        T::read_from_bytes(self.bytes(offset, size_of::<T>())).expect("as long as the struct")
    }

    /// The host: posts the launch number `index`.
    fn post(&self, index: u64, args: LaunchArgs) {
        self.put(LAUNCHES + index * size_of::<LaunchArgs>() as u64, args.sealed().as_bytes());
        self.tail.store(index + 1, Ordering::Release);
    }

    /// The host: waits until `count` launches are answered, and returns the newest answer.
    fn answer(&self, count: u64) -> Status {
        while self.head.load(Ordering::Acquire) < count {
            thread::yield_now();
        }
        self.get(STATUSES + (count - 1) * size_of::<Status>() as u64)
    }

    /// What lies in the ring from an entry on.
    fn entries(&self, from: usize, count: usize) -> Vec<Sqe> {
        let at = |slot: usize| ring() + (slot * DESCRIPTOR_BYTES) as u64;
        (from..from + count).map(|slot| Sqe::from(self.get::<Descriptor>(at(slot)))).collect()
    }
}

struct LoomPlatform {
    shared: Arc<Shared>,
    /// Launches it has answered.
    answered: u64,
}

fn offset(at: DeviceAddr) -> u64 {
    at.0 - WINDOW
}

// SAFETY:
// 1. The memory lives as long as the `Arc`.
// 2. Words that both parties have are atomics; `read` copies.
// 3. `entries` borrows the platform mutably, and there is one platform.
unsafe impl SharedMemory for LoomPlatform {
    fn read(&self, from: DeviceAddr, into: &mut [u8]) -> Result<(), ErrorCode> {
        self.shared.touch(offset(from), false);
        into.copy_from_slice(self.shared.bytes(offset(from), into.len()));
        Ok(())
    }

    fn write(&mut self, to: DeviceAddr, bytes: &[u8]) -> Result<(), ErrorCode> {
        self.shared.put(offset(to), bytes);
        Ok(())
    }

    fn load(&self, word: DeviceAddr) -> Result<u64, ErrorCode> {
        Ok(match offset(word) {
            LAUNCH_TAIL => self.shared.tail.load(Ordering::Acquire),
            ABORTED => self.shared.aborted.load(Ordering::Acquire),
            other => self.shared.get(other),
        })
    }

    fn store(&mut self, word: DeviceAddr, value: u64) -> Result<(), ErrorCode> {
        match offset(word) {
            LAUNCH_HEAD => {
                self.answered = value;
                self.shared.head.store(value, Ordering::Release);
            }
            other => self.shared.put(other, &value.to_le_bytes()),
        }
        Ok(())
    }

    unsafe fn entries(&mut self, first: DeviceAddr, count: usize) -> Result<&mut [Descriptor], ErrorCode> {
        self.shared.touch(offset(first), true);
        // SAFETY: 1. No other thread runs before the borrow ends, see `Shared`.
        let memory = unsafe { &mut *self.shared.memory.get() };
        let slot = usize::try_from(offset(first)).expect("small") / DESCRIPTOR_BYTES;
        Ok(&mut memory[slot..slot + count])
    }
}

impl Doorbell for LoomPlatform {
    fn ring(&mut self, _queue: u16, _tail: u32) {}
}

impl DmaFence for LoomPlatform {
    fn publish(&self) {
        fence(Ordering::Release);
    }

    fn observe(&self) {
        fence(Ordering::Acquire);
    }
}

impl Clock for LoomPlatform {
    fn now_ns(&self) -> u64 {
        0
    }
}

impl Trace for LoomPlatform {
    fn event(&mut self, _event: TraceEvent) {}
}

impl Rebase for LoomPlatform {}

impl Platform for LoomPlatform {
    fn window(&self) -> DeviceAddr {
        DeviceAddr(WINDOW)
    }
}

/// The kernel, until it has answered `count` launches.
fn serve(shared: &Arc<Shared>, count: u64) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    // Kernels are made on the stack here; what loom gives a thread by default is too small for one.
    let builder = thread::Builder::new().stack_size(1 << 20);
    let life = move || {
        let blocks = vec![Block::EMPTY; 4].into_boxed_slice();
        let pages = vec![Page::EMPTY; LARGEST_GRAPH_PAGES + 4].into_boxed_slice();
        let platform = LoomPlatform { shared, answered: 0 };
        let mut kernel = Box::new(Kernel::new(platform, blocks, pages));
        kernel.start().expect("the window is there");
        while kernel.platform_mut().answered < count {
            if !kernel.poll() {
                thread::yield_now();
            }
        }
    };
    builder.spawn(life).expect("there is room")
}

/// What a launch may be: its answer, and what it has put into the ring.
fn assert_whole(setup: &Setup, sequence: u32, sqes: &[Sqe]) {
    assert_eq!(sqes.len(), LEN);
    let own = [0, 41, 42, setup.scratch_token, setup.scratch_token + 1];
    for sqe in sqes {
        assert_eq!(sqe.task >> 32, u64::from(sequence), "{sqe:?}");
        assert!(own.contains(&sqe.src_token) && own.contains(&sqe.dst_token), "{sqe:?}");
    }
    assert_eq!(sqes.last().map(|sqe| sqe.opcode), Some(Sqe::RECORD_HOST));
}

/// A launch that is recorded, one that hits while its communicator is stopped, and one of the next life in the same
/// memory. Returns the code of the second.
fn scene(waits: bool) -> ErrorCode {
    let shared = Arc::new(Shared::new());
    let kernel = serve(&shared, 3);
    let launch = |life: u32, sequence: u32| LaunchArgs { sequence, ..setup(life).launch(8) };
    let tail = || usize::try_from(shared.get::<u64>(TAILS)).expect("small");
    shared.post(0, launch(1, 1));
    let status = shared.answer(1);
    assert_eq!((status.code, status.cache), (0, CacheOutcome::Miss as u8));
    assert_whole(&setup(1), 1, &shared.entries(0, tail()));
    shared.post(1, launch(1, 2));
    shared.aborted.store(setup(1).instance[0], Ordering::Release);
    let mut code = ErrorCode(0);
    if waits {
        let status = shared.answer(2);
        code = ErrorCode(status.code);
        match code {
            ErrorCode::COMM_ABORTED => assert_eq!(tail(), LEN, "nothing of it"),
            code => {
                assert!(code.is_ok() && status.cache == CacheOutcome::Hit as u8, "{code}");
                assert_whole(&setup(1), 2, &shared.entries(LEN, tail() - LEN));
            }
        }
    }
    shared.aborted.store(0, Ordering::Release);
    shared.put(setup(2).at(), &setup(2).encode());
    let before = if waits { tail() } else { 0 };
    shared.post(2, launch(2, 3));
    let status = shared.answer(3);
    assert_eq!((status.code, status.cache), (0, CacheOutcome::Miss as u8), "of another life");
    assert_whole(&setup(2), 3, &shared.entries(before, tail() - before));
    kernel.join().expect("it does not panic");
    code
}

#[test]
fn a_launch_races_with_the_end_of_its_communicator() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let note = std::sync::Arc::clone(&seen);
    let mut model = loom::model::Builder::new();
    // Every interleaving with up to three switches where nobody waits, four in a release's campaign: without a bound there
    // are too many.
    let larger = std::env::var_os("AICPU_TS_LARGER_MODELS").is_some();
    model.preemption_bound = Some(if larger { 4 } else { 3 });
    model.check(move || {
        let code = scene(true);
        note.lock().expect("one thread").insert(code.0);
    });
    let both = [0, ErrorCode::COMM_ABORTED.0];
    assert_eq!(*seen.lock().expect("one thread"), both.into(), "it was done, and it was dropped");
}

/// What the wait for the answer is for.
#[test]
#[should_panic(expected = "Causality violation")]
fn without_the_answer_the_kernel_reads_what_is_being_overwritten() {
    loom::model(|| {
        scene(false);
    });
}
