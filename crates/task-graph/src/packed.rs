//! Packed graphs: what is submitted, once or a thousand times.
//!
//! A recorded graph is copied, queue after queue, into pages of 62 entries: first which queue begins where, then the
//! patterns, then the descriptors. Pages are chained and come from one pool that the owner lends, so a graph of any
//! size fits where there are enough pages, and giving them back leaves no gaps. A packed graph never changes.

mod read;

use core::ops::DerefMut;

use wire::{BASES, DESCRIPTOR_BYTES, Descriptor, ErrorCode};
use zerocopy::FromZeros;

use crate::graph::{Block, Cursor, Kinds, QueueIndex, TaskGraph};
use crate::pattern::Interned;

/// Entries per page.
pub const PAGE_ENTRIES: usize = PAGE_LEN as usize;
const PAGE_LEN: u32 = 62;
/// Queues that one entry describes.
const QUEUES_PER_ENTRY: u32 = 4;
/// Patterns that one entry describes.
const PATTERNS_PER_ENTRY: u32 = 2;
/// End of a chain.
const NONE: u32 = u32::MAX;

/// 4 KiB of packed graph.
#[derive(Clone, Debug, FromZeros)]
#[repr(C, align(64))]
pub struct Page {
    entries: [Descriptor; PAGE_ENTRIES],
    numbers: [u16; PAGE_ENTRIES],
    next: u32,
}
const _: () = assert!(size_of::<Page>() == 4096);

impl Page {
    /// A page with nothing in it.
    pub const EMPTY: Self = Self {
        entries: [Descriptor { lanes: [0; 8] }; PAGE_ENTRIES],
        numbers: [0; PAGE_ENTRIES],
        next: NONE,
    };
}

/// A packed graph: where it begins and what is in it. The pages belong to whoever holds this, until
/// [`Pages::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedGraph {
    first: u32,
    pages: u32,
    queues: u16,
    patterns: u16,
    len: u32,
    kinds: Kinds,
    steps: u16,
}

impl PackedGraph {
    /// Returns how many descriptors there are in all queues.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there is no descriptor.
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

    /// Returns how many pages it takes.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns how many queues have descriptors.
    pub(crate) fn queue_count(&self) -> u32 {
        u32::from(self.queues)
    }

    /// Returns this graph with another number of patterns.
    pub(crate) const fn with_patterns(self, patterns: u16) -> Self {
        Self { patterns, ..self }
    }

    /// Returns whether another graph has as many queues, patterns, steps and descriptors of each kind.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        *self == Self { first: self.first, pages: self.pages, ..*other }
    }

    /// Where its patterns begin: behind the table of queues.
    fn patterns_at<S: DerefMut<Target = [Page]>>(&self, pages: &Pages<S>) -> Place {
        let mut place = Place { page: self.first, at: 0 };
        pages.skip(&mut place, self.queue_count().div_ceil(QUEUES_PER_ENTRY));
        place
    }
}

/// Returns how many pages a graph takes.
fn pages_for(queues: u32, patterns: u32, len: u32) -> u32 {
    let heads = queues.div_ceil(QUEUES_PER_ENTRY) + patterns.div_ceil(PATTERNS_PER_ENTRY);
    (heads + len).div_ceil(PAGE_LEN).max(1)
}

/// A queue of a packed graph: a reader at its first descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRun {
    /// The queue.
    pub queue: QueueIndex,
    /// Its descriptors.
    pub cursor: Cursor,
}

/// The pool of pages.
#[derive(Debug)]
pub struct Pages<S> {
    pages: S,
    /// First of the pages given back.
    free: u32,
    /// Pages from here on have never been taken.
    fresh: u32,
    taken: u32,
}

/// Where the next entry goes while packing, or comes from while reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    page: u32,
    at: u32,
}

impl<S: DerefMut<Target = [Page]>> Pages<S> {
    /// Makes a pool of all `pages`.
    pub const fn new(pages: S) -> Self {
        Self { pages, free: NONE, fresh: 0, taken: 0 }
    }

