//! Finite rings (V5): entries are written while there is room, and announced in batches; the program must still end.
//!
//! More room never blocks anybody, so running everything as far as it goes decides it for all schedules.

use task_graph::{Rank, Task};

use crate::counterexample::Counterexample;
use crate::layout::{Layout, transfer};
use crate::obligation::Obligation;
use crate::pass::Refuted;
use crate::program::Submitter;

/// One ring.
struct Ring {
    /// For each task of the queue, over all operations: operation, index among its rank's, entries up to its end.
    tasks: Vec<(u32, u32, u64)>,
    /// Entries up to the end of each graph.
    graph_ends: Vec<u64>,
    written: u64,
    announced: u64,
    done: u64,
    /// Tasks that are done.
    next: usize,
}

/// The side of one rank that fills its rings.
struct Filler {
    /// The graph in hand.
    graph: usize,
    /// In order: the queue of every entry, as runs, and how far it is.
    order: Vec<(u32, u64)>,
    run: usize,
    of_run: u64,
    /// Runs up to the end of each graph.
    graph_runs: Vec<usize>,
}

/// Everything that moves.
struct Flow<'a> {
    layout: &'a Layout<'a>,
    rings: Vec<Ring>,
    fillers: Vec<Filler>,
    signals: Vec<bool>,
    waiters: Vec<Option<u32>>,
    graphs: usize,
}

/// Checks that the program ends through the rings of its machine.
pub(crate) fn check(layout: &Layout<'_>) -> Result<(), Refuted> {
    if has_room(layout) {
        return Ok(());
    }
    let mut flow = Flow::new(layout);
    let mut ready: Vec<u32> = (0..layout.queues()).collect();
    while let Some(queue) = ready.pop() {
        let rank = queue / layout.threads;
        loop {
            let filled = flow.fill(rank, &mut ready);
            if !flow.drain(queue, &mut ready) && !filled {
                break;
            }
        }
    }
    match flow.rings.iter().position(|ring| ring.next < ring.tasks.len()) {
        None => Ok(()),
        Some(queue) => Err(flow.stuck(queue)),
    }
}

/// Whether every ring has room for all that will ever be in it: then nothing waits for room, and what ends in rings without
/// end also ends in these.
fn has_room(layout: &Layout<'_>) -> bool {
    let mut entries = vec![0; layout.queues() as usize];
    for operation in layout.operations {
        for (tasks, entries) in operation.ranks.iter().zip(entries.chunks_mut(layout.threads as usize)) {
            for task in &tasks.tasks {
                entries[usize::from(task.thread.0)] += entries_of(layout, &task.task);
            }
        }
    }
    entries.iter().all(|entries| *entries <= u64::from(layout.machine.rings.depth))
}

/// Entries of a ring that a task takes.
fn entries_of(layout: &Layout<'_>, task: &Task) -> u64 {
    let longest = layout.machine.rings.longest.max(1);
    match transfer(task) {
        Some((dst, ..)) if dst.len > longest => dst.len.div_ceil(longest),
        _ => 1,
    }
}

impl<'a> Flow<'a> {
    fn new(layout: &'a Layout<'a>) -> Self {
        let graphs_of = |operation: usize| {
            layout.operations[operation].ranks.iter().map(|rank| rank.graph_ends.len() + 1).max().unwrap_or(1)
        };
        let graphs = (0..layout.operations.len()).map(graphs_of).sum();
        let ring = |_| Ring {
            tasks: Vec::new(),
            graph_ends: Vec::new(),
            written: 0,
            announced: 0,
            done: 0,
            next: 0,
        };
        let filler = |_| Filler { graph: 0, order: Vec::new(), run: 0, of_run: 0, graph_runs: Vec::new() };
        let mut flow = Self {
            layout,
            rings: (0..layout.queues()).map(ring).collect(),
            fillers: (0..layout.ranks).map(filler).collect(),
            signals: vec![false; layout.signals()],
            waiters: vec![None; layout.signals()],
            graphs,
        };
        for operation in 0..layout.operations.len() {
            for rank in 0..layout.ranks {
                flow.lay_out(operation, rank, graphs_of(operation));
            }
        }
        flow
    }

    /// Appends the entries of an operation of a rank to its rings.
    fn lay_out(&mut self, operation: usize, rank: Rank, graphs: usize) {
        let tasks = &self.layout.operations[operation].ranks[rank as usize];
        let (first, threads) = ((rank * self.layout.threads) as usize, self.layout.threads as usize);
        let number = u32::try_from(operation).unwrap_or(u32::MAX);
        let mut ends: Vec<usize> = tasks.graph_ends.clone();
        ends.resize(graphs, tasks.tasks.len());
        let mut from = 0;
        for end in ends {
            for (index, task) in (0..).zip(&tasks.tasks).take(end).skip(from) {
                let entries = entries_of(self.layout, &task.task);
                let queue = first + usize::from(task.thread.0);
                let ring = &mut self.rings[queue];
                let before = ring.tasks.last().map_or(0, |last| last.2);
                ring.tasks.push((number, index, before + entries));
                let queue = u32::try_from(queue).unwrap_or(u32::MAX);
                let order = &mut self.fillers[rank as usize].order;
                match order.last_mut() {
                    Some(run) if run.0 == queue => run.1 += entries,
                    _ => order.push((queue, entries)),
                }
            }
            from = end;
            for ring in &mut self.rings[first..first + threads] {
                ring.graph_ends.push(ring.tasks.last().map_or(0, |last| last.2));
            }
            let filler = &mut self.fillers[rank as usize];
            // The next graph begins a run of its own.
            filler.order.push((u32::MAX, 0));
            filler.graph_runs.push(filler.order.len());
        }
    }

