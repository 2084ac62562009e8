//! The skeleton every template shares: seven phases in one order.
//!
//! PreSync, PreCopy, PreSync, Run, PostSync, PostCopy, PostSync. The syncs are between the main thread and its sub
//! threads. Step algorithms sync at the copy boundary (sub threads share the copies, the main thread alone
//! communicates), mesh algorithms at the communication boundary (the main thread copies, sub threads communicate).
//! Where sub threads can copy before the last step is done, they do (`overlap`), as a part of that step.
//! Each pair of main and sub thread has two notifies: 0 for the start of communication, 1 for the start of copying.

use task_graph::{RegionKind, Task, TaskSink, ThreadId};
use wire::launch::{ElementRange, Staging};
use wire::{ErrorCode, Phase};

use crate::family::{Family, family};
use crate::plan::Plan;
use crate::space::Layout;
use crate::tables::Tables;
use crate::tasks::own;

/// Which of the two notifies of a main-sub pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boundary {
    Communication = 0,
    Copy = 1,
}

/// Emits the tasks of one chunk.
pub(crate) struct Emitter<'a, S> {
    pub(crate) plan: &'a Plan,
    /// The elements of each block, or of the whole, that are at hand.
    pub(crate) chunk: ElementRange,
    pub(crate) tables: &'a Tables<'a>,
    pub(crate) layout: Layout,
    pub(crate) element: u64,
    pub(crate) sink: &'a mut S,
}

pub(crate) type Emitted = Result<(), ErrorCode>;

impl<'a, S: TaskSink> Emitter<'a, S> {
    pub(crate) fn new(plan: &'a Plan, chunk: ElementRange, tables: &'a Tables<'a>, sink: &'a mut S) -> Self {
        let element = plan.shape().dtype.size_bytes();
        Self { plan, chunk, tables, layout: plan.layout(), element, sink }
    }

    pub(crate) fn run(&mut self) -> Emitted {
        let shape = self.plan.shape();
        if shape.ranks == 1 {
            return self.single_rank();
        }
        if let Some(cut) = self.plan.cut() {
            return self.file_algorithm(cut);
        }
        match family(shape.op, shape.algorithm).ok_or(ErrorCode::PLAN_OP)? {
            Family::Steps | Family::Composition => self.step_algorithm(),
            Family::Chunk => self.chunk_algorithm(),
            Family::Mesh => self.mesh_algorithm(),
            // Read in rank order, as the mesh does it.
            Family::Exchange if shape.op.reduces() && shape.staging == Staging::Direct => {
                self.mesh_algorithm()
            }
            Family::Exchange => self.exchange_algorithm(),
        }
    }

    /// One rank: a straight copy, no scratch, no communication.
    fn single_rank(&mut self) -> Emitted {
        self.sink.mark(Phase::Run, 0);
        let Some((input, output)) = self.own_copy() else { return Ok(()) };
        self.copy_unless_in_place(
            ThreadId::MAIN,
            own(RegionKind::Output, output),
            own(RegionKind::Input, input),
        )
    }

    /// Syncs at the copy boundary.
    fn step_algorithm(&mut self) -> Emitted {
        self.sink.mark(Phase::PreSync, 0);
        self.start_subs(Boundary::Copy)?;
        self.sink.mark(Phase::PreCopy, 0);
        self.pre_copy()?;
        self.sink.mark(Phase::PreSync, 0);
        self.join_subs(Boundary::Communication)?;
        let overlap = self.overlap();
        let steps = if self.plan.is_composed() { self.run_composition()? } else { self.run_steps(overlap)? };
        self.sink.mark(Phase::PostSync, steps);
        self.start_subs(if overlap.is_some() { Boundary::Copy } else { Boundary::Communication })?;
        self.sink.mark(Phase::PostCopy, steps);
        match overlap {
            Some(overlap) => self.copy_set(overlap.late, 0)?,
            None => self.post_copy()?,
        }
        self.sink.mark(Phase::PostSync, steps);
        self.join_subs(Boundary::Copy)
    }

    /// Syncs at the communication boundary.
    fn mesh_algorithm(&mut self) -> Emitted {
        self.sink.mark(Phase::PreSync, 0);
        self.mesh_ready()?;
        self.sink.mark(Phase::PreCopy, 0);
        self.mesh_pre_copy()?;
        self.sink.mark(Phase::PreSync, 0);
        self.start_subs(Boundary::Communication)?;
        let steps = self.mesh_run()?;
        self.sink.mark(Phase::PostSync, steps);
        self.join_subs(Boundary::Communication)?;
        self.sink.mark(Phase::PostCopy, steps);
        self.mesh_post_copy()?;
        self.sink.mark(Phase::PostSync, steps);
        self.mesh_finish()
    }

    /// The main thread lets every sub thread go.
    pub(crate) fn start_subs(&mut self, boundary: Boundary) -> Emitted {
        for sub in 1..self.plan.threads() {
            let index = boundary as u16;
            self.sink.task(ThreadId::MAIN, &Task::ThreadRecord { thread: ThreadId(sub), index })?;
            self.sink.task(ThreadId(sub), &Task::ThreadWait { index })?;
        }
        Ok(())
    }

    /// The main thread waits for every sub thread.
    pub(crate) fn join_subs(&mut self, boundary: Boundary) -> Emitted {
        for sub in 1..self.plan.threads() {
            // The main thread has two notifies per sub thread.
            let index = 2 * (sub - 1) + boundary as u16;
            self.sink.task(ThreadId(sub), &Task::ThreadRecord { thread: ThreadId::MAIN, index })?;
            self.sink.task(ThreadId::MAIN, &Task::ThreadWait { index })?;
        }
        Ok(())
    }
}
