//! The memory of one NPU, addressed by device addresses.
//!
//! A device address is checked against the window on every access and then turned into a pointer; the difference of
//! the two is a constant of the window, never zero by accident. Host and device write the same memory at the same
//! time, so bytes are copied with relaxed atomic accesses and words are loaded with acquire and stored with release.
//! Ring entries, the only memory ever borrowed, come from the heap; the fixed tables below it are always shared.

// UNSAFETY: the window is memory that other parties map; it has no owner the compiler knows.
#![expect(unsafe_code, reason = "raw shared memory behind checked addresses")]

use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use wire::{Descriptor, DeviceAddr, ErrorCode, npu};

/// Leading bytes, aligned words, trailing bytes.
type Pieces<'a> = (&'a [AtomicU8], &'a [AtomicU64], &'a [AtomicU8]);

/// The window of one NPU.
#[derive(Debug)]
pub struct Window {
    base: NonNull<u8>,
    len: usize,
    device_addr: DeviceAddr,
}

impl Window {
    /// A window of no bytes: every access is refused.
    pub const DETACHED: Self = Self { base: NonNull::dangling(), len: 0, device_addr: DeviceAddr(0) };

    /// Makes the window that begins at `base` and at device address `device_addr`; `None` when `base` is not aligned
    /// to a page or `len` does not hold the fixed tables of `wire::npu`.
    ///
    /// # Safety
    /// 1. `base` is valid for reads and writes of `len` bytes for as long as the program runs.
    /// 2. Inside this program no reference to that memory exists except those the window hands out.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, len: usize, device_addr: DeviceAddr) -> Option<Self> {
        let is_window = base.addr().get().is_multiple_of(4096) && len as u64 >= npu::HEAP;
        is_window.then_some(Self { base, len, device_addr })
    }

    /// Makes a window of plain memory, without the fixed tables; `None` when `base` is not aligned to a descriptor.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    #[must_use]
    pub unsafe fn plain(base: NonNull<u8>, len: usize, device_addr: DeviceAddr) -> Option<Self> {
        let is_aligned = base.addr().get().is_multiple_of(align_of::<Descriptor>());
        is_aligned.then_some(Self { base, len, device_addr })
    }

    /// Returns the device address of the first byte.
    #[must_use]
    pub fn device_addr(&self) -> DeviceAddr {
        self.device_addr
    }

    /// Returns the word at `offset` in the fixed tables.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when it is not in the tables or not aligned.
    #[inline]
    pub fn table_word(&self, offset: u64) -> Result<&'static AtomicU64, ErrorCode> {
        let [word] = self.table_words(offset)?;
        Ok(word)
    }

    /// Returns `N` words from `offset` on in the fixed tables.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when they are not in the tables or not aligned.
    #[inline]
    pub fn table_words<const N: usize>(&self, offset: u64) -> Result<&'static [AtomicU64; N], ErrorCode> {
        let at = self.table(offset, size_of::<[AtomicU64; N]>())?.cast::<[AtomicU64; N]>();
        if !at.is_aligned() {
            return Err(ErrorCode::CONTEXT_ADDRESS);
        }
        // SAFETY:
        // 1. `table` returned 8 N bytes inside the window, which lives as long as the program.
        // 2. `entries` never hands out bytes of the tables, so every reference to them is to atomics.
        Ok(unsafe { at.as_ref() })
    }

    /// Returns `count` bytes at `offset` in the fixed tables.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when they are not in the tables.
    pub fn table_bytes(&self, offset: u64, count: usize) -> Result<&'static [AtomicU8], ErrorCode> {
        let at = self.table(offset, count)?.cast::<AtomicU8>();
        // SAFETY: as in `table_word`, for `count` bytes.
        Ok(unsafe { slice::from_raw_parts(at.as_ptr(), count) })
    }

    #[inline]
    fn table(&self, offset: u64, len: usize) -> Result<NonNull<u8>, ErrorCode> {
        let is_table = offset.checked_add(len as u64).is_some_and(|end| end <= npu::HEAP);
        if is_table { self.pointer(offset, len, 1) } else { Err(ErrorCode::CONTEXT_ADDRESS) }
    }

    /// Returns the offset of a device address.
    fn offset(&self, address: DeviceAddr) -> Result<u64, ErrorCode> {
        address.0.checked_sub(self.device_addr.0).ok_or(ErrorCode::CONTEXT_ADDRESS)
    }

    /// Returns a pointer to `len` bytes at `offset`.
    #[inline]
    fn pointer(&self, offset: u64, len: usize, align: usize) -> Result<NonNull<u8>, ErrorCode> {
        let start = usize::try_from(offset).map_err(|_| ErrorCode::CONTEXT_ADDRESS)?;
        let is_inside = start.checked_add(len).is_some_and(|end| end <= self.len);
        if !is_inside || !start.is_multiple_of(align) {
            return Err(ErrorCode::CONTEXT_ADDRESS);
        }
        // SAFETY: `start <= self.len`, so the sum stays inside the window or one past its end. The window begins at
        // a page, so an aligned offset is an aligned pointer.
        Ok(unsafe { self.base.add(start) })
    }

    fn word(&self, address: DeviceAddr) -> Result<&AtomicU64, ErrorCode> {
        let at = self.pointer(self.offset(address)?, 8, 8)?.cast::<AtomicU64>();
        // SAFETY: `pointer` returned 8 aligned bytes inside the window, and atomics may be shared.
        Ok(unsafe { at.as_ref() })
    }

    /// Splits a range, so that most bytes are copied eight at a time.
    fn pieces(&self, offset: u64, len: usize) -> Result<Pieces<'_>, ErrorCode> {
        let at = self.pointer(offset, len, 1)?.cast::<AtomicU8>();
        // SAFETY: `pointer` returned `len` bytes inside the window, and atomics may be shared.
        let bytes = unsafe { slice::from_raw_parts(at.as_ptr(), len) };
        // SAFETY: any eight bytes are a valid word, and the parties that write them race with atomic accesses only.
        Ok(unsafe { bytes.align_to() })
    }
}

