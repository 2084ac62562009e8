//! A platform of plain memory: checks addresses, counts doorbells, keeps trace events, has a clock set by hand.

// UNSAFETY: `hal::SharedMemory` is an unsafe trait.
#![expect(unsafe_code, reason = "implements an unsafe trait of hal")]

use core::cell::{Cell, RefCell};

use hal::{Clock, DmaFence, Doorbell, Platform, Rebase, SharedMemory, Trace};
use wire::{DESCRIPTOR_BYTES, Descriptor, DeviceAddr, ErrorCode, TraceEvent};
use zerocopy::{FromBytes, IntoBytes};

/// Device address of the window.
pub(crate) const WINDOW: u64 = 0x2000_0000_0000;

/// How an access ends the life of a kernel, or spoils it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// What can fail fails.
    Refuse,
    /// The kernel dies.
    Crash,
}

/// Memory of one NPU, seen by kernel and test.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    memory: Vec<Descriptor>,
    /// Doorbells rung: queue and tail.
    pub(crate) doorbells: Vec<(u16, u32)>,
    /// Trace events.
    pub(crate) events: Vec<TraceEvent>,
    /// Where `read` was asked to read.
    pub(crate) reads: RefCell<Vec<u64>>,
    /// The clock, and how far each look at it moves it.
    pub(crate) now_ns: Cell<u64>,
    pub(crate) tick_ns: u64,
    /// Accesses that still go well, and what happens then, once.
    pub(crate) fuse: Cell<Option<(u64, Blow)>>,
}

impl Fake {
    pub(crate) fn new(bytes: u64) -> Self {
        let entries = usize::try_from(bytes).expect("small").div_ceil(DESCRIPTOR_BYTES);
        Self { memory: vec![Descriptor::default(); entries], ..Self::default() }
    }

    /// Counts an access that can be refused.
    fn burn(&self) -> Result<(), ErrorCode> {
        match self.fuse.get() {
            None => return Ok(()),
            Some((0, how)) => {
                self.fuse.set(None);
                if how == Blow::Crash {
                    // Without the message of a panic: this one is wanted.
                    std::panic::resume_unwind(Box::new("crash"));
                }
                return Err(ErrorCode::CONTEXT_ADDRESS);
            }
            Some((left, how)) => self.fuse.set(Some((left - 1, how))),
        }
        Ok(())
    }

    /// Counts an access that cannot be refused.
    fn burn_down(&self) {
        if let Some((_, Blow::Crash)) = self.fuse.get() {
            let _ = self.burn();
        }
    }

    fn range(&self, at: DeviceAddr, len: usize) -> Result<core::ops::Range<usize>, ErrorCode> {
        let start = at.0.checked_sub(WINDOW).and_then(|offset| usize::try_from(offset).ok());
        let end = start.and_then(|start| start.checked_add(len));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.memory.len() * DESCRIPTOR_BYTES => Ok(start..end),
            _ => Err(ErrorCode::CONTEXT_ADDRESS),
        }
    }

    /// The word at an offset into the window.
    pub(crate) fn word(&self, offset: u64) -> u64 {
        self.load(DeviceAddr(WINDOW + offset)).expect("inside the window")
    }

    pub(crate) fn set_word(&mut self, offset: u64, value: u64) {
        self.store(DeviceAddr(WINDOW + offset), value).expect("inside the window");
    }

    /// Copies a struct out of the window.
    pub(crate) fn get<T: FromBytes + IntoBytes>(&self, offset: u64) -> T {
        let range = self.range(DeviceAddr(WINDOW + offset), size_of::<T>()).expect("inside the window");
        T::read_from_bytes(&self.memory.as_bytes()[range]).expect("as long as the struct")
    }
}

// SAFETY:
// 1. The memory is owned by the fake.
// 2. Nothing else runs while a method does.
// 3. `entries` borrows the fake mutably, so two results never live at once.
unsafe impl SharedMemory for Fake {
    fn read(&self, from: DeviceAddr, into: &mut [u8]) -> Result<(), ErrorCode> {
        self.burn()?;
        self.reads.borrow_mut().push(from.0);
        into.copy_from_slice(&self.memory.as_bytes()[self.range(from, into.len())?]);
        Ok(())
    }

    fn write(&mut self, to: DeviceAddr, bytes: &[u8]) -> Result<(), ErrorCode> {
        self.burn()?;
        let range = self.range(to, bytes.len())?;
        self.memory.as_mut_bytes()[range].copy_from_slice(bytes);
        Ok(())
    }

    fn load(&self, word: DeviceAddr) -> Result<u64, ErrorCode> {
        self.burn()?;
        let range = self.range(word, 8)?;
        assert!(range.start.is_multiple_of(8), "a word is aligned");
        Ok(u64::read_from_bytes(&self.memory.as_bytes()[range]).expect("8 bytes"))
    }

    fn store(&mut self, word: DeviceAddr, value: u64) -> Result<(), ErrorCode> {
        assert!(word.0.is_multiple_of(8), "a word is aligned");
        self.write(word, &value.to_le_bytes())
    }

    unsafe fn entries(&mut self, first: DeviceAddr, count: usize) -> Result<&mut [Descriptor], ErrorCode> {
        self.burn()?;
        let range = self.range(first, count * DESCRIPTOR_BYTES)?;
        assert!(range.start.is_multiple_of(DESCRIPTOR_BYTES), "entries are aligned");
        Ok(&mut self.memory[range.start / DESCRIPTOR_BYTES..range.end / DESCRIPTOR_BYTES])
    }
}

impl Doorbell for Fake {
    fn ring(&mut self, queue: u16, tail: u32) {
        self.burn_down();
        self.doorbells.push((queue, tail));
    }
}

impl DmaFence for Fake {
    fn publish(&self) {
        self.burn_down();
    }

    fn observe(&self) {
        self.burn_down();
    }
}

impl Clock for Fake {
    fn now_ns(&self) -> u64 {
        self.burn_down();
        self.now_ns.set(self.now_ns.get() + self.tick_ns);
        self.now_ns.get()
    }
}

impl Trace for Fake {
    fn event(&mut self, event: TraceEvent) {
        self.burn_down();
        self.events.push(event);
    }
}

impl Rebase for Fake {}

impl Platform for Fake {
    fn window(&self) -> DeviceAddr {
        DeviceAddr(WINDOW)
    }
}
