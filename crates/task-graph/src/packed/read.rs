//! Reading packed graphs: their queues, their patterns, their binding to a launch, and their descriptors run by run.

use core::ops::DerefMut;

use wire::{Base, Descriptor};
use zerocopy::{FromBytes, IntoBytes};

use super::{PAGE_LEN, PATTERNS_PER_ENTRY, PackedGraph, Page, Pages, Place, QUEUES_PER_ENTRY, QueueRun};
use crate::bind::{Bindings, LaunchBase, Unbound, Vectors, vector_of};
use crate::graph::{Cursor, QueueIndex, Run};
use crate::pattern::{Interned, Pattern};

impl<S: DerefMut<Target = [Page]>> Pages<S> {
    /// Returns the entry and the pattern number at a place.
    pub(crate) fn at(&self, place: Place) -> (Descriptor, u16) {
        let number = self.page(place.page).and_then(|page| page.numbers.get(place.at as usize));
        (self.entry(place), number.copied().unwrap_or(0))
    }

    fn entry(&self, place: Place) -> Descriptor {
        let entry = self.page(place.page).and_then(|page| page.entries.get(place.at as usize));
        entry.copied().unwrap_or_default()
    }

    /// Returns the queues that have descriptors, in the order of their first.
    pub fn queues(&self, graph: &PackedGraph) -> impl Iterator<Item = QueueRun> {
        (0..u32::from(graph.queues)).map(|index| self.queue(graph, index))
    }

    /// Returns the `index`-th queue.
    pub(crate) fn queue(&self, graph: &PackedGraph, index: u32) -> QueueRun {
        let mut place = Place { page: graph.first, at: 0 };
        self.skip(&mut place, index / QUEUES_PER_ENTRY);
        let at = 2 * (index % QUEUES_PER_ENTRY) as usize;
        let entry = self.entry(place);
        let word = |at: usize| entry.lanes.get(at).copied().unwrap_or(0);
        queue_run([word(at), word(at + 1)])
    }

    /// Returns the patterns in the order of their numbers.
    pub(crate) fn patterns(&self, graph: &PackedGraph) -> impl Iterator<Item = &Interned> {
        self.pattern_runs(graph).flatten()
    }

    /// Returns the patterns in the order of their numbers, those of a page together.
    fn pattern_runs(&self, graph: &PackedGraph) -> impl Iterator<Item = &[Interned]> {
        let Place { page, at } = graph.patterns_at(self);
        let mut left = usize::from(graph.patterns);
        let mut cursor =
            Cursor { block: page, at, left: u32::from(graph.patterns).div_ceil(PATTERNS_PER_ENTRY) };
        core::iter::from_fn(move || {
            let entries = self.run(&cursor, PAGE_LEN).entries;
            let run = <[Interned]>::ref_from_bytes(entries.as_bytes()).ok()?;
            let run = run.get(..left.min(run.len())).filter(|run| !run.is_empty())?;
            left -= run.len();
            self.advance(&mut cursor, entries.len());
            Some(run)
        })
    }

    /// Returns the pattern with this number.
    #[must_use]
    pub fn pattern(&self, graph: &PackedGraph, number: u16) -> Option<Pattern> {
        self.patterns(graph).nth(usize::from(number)).map(|interned| interned.pattern())
    }

    /// Prepares the addition vectors for one launch, after checking that every operand of the graph lies inside the
    /// region it names. `wqe_tail` gives the low 32 bits of a queue pair's ring position before this graph; `unit`
    /// is the size of a slice, bytes, which only affine graphs depend on.
    ///
    /// # Errors
    /// `BINDING_MISSING` or `BINDING_EXTENT`, the region at fault and the first task that names it; the graph must not
    /// be submitted then.
    pub fn bind(
        &self,
        graph: &PackedGraph,
        bindings: &impl Bindings,
        base: &LaunchBase,
        unit: u64,
        wqe_tail: impl Fn(QueueIndex) -> u32,
        vectors: &mut Vectors,
    ) -> Result<(), Unbound> {
        let mut vectors = vectors.bases_mut().iter_mut();
        let bound = |interned: &Interned| vector_of(interned, bindings, base, unit, &wqe_tail);
        for run in self.pattern_runs(graph) {
            for (interned, vector) in run.iter().zip(&mut vectors) {
                *vector = Base(bound(interned).map_err(|fault| {
                    let first = self.first_fault(graph, interned, |alone| bound(alone).err());
                    let (task, (code, region)) = first.unwrap_or((0, fault));
                    Unbound { code, region, task }
                })?);
            }
        }
        Ok(())
    }

