//! The documented orders of reduction: the table at the head of the `templates` crate, once more, as trees.

use wire::launch::Algorithm;

/// In which order the elements of a slice are reduced. N ranks, x_r the input of rank r, `a · b` is b reduced into a.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// x_j · ( … · (x_{j+2} · x_{j+1})): once around, ending at rank j of slice j.
    Ring,
    /// A(r) := A(r) · A(r ⊕ d) for d = N/2 … 1, ranks above the largest power of two folded in first.
    HalvingDoubling,
    /// The binary tree over the distance from rank j of slice j.
    Nhr,
    /// (x_0 · x_1) · x_2 …
    Rank,
    /// Any order that is the same at all ranks that hold the result.
    Any,
}

impl Order {
    /// Returns the documented order of an algorithm.
    #[must_use]
    pub const fn of(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Ring => Self::Ring,
            Algorithm::HalvingDoubling => Self::HalvingDoubling,
            Algorithm::Nhr => Self::Nhr,
            Algorithm::MeshOneShot | Algorithm::MeshTwoShot => Self::Rank,
        }
    }

    /// How many slices with an order of their own a chunk has.
    pub(crate) fn slices(self, ranks: u32) -> u32 {
        match self {
            Self::Ring | Self::Nhr => ranks,
            Self::HalvingDoubling => 1 << ranks.max(1).ilog2(),
            Self::Rank | Self::Any => 1,
        }
    }

    /// Returns the reductions (into, from) that make an element of a slice, each on what the ranks hold by then, the
    /// result last; `None` where the order is free.
    pub(crate) fn merges(self, slice: u32, ranks: u32) -> Option<Vec<(u32, u32)>> {
        let ahead = |distance: u32| (slice + distance) % ranks;
        Some(match self {
            Self::Any => return None,
            Self::Rank => (1..ranks).map(|rank| (0, rank)).collect(),
            Self::Ring => (2..=ranks).map(|hop| (ahead(hop), ahead(hop - 1))).collect(),
            Self::Nhr => {
                let mut list = Vec::new();
                let mut distance = 1;
                while distance < ranks {
                    let left = (0..ranks - distance).step_by(2 * distance as usize);
                    list.extend(left.map(|at| (ahead(at), ahead(at + distance))));
                    distance *= 2;
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
                    let mut kept: Vec<_> = (0..core).filter(|rank| (rank ^ slice) < distance).collect();
                    kept.sort_unstable_by_key(|rank| *rank == slice);
                    list.extend(kept.into_iter().map(|rank| (rank, rank ^ distance)));
                    distance /= 2;
                }
                list
            }
        })
    }
}

/// Cuts `count` elements into `parts` slices of ⌊count / parts⌋, the tail in the last: first element and length.
pub(crate) fn slices(count: u64, parts: u32) -> impl Iterator<Item = (u64, u64)> {
    let unit = count / u64::from(parts.max(1));
    (0..u64::from(parts)).map(move |slice| {
        let last = slice + 1 == u64::from(parts);
        (slice * unit, if last { count - slice * unit } else { unit })
    })
}
