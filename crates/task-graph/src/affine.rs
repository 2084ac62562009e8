//! Affine graphs: one packed graph for every size of a class.
//!
//! Two graphs of the same operation at two sizes differ in offsets and lengths alone, by multiples of the unit (the
//! size of a slice). From the two, each lane's multiple is known; the descriptor keeps the constant part, the
//! pattern the multiples, and binding adds their product with the unit of the launch. Graphs that differ in any other
//! way have no affine form, and nothing is guessed.

use core::ops::DerefMut;

use heapless::Vec;
use wire::{Descriptor, ErrorCode, Lane};

use crate::packed::{PackedGraph, Page, Pages, Place};
use crate::pattern::{Interned, PATTERNS, Slopes};

/// A packed graph and the unit it was recorded for, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sized {
    /// The graph.
    pub graph: PackedGraph,
    /// Its unit.
    pub unit: u64,
}

/// The patterns of an affine graph: those of the exact ones, split by multiples. Too large for a stack.
#[derive(Debug)]
pub struct AffinePatterns {
    /// Number of the exact pattern and the affine one.
    list: Vec<(u16, Interned), PATTERNS>,
    recent: usize,
}

impl<S: DerefMut<Target = [Page]>> Pages<S> {
    /// Packs the graph that serves every size of the class of two graphs. Both stay as they are; `split` is where its
    /// patterns are collected.
    ///
    /// # Errors
    /// `PLAN_INTERNAL` when the two are not of one class, `PATTERNS_FULL` when there are more multiples than a graph
    /// has patterns, `PAGES_FULL`; nothing is taken then.
    pub fn pack_affine(
        &mut self,
        one: &Sized,
        other: &Sized,
        split: &mut AffinePatterns,
    ) -> Result<PackedGraph, ErrorCode> {
        let same = self.patterns(&one.graph).map(|interned| interned.key);
        if !one.graph.is_like(&other.graph)
            || !same.eq(self.patterns(&other.graph).map(|interned| interned.key))
        {
            return Err(ErrorCode::PLAN_INTERNAL);
        }
        split.restart(self.patterns(&one.graph).next().copied());
        for index in 0..one.graph.queue_count() {
            let mut places = Places::new(self, one, other, index)?;
            while let Some(part) = places.next(self, one, other)? {
                split.number(self, one, &part)?;
            }
        }
        let patterns = u16::try_from(split.list.len()).map_err(|_| ErrorCode::PATTERNS_FULL)?;
        let list = split.list.iter().map(|(_, interned)| *interned);
        let (graph, mut place) = self.begin(one.graph.with_patterns(patterns), list)?;
        for index in 0..one.graph.queue_count() {
            let mut places = Places::new(self, one, other, index)?;
            let run = self.queue(&one.graph, index);
            self.write_queue(&graph, index, (run.queue, place, run.cursor.left()));
            while let Some(part) = places.next(self, one, other)? {
                // All of them have a number by now.
                let number = split.number(self, one, &part)?;
                self.write(&mut place, part.constant, number);
            }
        }
        Ok(graph)
    }
}

/// A descriptor that both graphs have: what does not depend on the unit, and how the rest does.
#[derive(Clone, Copy, Debug)]
struct Part {
    constant: Descriptor,
    /// Number of the exact pattern.
    number: u16,
    slopes: Slopes,
}

/// Two readers of the same queue of two graphs.
#[derive(Clone, Copy, Debug)]
struct Places {
    one: Place,
    other: Place,
    left: u32,
}

impl Places {
    fn new<S: DerefMut<Target = [Page]>>(
        pages: &Pages<S>,
        one: &Sized,
        other: &Sized,
        index: u32,
    ) -> Result<Self, ErrorCode> {
        let (one, other) = (pages.queue(&one.graph, index), pages.queue(&other.graph, index));
        if (one.queue, one.cursor.left()) != (other.queue, other.cursor.left()) {
            return Err(ErrorCode::PLAN_INTERNAL);
        }
        Ok(Self { one: one.cursor.into(), other: other.cursor.into(), left: one.cursor.left() })
    }

