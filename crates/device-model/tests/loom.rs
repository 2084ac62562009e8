//! The consumer against a producer, in every interleaving that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p aicpu-device-model --release --test loom`
//!
//! The producer is written here, from `docs/rings.md`: entry, release store of the doorbell; it reuses a slot only
//! after an acquire load of the head. Entries are loom cells, so that reading one that may still be written fails.
#![cfg(loom)]

use aicpu_device_model::queue::{Consumer, RingMemory};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use wire::{Descriptor, ErrorCode};

const DEPTH: usize = 2;

struct Ring {
    doorbell: AtomicU64,
    head: AtomicU64,
    entries: [UnsafeCell<u64>; DEPTH],
}

// SAFETY: loom checks every access to the cells, which is what these tests are for.
#[expect(unsafe_code, reason = "cells are shared on purpose")]
unsafe impl Sync for Ring {}

impl Ring {
    fn new(start: u64) -> Arc<Self> {
        let low = start & 0xffff_ffff;
        let entries = [UnsafeCell::new(0), UnsafeCell::new(0)];
        Arc::new(Self { doorbell: AtomicU64::new(low), head: AtomicU64::new(low), entries })
    }

    #[expect(unsafe_code, reason = "cells are shared on purpose")]
    fn write(&self, position: u64, value: u64) {
        let slot = usize::try_from(position % DEPTH as u64).unwrap();
        // SAFETY: loom fails the test when another thread may access the cell at the same time.
        self.entries[slot].with_mut(|entry| unsafe { *entry = value });
    }
}

impl RingMemory for Ring {
    fn doorbell(&self) -> u64 {
        self.doorbell.load(Ordering::Acquire)
    }

    #[expect(unsafe_code, reason = "cells are shared on purpose")]
    fn entry(&self, slot: u64) -> Descriptor {
        let slot = usize::try_from(slot).unwrap();
        // SAFETY: as in `write`.
        let value = self.entries[slot].with(|entry| unsafe { *entry });
        Descriptor { lanes: [value; 8] }
    }

    fn publish(&self, head: u64) {
        self.head.store(head, Ordering::Release);
    }
}

/// Takes what is announced and returns it.
fn consume(consumer: &mut Consumer, ring: &Ring) -> Vec<u64> {
    consumer.refresh(ring).expect("no overrun");
    let mut taken = Vec::new();
    while let Some(entry) = consumer.entry(ring) {
        taken.push(entry.lanes[7]);
        consumer.advance(ring);
    }
    consumer.publish(ring);
    taken
}

fn every_entry_arrives_once(start: u64) {
    loom::model(move || {
        let ring = Ring::new(start);
        let producer = Arc::clone(&ring);
        let thread = thread::spawn(move || {
            let low = |position: u64| position & 0xffff_ffff;
            for count in 0..3_u64 {
                let position = start.wrapping_add(count);
                while low(position.wrapping_sub(producer.head.load(Ordering::Acquire))) >= DEPTH as u64 {
                    thread::yield_now();
                }
                producer.write(position, 10 + count);
                producer.doorbell.store(low(position.wrapping_add(1)), Ordering::Release);
            }
        });
        let mut consumer = Consumer::new(start, u32::try_from(DEPTH).unwrap()).unwrap();
        let mut taken = Vec::new();
        while taken.len() < 3 {
            taken.extend(consume(&mut consumer, &ring));
            thread::yield_now();
        }
        thread.join().unwrap();
        assert_eq!(taken, [10, 11, 12]);
    });
}

#[test]
fn every_entry_arrives_once_whole_and_in_order() {
    every_entry_arrives_once(0);
}

#[test]
fn the_same_across_the_wrap_of_the_words() {
    every_entry_arrives_once((1 << 32) - 2);
}

#[test]
fn an_overrun_is_refused_in_every_interleaving() {
    loom::model(|| {
        let ring = Ring::new(0);
        let producer = Arc::clone(&ring);
        let thread = thread::spawn(move || producer.doorbell.store(3, Ordering::Release));
        let mut consumer = Consumer::new(0, 2).unwrap();
        match consumer.refresh(&*ring) {
            Ok(news) => assert!(!news),
            Err(code) => assert_eq!(code, ErrorCode::SQ_OVERRUN),
        }
        thread.join().unwrap();
        assert_eq!(consumer.refresh(&*ring), Err(ErrorCode::SQ_OVERRUN));
        assert!(consumer.entry(&*ring).is_none());
    });
}

/// The handover of payload by a notify, as `engine::tables` does it: swap with release, load with acquire.
#[test]
fn payload_written_before_a_record_is_seen_after_the_wait() {
    loom::model(|| {
        let shared = Arc::new((Ring::new(0), AtomicU32::new(0)));
        let recorder = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            recorder.0.write(0, 7);
            assert_eq!(recorder.1.swap(1, Ordering::Release), 0);
        });
        while shared.1.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        shared.1.store(0, Ordering::Relaxed);
        assert_eq!(shared.0.entry(0).lanes, [7; 8]);
        thread.join().unwrap();
    });
}
