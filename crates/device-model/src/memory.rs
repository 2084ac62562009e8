//! The window of one NPU in this process: bounds, words, bytes.
//!
//! A [`Window`] is a stretch of a mapping that other threads and processes use too. Three ways lead to its bytes and
//! each checks its range first: [`Window::word`] and [`Window::half`] give atomics, for everything that two parties
//! touch at once; [`Window::read`], [`Window::write`] and [`Window::fill`] copy; a [`Span`] is what an engine moves
//! or reduces. Nobody gets a plain reference to memory that others write.
//!
//! No meaning is given to any byte here; device addresses become offsets in [`Window::offset`] and nowhere else.

// UNSAFETY: memory that other processes map can only be reached through raw pointers; this module turns them into
// checked ranges and atomics, and is the only one in the crate that follows them.
#![expect(unsafe_code, reason = "the one place where pointers into the mapping are followed")]

mod span;
mod tables;

use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use memmap2::MmapRaw;
use wire::{Descriptor, DeviceAddr, npu};

pub(crate) use span::Span;
pub(crate) use tables::Slot;

/// A cache line of shared words.
pub(crate) type Line = [AtomicU64; 8];

/// The memory of one NPU: `bytes` bytes that device addresses from `base` on name. Cloning shares the memory.
#[derive(Clone, Debug)]
pub struct Window {
    /// First byte; valid for as long as the mapping is held.
    first: NonNull<u8>,
    bytes: u64,
    base: DeviceAddr,
    _mapping: Arc<MmapRaw>,
}

// SAFETY: the pointer leads to memory that any thread may use as this module does: atomics, and copies of bytes.
unsafe impl Send for Window {}
// SAFETY: as for `Send`; a `Window` has no state of its own that a method changes.
unsafe impl Sync for Window {}

