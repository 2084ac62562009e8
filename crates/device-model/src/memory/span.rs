//! Checked bytes of a window: one end of a transfer.

// UNSAFETY: as in `memory`, of which this is a part.
#![expect(unsafe_code, reason = "moves bytes that others may map")]

use core::marker::PhantomData;
use core::{ptr, slice};

use wire::{DeviceAddr, ErrorCode, Reduction};

use super::Window;
use crate::reduce;

/// Longest stretch that is copied at once, bytes: it fits a core's own cache. The C library's copy goes by its length, and
/// reads what it overwrites once that exceeds such a cache (glibc 2.36 on AMD: a fifth slower from 1 MiB on).
const COPY_BLOCK: usize = 256 << 10;

/// Bytes of a window, which it borrows. The windows of a fabric are parts of one mapping, so that two spans of it can be
/// compared by where they are in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    /// `len` bytes from here on are inside the window; made of its own pointer, and so good for all its mapping.
    first: *mut u8,
    len: usize,
    window: PhantomData<&'a Window>,
}

impl Window {
    /// Returns the `len` bytes at `addr`, or `None` when they do not all lie in the window.
    #[inline]
    pub(crate) fn span(&self, addr: DeviceAddr, len: u64) -> Option<Span<'_>> {
        let offset = self.offset(addr, len)?;
        // CAST: both are at most the length of a mapping.
        #[expect(clippy::cast_possible_truncation, reason = "at most the length of a mapping")]
        let (offset, len) = (offset as usize, len as usize);
        // SAFETY: `bytes` bytes from `first` on are mapped; `offset` has checked that these are some of them.
        let first = unsafe { self.first.as_ptr().add(offset) };
        Some(Span { first, len, window: PhantomData })
    }
}

impl Span<'_> {
    /// Returns whether the two have a byte in common, whichever address spaces they were named in.
    #[inline]
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (here, there) = (self.first.addr(), other.first.addr());
        here < there + other.len && there < here + self.len
    }

    /// Copies `src` here.
    ///
    /// # Errors
    /// `SQE_OVERLAP` when the two overlap, `SQE_LENGTH` when their lengths differ.
    #[inline]
    pub(crate) fn copy_from(&self, src: &Self) -> Result<(), ErrorCode> {
        self.check_pair(src)?;
        let mut done = 0;
        while done < self.len {
            let count = COPY_BLOCK.min(self.len - done);
            // SAFETY: `done` is below the length, which both have.
            let from = unsafe { src.first.add(done) };
            // SAFETY: as above.
            let to = unsafe { self.first.add(done) };
            // SAFETY:
            // 1. Both ranges are parts of spans, and so inside their windows, which are mapped for as long as these live;
            //    the spans do not overlap, checked above.
            // 2. A task graph that lets two transfers race leaves undefined bytes in the buffer, as on silicon;
            //    nothing but bytes is made of them.
            unsafe { ptr::copy_nonoverlapping(from, to, count) };
            done += count;
        }
        Ok(())
    }

    /// Reduces `src` into these bytes.
    ///
    /// # Errors
    /// `SQE_OVERLAP` when the two overlap, `SQE_LENGTH`, `SQE_ALIGNMENT` and `SQE_REDUCE` as [`reduce::reduce`].
    #[inline]
    pub(crate) fn reduce_from(&self, src: &Self, reduction: Reduction) -> Result<(), ErrorCode> {
        self.check_pair(src)?;
        // SAFETY:
        // 1. The bytes are inside a window, which is mapped for as long as the span lives, and any bytes are valid.
        // 2. They do not overlap `src`. Other threads of this process reach payload only through this module, which
        //    keeps no reference beyond one call; a task graph in which two transfers race is refused by the verifier
        //    and leaves undefined bytes, as on silicon.
        let dst = unsafe { slice::from_raw_parts_mut(self.first, self.len) };
        // SAFETY: as above, for reading.
        let src = unsafe { slice::from_raw_parts(src.first.cast_const(), src.len) };
        reduce::reduce(reduction.dtype, reduction.op, dst, src)
    }

    /// Returns the `len` bytes at `skip`.
    ///
    /// # Panics
    /// When they are not inside the span.
    #[inline]
    pub(crate) fn part(&self, skip: u64, len: u64) -> Self {
        assert!(skip.checked_add(len).is_some_and(|end| end <= self.len as u64), "a part of a span is in it");
        // CAST: at most the length of the span.
        #[expect(clippy::cast_possible_truncation, reason = "at most the length of the span")]
        let (skip, len) = (skip as usize, len as usize);
        // SAFETY: inside the span, or its end, checked above.
        let first = unsafe { self.first.add(skip) };
        Self { first, len, ..*self }
    }

    /// Returns the number of bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.len as u64
    }

    /// Inverts one bit.
    ///
    /// # Panics
    /// When it is not inside the span.
    pub(crate) fn flip(&self, bit: u64) {
        let byte = self.part(bit / 8, 1);
        // SAFETY: one byte of a window, which is mapped for as long as the span lives; who else writes it meanwhile leaves
        // an undefined byte, as on silicon.
        let value = unsafe { byte.first.read() };
        // SAFETY: as above.
        unsafe { byte.first.write(value ^ 1 << (bit % 8)) };
    }

    /// Checks that the two can be the ends of one transfer.
    ///
    /// # Errors
    /// `SQE_OVERLAP`, `SQE_LENGTH`.
    #[inline]
    pub(crate) fn check_pair(&self, src: &Self) -> Result<(), ErrorCode> {
        if self.len != src.len {
            Err(ErrorCode::SQE_LENGTH)
        } else if self.overlaps(src) {
            Err(ErrorCode::SQE_OVERLAP)
        } else {
            Ok(())
        }
    }
}