    /// Returns the next descriptor, `None` at the end.
    fn next<S: DerefMut<Target = [Page]>>(
        &mut self,
        pages: &Pages<S>,
        one: &Sized,
        other: &Sized,
    ) -> Result<Option<Part>, ErrorCode> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let ((entry, number), (against, its_number)) = (pages.at(self.one), pages.at(self.other));
        pages.skip(&mut self.one, 1);
        pages.skip(&mut self.other, 1);
        if number != its_number {
            return Err(ErrorCode::PLAN_INTERNAL);
        }
        let part = part(entry, against, one.unit, other.unit).ok_or(ErrorCode::PLAN_INTERNAL)?;
        Ok(Some(Part { number, ..part }))
    }
}

/// Compares a descriptor at two units; `None` when anything but offsets and lengths differs, or not by whole
/// multiples of the unit.
fn part(entry: Descriptor, against: Descriptor, unit: u64, its_unit: u64) -> Option<Part> {
    let mut constant = entry;
    let mut slopes = Slopes::default();
    for (at, (lane, its_lane)) in constant.lanes.iter_mut().zip(against.lanes).enumerate() {
        let slope = match at {
            _ if *lane == its_lane => continue,
            at if at == Lane::Source as usize => &mut slopes.src,
            at if at == Lane::Destination as usize => &mut slopes.dst,
            at if at == Lane::Length as usize => &mut slopes.len,
            _ => return None,
        };
        let (grown, step) =
            (lane.wrapping_sub(its_lane).cast_signed(), unit.wrapping_sub(its_unit).cast_signed());
        if grown.checked_rem(step)? != 0 {
            return None;
        }
        *slope = u16::try_from(grown.checked_div(step)?).ok()?;
        *lane = lane.wrapping_sub(u64::from(*slope).wrapping_mul(unit));
    }
    Some(Part { constant, number: 0, slopes })
}

impl Default for AffinePatterns {
    fn default() -> Self {
        Self::new()
    }
}

impl AffinePatterns {
    /// Makes room for the patterns of one graph at a time.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: Vec::new(), recent: 0 }
    }

    /// Starts with the pattern that every graph has first.
    fn restart(&mut self, first: Option<Interned>) {
        self.list.clear();
        // There is room for one.
        let _ = first.map(|first| self.list.push((0, first)));
        self.recent = 0;
    }

    /// Returns the number of the pattern of a descriptor, a new one where it has none yet.
    fn number<S: DerefMut<Target = [Page]>>(
        &mut self,
        pages: &Pages<S>,
        one: &Sized,
        part: &Part,
    ) -> Result<u16, ErrorCode> {
        let is_it = |(number, interned): &(u16, Interned)| {
            *number == part.number && interned.growth == part.slopes.word()
        };
        // Runs of descriptors share a pattern, and the next run's is often the next one.
        let near = [self.recent, self.recent + 1];
        let near = near.into_iter().find(|&at| self.list.get(at).is_some_and(is_it));
        let found = near.or_else(|| self.list.iter().position(is_it));
        let at = match found {
            Some(at) => at,
            None => {
                let pattern = pages.pattern(&one.graph, part.number).ok_or(ErrorCode::PLAN_INTERNAL)?;
                let (key, growth) = (pattern.key(), part.slopes.word());
                // Extents are sums that wrap where a constant part is negative: the least is that of the most
                // negative number.
                let interned = Interned { key, extents: [1 << 63; 2], growth };
                self.list.push((part.number, interned)).map_err(|_| ErrorCode::PATTERNS_FULL)?;
                self.list.len() - 1
            }
        };
        self.recent = at;
        if let Some((_, interned)) = self.list.get_mut(at).filter(|_| part.number > 0) {
            let [_, _, src, dst, len, ..] = part.constant.lanes;
            for (extent, start) in interned.extents.iter_mut().zip([src, dst]) {
                let end = start.wrapping_add(len).cast_signed();
                *extent = extent.cast_signed().max(end).cast_unsigned();
            }
        }
        u16::try_from(at).map_err(|_| ErrorCode::PATTERNS_FULL)
    }
}
