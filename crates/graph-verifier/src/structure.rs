//! The structural part (V1 to V3): one look at one task, no memory of earlier ones, a few nanoseconds.
//!
//! This is what the kernel checks of every task of every graph it records. It knows what one rank has, nothing of
//! what its peers do.

use task_graph::{Rank, RegionId, RegionKind, Span, Task, ThreadId};

use crate::Obligation;

/// How long buffers are.
pub trait Extents {
    /// Returns the bytes of a buffer of this rank or a peer, 0 where there is none.
    fn bytes(&self, region: RegionId) -> u64;
}

/// The lengths of this rank's input, output and scratch, and of those of any peer, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// By [`RegionId::class`].
    classes: [u64; 8],
}

impl Lengths {
    /// Makes them of this rank's own and a peer's.
    #[must_use]
    pub const fn new(own: [u64; 3], peer: [u64; 3]) -> Self {
        let ([a, b, c], [d, e, f]) = (own, peer);
        Self { classes: [a, b, c, 0, d, e, f, 0] }
    }
}

impl Extents for Lengths {
    #[inline(always)]
    fn bytes(&self, region: RegionId) -> u64 {
        self.classes.get(region.class() & 7).copied().unwrap_or(0)
    }
}

/// What one rank has, as far as tasks can name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structure<E> {
    /// This rank.
    pub rank: Rank,
    /// Number of ranks.
    pub ranks: u32,
    /// Threads, the main one included.
    pub threads: u16,
    /// Notifies of the main thread that its sub threads may set.
    pub main_notifies: u16,
    /// Notifies of each sub thread.
    pub sub_notifies: u16,
    /// Size of one element, bytes, a power of two.
    pub element: u64,
    /// First byte of input and output in their memory where that is one, `None` where they are apart.
    pub in_place: Option<[u64; 2]>,
    /// How long buffers are.
    pub extents: E,
}

impl<E: Extents> Structure<E> {
    /// Checks a task on its own.
    ///
    /// # Errors
    /// The first obligation it does not meet: structure, bounds or no overlap.
    #[inline(always)]
    pub fn check(&self, thread: ThreadId, task: &Task) -> Result<(), Obligation> {
        if thread.0 >= self.threads {
            return Err(Obligation::Structure);
        }
        // Several conditions to one branch: nearly always all of them hold.
        match *task {
            Task::LocalCopy { dst, src } | Task::LocalReduce { dst, src, .. } => {
                holds(dst.region.is_own() & src.region.is_own(), Obligation::Structure)?;
                self.lengths(dst, src)?;
                holds(!self.overlap(dst, src), Obligation::Overlap)
            }
            Task::Write { peer, dst: remote, src: local, .. }
            | Task::Read { peer, dst: local, src: remote, .. } => {
                let sides = local.region.is_own() & remote.region.is_of(peer);
                holds(self.is_peer(peer) & sides, Obligation::Structure)?;
                self.lengths(local, remote)
            }
            Task::ChannelRecord { peer, .. } | Task::ChannelWait { peer, .. } => {
                holds(self.is_peer(peer), Obligation::Structure)
            }
            Task::ThreadRecord { thread: waiter, index } => {
                // A thread that waits for itself would never be woken.
                if waiter == thread { Err(Obligation::Structure) } else { self.notify(waiter, index) }
            }
            Task::ThreadWait { index } => self.notify(thread, index),
            Task::WaitStart | Task::RecordDone | Task::RecordNext => {
                if thread == ThreadId::MAIN {
                    Ok(())
                } else {
                    Err(Obligation::Structure)
                }
            }
        }
    }

    #[inline(always)]
    fn is_peer(&self, peer: Rank) -> bool {
        (peer < self.ranks) & (peer != self.rank)
    }

    #[inline(always)]
    fn notify(&self, thread: ThreadId, index: u16) -> Result<(), Obligation> {
        let count = if thread == ThreadId::MAIN { self.main_notifies } else { self.sub_notifies };
        if thread.0 < self.threads && index < count { Ok(()) } else { Err(Obligation::Structure) }
    }

    /// Both spans are as long, have bytes, whole elements, and lie in their buffers.
    #[inline(always)]
    fn lengths(&self, one: Span, other: Span) -> Result<(), Obligation> {
        let whole = (one.offset | other.offset | one.len) & (self.element - 1) == 0;
        let inside = |span: Span| {
            let bytes = self.extents.bytes(span.region);
            // No sum: it could wrap.
            (span.offset <= bytes) & (span.len <= bytes.wrapping_sub(span.offset))
        };
        let equal = (one.len == other.len) & (one.len > 0);
        holds(equal & whole & inside(one) & inside(other), Obligation::Bounds)
    }

    /// Whether two spans of this rank, as long as each other, share bytes.
    #[inline(always)]
    fn overlap(&self, one: Span, other: Span) -> bool {
        let (Some(one_at), Some(other_at)) = (self.place(one), self.place(other)) else { return false };
        let same = one_at.0 == other_at.0;
        same && one_at.1.abs_diff(other_at.1) < one.len
    }

    /// Which memory a span of this rank lies in, and where; `None` where that wraps, which bounds exclude.
    #[inline(always)]
    fn place(&self, span: Span) -> Option<(RegionKind, u64)> {
        match (self.in_place, span.region.kind()) {
            (Some([input, _]), RegionKind::Input) => {
                Some((RegionKind::Output, span.offset.checked_add(input)?))
            }
            (Some([_, output]), RegionKind::Output) => {
                Some((RegionKind::Output, span.offset.checked_add(output)?))
            }
            (_, kind) => Some((kind, span.offset)),
        }
    }
}

#[inline(always)]
const fn holds(condition: bool, obligation: Obligation) -> Result<(), Obligation> {
    if condition { Ok(()) } else { Err(obligation) }
}
