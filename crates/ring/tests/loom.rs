//! The orderings of the submission ring, in every interleaving that loom finds: the real producer on loom's atomics
//! against a consumer written by hand. `RUSTFLAGS="--cfg loom" cargo test -p aicpu-ring --test loom --release`.
//!
//! Every entry has a loom cell beside it, so that an access that is not ordered is reported as a race; the last tests
//! take one ordering away each and must fail.
#![cfg(loom)]
// UNSAFETY: `hal::SharedMemory` is an unsafe trait; entries are handed out from a shared allocation.
#![expect(unsafe_code, reason = "implements an unsafe trait of hal")]

use core::cell::UnsafeCell;

use aicpu_ring::SubmissionRing;
use hal::{Clock, DmaFence, Doorbell, Platform, Rebase, SharedMemory, Trace};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use wire::npu::{HEADS, TAILS};
use wire::{DESCRIPTOR_BYTES, Descriptor, DeviceAddr, ErrorCode, TraceEvent};

const DEPTH: usize = 2;
const RING: u64 = 0x10_0000;

/// Entries that are written: five, or eight in a release's campaign.
fn entries() -> u64 {
    if std::env::var_os("AICPU_TS_LARGER_MODELS").is_some() { 8 } else { 5 }
}

/// How strong each access is.
#[derive(Clone, Copy)]
struct Orders {
    publish: bool,
    bell: Ordering,
    device_head: Ordering,
    load: Ordering,
    observe: bool,
}

/// As `docs/rings.md` wants it.
const AS_DOCUMENTED: Orders = Orders {
    publish: true,
    bell: Ordering::Relaxed,
    device_head: Ordering::Release,
    load: Ordering::Acquire,
    observe: true,
};

struct Shared {
    bell: AtomicU64,
    head: AtomicU64,
    soft_tail: AtomicU64,
    /// Stands for the memory of each entry in loom's eyes.
    access: [loom::cell::UnsafeCell<()>; DEPTH],
    entries: UnsafeCell<[Descriptor; DEPTH]>,
}

// SAFETY:
// 1. Loom runs one thread at a time, and switches only at its own operations: no two accesses overlap.
// 2. That accesses are ordered as they must be is what `access` checks.
unsafe impl Sync for Shared {}
// SAFETY: 1. Nothing in it belongs to a thread.
unsafe impl Send for Shared {}

struct LoomPlatform {
    shared: Arc<Shared>,
    orders: Orders,
}

// SAFETY:
// 1. The memory lives as long as the `Arc`.
// 2. Words are atomics; there is nothing to `read`.
// 3. `entries` borrows the platform mutably, and there is one platform.
unsafe impl SharedMemory for LoomPlatform {
    fn read(&self, _from: DeviceAddr, _into: &mut [u8]) -> Result<(), ErrorCode> {
        Err(ErrorCode::CONTEXT_ADDRESS)
    }

    fn write(&mut self, _to: DeviceAddr, _bytes: &[u8]) -> Result<(), ErrorCode> {
        Err(ErrorCode::CONTEXT_ADDRESS)
    }

    fn load(&self, word: DeviceAddr) -> Result<u64, ErrorCode> {
        if word.0 == HEADS {
            Ok(self.shared.head.load(self.orders.load))
        } else {
            Err(ErrorCode::CONTEXT_ADDRESS)
        }
    }

    fn store(&mut self, word: DeviceAddr, value: u64) -> Result<(), ErrorCode> {
        assert_eq!(word.0, TAILS);
        self.shared.soft_tail.store(value, Ordering::Release);
        Ok(())
    }

    unsafe fn entries(&mut self, first: DeviceAddr, count: usize) -> Result<&mut [Descriptor], ErrorCode> {
        let slot = usize::try_from(first.0 - RING).expect("small") / DESCRIPTOR_BYTES;
        for access in &self.shared.access[slot..slot + count] {
            access.with_mut(|_| ());
        }
        // SAFETY: 1. No other thread runs before the borrow ends, see `Shared`.
        let entries = unsafe { &mut *self.shared.entries.get() };
        Ok(&mut entries[slot..slot + count])
    }
}

