//! Slices: how a work area is divided among the ranks.

use core::num::NonZero;

use wire::launch::ElementRange;

use crate::schedule::wrapped;
use crate::tables::Vector;

/// Consecutive or strided parts of one region, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slices<'a> {
    base: u64,
    stride: u64,
    unit: u64,
    last: u64,
    parts: NonZero<u32>,
    /// Lengths of their own, where the operation has a vector.
    lengths: Option<Lengths<'a>>,
}

/// The lengths of the blocks of a vector within one chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths<'a> {
    pub(crate) vector: Vector<'a>,
    /// Elements of each block that the chunk has.
    pub(crate) chunk: ElementRange,
    pub(crate) element: u64,
}

impl<'a> Slices<'a> {
    /// Cuts `count` elements into `parts` slices of ⌊count / parts⌋; the tail goes to the last.
    pub(crate) fn cut(base: u64, count: u64, parts: NonZero<u32>, element: u64) -> Self {
        let unit = count / NonZero::<u64>::from(parts) * element;
        let last = count * element - unit * u64::from(parts.get() - 1);
        Self { base, stride: unit, unit, last, parts, lengths: None }
    }

    /// Makes `parts` slices of `len` bytes, `stride` bytes apart.
    pub(crate) fn blocks(base: u64, stride: u64, len: u64, parts: NonZero<u32>) -> Self {
        Self { base, stride, unit: len, last: len, parts, lengths: None }
    }

    /// Makes `parts` slices with lengths of their own, `stride` bytes apart.
    pub(crate) fn uneven(base: u64, stride: u64, lengths: Lengths<'a>, parts: NonZero<u32>) -> Self {
        Self { base, stride, unit: 0, last: 0, parts, lengths: Some(lengths) }
    }

    /// Returns offset and length of one slice.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> (u64, u64) {
        let len = match &self.lengths {
            None if index + 1 == self.parts.get() => self.last,
            None => self.unit,
            Some(lengths) => lengths.of(index),
        };
        (self.base + u64::from(index) * self.stride, len)
    }

    /// Returns offset and length of `count` slices from `first` on that lie together.
    #[inline]
    pub(crate) fn range(&self, first: u32, count: u32) -> (u64, u64) {
        let (start, len) = self.get(first);
        if count <= 1 {
            return (start, len * u64::from(count));
        }
        let (last_start, last_len) = self.get(first + count - 1);
        (start, last_start + last_len - start)
    }

    /// Returns part `index` of `parts` of every slice, the tail in the last part. For slices of one length.
    pub(crate) fn part(self, index: u32, parts: NonZero<u32>, element: u64) -> Self {
        let cut = Self::cut(self.base, self.unit / element.max(1), parts, element);
        let (base, len) = cut.get(index);
        Self { base, unit: len, last: len, ..self }
    }

    /// Whether they lie one behind the other. Slices with gaps between them never move as one.
    #[inline]
    pub(crate) fn is_contiguous(&self) -> bool {
        self.lengths.is_none() && self.stride == self.unit
    }
}

impl Lengths<'_> {
    /// Returns the bytes of one block.
    fn of(&self, index: u32) -> u64 {
        let Self { chunk, element, .. } = self;
        self.vector.block(index).count.saturating_sub(chunk.first).min(chunk.count) * element
    }
}

/// The slices that one step moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceSet {
    /// `count` slices behind `base`: `first`, `first − back`, `first − 2·back` …, modulo `parts`.
    Stepped { base: u32, first: u32, count: u32, back: u32, parts: NonZero<u32> },
    /// `count` slices one behind the other, moved as one where they lie together.
    Together { first: u32, count: u32 },
}

impl SliceSet {
    /// Returns the slices as runs, first slice and number: each on its own, unless those that lie `together` merge.
    #[inline]
    pub(crate) fn runs(self, slices: NonZero<u32>, together: bool) -> impl Iterator<Item = (u32, u32)> {
        let (base, first, steps, back, parts, width) = match self {
            Self::Stepped { base, first, count, back, parts } => {
                (base, first, count, wrapped(back, parts), parts, 1)
            }
            Self::Together { first, count } if together => (0, first, 1, 0, NonZero::<u32>::MAX, count),
            Self::Together { first, count } => (0, first, count, slices.get() - 1, slices, 1),
        };
        let mut index = first;
        (0..steps).map(move |_| {
            let run = (base + index, width);
            index = if index >= back { index - back } else { index + parts.get() - back };
            run
        })
    }

    /// One slice.
    #[inline]
    pub(crate) fn single(slice: u32) -> Self {
        Self::Together { first: slice, count: 1 }
    }
}
