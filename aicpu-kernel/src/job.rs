//! One launch on its way through the kernel: an operation, or those of a program in turn.

use core::ops::DerefMut;

use graph_verifier::Checked;
use task_graph::{
    Block, LaunchBase, PackedGraph, Page, Pages, Recorder, Task, TaskGraph, TaskSink, ThreadId, Vectors,
};
use templates::{Plan, Tables};
use wire::launch::{CacheOutcome, Launch};
use wire::npu::Status;
use wire::{ErrorCode, Phase};

use crate::bindings::{LaunchBindings, PeerTables};
use crate::check;
use crate::context::OwnedContext;
use crate::kernel::Fault;

/// Bit of the cache key: the graph ends with the start of the operation behind it, not with the host's done notify.
const CHAINED: u32 = 1;

/// What is known of an operation whose context is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) context: usize,
    /// Chunks of its plan, which is the context's in use, or why there is none.
    pub(crate) plan: Result<u64, Fault>,
}

/// A launch that has been accepted.
#[derive(Debug)]
pub(crate) struct Job {
    /// The operation in hand.
    pub(crate) launch: Launch,
    pub(crate) context: usize,
    /// Chunks of the context's plan in use. `None` for an operation that was refused: it is submitted all the same,
    /// without tasks of its own, so that the start notify is consumed and the done notify recorded.
    chunks: Option<u64>,
    /// Index in the program of the operation behind the one in hand, and its start notify.
    pub(crate) behind: Option<(usize, u32)>,
    /// The next chunk of the operation to expand.
    next: u64,
    /// Descriptors of earlier chunks and operations.
    base: u32,
    /// Operations of the program; 1 for a launch that is one.
    pub(crate) operations: usize,
    /// Graphs that have been submitted or are being submitted.
    graphs: u32,
    pub(crate) status: Status,
    pub(crate) started_ns: u64,
    /// Whether the rings were full at some time: recorded once.
    pub(crate) was_held: bool,
}

impl Job {
    #[inline]
    pub(crate) fn new(
        launch: &Launch,
        first: Opened,
        behind: Option<(usize, u32)>,
        operations: usize,
        now_ns: u64,
    ) -> Self {
        let status = Status { sequence: launch.sequence, ..Status::default() };
        let mut job = Self {
            launch: *launch,
            context: first.context,
            chunks: first.plan.ok(),
            behind,
            operations,
            next: 0,
            base: 0,
            graphs: 0,
            status,
            started_ns: now_ns,
            was_held: false,
        };
        if let Err(fault) = first.plan {
            job.refuse(fault);
        }
        job
    }

    /// Goes on with the operation behind the one that has been submitted.
    ///
    /// # Errors
    /// Why that one was refused.
    pub(crate) fn proceed(
        &mut self,
        launch: Launch,
        next: Opened,
        behind: Option<(usize, u32)>,
    ) -> Result<(), Fault> {
        (self.launch, self.context, self.chunks) = (launch, next.context, Some(next.plan?));
        (self.behind, self.next) = (behind, 0);
        Ok(())
    }

    /// Returns whether the operation in hand has a plan: the context's in use.
    pub(crate) fn is_planned(&self) -> bool {
        self.chunks.is_some()
    }

    /// Returns whether a chunk or an operation is left to expand.
    pub(crate) fn has_more(&self) -> bool {
        self.has_chunks() || self.behind.is_some()
    }

    /// Returns whether a chunk of the operation in hand is left. An operation without data has one, empty.
    pub(crate) fn has_chunks(&self) -> bool {
        self.next < self.chunks()
    }

    /// Returns the bits of the cache key that say what is around the operation.
    pub(crate) fn features(&self) -> u32 {
        if self.behind.is_some() { CHAINED } else { 0 }
    }

    /// Notes what the cache did for a graph: the launch is a hit when every graph is.
    pub(crate) fn note(&mut self, outcome: CacheOutcome) {
        if self.graphs == 0 || outcome != CacheOutcome::Hit {
            self.status.cache = outcome as u8;
        }
    }

