//! The recorded graph: encoded descriptors, per queue, in order.
//!
//! Storage is a slice of blocks lent by the owner (static memory in the image, a boxed slice on the host), from
//! which each queue takes a chain, so that one queue's descriptors lie together and are copied a block at a time.

use core::ops::DerefMut;

use heapless::Vec;
use wire::{DESCRIPTOR_BYTES, Descriptor, ErrorCode};
use zerocopy::FromZeros;

use crate::pattern::PatternTable;

/// Descriptors per block.
pub const BLOCK_ENTRIES: usize = BLOCK_LEN as usize;
const BLOCK_LEN: u32 = 32;
/// Queues one graph may use: threads and queue pairs together.
pub const QUEUES: usize = 256;

/// End of a chain.
const NONE: u32 = u32::MAX;

/// A queue of the graph: threads first, then one per channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueIndex(pub u16);

/// A piece of a queue's chain.
#[derive(Clone, Debug, FromZeros)]
#[repr(C, align(64))]
pub struct Block {
    entries: [Descriptor; BLOCK_ENTRIES],
    patterns: [u16; BLOCK_ENTRIES],
    next: u32,
}

impl Block {
    /// A block with nothing in it.
    pub const EMPTY: Self = Self {
        entries: [Descriptor { lanes: [0; 8] }; BLOCK_ENTRIES],
        patterns: [0; BLOCK_ENTRIES],
        next: NONE,
    };
}
const _: () = assert!(size_of::<Block>() <= BLOCK_ENTRIES * (DESCRIPTOR_BYTES + 4));

#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u32,
    last: u32,
    len: u32,
}

impl Chain {
    const EMPTY: Self = Self { first: 0, last: 0, len: 0 };
}

/// How many descriptors of which kind a graph has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Local copies.
    pub copies: u32,
    /// Local reductions.
    pub reduces: u32,
    /// Writes to and reads from peers, posts included.
    pub transfers: u32,
    /// Notifies set or waited for.
    pub signals: u32,
    /// Work-queue entries.
    pub wqes: u32,
}

/// A recorded graph.
#[derive(Debug)]
pub struct TaskGraph<S> {
    blocks: S,
    used: u32,
    chains: [Chain; QUEUES],
    touched: Vec<QueueIndex, QUEUES>,
    pub(crate) patterns: PatternTable,
    pub(crate) kinds: Kinds,
    pub(crate) steps: u16,
    len: u32,
}

/// Where in a queue's descriptors a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub(crate) block: u32,
    pub(crate) at: u32,
    pub(crate) left: u32,
}

impl Cursor {
    /// Returns how many descriptors are still ahead.
    #[must_use]
    pub const fn left(&self) -> u32 {
        self.left
    }
}

/// Descriptors that lie together, and the pattern of each.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The descriptors, bases removed.
    pub entries: &'a [Descriptor],
    /// The pattern of each.
    pub patterns: &'a [u16],
}

impl<S: DerefMut<Target = [Block]>> TaskGraph<S> {
    /// Makes an empty graph that records into `blocks`.
    pub const fn new(blocks: S) -> Self {
        Self {
            blocks,
            used: 0,
            chains: [Chain::EMPTY; QUEUES],
            touched: Vec::new(),
            patterns: PatternTable::new(),
            kinds: Kinds { copies: 0, reduces: 0, transfers: 0, signals: 0, wqes: 0 },
            steps: 0,
            len: 0,
        }
    }

    /// Records into `blocks` from now on, with nothing recorded yet: how a graph in static memory gets its memory.
    pub fn set_blocks(&mut self, blocks: S) {
        self.clear();
        self.blocks = blocks;
    }

    /// Forgets everything recorded, in time proportional to the queues and patterns used.
    pub fn clear(&mut self) {
        for queue in &self.touched {
            if let Some(chain) = self.chains.get_mut(usize::from(queue.0)) {
                *chain = Chain::EMPTY;
            }
        }
        self.touched.clear();
        self.patterns.clear();
        (self.used, self.len, self.steps, self.kinds) = (0, 0, 0, Kinds::default());
    }

    /// Returns how many descriptors there are in all queues.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether nothing is recorded.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the descriptors by kind.
    #[must_use]
    pub const fn kinds(&self) -> Kinds {
        self.kinds
    }

    /// Returns the number of steps of the algorithm.
    #[must_use]
    pub const fn steps(&self) -> u16 {
        self.steps
    }