    /// Returns how many pages there are.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.pages.len()).unwrap_or(u32::MAX)
    }

    /// Returns how many pages are taken.
    #[must_use]
    pub const fn taken(&self) -> u32 {
        self.taken
    }

    /// Returns how many pages a recorded graph would take.
    #[must_use]
    pub fn needed<B: DerefMut<Target = [Block]>>(graph: &TaskGraph<B>) -> u32 {
        let queues = u32::try_from(graph.queues().len()).unwrap_or(u32::MAX);
        pages_for(queues, u32::from(graph.patterns.count()), graph.len())
    }

    /// Packs a recorded graph.
    ///
    /// # Errors
    /// `PAGES_FULL` when there are not enough pages; none is taken then.
    pub fn pack<B: DerefMut<Target = [Block]>>(
        &mut self,
        graph: &TaskGraph<B>,
    ) -> Result<PackedGraph, ErrorCode> {
        let packed = PackedGraph {
            first: NONE,
            pages: Self::needed(graph),
            queues: u16::try_from(graph.queues().len()).unwrap_or(u16::MAX),
            patterns: graph.patterns.count(),
            len: graph.len(),
            kinds: graph.kinds(),
            steps: graph.steps(),
        };
        let (packed, mut place) = self.begin(packed, graph.patterns.list().copied())?;
        for (index, &queue) in (0..).zip(graph.queues()) {
            self.write_queue(&packed, index, (queue, place, graph.queue_len(queue)));
            self.write_descriptors(&mut place, graph, queue);
        }
        Ok(packed)
    }

    /// Takes the pages of a graph and writes its patterns; returns where its first queue begins. The table of queues
    /// is filled in once it is known where each begins.
    pub(crate) fn begin(
        &mut self,
        graph: PackedGraph,
        patterns: impl Iterator<Item = Interned>,
    ) -> Result<(PackedGraph, Place), ErrorCode> {
        let pages = pages_for(u32::from(graph.queues), u32::from(graph.patterns), graph.len);
        if pages > self.capacity() - self.taken {
            return Err(ErrorCode::PAGES_FULL);
        }
        let graph = PackedGraph { first: self.take_chain(pages)?, pages, ..graph };
        let mut place = graph.patterns_at(self);
        self.write_patterns(&mut place, patterns);
        Ok((graph, place))
    }

    /// Gives the pages of a graph back. It must not be read any more.
    pub fn release(&mut self, graph: PackedGraph) {
        let mut last = graph.first;
        while let Some(next) = self.page(last).map(|page| page.next).filter(|&next| next != NONE) {
            last = next;
        }
        if let Some(page) = self.pages.get_mut(last as usize) {
            page.next = self.free;
            self.free = graph.first;
            self.taken -= graph.pages.min(self.taken);
        }
    }

    fn page(&self, index: u32) -> Option<&Page> {
        self.pages.get(index as usize)
    }

    /// Takes `count` pages as one chain.
    fn take_chain(&mut self, count: u32) -> Result<u32, ErrorCode> {
        let mut first = NONE;
        for _ in 0..count {
            let index = match self.free {
                NONE => self.fresh,
                free => free,
            };
            let page = self.pages.get_mut(index as usize).ok_or(ErrorCode::PAGES_FULL)?;
            if self.free == NONE {
                self.fresh += 1;
            } else {
                self.free = page.next;
            }
            page.next = first;
            first = index;
        }
        self.taken += count;
        Ok(first)
    }

    /// Moves a place `count` entries on.
    pub(crate) fn skip(&self, place: &mut Place, count: u32) {
        place.at += count;
        while place.at >= PAGE_LEN {
            place.at -= PAGE_LEN;
            place.page = self.page(place.page).map_or(NONE, |page| page.next);
        }
    }

    /// Writes one entry and moves on.
    pub(crate) fn write(&mut self, place: &mut Place, entry: Descriptor, number: u16) {
        if let Some(page) = self.pages.get_mut(place.page as usize) {
            if let Some(slot) = page.entries.get_mut(place.at as usize) {
                *slot = entry;
            }
            if let Some(slot) = page.numbers.get_mut(place.at as usize) {
                *slot = number;
            }
        }
        self.skip(place, 1);
    }

    fn write_patterns(&mut self, place: &mut Place, patterns: impl Iterator<Item = Interned>) {
        let mut entry = Descriptor::default();
        let mut half = 0;
        for interned in patterns {
            let words = [interned.key, interned.extents[0], interned.extents[1], interned.growth];
            if let Some(lanes) = entry.lanes.get_mut(4 * half..4 * half + 4) {
                lanes.copy_from_slice(&words);
            }
            half += 1;
            if half == 2 {
                self.write(place, core::mem::take(&mut entry), 0);
                half = 0;
            }
        }
        if half > 0 {
            self.write(place, entry, 0);
        }
    }

    /// Says where the `index`-th queue begins and how many descriptors it has.
    pub(crate) fn write_queue(
        &mut self,
        graph: &PackedGraph,
        index: u32,
        (queue, begin, len): (QueueIndex, Place, u32),
    ) {
        let mut place = Place { page: graph.first, at: 0 };
        self.skip(&mut place, index / QUEUES_PER_ENTRY);
        let at = 2 * (index % QUEUES_PER_ENTRY) as usize;
        let entry =
            self.pages.get_mut(place.page as usize).and_then(|page| page.entries.get_mut(place.at as usize));
        if let Some(lanes) = entry.and_then(|entry| entry.lanes.get_mut(at..at + 2)) {
            lanes.copy_from_slice(&queue_words(queue, begin, len));
        }
    }

    fn write_descriptors<B: DerefMut<Target = [Block]>>(
        &mut self,
        place: &mut Place,
        graph: &TaskGraph<B>,
        queue: QueueIndex,
    ) {
        let mut cursor = graph.cursor(queue);
        while cursor.left() > 0 {
            let run = graph.run(&cursor, PAGE_LEN - place.at);
            let count = u32::try_from(run.entries.len()).unwrap_or(0);
            let range = place.at as usize..(place.at + count) as usize;
            if let Some(page) = self.pages.get_mut(place.page as usize).filter(|_| count > 0) {
                if let Some(entries) = page.entries.get_mut(range.clone()) {
                    entries.copy_from_slice(run.entries);
                }
                if let Some(numbers) = page.numbers.get_mut(range) {
                    numbers.copy_from_slice(run.patterns);
                }
            } else {
                return;
            }
            graph.advance(&mut cursor, count);
            self.skip(place, count);
        }
    }
}

impl From<Cursor> for Place {
    fn from(cursor: Cursor) -> Self {
        Self { page: cursor.block, at: cursor.at }
    }
}

/// Queue, first entry and length in two words.
fn queue_words(queue: QueueIndex, place: Place, len: u32) -> [u64; 2] {
    [u64::from(queue.0) | u64::from(place.at) << 16 | u64::from(place.page) << 32, u64::from(len)]
}

const _: () = assert!(BASES >= PAGE_ENTRIES && DESCRIPTOR_BYTES == 64);
