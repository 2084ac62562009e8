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
    /// Of this rank.
    pub own: [u64; 3],
    /// Of a peer.
    pub peer: [u64; 3],
}

impl Extents for Lengths {
    #[inline(always)]
    fn bytes(&self, region: RegionId) -> u64 {
        let [input, output, scratch] = if region.peer().is_none() { self.own } else { self.peer };
        match region.kind() {
            RegionKind::Input => input,
            RegionKind::Output => output,
            RegionKind::Scratch => scratch,
        }
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
        match *task {
            Task::LocalCopy { dst, src } | Task::LocalReduce { dst, src, .. } => {
                self.own(dst)?;
                self.own(src)?;
                self.lengths(dst, src)?;
                if self.overlap(dst, src) { Err(Obligation::Overlap) } else { Ok(()) }
            }
            Task::Write { peer, dst: remote, src: local, .. }
            | Task::Read { peer, dst: local, src: remote, .. } => {
                self.peer(peer)?;
                self.own(local)?;
                if remote.region.peer() != Some(peer) {
                    return Err(Obligation::Structure);
                }
                self.lengths(local, remote)
            }
            Task::ChannelRecord { peer, .. } | Task::ChannelWait { peer, .. } => self.peer(peer),
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
    fn peer(&self, peer: Rank) -> Result<(), Obligation> {
        if peer < self.ranks && peer != self.rank { Ok(()) } else { Err(Obligation::Structure) }
    }

    #[inline(always)]
    fn own(&self, span: Span) -> Result<(), Obligation> {
        if span.region.peer().is_none() { Ok(()) } else { Err(Obligation::Structure) }
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
            span.offset.checked_add(span.len).is_some_and(|end| end <= self.extents.bytes(span.region))
        };
        if one.len == other.len && one.len > 0 && whole && inside(one) && inside(other) {
            Ok(())
        } else {
            Err(Obligation::Bounds)
        }
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
