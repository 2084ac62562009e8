//! Size classes: counts whose graphs are the same but for lengths and offsets.
//!
//! Every length and offset of a template is a sum of whole slices, a tail and constants. With the tail and the number
//! of pieces fixed, all of them are affine in the size of a slice, the unit: one recorded graph serves every count of
//! the class, once the multiple of the unit that each lane holds is known.

use core::num::NonZero;

use wire::launch::{Algorithm, OpKind, Staging};

use crate::plan::{Plan, is_mesh};

/// Operations above this many bytes per rank may be split by an engine, so that their graphs differ.
const LARGEST: u64 = 128 << 20;

/// What two counts share when their graphs differ only by multiples of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass {
    /// Elements beyond whole slices: below the number of ranks.
    pub tail: u32,
    /// Pieces of direct work, 0 where the template does not cut any.
    pub pieces: u64,
}

impl SizeClass {
    /// Returns a number that no other class has.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.pieces << 17 | self.tail as u64
    }
}

impl Plan {
    /// Returns the class of this plan's count; `None` where only this very count has its graph: more than one chunk,
    /// empty slices, one rank, or transfers so long that an engine may split them.
    #[must_use]
    pub fn size_class(&self) -> Option<SizeClass> {
        let shape = self.shape();
        let bytes = shape.count.checked_mul(shape.dtype.size_bytes())?;
        let whole = self.chunks() == 1 && shape.ranks > 1 && bytes <= LARGEST;
        if !whole || self.unit() == 0 {
            return None;
        }
        let tail = shape.count % u64::from(self.parts().get());
        let tail = if shape.op == OpKind::AllReduce { u32::try_from(tail).ok()? } else { 0 };
        let cut = shape.staging == Staging::Direct && is_mesh(shape.algorithm);
        Some(SizeClass { tail, pieces: if cut { self.pieces() } else { 0 } })
    }

    /// Returns the unit: bytes of a slice (all-reduce) or of one rank's share.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.unit() * self.shape().dtype.size_bytes()
    }

    /// Returns the plan of another count of the same class, one unit away; `None` where there is none.
    #[must_use]
    pub fn neighbour(&self) -> Option<Self> {
        let class = self.size_class()?;
        let step = if self.shape().op == OpKind::AllReduce { u64::from(self.parts().get()) } else { 1 };
        let counts = [self.shape().count.checked_add(step), self.shape().count.checked_sub(step)];
        let plans = counts
            .into_iter()
            .flatten()
            .filter_map(|count| Self::new(&crate::Shape { count, ..*self.shape() }).ok());
        plans.into_iter().find(|plan| plan.size_class() == Some(class))
    }

    /// Elements of a unit.
    fn unit(&self) -> u64 {
        match self.shape().op {
            OpKind::AllReduce => self.shape().count / NonZero::<u64>::from(self.parts()),
            OpKind::AllGather | OpKind::ReduceScatter => self.shape().count,
        }
    }

    /// Pieces that this rank cuts its direct work into.
    fn pieces(&self) -> u64 {
        let shape = self.shape();
        let (unit, tail) = (self.unit(), shape.count % u64::from(self.parts().get()));
        let elements = match shape.algorithm {
            Algorithm::MeshOneShot => shape.count,
            _ if shape.rank + 1 == shape.ranks => unit + tail,
            _ => unit,
        };
        let (bytes, piece) = (elements * shape.dtype.size_bytes(), self.piece());
        bytes / piece + u64::from(bytes % piece > 0)
    }
}