// SAFETY:
// 1. `Window::new` demands memory that stays mapped.
// 2. `load` and `store` are acquire and release of an aligned word; `read` copies with atomic loads.
// 3. `entries` borrows the window mutably for as long as its result lives.
unsafe impl hal::SharedMemory for Window {
    fn read(&self, from: DeviceAddr, into: &mut [u8]) -> Result<(), ErrorCode> {
        let (head, words, tail) = self.pieces(self.offset(from)?, into.len())?;
        let (first, rest) = into.split_at_mut_checked(head.len()).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        let (chunks, last) = rest.as_chunks_mut::<8>();
        first.iter_mut().zip(head).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        chunks.iter_mut().zip(words).for_each(|(to, from)| *to = from.load(Ordering::Relaxed).to_le_bytes());
        last.iter_mut().zip(tail).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        Ok(())
    }

    fn write(&mut self, to: DeviceAddr, bytes: &[u8]) -> Result<(), ErrorCode> {
        let (head, words, tail) = self.pieces(self.offset(to)?, bytes.len())?;
        let (first, rest) = bytes.split_at_checked(head.len()).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        let (chunks, last) = rest.as_chunks::<8>();
        head.iter().zip(first).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        words
            .iter()
            .zip(chunks)
            .for_each(|(to, from)| to.store(u64::from_le_bytes(*from), Ordering::Relaxed));
        tail.iter().zip(last).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        Ok(())
    }

    fn load(&self, word: DeviceAddr) -> Result<u64, ErrorCode> {
        Ok(self.word(word)?.load(Ordering::Acquire))
    }

    fn store(&mut self, word: DeviceAddr, value: u64) -> Result<(), ErrorCode> {
        self.word(word)?.store(value, Ordering::Release);
        Ok(())
    }

    unsafe fn entries(&mut self, first: DeviceAddr, count: usize) -> Result<&mut [Descriptor], ErrorCode> {
        let len = count.checked_mul(size_of::<Descriptor>()).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        let offset = self.offset(first)?;
        if offset < npu::HEAP {
            return Err(ErrorCode::CONTEXT_ADDRESS);
        }
        let at = self.pointer(offset, len, align_of::<Descriptor>())?;
        // SAFETY:
        // 1. `pointer` returned `len` bytes inside the window, aligned for a descriptor; any bytes are a descriptor.
        // 2. The caller owns these entries, and the result borrows the window mutably.
        Ok(unsafe { slice::from_raw_parts_mut(at.cast().as_ptr(), count) })
    }
}

#[cfg(test)]
pub(crate) mod tests;
