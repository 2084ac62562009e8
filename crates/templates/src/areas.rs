//! Areas: how the slices that a schedule moves are made of the blocks of a work area.

use core::num::NonZero;

use crate::group::{first_part, times};
use crate::slices::{SliceSet, Slices};

/// What a schedule works on: it moves slices, an area knows of which blocks they are made and where those lie.
pub(crate) trait Area: Copy {
    /// Returns the slices of a set as the fewest runs of blocks that can be moved as one: first block and number.
    fn runs(&self, set: SliceSet) -> impl Iterator<Item = (u32, u32)> + use<Self>;

    /// Returns offset and length of `count` blocks from `first` on that lie together.
    fn range(&self, first: u32, count: u32) -> (u64, u64);
}

/// Every block is a slice.
impl<'a> Area for Slices<'a> {
    #[inline]
    fn runs(&self, set: SliceSet) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        set.runs(self.parts(), self.is_contiguous())
    }

    #[inline]
    fn range(&self, first: u32, count: u32) -> (u64, u64) {
        let (start, len) = self.get(first);
        if count == 1 {
            return (start, len);
        }
        let (last_start, last_len) = self.get(first + count - 1);
        (start, last_start + last_len - start)
    }
}

/// Slices of several blocks each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nested<'a> {
    pub(crate) blocks: Slices<'a>,
    /// First block of slice 0.
    pub(crate) first: u32,
    /// Blocks from one slice to the next.
    pub(crate) slice_stride: u32,
    /// Blocks from one block of a slice to the next.
    pub(crate) block_stride: u32,
    /// Blocks of a slice.
    pub(crate) width: u32,
    /// Slices.
    pub(crate) slices: NonZero<u32>,
}

impl<'a> Area for Nested<'a> {
    fn runs(&self, set: SliceSet) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let Self { first, slice_stride, block_stride, width, slices, .. } = *self;
        let merges = self.blocks.is_contiguous() && block_stride == 1;
        set.runs(slices, merges && slice_stride == width).flat_map(move |(slice, count)| {
            let (runs, len) = if merges { (1, count * width) } else { (width, 1) };
            let start = first + slice * slice_stride;
            (0..runs).map(move |run| (start + run * block_stride, len))
        })
    }

    fn range(&self, first: u32, count: u32) -> (u64, u64) {
        self.blocks.range(first, count)
    }
}

/// Slice m is the block of the rank that is member m of a circle of all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotated<'a> {
    pub(crate) blocks: Slices<'a>,
    /// Block of rank 0.
    pub(crate) first: u32,
    /// Ranks from one member to the next.
    pub(crate) stride: u32,
    pub(crate) ranks: NonZero<u32>,
}

impl<'a> Area for Rotated<'a> {
    fn runs(&self, set: SliceSet) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let Self { first, stride, ranks, .. } = *self;
        set.runs(ranks, false).map(move |(slice, _)| (first + times(slice, stride, ranks), 1))
    }

    fn range(&self, first: u32, count: u32) -> (u64, u64) {
        self.blocks.range(first, count)
    }
}

/// Parts divided among owners; every part is `width` blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares<'a> {
    pub(crate) blocks: Slices<'a>,
    pub(crate) width: u32,
    pub(crate) parts: NonZero<u32>,
    pub(crate) owners: NonZero<u32>,
}

impl<'a> Area for Shares<'a> {
    fn runs(&self, set: SliceSet) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let Self { width, parts, owners, .. } = *self;
        set.runs(owners, true).map(move |(slice, count)| {
            let start = first_part(slice, parts, owners);
            (start * width, (first_part(slice + count, parts, owners) - start) * width)
        })
    }

    fn range(&self, first: u32, count: u32) -> (u64, u64) {
        if count == 0 { (0, 0) } else { self.blocks.range(first, count) }
    }
}
