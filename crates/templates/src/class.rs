//! Size classes: counts whose graphs are the same but for lengths and offsets.
//!
//! Every length and offset of a template is a sum of whole slices, a tail and constants. With the tail and the number
//! of pieces fixed, all of them are affine in the size of a slice, the unit: one recorded graph serves every count of
//! the class, once the multiple of the unit that each lane holds is known.

use core::num::NonZero;

use wire::launch::{Algorithm, OpKind, Staging};

use crate::Tables;
use crate::family::{Family, family};
use crate::plan::Plan;

/// Bits of the tail in a class's number.
const TAIL_BITS: u32 = 17;

/// What two counts share when their graphs differ only by multiples of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass {
    /// Elements beyond whole units.
    pub tail: u32,
    /// Pieces of direct work, 0 where the template does not cut any.
    pub pieces: u64,
}

impl SizeClass {
    /// Returns a number that no other class has.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.pieces << TAIL_BITS | self.tail as u64
    }
}

impl Plan {
    /// Returns the class of this plan's count; `None` where only this very count has its graph: more than one chunk,
    /// empty slices, one rank, or so many bytes that an engine may split a transfer. `longest` is the longest transfer
    /// that every engine carries out as one, bytes.
    #[must_use]
    pub fn size_class(&self, longest: u64) -> Option<SizeClass> {
        let shape = self.shape();
        // Slices that lie together may travel together: no transfer is longer than all of them.
        let slices = if self.is_cut() { 1 } else { u64::from(shape.ranks) };
        let bytes = shape.count.checked_mul(shape.dtype.size_bytes())?.checked_mul(slices)?;
        let whole = self.chunks() == 1 && shape.ranks > 1 && bytes <= longest;
        // The blocks of a vector have no unit in common, nor have the parts of a script, and a barrier has no bytes.
        let without = shape.op.has_vector() || self.cut().is_some() || shape.op == OpKind::Barrier;
        if !whole || without || self.unit() == 0 {
            return None;
        }
        let tail = u32::try_from(shape.count % u64::from(self.cuts().get())).ok()?;
        // Larger ones have no number.
        if tail >> TAIL_BITS > 0 {
            return None;
        }
        let pieces = shape.staging == Staging::Direct && shape.op.reduces() && self.has_pieces();
        Some(SizeClass { tail, pieces: if pieces { self.pieces() } else { 0 } })
    }

    /// Returns the unit: bytes of a slice (all-reduce) or of one rank's share.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.unit() * self.shape().dtype.size_bytes()
    }

    /// Returns the plan of another count of the same class, one unit away; `None` where there is none. `longest` is as
    /// for the class, the tables are those of planning.
    #[must_use]
    pub fn neighbour(&self, longest: u64, tables: &Tables<'_>) -> Option<Self> {
        let class = self.size_class(longest)?;
        let step = u64::from(self.cuts().get());
        let counts = [self.shape().count.checked_add(step), self.shape().count.checked_sub(step)];
        let plans = counts
            .into_iter()
            .flatten()
            .filter_map(|count| Self::new(&crate::Shape { count, ..*self.shape() }, tables).ok());
        plans.into_iter().find(|plan| plan.size_class(longest) == Some(class))
    }

    /// Whether the elements are cut into slices, instead of every rank having a block.
    fn is_cut(&self) -> bool {
        matches!(self.shape().op, OpKind::AllReduce | OpKind::Broadcast | OpKind::Reduce)
    }

    fn has_pieces(&self) -> bool {
        matches!(family(self.shape().op, self.shape().algorithm), Some(Family::Mesh | Family::Exchange))
    }

    /// Elements of a unit.
    fn unit(&self) -> u64 {
        self.shape().count / NonZero::<u64>::from(self.cuts())
    }

    /// Pieces that this rank cuts its direct work into.
    fn pieces(&self) -> u64 {
        let shape = self.shape();
        let (unit, tail) = (self.unit(), shape.count % u64::from(self.parts().get()));
        let elements = match shape.algorithm {
            Algorithm::MeshTwoShot if shape.rank + 1 == shape.ranks => unit + tail,
            Algorithm::MeshTwoShot => unit,
            // The root's alone; the others have none, whatever the number.
            _ => shape.count,
        };
        let (bytes, piece) = (elements * shape.dtype.size_bytes(), self.piece());
        bytes / piece + u64::from(bytes % piece > 0)
    }
}
