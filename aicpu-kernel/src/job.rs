//! One operation on its way through the kernel.

use core::ops::DerefMut;

use task_graph::{
    Block, LaunchBase, PackedGraph, Page, Pages, Recorder, Task, TaskGraph, TaskSink, ThreadId, Vectors,
};
use templates::Plan;
use wire::launch::Launch;
use wire::npu::Status;
use wire::{ErrorCode, Phase};

use crate::bindings::{LaunchBindings, PeerTables};
use crate::context::OwnedContext;
use crate::kernel::Fault;

/// An operation that has been accepted.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) launch: Launch,
    pub(crate) context: usize,
    /// `None` for an operation that was refused: it is submitted all the same, without tasks of its own, so that the
    /// start notify is consumed and the done notify recorded.
    pub(crate) plan: Option<Plan>,
    /// The next chunk to expand.
    next: u64,
    /// Descriptors of earlier chunks.
    base: u32,
    pub(crate) status: Status,
    pub(crate) started_ns: u64,
}

impl Job {
    pub(crate) fn new(launch: Launch, context: usize, plan: Result<Plan, Fault>, now_ns: u64) -> Self {
        let (plan, fault) = match plan {
            Ok(plan) => (Some(plan), None),
            Err(fault) => (None, Some(fault)),
        };
        let mut status = Status { sequence: launch.sequence, ..Status::default() };
        if let Some(Fault { code, detail }) = fault {
            (status.code, status.detail) = (code.0, detail);
        }
        Self { launch, context, plan, next: 0, base: 0, status, started_ns: now_ns }
    }

    /// Returns whether a chunk is left to expand. An operation without data has one, empty.
    pub(crate) fn has_more(&self) -> bool {
        self.next < self.chunks()
    }

    fn chunks(&self) -> u64 {
        self.plan.as_ref().map_or(0, Plan::chunks).max(1)
    }

    /// Returns whether nothing has been expanded yet, so that the job can still be refused.
    pub(crate) fn is_untouched(&self) -> bool {
        self.next == 0
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
        self.plan = None;
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
        let base = LaunchBase {
            task: self.task_base(),
            timeout_ms: launch.timeout_ms,
            start_notify: launch.start_notify,
            done_notify: launch.done_notify,
        };
        let bindings = LaunchBindings {
            input: launch.input,
            output: launch.output,
            scratch: context.regions(),
            rank,
            peers,
        };
        pages
            .bind(graph, &bindings, &base, |queue| context.ring_tail(queue), vectors)
            .map_err(|(code, region)| Fault { code, detail: u64::from(region.peer().unwrap_or(rank)) })?;
        self.count(graph);
        Ok(())
    }

    fn count(&mut self, graph: &PackedGraph) {
        self.base = self.base.wrapping_add(graph.len());
        self.next += 1;
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

    /// Records the next chunk into `graph`.
    ///
    /// # Errors
    /// What the template or the recorder refuses.
    pub(crate) fn record<S: DerefMut<Target = [Block]>>(
        &self,
        context: &mut OwnedContext,
        graph: &mut TaskGraph<S>,
    ) -> Result<(), ErrorCode> {
        graph.clear();
        let (resources, _) = context.split()?;
        let mut recorder = Recorder::new(graph, resources);
        if self.next == 0 {
            recorder.mark(Phase::Start, 0);
            recorder.task(ThreadId::MAIN, &Task::WaitStart)?;
        }
        if let Some(plan) = self.plan.as_ref().filter(|plan| self.next < plan.chunks()) {
            plan.emit(self.next, &mut recorder)?;
        }
        if self.next + 1 == self.chunks() {
            recorder.mark(Phase::Finish, 0);
            recorder.task(ThreadId::MAIN, &Task::RecordDone)?;
        }
        Ok(())
    }
}
