//! Slices: how a work area is divided among the ranks.

use core::num::NonZero;

use crate::schedule::wrapped;

/// Consecutive or strided parts of one region, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slices {
    base: u64,
    stride: u64,
    unit: u64,
    last: u64,
    parts: NonZero<u32>,
}

impl Slices {
    /// Cuts `count` elements into `parts` slices of ⌊count / parts⌋; the tail goes to the last.
    pub(crate) fn cut(base: u64, count: u64, parts: NonZero<u32>, element: u64) -> Self {
        let unit = count / NonZero::<u64>::from(parts) * element;
        let last = count * element - unit * u64::from(parts.get() - 1);
        Self { base, stride: unit, unit, last, parts }
    }

    /// Makes `parts` slices of `len` bytes, `stride` bytes apart.
    pub(crate) fn blocks(base: u64, stride: u64, len: u64, parts: NonZero<u32>) -> Self {
        Self { base, stride, unit: len, last: len, parts }
    }

    /// Returns offset and length of one slice.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> (u64, u64) {
        let len = if index + 1 == self.parts.get() { self.last } else { self.unit };
        (self.base + u64::from(index) * self.stride, len)
    }

    /// Returns offset and length of `count` slices from `first` on that lie together.
    #[inline]
    pub(crate) fn range(&self, first: u32, count: u32) -> (u64, u64) {
        let (start, len) = self.get(first);
        if count == 1 {
            return (start, len);
        }
        let (last_start, last_len) = self.get(first + count - 1);
        (start, last_start + last_len - start)
    }
}

/// The slices that one step moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceSet {
    /// `count` slices: `first`, `first − back`, `first − 2·back` …, modulo `parts`.
    Stepped { first: u32, count: u32, back: u32, parts: NonZero<u32> },
    /// `count` slices that lie together, moved as one.
    Together { first: u32, count: u32 },
}

impl SliceSet {
    /// Calls `each` with the index of a slice and the number of slices from there on that move as one.
    #[inline]
    pub(crate) fn runs(self) -> impl Iterator<Item = (u32, u32)> {
        let (first, steps, back, parts, width) = match self {
            Self::Stepped { first, count, back, parts } => (first, count, wrapped(back, parts), parts, 1),
            Self::Together { first, count } => (first, 1, 0, NonZero::<u32>::MAX, count),
        };
        let mut index = first;
        (0..steps).map(move |_| {
            let run = (index, width);
            index = if index >= back { index - back } else { index + parts.get() - back };
            run
        })
    }
}