    fn chunks(&self) -> u64 {
        self.chunks.unwrap_or(0).max(1)
    }

    /// Returns whether nothing has been expanded yet, so that the job can still be refused.
    pub(crate) fn is_untouched(&self) -> bool {
        self.graphs == 0
    }

    /// Task id of the last descriptor expanded.
    pub(crate) fn last_task(&self) -> u64 {
        self.task_base().wrapping_sub(1)
    }

    fn task_base(&self) -> u64 {
        u64::from(self.launch.sequence) << 32 | u64::from(self.base)
    }

    /// Turns this job into one that only tells the host that it is done, because of `fault`.
    pub(crate) fn refuse(&mut self, fault: Fault) {
        (self.chunks, self.behind) = (None, None);
        (self.status.code, self.status.detail) = (fault.code.0, fault.detail);
    }

    /// Prepares `vectors` for the graph of the next chunk and counts it as expanded.
    ///
    /// # Errors
    /// What the bindings refuse; nothing has been submitted of this chunk, and it is not counted.
    pub(crate) fn bind<T: DerefMut<Target = [Page]>>(
        &mut self,
        context: &OwnedContext,
        (pages, graph): (&Pages<T>, &PackedGraph),
        peers: &PeerTables,
        vectors: &mut Vectors,
    ) -> Result<(), Fault> {
        let (launch, rank) = (&self.launch, context.header().rank);
        let unit = context.planned().filter(|_| self.is_planned()).map_or(0, |planned| planned.unit);
        let base = LaunchBase {
            task: self.task_base(),
            timeout_ms: launch.timeout_ms,
            start_notify: launch.start_notify,
            done_notify: launch.done_notify,
            next_notify: self.behind.map_or(0, |(_, notify)| notify),
        };
        let bindings = LaunchBindings::new([&launch.input, &launch.output], peers, context.regions(), rank);
        pages.bind(graph, &bindings, &base, unit, |queue| context.ring_tail(queue), vectors).map_err(
            |unbound| {
                let owner = u64::from(unbound.region.peer().unwrap_or(rank));
                Fault { code: unbound.code, detail: (u64::from(unbound.task) + 1) << 32 | owner }
            },
        )?;
        self.count(graph);
        Ok(())
    }

    fn count(&mut self, graph: &PackedGraph) {
        self.base = self.base.wrapping_add(graph.len());
        self.next += 1;
        self.graphs = self.graphs.saturating_add(1);
        let kinds = graph.kinds();
        let status = &mut self.status;
        status.chunks = status.chunks.saturating_add(1);
        status.steps = status.steps.max(graph.steps());
        for (total, count) in
            status.kinds.iter_mut().zip([kinds.copies, kinds.reduces, kinds.transfers, kinds.signals])
        {
            *total = total.saturating_add(count);
        }
    }

    /// Records the next chunk of `plan` into `graph`: the job's own plan, or one of the same size class.
    ///
    /// # Errors
    /// What the template, the verifier's local part or the recorder refuses.
    pub(crate) fn record<S: DerefMut<Target = [Block]>>(
        &self,
        plan: Option<&Plan>,
        context: &OwnedContext,
        attached: &Tables<'_>,
        graph: &mut TaskGraph<S>,
    ) -> Result<(), ErrorCode> {
        graph.clear();
        let mut recorder = Recorder::new(graph, context.resources()?);
        if self.next == 0 {
            recorder.mark(Phase::Start, 0);
            recorder.task(ThreadId::MAIN, &Task::WaitStart)?;
        }
        if let Some(plan) = plan.filter(|plan| self.next < plan.chunks()) {
            let tables = context.tables(attached);
            let structure = check::structure(plan, &tables)?;
            let mut checked = Checked::new(&structure, &mut recorder);
            plan.emit(self.next, &tables, &mut checked)?;
            checked.finish()?;
        }
        if self.next + 1 == self.chunks() {
            recorder.mark(Phase::Finish, 0);
            let last = if self.behind.is_some() { Task::RecordNext } else { Task::RecordDone };
            recorder.task(ThreadId::MAIN, &last)?;
        }
        Ok(())
    }
}
