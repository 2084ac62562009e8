//! Which steps come before which in every run: vector clocks over all thread blocks.
//!
//! A step comes after the one before it in its block, the one it depends on, and the one that sent what it receives.
//! Two steps of one rank that touch a chunk, one of them writing, must be ordered by these.

use std::collections::{BTreeMap, HashMap};

use crate::fault::StepId;
use crate::{Algorithm, Place};

/// A chunk of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) rank: u32,
    pub(crate) place: Place,
}

/// Steps done by thread blocks, as far as one of them knows: thread block and steps, those of which none is known left
/// out, ascending.
pub(crate) type Clock = Vec<(usize, u32)>;

/// Who has used a chunk: the last writer, and who has read since.
#[derive(Clone, Debug, Default)]
struct Use {
    writer: Option<StepId>,
    readers: Vec<StepId>,
}

#[derive(Debug)]
pub(crate) struct Clocks {
    /// Place of each rank's first thread block.
    first: Vec<usize>,
    now: Vec<Clock>,
    /// Clocks of finished steps that others may depend on.
    finished: HashMap<StepId, Clock>,
    uses: HashMap<Cell, Use>,
}

impl Clocks {
    pub(crate) fn new(algorithm: &Algorithm) -> Self {
        let mut total = 0;
        let first = algorithm
            .gpus
            .iter()
            .map(|gpu| {
                total += gpu.blocks.len();
                total - gpu.blocks.len()
            })
            .collect();
        Self { first, now: vec![Clock::new(); total], finished: HashMap::new(), uses: HashMap::new() }
    }

    fn thread(&self, id: StepId) -> usize {
        self.first[id.gpu] + id.block
    }

    /// A step begins; `after` is the block and step of its rank that it depends on.
    pub(crate) fn start(&mut self, id: StepId, after: Option<(usize, usize)>) {
        let thread = self.thread(id);
        let steps = known(&self.now[thread], thread) + 1;
        join(&mut self.now[thread], &[(thread, steps)]);
        if let Some((block, step)) = after {
            let after = StepId { gpu: id.gpu, block, step };
            if let Some(clock) = self.finished.get(&after) {
                join(&mut self.now[thread], clock);
            }
        }
    }

    /// A step has received what was sent at `clock`.
    pub(crate) fn join(&mut self, id: StepId, clock: &Clock) {
        let thread = self.thread(id);
        join(&mut self.now[thread], clock);
    }

    pub(crate) fn of(&self, id: StepId) -> Clock {
        self.now[self.thread(id)].clone()
    }

    pub(crate) fn finish(&mut self, id: StepId, awaited: bool) {
        if awaited {
            self.finished.insert(id, self.of(id));
        }
    }

    /// Notes a read; returns a writer that is in no order with it.
    pub(crate) fn read(&mut self, id: StepId, cell: Cell) -> Option<StepId> {
        let writer = self.uses.get(&cell).and_then(|used| used.writer);
        if let Some(writer) = writer.filter(|&writer| !self.is_before(writer, id)) {
            return Some(writer);
        }
        let readers = &mut self.uses.entry(cell).or_default().readers;
        readers.retain(|reader| (reader.gpu, reader.block) != (id.gpu, id.block));
        readers.push(id);
        None
    }

    /// Notes a write; returns a step that has used the chunk and is in no order with it.
    pub(crate) fn write(&mut self, id: StepId, cell: Cell) -> Option<StepId> {
        let used = self.uses.get(&cell).cloned().unwrap_or_default();
        let others = used.writer.iter().chain(&used.readers).copied();
        let unordered = others.filter(|&other| !self.is_before(other, id)).min_by_key(|other| other.block);
        self.uses.insert(cell, Use { writer: Some(id), readers: Vec::new() });
        unordered
    }

    /// Returns the last step that wrote a chunk.
    pub(crate) fn writer(&self, cell: Cell) -> Option<StepId> {
        self.uses.get(&cell)?.writer
    }

    /// Returns whether `earlier` is done before `later`, the step that its block is at, in every run.
    fn is_before(&self, earlier: StepId, later: StepId) -> bool {
        known(&self.now[self.thread(later)], self.thread(earlier)) as usize > earlier.step
    }
}

/// Returns the steps of a thread block that a clock knows of.
fn known(clock: &Clock, thread: usize) -> u32 {
    clock.binary_search_by_key(&thread, |(of, _)| *of).map_or(0, |index| clock[index].1)
}

fn join(clock: &mut Clock, other: &[(usize, u32)]) {
    let mut added = false;
    for &(thread, steps) in other {
        match clock.binary_search_by_key(&thread, |(of, _)| *of) {
            Ok(index) => clock[index].1 = clock[index].1.max(steps),
            Err(_) => added = true,
        }
    }
    if added {
        let mut merged: BTreeMap<usize, u32> = clock.drain(..).collect();
        merged.extend(
            other.iter().filter(|(thread, _)| !merged.contains_key(thread)).copied().collect::<Vec<_>>(),
        );
        clock.extend(merged);
    }
}
