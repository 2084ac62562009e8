//! Groups: the ranks that run a schedule among themselves, numbered as members.

use core::num::NonZero;

use task_graph::Rank;
use wire::launch::Algorithm;

use crate::schedule::{core, wrapped};

/// Some of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group<'a> {
    /// Ranks at equal distances. Member 0 is the root where there is one, member m the m-th behind it, around the
    /// circle.
    Spaced {
        first: Rank,
        stride: NonZero<u32>,
        /// Place of member 0 in the order of ranks.
        root: u32,
        members: NonZero<u32>,
    },
    /// All ranks, each member `stride` ranks behind the one before, around the circle: no divisor in common with their
    /// number.
    Circle { stride: u32, ranks: NonZero<u32> },
    /// One rank of every server: the one that holds a certain part of the data.
    Owners(Owners<'a>),
}

/// Of every server, the rank that holds part `part` of `parts` when each divides all of them among its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owners<'a> {
    pub(crate) servers: Servers<'a>,
    pub(crate) part: u32,
    pub(crate) parts: NonZero<u32>,
    /// What the ranks of a server run among themselves; not all of them need hold a part.
    pub(crate) algorithm: Algorithm,
}

/// The servers, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Servers<'a> {
    firsts: &'a [Rank],
    ranks: NonZero<u32>,
}

impl<'a> Group<'a> {
    /// Returns all ranks, numbered from `root` on.
    pub(crate) fn all(ranks: NonZero<u32>, root: Rank) -> Self {
        Self::Spaced { first: 0, stride: NonZero::<u32>::MIN, root, members: ranks }
    }

    /// Returns how many there are.
    pub(crate) fn members(&self) -> NonZero<u32> {
        match *self {
            Self::Spaced { members, .. } | Self::Circle { ranks: members, .. } => members,
            Self::Owners(owners) => owners.servers.count(),
        }
    }

    /// Returns the rank of a member.
    #[inline]
    pub(crate) fn rank(&self, member: u32) -> Rank {
        match *self {
            Self::Spaced { first, stride, root, members } => {
                first + stride.get() * wrapped(member + root, members)
            }
            Self::Circle { stride, ranks } => times(member, stride, ranks),
            Self::Owners(owners) => owners.rank(member),
        }
    }

    /// Returns the number of a rank that is a member.
    pub(crate) fn member(&self, rank: Rank) -> u32 {
        match *self {
            Self::Spaced { first, stride, root, members } => {
                wrapped((rank - first) / stride + members.get() - root, members)
            }
            Self::Circle { stride, ranks } => {
                (0..ranks.get()).find(|&member| times(member, stride, ranks) == rank).unwrap_or(0)
            }
            Self::Owners(owners) => owners.servers.of(rank),
        }
    }
}

impl Owners<'_> {
    fn rank(&self, server: u32) -> Rank {
        let (first, size) = self.servers.get(server);
        first + owner(self.part, self.parts, core(self.algorithm, size))
    }
}

impl<'a> Servers<'a> {
    /// Takes the first rank of every server, ascending; none for one server.
    pub(crate) fn new(firsts: &'a [Rank], ranks: NonZero<u32>) -> Self {
        Self { firsts, ranks }
    }

    /// Returns how many there are.
    pub(crate) fn count(&self) -> NonZero<u32> {
        u32::try_from(self.firsts.len()).ok().and_then(NonZero::new).unwrap_or(NonZero::<u32>::MIN)
    }

    /// Returns first rank and size of a server.
    pub(crate) fn get(&self, server: u32) -> (Rank, NonZero<u32>) {
        let start = |index: usize| self.firsts.get(index).copied();
        let index = usize::try_from(server).unwrap_or(usize::MAX);
        let first = start(index).unwrap_or(0);
        let end = start(index.saturating_add(1)).unwrap_or(self.ranks.get());
        (first, NonZero::new(end.saturating_sub(first)).unwrap_or(NonZero::<u32>::MIN))
    }

    /// Returns the server of a rank.
    pub(crate) fn of(&self, rank: Rank) -> u32 {
        let behind = self.firsts.partition_point(|&first| first <= rank);
        u32::try_from(behind.saturating_sub(1)).unwrap_or(0)
    }

    /// Returns the sizes of all.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = NonZero<u32>> + use<'a> {
        let all = *self;
        (0..all.count().get()).map(move |server| all.get(server).1)
    }
}

/// Returns the first of the `parts` that owner `owner` of `owners` holds: equal shares, where they can be.
pub(crate) fn first_part(owner: u32, parts: NonZero<u32>, owners: NonZero<u32>) -> u32 {
    let product = u64::from(owner) * u64::from(parts.get());
    u32::try_from(product / NonZero::<u64>::from(owners)).unwrap_or(u32::MAX)
}

/// Returns the owner that holds part `part`: the last whose first part is not behind it.
pub(crate) fn owner(part: u32, parts: NonZero<u32>, owners: NonZero<u32>) -> u32 {
    let product = (u64::from(part) + 1) * u64::from(owners.get());
    u32::try_from(product.div_ceil(u64::from(parts.get())).saturating_sub(1)).unwrap_or(0)
}

/// Returns a product modulo `modulus`.
pub(crate) fn times(a: u32, b: u32, modulus: NonZero<u32>) -> u32 {
    // CAST: below the modulus.
    u32::try_from(u64::from(a) * u64::from(b) % NonZero::<u64>::from(modulus)).unwrap_or(0)
}

/// Returns the greatest common divisor.
pub(crate) fn common_divisor(a: u32, b: u32) -> u32 {
    let (mut a, mut b) = (a, b);
    while let Some(divisor) = NonZero::new(b) {
        (a, b) = (b, a % divisor);
    }
    a
}