    /// Returns the queues that have descriptors, in the order of their first.
    #[must_use]
    pub fn queues(&self) -> &[QueueIndex] {
        &self.touched
    }

    /// Returns how many descriptors `queue` has.
    #[must_use]
    pub fn queue_len(&self, queue: QueueIndex) -> u32 {
        self.chains.get(usize::from(queue.0)).map_or(0, |chain| chain.len)
    }

    /// Returns the descriptors of `queue` in their order, bases removed.
    pub fn entries(&self, queue: QueueIndex) -> impl Iterator<Item = Descriptor> {
        let mut cursor = self.cursor(queue);
        core::iter::from_fn(move || {
            let entry = self.run(&cursor, 1).entries.first().copied()?;
            self.advance(&mut cursor, 1);
            Some(entry)
        })
    }

    /// Returns a reader at the first descriptor of `queue`.
    #[must_use]
    pub(crate) fn cursor(&self, queue: QueueIndex) -> Cursor {
        let chain = self.chains.get(usize::from(queue.0)).copied().unwrap_or(Chain::EMPTY);
        Cursor { block: chain.first, at: 0, left: chain.len }
    }

    /// Returns at most `most` of the descriptors ahead of `cursor` that lie together; empty only at the end.
    #[inline]
    #[must_use]
    pub(crate) fn run(&self, cursor: &Cursor, most: u32) -> Run<'_> {
        let len = cursor.left.min(most).min(BLOCK_LEN - cursor.at);
        let range = cursor.at as usize..(cursor.at + len) as usize;
        let block = self.blocks.get(cursor.block as usize);
        Run {
            entries: block.and_then(|block| block.entries.get(range.clone())).unwrap_or(&[]),
            patterns: block.and_then(|block| block.patterns.get(range)).unwrap_or(&[]),
        }
    }

    /// Moves `cursor` past `count` descriptors of the run it is at.
    #[inline]
    pub(crate) fn advance(&self, cursor: &mut Cursor, count: u32) {
        cursor.at += count;
        cursor.left -= count;
        if cursor.at == BLOCK_LEN {
            cursor.at = 0;
            cursor.block = self.blocks.get(cursor.block as usize).map_or(NONE, |block| block.next);
        }
    }

    /// Makes room for several descriptors that lie together behind those that the queue has, for the caller to fill in:
    /// the number of the first, the descriptors, and their patterns. `None` where they cannot lie together.
    #[inline(always)]
    pub(crate) fn room<const N: usize>(
        &mut self,
        queue: QueueIndex,
    ) -> Option<(u64, &mut [Descriptor; N], &mut [u16; N])> {
        let chain = self.chains.get_mut(usize::from(queue.0))?;
        let at = chain.len as usize % BLOCK_ENTRIES;
        let block = self.blocks.get_mut(chain.last as usize).filter(|_| at > 0)?;
        let entries = block.entries.get_mut(at..)?.first_chunk_mut()?;
        let numbers = block.patterns.get_mut(at..)?.first_chunk_mut()?;
        let (first, count) = (u64::from(self.len), u32::try_from(N).unwrap_or(0));
        chain.len += count;
        self.len += count;
        Some((first, entries, numbers))
    }

    /// Appends a descriptor to a queue. Its task lane is filled in: the index within this graph.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        queue: QueueIndex,
        descriptor: Descriptor,
        pattern: u16,
    ) -> Result<(), ErrorCode> {
        let chain = self.chains.get_mut(usize::from(queue.0)).ok_or(ErrorCode::PLAN_INTERNAL)?;
        let at = chain.len as usize % BLOCK_ENTRIES;
        if at == 0 {
            let fresh = self.used;
            let block = self.blocks.get_mut(fresh as usize).ok_or(ErrorCode::GRAPH_FULL)?;
            block.next = NONE;
            self.used += 1;
            if chain.len == 0 {
                chain.first = fresh;
                self.touched.push(queue).map_err(|_| ErrorCode::PLAN_INTERNAL)?;
            } else if let Some(last) = self.blocks.get_mut(chain.last as usize) {
                last.next = fresh;
            }
            chain.last = fresh;
        }
        let block = self.blocks.get_mut(chain.last as usize).ok_or(ErrorCode::PLAN_INTERNAL)?;
        if let (Some(entry), Some(number)) = (block.entries.get_mut(at), block.patterns.get_mut(at)) {
            *entry = descriptor;
            *number = pattern;
        }
        chain.len += 1;
        self.len += 1;
        Ok(())
    }
}