    /// Writes and announces what a rank can; returns whether that was anything.
    fn fill(&mut self, rank: Rank, ready: &mut Vec<u32>) -> bool {
        match self.layout.machine.rings.submitter {
            Submitter::Skipping => self.fill_skipping(rank, ready),
            Submitter::InOrder { batch } => self.fill_in_order(rank, u64::from(batch.max(1)), ready),
        }
    }

    fn fill_skipping(&mut self, rank: Rank, ready: &mut Vec<u32>) -> bool {
        let depth = u64::from(self.layout.machine.rings.depth);
        let (first, threads) = ((rank * self.layout.threads) as usize, self.layout.threads as usize);
        let mut moved = false;
        while self.fillers[rank as usize].graph < self.graphs {
            let graph = self.fillers[rank as usize].graph;
            let mut whole = true;
            for queue in first..first + threads {
                let ring = &mut self.rings[queue];
                let end = ring.graph_ends[graph];
                let written = end.min(ring.done + depth);
                if written > ring.written {
                    (ring.written, ring.announced, moved) = (written, written, true);
                    ready.push(u32::try_from(queue).unwrap_or(u32::MAX));
                }
                whole &= ring.written >= end;
            }
            if !whole {
                break;
            }
            self.fillers[rank as usize].graph += 1;
        }
        moved
    }

    fn fill_in_order(&mut self, rank: Rank, batch: u64, ready: &mut Vec<u32>) -> bool {
        let depth = u64::from(self.layout.machine.rings.depth);
        let (first, threads) = ((rank * self.layout.threads) as usize, self.layout.threads as usize);
        let filler = &mut self.fillers[rank as usize];
        let mut moved = false;
        while let Some((queue, entries)) = filler.order.get(filler.run).copied() {
            if filler.of_run < entries {
                let ring = &mut self.rings[queue as usize];
                let room = (ring.done + depth).saturating_sub(ring.written).min(entries - filler.of_run);
                if room == 0 {
                    return moved;
                }
                moved = true;
                filler.of_run += room;
                ring.written += room;
                let announced = ring.announced + (ring.written - ring.announced) / batch * batch;
                if announced > ring.announced {
                    ring.announced = announced;
                    ready.push(queue);
                }
                continue;
            }
            (filler.run, filler.of_run) = (filler.run + 1, 0);
            if filler.graph_runs.get(filler.graph) == Some(&filler.run) {
                filler.graph += 1;
                for queue in first..first + threads {
                    let ring = &mut self.rings[queue];
                    if ring.announced < ring.written {
                        (ring.announced, moved) = (ring.written, true);
                        ready.push(u32::try_from(queue).unwrap_or(u32::MAX));
                    }
                }
            }
        }
        moved
    }

    /// Carries out what is announced in a ring; returns whether that was anything.
    fn drain(&mut self, queue: u32, ready: &mut Vec<u32>) -> bool {
        let layout = self.layout;
        let (rank, thread) = layout.owner(queue);
        let ring = &mut self.rings[queue as usize];
        let mut moved = false;
        while let Some((operation, index, end)) = ring.tasks.get(ring.next).copied() {
            let available = end.min(ring.announced);
            if available <= ring.done {
                break;
            }
            let task = &layout.task(operation as usize, rank, index).task;
            if let Some(signal) = layout.awaited(rank, thread, task)
                && !core::mem::take(&mut self.signals[signal])
            {
                self.waiters[signal] = Some(queue);
                break;
            }
            (ring.done, moved) = (available, true);
            if available == end {
                ring.next += 1;
                if let Some(signal) = layout.set_by(rank, task) {
                    self.signals[signal] = true;
                    ready.extend(self.waiters[signal].take());
                }
            }
        }
        moved
    }

    fn stuck(&self, queue: usize) -> Refuted {
        let ring = &self.rings[queue];
        let queue = u32::try_from(queue).unwrap_or(u32::MAX);
        let (rank, thread) = self.layout.owner(queue);
        let at = ring.tasks.get(ring.next);
        let at = at.map(|(operation, index, _)| self.layout.place_of(*operation as usize, rank, *index));
        let rings = self.layout.machine.rings;
        let seen = if ring.announced > ring.done { "waits" } else { "is not announced" };
        let why = format!(
            "the graph does not get through rings of {} entries ({:?}): the next task of rank {rank}, thread \
             {thread}, {seen}; {} of its entries are done, {} announced, {} written",
            rings.depth, rings.submitter, ring.done, ring.announced, ring.written
        );
        Box::new(Counterexample { obligation: Obligation::Deadlock, why, at, with: None, bytes: None })
    }
}