impl Window {
    /// Returns the window of `bytes` bytes at `start` of `mapping`.
    ///
    /// # Panics
    /// When the mapping is shorter, start or length is no multiple of 64, or there is no heap.
    pub(crate) fn new(mapping: Arc<MmapRaw>, start: usize, bytes: usize, base: DeviceAddr) -> Self {
        let end = start.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= mapping.len()), "a window lies inside its mapping");
        assert!(start.is_multiple_of(64) && bytes.is_multiple_of(64), "a window consists of whole lines");
        assert!(bytes as u64 > npu::HEAP, "a window has all tables, and a heap");
        // SAFETY: `start + bytes <= mapping.len()`, checked above.
        let first = unsafe { mapping.as_mut_ptr().add(start) };
        // PANIC: a mapping of more than 0 bytes does not start at the null pointer.
        let first = NonNull::new(first).expect("mapped memory has an address");
        Self { first, bytes: bytes as u64, base, _mapping: mapping }
    }

    /// Returns the device address of the first byte.
    #[must_use]
    pub const fn base(&self) -> DeviceAddr {
        self.base
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns where in the window the `len` bytes at `addr` lie, or `None` when they do not all lie in it.
    #[inline]
    #[must_use]
    pub fn offset(&self, addr: DeviceAddr, len: u64) -> Option<u64> {
        let offset = addr.0.checked_sub(self.base.0)?;
        (offset.checked_add(len)? <= self.bytes).then_some(offset)
    }

    /// Returns a pointer to `len` bytes at `offset`.
    ///
    /// # Panics
    /// When they are not inside the window.
    #[inline]
    fn pointer(&self, offset: u64, len: u64) -> *mut u8 {
        if offset.checked_add(len).is_none_or(|end| end > self.bytes) {
            outside(offset, len);
        }
        // CAST: offsets inside a mapping of this process fit its pointers.
        #[expect(clippy::cast_possible_truncation, reason = "at most `bytes`, which came from a usize")]
        let offset = offset as usize;
        // SAFETY:
        // 1. `bytes` bytes from `first` on are mapped, checked in `new`; `offset + len <= bytes`, checked above.
        // 2. The mapping lives as long as `self` holds it.
        unsafe { self.first.as_ptr().add(offset) }
    }

    /// Returns `N` consecutive words at `offset`.
    ///
    /// # Panics
    /// When they are not inside the window or not 8-byte aligned.
    #[inline]
    pub(crate) fn words<const N: usize>(&self, offset: u64) -> &[AtomicU64; N] {
        assert!(offset.is_multiple_of(8), "a word is aligned");
        let words = self.pointer(offset, 8 * N as u64).cast::<[AtomicU64; N]>();
        // SAFETY:
        // 1. `pointer` checked that all the bytes are mapped; the mapping outlives the borrow of `self`.
        // 2. The mapping starts at a page and the window at a line, so the pointer is 8-byte aligned.
        // 3. An atomic may be changed by others while a shared reference to it exists, also from other processes.
        unsafe { &*words }
    }

    /// Returns the word at `offset` (of the tables in `wire::npu`).
    ///
    /// # Panics
    /// When it is not inside the window or not 8-byte aligned.
    #[inline]
    #[must_use]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        &self.words::<1>(offset)[0]
    }

    /// Returns the 4-byte word at `offset`.
    ///
    /// # Panics
    /// When it is not inside the window or not 4-byte aligned.
    #[inline]
    #[must_use]
    pub fn half(&self, offset: u64) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "a half word is aligned");
        let half = self.pointer(offset, 4).cast::<AtomicU32>();
        // SAFETY: as in `words`, with 4 bytes.
        unsafe { &*half }
    }

    /// Returns `count` consecutive words from `offset` on.
    ///
    /// # Panics
    /// When they are not inside the window or not 8-byte aligned.
    #[inline]
    pub(crate) fn word_slice(&self, offset: u64, count: u64) -> &[AtomicU64] {
        assert!(offset.is_multiple_of(8) && count <= self.bytes / 8, "words are aligned, and in the window");
        let first = self.pointer(offset, 8 * count).cast::<AtomicU64>();
        // CAST: at most the length of a mapping.
        #[expect(clippy::cast_possible_truncation, reason = "at most the length of a mapping")]
        let count = count as usize;
        // SAFETY: as in `words`, for as many words.
        unsafe { slice::from_raw_parts(first, count) }
    }

    /// Returns `count` consecutive lines from `offset` on, which is aligned to 8 bytes.
    ///
    /// # Panics
    /// When they are not inside the window or not aligned.
    #[inline]
    pub(crate) fn lines(&self, offset: u64, count: u64) -> &[Line] {
        self.word_slice(offset, 8 * count).as_chunks().0
    }

    /// Loads `N` words, each once, in no particular order.
    #[inline]
    pub(crate) fn load_words<const N: usize>(&self, offset: u64) -> [u64; N] {
        self.words::<N>(offset).each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Stores `N` words; the one at index `last` is stored with release order, after all others.
    #[inline]
    pub(crate) fn store_words<const N: usize>(&self, offset: u64, values: [u64; N], last: usize) {
        let words = self.words::<N>(offset);
        for (index, (word, value)) in words.iter().zip(values).enumerate() {
            if index != last {
                word.store(value, Ordering::Relaxed);
            }
        }
        words[last].store(values[last], Ordering::Release);
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// When they are not inside the window.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let from = self.pointer(offset, into.len() as u64);
        // SAFETY:
        // 1. `pointer` checked the source; the destination is a slice of this process outside the mapping.
        // 2. Who else writes these bytes meanwhile broke the protocol that hands them over; then, as on silicon, the
        //    copied bytes are undefined. They are bytes: any value is valid.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// When they are not inside the window.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.pointer(offset, bytes.len() as u64);
        // SAFETY: as in `read`, with the roles exchanged.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Sets `len` bytes to `byte`.
    ///
    /// # Panics
    /// When they are not inside the window.
    pub fn fill(&self, offset: u64, len: u64, byte: u8) {
        let to = self.pointer(offset, len);
        // CAST: `pointer` checked that `len` is at most the length of a mapping.
        #[expect(clippy::cast_possible_truncation, reason = "at most `bytes`, which came from a usize")]
        let len = len as usize;
        // SAFETY: as in `write`.
        unsafe { ptr::write_bytes(to, byte, len) };
    }

    /// Returns `count` ring entries for writing.
    ///
    /// # Panics
    /// When they are not inside the window or not 64-byte aligned.
    ///
    /// # Safety
    /// 1. No other party reads or writes these entries while the borrow lives.
    /// 2. The caller makes no second borrow of them meanwhile: the window is shared and cannot prevent it.
    #[expect(clippy::mut_from_ref, reason = "the caller owns the entries, requirement 2")]
    pub(crate) unsafe fn entries(&self, offset: u64, count: usize) -> &mut [Descriptor] {
        assert!(offset.is_multiple_of(64), "a ring entry is aligned");
        let first = self.pointer(offset, 64 * count as u64).cast::<Descriptor>();
        // SAFETY:
        // 1. `pointer` checked the bytes; page, window and offset are 64-byte aligned; any bytes are a descriptor.
        // 2. Exclusive use is requirements 1 and 2 of this function.
        unsafe { slice::from_raw_parts_mut(first, count) }
    }
}

/// Apart, and by value: numbers that a message may need are not kept in memory for it.
#[cold]
#[inline(never)]
fn outside(offset: u64, len: u64) -> ! {
    panic!("offset {offset:#x} + {len:#x} is outside the window")
}
