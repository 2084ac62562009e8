//! A platform of plain memory with one ring, which logs what its producer does.

// UNSAFETY: `hal::SharedMemory` is an unsafe trait.
#![expect(unsafe_code, reason = "implements an unsafe trait of hal")]

use core::cell::{Cell, RefCell};
use core::ops::Range;

use hal::{Clock, DmaFence, Doorbell, Platform, Rebase, SharedMemory, Trace};
use wire::npu::{DOORBELLS, HEADS, TAILS, TRACE_TAIL};
use wire::{DESCRIPTOR_BYTES, Descriptor, DeviceAddr, ErrorCode, TraceEvent};
use zerocopy::IntoBytes;

/// Device address of the window: the fixed tables up to the completion ring's head.
pub(crate) const WINDOW: u64 = 0x2000_0000_0000;
/// Device address of the ring.
pub(crate) const RING: u64 = 0x3000_0000_0000;
/// The ring's queue.
pub(crate) const QUEUE: u16 = 3;

/// What a producer does that others can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Took entries for writing: the first and their number.
    Entries(u64, usize),
    /// The fence before an announcement.
    Publish,
    /// A doorbell and its tail.
    Bell(u16, u32),
    /// A store to the queue's software tail.
    SoftTail(u64),
}

/// The shared memory.
#[derive(Debug)]
pub(crate) struct Fake {
    words: Vec<u64>,
    ring: Vec<Descriptor>,
    /// What the producer did, in order.
    pub(crate) log: RefCell<Vec<Event>>,
    /// How often the head was loaded.
    pub(crate) head_loads: Cell<u32>,
}

impl Fake {
    pub(crate) fn new(depth: usize) -> Self {
        let words = usize::try_from(TRACE_TAIL / 8).expect("small");
        let ring = vec![Descriptor::default(); depth];
        Self { words: vec![0; words], ring, log: RefCell::default(), head_loads: Cell::new(0) }
    }

    fn range(&self, at: DeviceAddr, len: usize) -> Result<Range<usize>, ErrorCode> {
        let start = at.0.checked_sub(WINDOW).and_then(|offset| usize::try_from(offset).ok());
        let range = start.map(|start| start..start + len);
        range.filter(|range| range.end <= self.words.len() * 8).ok_or(ErrorCode::CONTEXT_ADDRESS)
    }

    pub(crate) fn word(&self, offset: u64) -> u64 {
        self.words[usize::try_from(offset / 8).expect("small")]
    }

    pub(crate) fn set_word(&mut self, offset: u64, value: u64) {
        self.words[usize::try_from(offset / 8).expect("small")] = value;
    }

    pub(crate) fn bytes_mut(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let range = self.range(DeviceAddr(WINDOW + offset), len).expect("inside the window");
        &mut self.words.as_mut_bytes()[range]
    }

    /// The doorbell word of the queue.
    pub(crate) fn bell(&self) -> u64 {
        self.word(DOORBELLS + 8 * u64::from(QUEUE))
    }

    pub(crate) fn set_head(&mut self, value: u64) {
        self.set_word(HEADS + 8 * u64::from(QUEUE), value);
    }

    /// The first lane of an entry.
    pub(crate) fn entry(&self, slot: u64) -> u64 {
        self.ring[usize::try_from(slot).expect("small")].lanes[0]
    }
}

// SAFETY:
// 1. The memory is owned by the fake.
// 2. Nothing else runs while a method does.
// 3. `entries` borrows the fake mutably, so two results never live at once.
unsafe impl SharedMemory for Fake {
    fn read(&self, from: DeviceAddr, into: &mut [u8]) -> Result<(), ErrorCode> {
        into.copy_from_slice(&self.words.as_bytes()[self.range(from, into.len())?]);
        Ok(())
    }

    fn write(&mut self, to: DeviceAddr, bytes: &[u8]) -> Result<(), ErrorCode> {
        let range = self.range(to, bytes.len())?;
        self.words.as_mut_bytes()[range].copy_from_slice(bytes);
        Ok(())
    }

    fn load(&self, word: DeviceAddr) -> Result<u64, ErrorCode> {
        let range = self.range(word, 8)?;
        if word.0 == WINDOW + HEADS + 8 * u64::from(QUEUE) {
            self.head_loads.set(self.head_loads.get() + 1);
        }
        Ok(self.words[range.start / 8])
    }

    fn store(&mut self, word: DeviceAddr, value: u64) -> Result<(), ErrorCode> {
        let range = self.range(word, 8)?;
        if word.0 == WINDOW + TAILS + 8 * u64::from(QUEUE) {
            self.log.get_mut().push(Event::SoftTail(value));
        }
        self.words[range.start / 8] = value;
        Ok(())
    }

    unsafe fn entries(&mut self, first: DeviceAddr, count: usize) -> Result<&mut [Descriptor], ErrorCode> {
        let offset = first.0.checked_sub(RING).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        let slot = usize::try_from(offset).expect("small") / DESCRIPTOR_BYTES;
        let entries = self.ring.get_mut(slot..slot + count).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        self.log.get_mut().push(Event::Entries(offset / DESCRIPTOR_BYTES as u64, count));
        Ok(entries)
    }
}

impl Doorbell for Fake {
    fn ring(&mut self, queue: u16, tail: u32) {
        self.log.get_mut().push(Event::Bell(queue, tail));
        self.set_word(DOORBELLS + 8 * u64::from(queue), u64::from(tail));
    }
}

impl DmaFence for Fake {
    fn publish(&self) {
        self.log.borrow_mut().push(Event::Publish);
    }

    fn observe(&self) {}
}

impl Clock for Fake {
    fn now_ns(&self) -> u64 {
        0
    }
}

impl Trace for Fake {
    fn event(&mut self, _event: TraceEvent) {}
}

impl Rebase for Fake {}

impl Platform for Fake {
    fn window(&self) -> DeviceAddr {
        DeviceAddr(WINDOW)
    }
}
