//! Divisions: how the slices that a schedule moves are made of the blocks of an area.

use core::num::NonZero;

use crate::group::{first_part, times};
use crate::slices::SliceSet;

/// How blocks are shared out among slices: the same in a work area and in the landing area that mirrors it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Division {
    /// As many blocks each, at equal distances.
    Strided {
        /// First block of slice 0.
        first: u32,
        /// Blocks from one slice to the next.
        slice_stride: u32,
        /// Blocks from one block of a slice to the next.
        block_stride: u32,
        /// Blocks of a slice.
        width: u32,
        /// Slices.
        slices: NonZero<u32>,
    },
    /// Slice m is the block of the rank that is member m of a circle of all ranks.
    Rotated {
        /// Block of rank 0.
        first: u32,
        /// Ranks from one member to the next.
        stride: u32,
        ranks: NonZero<u32>,
    },
    /// Parts divided among owners, a slice each; every part is `width` blocks.
    Shares { width: u32, parts: NonZero<u32>, owners: NonZero<u32> },
}

/// Blocks at equal distances, in runs of some that lie together.
struct Blocks {
    first: u32,
    stride: u32,
    runs: u32,
    /// Blocks of a run.
    width: u32,
}

impl Division {
    /// Every block is a slice.
    pub(crate) fn into_blocks(slices: NonZero<u32>) -> Self {
        Self::Strided { first: 0, slice_stride: 1, block_stride: 1, width: 1, slices }
    }

    /// Of slices of several blocks, each has one only: its `index`-th.
    pub(crate) fn block(self, index: u32) -> Self {
        match self {
            Self::Strided { first, slice_stride, block_stride, slices, .. } => Self::Strided {
                first: first + index * block_stride,
                slice_stride,
                block_stride,
                width: 1,
                slices,
            },
            other => other,
        }
    }

    /// Returns the slices of a set as the fewest runs of blocks that can be moved as one, first block and number, where
    /// neighbouring blocks lie `together` or not.
    #[inline]
    pub(crate) fn runs(self, set: SliceSet, together: bool) -> impl Iterator<Item = (u32, u32)> {
        set.runs(self.slices(), together && self.keeps_order()).flat_map(move |(slice, count)| {
            let Blocks { first, stride, runs, width } = self.blocks(slice, count, together);
            (0..runs).map(move |run| (first + run * stride, width))
        })
    }

    /// Returns the one run of a set whose slices are known to be one; `None` where that takes more to tell.
    #[inline]
    pub(crate) fn run(self, set: SliceSet, together: bool) -> Option<(u32, u32)> {
        let SliceSet::Together { first, count } = set else { return None };
        if count > 1 && !(together && self.keeps_order()) {
            return None;
        }
        let blocks = self.blocks(first, count, together);
        (blocks.runs == 1).then_some((blocks.first, blocks.width))
    }

    /// Whether slices are neighbours where their numbers are.
    #[inline]
    fn keeps_order(self) -> bool {
        match self {
            Self::Strided { slice_stride, block_stride, width, .. } => {
                block_stride == 1 && slice_stride == width
            }
            Self::Rotated { .. } => false,
            Self::Shares { .. } => true,
        }
    }

    /// Returns how many slices there are.
    #[inline]
    fn slices(self) -> NonZero<u32> {
        match self {
            Self::Strided { slices, .. } => slices,
            Self::Rotated { ranks, .. } => ranks,
            Self::Shares { owners, .. } => owners,
        }
    }

    /// Returns the blocks of `count` slices from `slice` on; of more than one only where they are neighbours.
    #[inline]
    fn blocks(self, slice: u32, count: u32, together: bool) -> Blocks {
        let one = |first, width| Blocks { first, stride: 0, runs: 1, width };
        match self {
            Self::Strided { first, slice_stride, block_stride, width, .. } => {
                let first = first + slice * slice_stride;
                if together && block_stride == 1 {
                    one(first, count * width)
                } else {
                    Blocks { first, stride: block_stride, runs: width, width: 1 }
                }
            }
            Self::Rotated { first, stride, ranks } => one(first + times(slice, stride, ranks), 1),
            Self::Shares { width, parts, owners } => {
                let start = first_part(slice, parts, owners);
                one(start * width, (first_part(slice + count, parts, owners) - start) * width)
            }
        }
    }
}
