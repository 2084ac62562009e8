//! Levels: how compositions divide the ranks, and what each level runs.
//!
//! Level 0 is inside the servers, level 1 across them (of three: inside a super pod), level 2 across super pods. A
//! level is the same everywhere: its groups are as large as fits every server (and super pod), the greatest common
//! divisor of their edges. Servers of equal size are level 0 then; servers of 6 and 4 ranks are groups of 2, of which
//! level 1 joins all five. A level of one member has no steps.

use core::num::NonZero;

use task_graph::Rank;
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind};

use crate::group::{Group, Servers, common_divisor};
use crate::plan::{PlanError, Shape};
use crate::schedule::core;
use crate::tables::Tables;

const ONE: NonZero<u32> = NonZero::<u32>::MIN;

/// Fewest parts that AHC cuts the data into where the least common multiple of the servers' sizes is more.
const MANY_PARTS: u32 = 1024;

/// Most parts that AHC cuts the data into.
const MOST_PARTS: u32 = 1 << 30;

/// Most rings of a multi-ring.
const MAX_RINGS: usize = 8;

/// One level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// Ranks of a group.
    pub(crate) members: NonZero<u32>,
    /// Ranks from one member to the next.
    pub(crate) stride: NonZero<u32>,
    /// Members that hold a slice: all, or the core of halving-doubling.
    pub(crate) core: NonZero<u32>,
    /// Blocks of a slice: one for every holder of the levels above.
    pub(crate) width: u32,
    pub(crate) algorithm: Algorithm,
}

impl Level {
    /// A level that has nobody to talk to.
    pub(crate) const ALONE: Self =
        Self { members: ONE, stride: ONE, core: ONE, width: 1, algorithm: Algorithm::Ring };
}

/// The levels of a composition, and how it cuts the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    pub(crate) list: [Level; 3],
    /// Parts that the count is cut into.
    pub(crate) cuts: NonZero<u32>,
    /// Parts of the data that the ranks of a server divide among themselves, of AHC.
    pub(crate) parts: NonZero<u32>,
    /// Members of the largest group that exchanges by mesh, 1 for none.
    pub(crate) mesh: u32,
}

impl Levels {
    /// Returns the levels of a composition, and the parts that any algorithm cuts the count into.
    ///
    /// # Errors
    /// `PLAN_OP` for algorithms of levels that cannot run there, or that there are none of; `PLAN_RANKS` for servers
    /// that would have to cut the data into more parts than can be numbered.
    pub(crate) fn of(shape: &Shape, tables: &Tables<'_>, ranks: NonZero<u32>) -> Result<Self, PlanError> {
        if is_composition(shape.algorithm) {
            return Self::new(shape, tables, ranks);
        }
        if shape.levels.iter().any(Option::is_some) {
            return Err(PlanError { code: ErrorCode::PLAN_OP, need: 0, limit: 0 });
        }
        let whole = matches!(shape.op, OpKind::AllReduce | OpKind::Broadcast | OpKind::Reduce);
        let of_share = match shape.algorithm {
            Algorithm::MultiRing => {
                NonZero::new(u32::try_from(strides(ranks).count()).unwrap_or(1)).unwrap_or(ONE)
            }
            Algorithm::MeshChunk => NonZero::new(ranks.get() - 1).unwrap_or(ONE),
            _ => ONE,
        };
        let shares = if whole { core(shape.algorithm, ranks) } else { ONE };
        Ok(Self { list: [Level::ALONE; 3], cuts: shares.saturating_mul(of_share), parts: ONE, mesh: 1 })
    }

    /// Checks what the levels of a composition are to run.
    ///
    /// # Errors
    /// `PLAN_OP` when one of them cannot.
    fn new(shape: &Shape, tables: &Tables<'_>, ranks: NonZero<u32>) -> Result<Self, PlanError> {
        let unknown = (0..4).any(|level| level_algorithm(shape, level).is_none());
        if unknown || shape.levels.iter().skip(levels_of(shape.algorithm)).any(Option::is_some) {
            return Err(PlanError { code: ErrorCode::PLAN_OP, need: 0, limit: 0 });
        }
        if shape.algorithm == Algorithm::Ahc {
            return Self::of_servers(shape, Servers::new(tables.servers, ranks));
        }
        let edges =
            [tables.servers, if shape.algorithm == Algorithm::ThreeLevel { tables.pods } else { &[] }];
        let mut list = [Level::ALONE; 3];
        let mut stride = ONE;
        let (mut cuts, mut mesh) = (1_u32, 1);
        for (index, level) in list.iter_mut().enumerate().take(levels_of(shape.algorithm)) {
            // The top level takes all that is left.
            let top = index + 1 == levels_of(shape.algorithm);
            let edges = if top { &[] } else { edges.get(index).copied().unwrap_or(&[]) };
            let size = edges.iter().fold(ranks.get(), |size, &edge| common_divisor(size, edge));
            let members = NonZero::new(size / stride).unwrap_or(ONE);
            let algorithm = level_algorithm(shape, index).unwrap_or(Algorithm::Nhr);
            *level = Level { members, stride, core: core(algorithm, members), width: 1, algorithm };
            if level.core < members && shape.op != OpKind::AllReduce {
                let (need, limit) = (level.core.get().into(), members.get().into());
                return Err(PlanError { code: ErrorCode::PLAN_OP, need, limit });
            }
            stride = NonZero::new(size).unwrap_or(ONE);
            cuts *= level.core.get();
            if is_mesh(algorithm) {
                mesh = mesh.max(members.get());
            }
        }
        let mut width = 1;
        for level in list.iter_mut().rev() {
            level.width = width;
            width *= level.core.get();
        }
        let cut = matches!(shape.op, OpKind::AllReduce | OpKind::Broadcast);
        let cuts = if cut { NonZero::new(cuts).unwrap_or(ONE) } else { ONE };
        Ok(Self { list, cuts, parts: ONE, mesh })
    }

