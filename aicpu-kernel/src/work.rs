//! The work on a launch: from what it asks for to descriptors in rings.

use core::ops::DerefMut;

use hal::Platform;
use task_graph::{Block, Page, Vectors};
use wire::launch::{CacheOutcome, Launch};
use wire::program::Posted;
use wire::{ErrorCode, TraceEvent, digest};

use crate::attached::Attached;
use crate::bindings::PeerTables;
use crate::context::{self, ContextTable};
use crate::graphs::Graphs;
use crate::job::{Job, Opened};
use crate::kernel::Fault;
use crate::port::Port;
use crate::program::LoadedProgram;
use crate::request;
use crate::submit::{Submission, Turn};

/// Decoded contexts, what the launch in hand refers to, and what is left to submit.
#[derive(Debug)]
pub(crate) struct Work {
    vectors: Vectors,
    contexts: ContextTable,
    peers: PeerTables,
    attached: Attached,
    program: LoadedProgram,
    submission: Submission,
    /// Digest of the launch that was taken last, 0 while it has not been understood.
    pub(crate) digest: u64,
}

impl Work {
    /// Nothing done yet. A constant and no function: on its way out of one it would take as much of the stack again.
    pub(crate) const NONE: Self = Self {
        vectors: Vectors::new(),
        contexts: ContextTable::new(),
        peers: PeerTables::new(),
        attached: Attached::new(),
        program: LoadedProgram::new(),
        submission: Submission::new(),
        digest: 0,
    };

    /// Makes a job of a launch, in its place. Of a program, every operation is looked at here, the first last: a fault
    /// of any refuses the whole.
    ///
    /// # Errors
    /// Why there is no context to answer in; other faults are the job's.
    pub(crate) fn accept<P, S, T>(
        &mut self,
        port: &mut Port<P>,
        graphs: &mut Graphs<S, T>,
        posted: &Posted,
        job: &mut Option<Job>,
    ) -> Result<(), Fault>
    where
        P: Platform,
        S: DerefMut<Target = [Block]>,
        T: DerefMut<Target = [Page]>,
    {
        let count = match posted {
            Posted::Operation(_) => 1,
            Posted::Replay(replay) => self.program.load(&port.platform, replay)?,
        };
        let first;
        let launch = match posted {
            Posted::Operation(launch) => launch,
            Posted::Replay(_) => {
                first = self.program.launch(0)?;
                &first
            }
        };
        self.digest = launch.digest();
        let others = (1..count).rev().try_for_each(|index| {
            let other = self.program.launch(index)?;
            self.digest = digest::with(self.digest, other.digest());
            self.open(port, graphs, &other)?.plan.map(drop)
        });
        let opened = self.open(port, graphs, launch)?;
        let behind = others.and_then(|()| self.behind(0, count));
        let (behind, plan) = match behind {
            Ok(behind) => (behind, opened.plan),
            Err(fault) => (None, Err(fault)),
        };
        port.tick();
        *job = Some(Job::new(launch, Opened { plan, ..opened }, behind, count, port.now_ns));
        Ok(())
    }

    /// Returns the operation behind the one with this index, and its start notify.
    fn behind(&self, index: usize, count: usize) -> Result<Option<(usize, u32)>, Fault> {
        let next = index + 1;
        if next == count {
            return Ok(None);
        }
        Ok(Some((next, self.program.launch(next)?.start_notify)))
    }

    /// Finds the context of an operation, and plans it there.
    fn open<P, S, T>(
        &mut self,
        port: &mut Port<P>,
        graphs: &mut Graphs<S, T>,
        launch: &Launch,
    ) -> Result<Opened, Fault>
    where
        P: Platform,
        S: DerefMut<Target = [Block]>,
        T: DerefMut<Target = [Page]>,
    {
        let platform = &port.platform;
        let window = platform.window();
        let ring = |queue, ring, depth| context::resume(platform, window, (queue, ring, depth));
        let (index, decoded) = self.contexts.find(platform, launch, ring)?;
        if decoded {
            port.tick();
            port.event(|now| TraceEvent::context_decoded(now, launch));
            graphs.forget_before(launch.instance, launch.epoch);
        }
        let context = self.contexts.get(index)?;
        if context.poisoned {
            return Err(ErrorCode::CONTEXT_STALE.into());
        }
        request::check_start(launch, context)?;
        let ranks = usize::try_from(context.header().ranks).unwrap_or(usize::MAX);
        let (platform, peers) = (&port.platform, &mut self.peers);
        let loaded = self.attached.load(platform, launch, ranks);
        let planned = loaded.and_then(|()| request::plan(launch, context, &self.attached));
        let plan = planned
            .and_then(|planned| peers.load(platform, launch, ranks, planned.reach).map(|()| planned.chunks));
        Ok(Opened { context: index, plan })
    }

    /// Goes on with the operation behind the one that has been submitted.
    fn proceed<P, S, T>(
        &mut self,
        port: &mut Port<P>,
        graphs: &mut Graphs<S, T>,
        job: &mut Job,
    ) -> Result<(), Fault>
    where
        P: Platform,
        S: DerefMut<Target = [Block]>,
        T: DerefMut<Target = [Page]>,
    {
        let Some((index, _)) = job.behind else { return Ok(()) };
        let launch = self.program.launch(index)?;
        let opened = self.open(port, graphs, &launch)?;
        let behind = self.behind(index, job.operations)?;
        job.proceed(launch, opened, behind)
    }

    /// One turn: get the graph of the next chunk if the last one is submitted, then submit.
    ///
    /// # Errors
    /// What planning, expansion, binding or the rings refuse.
    pub(crate) fn step<P, S, T>(
        &mut self,
        port: &mut Port<P>,
        graphs: &mut Graphs<S, T>,
        job: &mut Job,
    ) -> Result<Turn, Fault>
    where
        P: Platform,
        S: DerefMut<Target = [Block]>,
        T: DerefMut<Target = [Page]>,
    {
        if self.submission.is_done() && !job.has_chunks() {
            self.proceed(port, graphs, job)?;
        }
        let context = self.contexts.get(job.context)?;
        if self.submission.is_done() {
            let outcome = graphs.obtain(job, context, &self.attached)?;
            job.note(outcome);
            if outcome != CacheOutcome::Hit {
                job.status.expand_ns += port.tick();
            }
            let (pages, graph) = graphs.held()?;
            job.bind(context, (pages, graph), &self.peers, &mut self.vectors)?;
            self.submission.start(pages, graph, |queue| context.is_pair(queue));
        }
        let rings = context.rings();
        let turn = self.submission.turn(&mut port.platform, graphs.held()?, &self.vectors, rings)?;
        let spent = port.tick();
        let status = &mut job.status;
        status.sqes = status.sqes.saturating_add(turn.sqes);
        status.wqes = status.wqes.saturating_add(turn.wqes);
        status.doorbells = status.doorbells.saturating_add(turn.doorbells);
        status.submit_ns += spent;
        if turn.complete {
            graphs.finish();
        }
        Ok(turn)
    }

    /// Lets nothing be submitted any more for the communicator of a job of which a part is in the rings.
    pub(crate) fn give_up(&mut self, job: &Job) {
        self.contexts.poison(job.launch.instance, job.launch.epoch);
        self.submission.abandon();
    }
}