impl Doorbell for LoomPlatform {
    fn ring(&mut self, _queue: u16, tail: u32) {
        self.shared.bell.store(u64::from(tail), self.orders.bell);
    }
}

impl DmaFence for LoomPlatform {
    fn publish(&self) {
        if self.orders.publish {
            fence(Ordering::Release);
        }
    }

    fn observe(&self) {
        if self.orders.observe {
            fence(Ordering::Acquire);
        }
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
        DeviceAddr(0)
    }
}

/// Writes all entries as space comes free, announcing as it goes.
fn produce(mut platform: LoomPlatform, start: u64) {
    let mut ring = SubmissionRing::starting_at(0, DeviceAddr(RING), 2, start);
    let end = start + entries();
    while ring.tail() < end {
        let (tail, left) = (ring.tail(), u32::try_from(end - ring.tail()).expect("small"));
        let written = ring.fill(&mut platform, left, |slots| {
            for (slot, position) in slots.iter_mut().zip(tail..) {
                *slot = Descriptor { lanes: [position; 8] };
            }
            slots.len()
        });
        if written == Ok(0) {
            ring.announce(&mut platform).expect("the word is there");
            loom::thread::yield_now();
        }
    }
    ring.announce(&mut platform).expect("the word is there");
}

/// Takes every entry in order and checks it whole.
fn consume(shared: &Shared, start: u64, head_order: Ordering) {
    let mut head = start;
    while head < start + entries() {
        let bell = shared.bell.load(Ordering::Acquire);
        if bell == head & 0xffff_ffff {
            loom::thread::yield_now();
            continue;
        }
        while bell != head & 0xffff_ffff {
            let slot = usize::try_from(head).expect("64 bits") % DEPTH;
            shared.access[slot].with(|_| ());
            // SAFETY: 1. No other thread runs before the copy is made, see `Shared`.
            let entries = unsafe { *shared.entries.get() };
            assert_eq!(entries[slot].lanes, [head; 8]);
            head += 1;
        }
        shared.head.store(head & 0xffff_ffff, head_order);
    }
}

fn check(start: u64, orders: Orders) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = None;
    builder.check(move || {
        let low = start & 0xffff_ffff;
        let shared = Arc::new(Shared {
            bell: AtomicU64::new(low),
            head: AtomicU64::new(low),
            soft_tail: AtomicU64::new(low),
            access: Default::default(),
            entries: UnsafeCell::new([Descriptor::default(); DEPTH]),
        });
        let platform = LoomPlatform { shared: Arc::clone(&shared), orders };
        let producer = loom::thread::spawn(move || produce(platform, start));
        consume(&shared, start, orders.device_head);
        producer.join().expect("the producer does not panic");
        let end = (start + entries()) & 0xffff_ffff;
        assert_eq!(shared.soft_tail.load(Ordering::Acquire), end);
    });
}

#[test]
fn entries_are_seen_whole_and_in_order() {
    check(0, AS_DOCUMENTED);
}

#[test]
fn entries_are_seen_whole_across_the_wrap_of_the_words() {
    check((1 << 32) - 2, AS_DOCUMENTED);
}

#[test]
fn a_release_doorbell_is_as_good_as_the_fence() {
    check(0, Orders { publish: false, bell: Ordering::Release, ..AS_DOCUMENTED });
}

#[test]
fn the_fence_behind_the_head_is_as_good_as_an_acquire_load() {
    check(0, Orders { load: Ordering::Relaxed, ..AS_DOCUMENTED });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_fence_and_release_the_device_reads_what_is_not_there() {
    check(0, Orders { publish: false, ..AS_DOCUMENTED });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_head_stored_too_early_lets_the_producer_overwrite() {
    check(0, Orders { device_head: Ordering::Relaxed, ..AS_DOCUMENTED });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_head_loaded_without_acquire_lets_the_producer_overwrite() {
    check(0, Orders { load: Ordering::Relaxed, observe: false, ..AS_DOCUMENTED });
}