    /// Returns the first task of a pattern of which, taken for itself, `fault` finds one.
    #[cold]
    fn first_fault<F>(
        &self,
        graph: &PackedGraph,
        interned: &Interned,
        fault: impl Fn(&Interned) -> Option<F>,
    ) -> Option<(u32, F)> {
        let number = self.patterns(graph).position(|other| other.key == interned.key);
        let fault_of = |(entry, own): (&Descriptor, &u16)| {
            let [_, task, source, destination, len, ..] = entry.lanes;
            let extents = [source.saturating_add(len), destination.saturating_add(len)];
            let alone = Interned { extents, ..*interned };
            let fault = if number == Some(usize::from(*own)) { fault(&alone) } else { None };
            Some((u32::try_from(task).ok()?, fault?))
        };
        let mut first = None;
        for QueueRun { mut cursor, .. } in self.queues(graph) {
            while cursor.left > 0 {
                let run = self.run(&cursor, PAGE_LEN);
                let faults = run.entries.iter().zip(run.patterns).filter_map(fault_of);
                first = faults.chain(first).min_by_key(|(task, _)| *task);
                self.advance(&mut cursor, run.entries.len().max(1));
            }
        }
        first
    }

    /// Returns at most `most` of the descriptors ahead of `cursor` that lie together; empty only at the end.
    #[inline]
    #[must_use]
    pub fn run(&self, cursor: &Cursor, most: u32) -> Run<'_> {
        let len = cursor.left.min(most).min(PAGE_LEN.saturating_sub(cursor.at));
        let range = cursor.at as usize..(cursor.at + len) as usize;
        let page = self.page(cursor.block);
        Run {
            entries: page.and_then(|page| page.entries.get(range.clone())).unwrap_or(&[]),
            patterns: page.and_then(|page| page.numbers.get(range)).unwrap_or(&[]),
        }
    }

    /// Fills `into` with the descriptors ahead of `cursor` and moves it past them; `copy` gets each run and the
    /// entries for it, of the same length. Returns how many there were.
    #[inline]
    pub fn take(
        &self,
        cursor: &mut Cursor,
        into: &mut [Descriptor],
        mut copy: impl FnMut(&mut [Descriptor], Run<'_>),
    ) -> usize {
        let mut taken = 0;
        let mut rest = into;
        loop {
            let run = self.run(cursor, u32::try_from(rest.len()).unwrap_or(u32::MAX));
            let count = run.entries.len();
            let Some((now, later)) = rest.split_at_mut_checked(count).filter(|_| count > 0) else {
                return taken;
            };
            copy(now, run);
            self.advance(cursor, count);
            rest = later;
            taken += count;
        }
    }

    #[inline(always)]
    fn advance(&self, cursor: &mut Cursor, count: usize) {
        let steps = u32::try_from(count).unwrap_or(0);
        cursor.left -= steps.min(cursor.left);
        let mut place = Place { page: cursor.block, at: cursor.at };
        self.skip(&mut place, steps);
        (cursor.block, cursor.at) = (place.page, place.at);
    }
}

fn queue_run([head, len]: [u64; 2]) -> QueueRun {
    let [q0, q1, a0, a1, p0, p1, p2, p3] = head.to_le_bytes();
    QueueRun {
        queue: QueueIndex(u16::from_le_bytes([q0, q1])),
        cursor: Cursor {
            block: u32::from_le_bytes([p0, p1, p2, p3]),
            at: u32::from(u16::from_le_bytes([a0, a1])),
            left: u32::try_from(len).unwrap_or(0),
        },
    }
}
