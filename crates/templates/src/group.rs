//! Groups: the ranks that run a schedule among themselves, numbered as members.

use core::num::NonZero;

use task_graph::Rank;

use crate::schedule::wrapped;

/// Ranks at equal distances. Member 0 is the root where there is one, member m the m-th behind it, around the circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    first: Rank,
    stride: u32,
    /// Place of member 0 in the order of ranks.
    root: u32,
    members: NonZero<u32>,
}

impl Group {
    /// Returns all ranks, numbered from `root` on.
    pub(crate) fn all(ranks: NonZero<u32>, root: Rank) -> Self {
        Self { first: 0, stride: 1, root, members: ranks }
    }

    /// Returns how many there are.
    pub(crate) fn members(&self) -> NonZero<u32> {
        self.members
    }

    /// Returns the rank of a member.
    #[inline]
    pub(crate) fn rank(&self, member: u32) -> Rank {
        self.first + self.stride * wrapped(member + self.root, self.members)
    }

    /// Returns the number of a rank that is a member.
    pub(crate) fn member(&self, rank: Rank) -> u32 {
        let place = (rank - self.first) / NonZero::new(self.stride).unwrap_or(NonZero::<u32>::MIN);
        wrapped(place + self.members.get() - self.root, self.members)
    }
}
