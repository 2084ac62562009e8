//! The documented orders of reduction: each algorithm's, once more, as trees.

use wire::launch::{Algorithm, OpKind};

/// In which order the elements of a slice are reduced. N ranks, x_r the input of rank r, `a · b` is b reduced into a;
/// each slice has an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// x_j · ( … · (x_{j+2} · x_{j+1})): once around, ending at the owner j. A slice for each rank.
    Ring,
    /// x_j · (x_{j+1} · ( … · x_{j−1})): hand to hand from the farthest rank to the owner j. One slice.
    Chain,
    /// A(r) := A(r) · A(r ⊕ d) for d = N/2 … 1, ranks above the largest power of two folded in first. A slice for
    /// each rank up to that.
    HalvingDoubling,
    /// The binary tree over the distance ahead of the owner. A slice for each rank.
    Nhr,
    /// As NHR, but of 2^a · m ranks, m odd, slice c · m + h belongs to rank h · 2^a + c', c' the a bits of c in reverse.
    NhrReversed,
    /// The binary tree over the distance behind the owner. A slice for each rank.
    Nb,
    /// As NHR, one slice.
    Tree,
    /// (x_0 · x_1) · x_2 …
    Rank,
    /// The upper half folded onto the lower at the largest power of two below the remaining count, again and again.
    Strict,
    /// Any order that is the same at all ranks that hold the result.
    Any,
}

impl Order {
    /// Returns the documented order of an operation's algorithm.
    #[must_use]
    pub const fn of(op: OpKind, algorithm: Algorithm) -> Self {
        match (op, algorithm) {
            (OpKind::Reduce, Algorithm::Ring) => Self::Chain,
            (_, Algorithm::Ring) => Self::Ring,
            (_, Algorithm::HalvingDoubling) => Self::HalvingDoubling,
            (OpKind::AllReduce, Algorithm::Nhr) => Self::NhrReversed,
            (_, Algorithm::Nhr) => Self::Nhr,
            (_, Algorithm::Nb) => Self::Nb,
            (_, Algorithm::Tree) => Self::Tree,
            (_, Algorithm::MeshOneShot | Algorithm::MeshTwoShot | Algorithm::Pairwise | Algorithm::Star) => {
                Self::Rank
            }
            (_, Algorithm::Strict) => Self::Strict,
            // Not documented: compositions of others.
            _ => Self::Any,
        }
    }

    /// How many slices with an owner of their own a chunk has.
    pub(crate) fn slices(self, ranks: u32) -> u32 {
        match self {
            Self::Ring | Self::Nhr | Self::NhrReversed | Self::Nb => ranks,
            Self::HalvingDoubling => 1 << ranks.max(1).ilog2(),
            Self::Chain | Self::Tree | Self::Rank | Self::Strict | Self::Any => 1,
        }
    }

    /// Returns the owner of a slice, counted from the root on.
    pub(crate) fn owner(self, slice: u32, ranks: u32) -> u32 {
        match (self, ranks.trailing_zeros()) {
            (Self::NhrReversed, bits @ 1..) => {
                let width = ranks >> bits;
                let (class, place) = (slice / width, slice % width);
                (place << bits) + (class.reverse_bits() >> (u32::BITS - bits))
            }
            _ => slice,
        }
    }

    /// Returns the reductions (into, from) that make an element of the slice of `owner`, each on what the ranks hold by
    /// then, the result last; `None` where the order is free.
    pub(crate) fn merges(self, owner: u32, ranks: u32) -> Option<Vec<(u32, u32)>> {
        let ahead = |distance: u32| (owner + distance) % ranks;
        let behind = |distance: u32| (owner + ranks - distance) % ranks;
        Some(match self {
            Self::Any => return None,
            Self::Rank => (1..ranks).map(|rank| (0, rank)).collect(),
            Self::Ring => (2..=ranks).map(|hop| (ahead(hop), ahead(hop - 1))).collect(),
            Self::Chain => (1..ranks).rev().map(|hop| (ahead(hop - 1), ahead(hop))).collect(),
            Self::Nhr | Self::NhrReversed | Self::Tree => tree(ranks, ahead),
            Self::Nb => tree(ranks, behind),
            Self::Strict => {
                let (mut list, mut left) = (Vec::new(), ranks);
                while left > 1 {
                    let lower = 1 << (left - 1).ilog2();
                    list.extend((lower..left).map(|rank| (rank - lower, rank)));
                    left = lower;
                }
                list
            }
            Self::HalvingDoubling => {
                let core = 1 << ranks.ilog2();
                let mut list: Vec<_> = (core..ranks).map(|rank| (rank - core, rank)).collect();
                let mut distance = core / 2;
                while distance > 0 {
                    // Who keeps this slice: those that agree with its owner from this bit on. The owner comes last,
                    // so that the final reduction is its own.
                    let mut kept: Vec<_> = (0..core).filter(|rank| (rank ^ owner) < distance).collect();
                    kept.sort_unstable_by_key(|rank| *rank == owner);
                    list.extend(kept.into_iter().map(|rank| (rank, rank ^ distance)));
                    distance /= 2;
                }
                list
            }
        })
    }
}

/// The binary tree over distances: d takes d + 1, then every second one of those left the next, and so on.
fn tree(ranks: u32, at: impl Fn(u32) -> u32) -> Vec<(u32, u32)> {
    let mut list = Vec::new();
    let mut distance = 1;
    while distance < ranks {
        let left = (0..ranks - distance).step_by(2 * distance as usize);
        list.extend(left.map(|near| (at(near), at(near + distance))));
        distance *= 2;
    }
    list
}

/// Cuts `count` elements into `parts` slices of ⌊count / parts⌋, the tail in the last: first element and length.
pub(crate) fn slices(count: u64, parts: u32) -> impl Iterator<Item = (u64, u64)> {
    let unit = count / u64::from(parts.max(1));
    (0..u64::from(parts)).map(move |slice| {
        let last = slice + 1 == u64::from(parts);
        (slice * unit, if last { count - slice * unit } else { unit })
    })
}