    /// AHC: level 0 in servers of any size, level 1 among the owners of a part.
    fn of_servers(shape: &Shape, servers: Servers<'_>) -> Result<Self, PlanError> {
        let algorithm = |level| level_algorithm(shape, level).unwrap_or(Algorithm::Nhr);
        let (inside, across) = (algorithm(0), algorithm(1));
        let largest = servers.sizes().map(NonZero::get).max().unwrap_or(1);
        let multiple = servers.sizes().try_fold(1_u32, |multiple, size| {
            let size = core(inside, size).get();
            let divisor = NonZero::new(common_divisor(multiple, size)).unwrap_or(ONE);
            multiple.checked_mul(size / divisor).filter(|&multiple| multiple <= MANY_PARTS)
        });
        // The shares of two owners then differ by less than a part in as many as there are owners.
        let parts = multiple.unwrap_or_else(|| MANY_PARTS.max(largest.saturating_mul(largest)));
        let parts = NonZero::new(parts).unwrap_or(ONE);
        let level = |members, algorithm| Level {
            members,
            stride: ONE,
            core: core(algorithm, members),
            width: 1,
            algorithm,
        };
        let top = level(servers.count(), across);
        let inner = level(NonZero::new(largest).unwrap_or(ONE), inside);
        let Some(cuts) = parts.checked_mul(top.core).filter(|cuts| cuts.get() <= MOST_PARTS) else {
            let (need, limit) = (u64::from(parts.get()) * u64::from(top.core.get()), MOST_PARTS.into());
            return Err(PlanError { code: ErrorCode::PLAN_RANKS, need, limit });
        };
        let mesh = |level: &Level| if is_mesh(level.algorithm) { level.members.get() } else { 1 };
        let list = [inner, top, Level::ALONE];
        Ok(Self { list, cuts, parts, mesh: mesh(&inner).max(mesh(&top)) })
    }

    /// Returns the number of a rank within its group at each level, counted from the root.
    pub(crate) fn digits(&self, rank: Rank, root: Rank) -> [u32; 3] {
        self.list.map(|level| {
            let place = |rank: Rank| rank / level.stride % level.members;
            (place(rank) + level.members.get() - place(root)) % level.members
        })
    }

    /// Returns the place of a rank's slice when those of a level lie together.
    pub(crate) fn position(&self, digits: [u32; 3]) -> u32 {
        self.list.iter().zip(digits).map(|(level, digit)| level.width * digit).sum()
    }

    /// Returns the group of a rank at a level, numbered from the root's place on.
    pub(crate) fn group(&self, index: usize, rank: Rank, root: Rank) -> Group<'static> {
        let Some(&Level { members, stride, .. }) = self.list.get(index) else {
            return Group::all(ONE, 0);
        };
        let place = |rank: Rank| rank / stride % members;
        Group::Spaced { first: rank - place(rank) * stride.get(), stride, root: place(root), members }
    }
}

/// Returns whether an algorithm has levels.
pub(crate) const fn is_composition(algorithm: Algorithm) -> bool {
    levels_of(algorithm) > 0
}

/// Returns how many levels a composition has.
const fn levels_of(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::TwoLevel | Algorithm::Pipeline | Algorithm::Ahc => 2,
        Algorithm::ThreeLevel => 3,
        _ => 0,
    }
}

/// Returns what a level runs: what is asked for, else a mesh inside the servers and NHR across (a ring for pipelines).
/// `None` for what no level runs.
pub(crate) fn level_algorithm(shape: &Shape, level: usize) -> Option<Algorithm> {
    use Algorithm as A;
    let pipeline = shape.algorithm == A::Pipeline;
    match (shape.levels.get(level).copied().flatten(), level) {
        (None, 0) | (Some(A::MeshOneShot | A::MeshTwoShot), 0) => Some(A::MeshTwoShot),
        (None | Some(A::Ring), 1) if pipeline => Some(A::Ring),
        _ if pipeline && level < 2 => None,
        (None, _) => Some(A::Nhr),
        (Some(A::MeshOneShot | A::MeshTwoShot), _) => Some(A::MeshTwoShot),
        (Some(algorithm @ (A::Ring | A::HalvingDoubling | A::Nhr | A::Nb)), _) => Some(algorithm),
        _ => None,
    }
}

/// Returns whether a level of a composition exchanges by mesh, which takes a slot for what every peer contributes.
pub(crate) fn has_slots(shape: &Shape) -> bool {
    (0..levels_of(shape.algorithm)).any(|level| level_algorithm(shape, level).is_some_and(is_mesh))
}

pub(crate) fn is_mesh(algorithm: Algorithm) -> bool {
    algorithm == Algorithm::MeshTwoShot
}

/// Returns the strides of the rings of a multi-ring: they share no link, in either direction.
pub(crate) fn strides(ranks: NonZero<u32>) -> impl Iterator<Item = u32> {
    // Of two strides that add up to the ranks only the shorter is one.
    let strides = 1..=(ranks.get() / 2).max(1);
    strides.filter(move |&stride| common_divisor(stride, ranks.get()) == 1).take(MAX_RINGS)
}
