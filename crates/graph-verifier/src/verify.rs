//! The proof: everything in its order, from the cheapest to the pass over all ranks.

use task_graph::RegionId;
use wire::Phase;

use crate::counterexample::{Counterexample, Place};
use crate::layout::Layout;
use crate::obligation::Obligation;
use crate::pass::{Pass, Refuted};
use crate::program::{Labelled, Machine, Operation};
use crate::rings;
use crate::structure::{Extents, Structure};

/// What was proved, and what was noticed on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Tasks of all operations.
    pub tasks: usize,
    /// Bytes that an operation writes and overwrites without reading them: no mistake, but work for nothing.
    pub unused_bytes: u64,
    /// Whether an operation that failed half-way can be carried out again: its input is still there.
    pub retry: bool,
}

/// Proves operations that follow each other in this order on one communicator, with the same user buffers; the same
/// one twice is what a single operation needs (exit safety).
///
/// # Errors
/// The first obligation that is not met, with what shows it.
pub fn verify(machine: &Machine, operations: &[&Operation]) -> Result<Proof, Box<Counterexample>> {
    for (number, operation) in operations.iter().enumerate() {
        let seen = operations[..number].iter().any(|other| core::ptr::eq(*other, *operation));
        if !seen {
            check_structure(machine, operations, number)?;
        }
    }
    let layout = Layout::new(machine, operations);
    let mut pass = Pass::new(&layout);
    pass.run()?;
    rings::check(&layout)?;
    Ok(Proof {
        tasks: operations.iter().map(|operation| operation.tasks()).sum(),
        unused_bytes: pass.unused_bytes,
        retry: operations.iter().all(|operation| operation.goal.in_place.iter().all(Option::is_none)),
    })
}

/// The lengths of all buffers of an operation, as one rank names them.
struct Buffers<'a> {
    operation: &'a Operation,
    rank: u32,
    scratch: u64,
}

impl Extents for Buffers<'_> {
    #[inline]
    fn bytes(&self, region: RegionId) -> u64 {
        let [input, output] = self.operation.goal.buffers(region.peer().unwrap_or(self.rank));
        [input, output, self.scratch][region.kind() as usize]
    }
}

/// Checks each task on its own (V1 to V3), and that labels come in their order (V13).
fn check_structure(machine: &Machine, operations: &[&Operation], number: usize) -> Result<(), Refuted> {
    let operation = operations[number];
    let goal = &operation.goal;
    if operation.ranks.len() != goal.ranks as usize || operations[0].goal.ranks != goal.ranks {
        let why = format!("{} ranks have tasks, the goal is about {}", operation.ranks.len(), goal.ranks);
        return Err(Box::new(Counterexample {
            obligation: Obligation::Structure,
            why,
            at: None,
            with: None,
            bytes: None,
        }));
    }
    for (rank, tasks) in (0..).zip(&operation.ranks) {
        let structure = Structure {
            rank,
            ranks: goal.ranks,
            threads: machine.threads,
            main_notifies: machine.main_notifies,
            sub_notifies: machine.sub_notifies,
            element: goal.element,
            in_place: goal.in_place(rank),
            extents: Buffers { operation, rank, scratch: machine.scratch },
        };
        let mut labels = Labels::new(machine.threads);
        let mut ends = tasks.graph_ends.iter().copied().peekable();
        for (index, labelled) in tasks.tasks.iter().enumerate() {
            while ends.next_if(|end| *end <= index).is_some() {
                labels.begin_graph();
            }
            let own = structure.check(labelled.thread, &labelled.task);
            if let Err(obligation) = own.and_then(|()| labels.check(labelled)) {
                return Err(refuse(obligation, rank, number, index, labelled));
            }
        }
    }
    Ok(())
}

fn refuse(obligation: Obligation, rank: u32, operation: usize, index: usize, task: &Labelled) -> Refuted {
    let why = match obligation {
        Obligation::Structure => "a task names a rank, thread, notify or buffer that there is not",
        Obligation::Bounds => "a task reaches beyond a buffer, has no bytes, or cuts an element",
        Obligation::Overlap => "source and destination of a task overlap",
        _ => "phase or step go back where no new graph or piece begins",
    };
    let at = Some(Place {
        rank,
        thread: task.thread.0,
        operation,
        task: Some(index),
        phase: task.phase,
        step: task.step,
        text: task.task.to_string(),
    });
    Box::new(Counterexample { obligation, why: why.to_owned(), at, with: None, bytes: None })
}

/// The labels each thread had last, within a graph. Before, during and after the run of the algorithm come in this
/// order; in the run a step stays, goes on, or begins again at 0 with a new piece.
struct Labels {
    last: Vec<(u8, u16)>,
}

impl Labels {
    fn new(threads: u16) -> Self {
        Self { last: vec![(0, 0); usize::from(threads)] }
    }

    fn begin_graph(&mut self) {
        self.last.fill((0, 0));
    }

    #[inline]
    fn check(&mut self, labelled: &Labelled) -> Result<(), Obligation> {
        let stage = match labelled.phase {
            Phase::Start | Phase::PreSync | Phase::PreCopy => 0,
            Phase::Run => 1,
            Phase::PostSync | Phase::PostCopy | Phase::Finish => 2,
        };
        let Some(last) = self.last.get_mut(usize::from(labelled.thread.0)) else { return Ok(()) };
        let (last_stage, last_step) = *last;
        let forward = stage != 1 || last_stage != 1 || labelled.step >= last_step || labelled.step == 0;
        *last = (stage, labelled.step);
        if stage >= last_stage && forward { Ok(()) } else { Err(Obligation::Labels) }
    }
}
