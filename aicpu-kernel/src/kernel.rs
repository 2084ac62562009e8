//! The kernel's loop: one turn at a time, never blocking.

use core::ops::DerefMut;

use hal::Platform;
use ring::Completions;
use task_graph::{Block, Page, Vectors};
use templates::Tables;
use wire::launch::{CacheOutcome, Launch};
use wire::npu::{
    ABORTED, CQ_HEAD, HEARTBEAT, KERNEL_STATE, KernelState, LAUNCH_HEAD, LAUNCH_SLOTS, LAUNCH_TAIL, LAUNCHES,
    STATUSES, Status,
};
use wire::program::Posted;
use wire::{DeviceAddr, ErrorCode, LaunchArgs, TraceEvent, digest};
use zerocopy::{FromZeros, IntoBytes};

use crate::bindings::{LoadedVector, PeerTables};
use crate::context::{self, ContextTable};
use crate::graphs::{CacheUse, Graphs};
use crate::job::{Job, Opened};
use crate::program::LoadedProgram;
use crate::request;
use crate::script::LoadedScript;
use crate::submit::{Submission, Turn};

/// How long after the deadline of the waits a full ring becomes an error (public figure of the field: 20 s).
const QUEUE_FULL_STAGE_MS: u64 = 20_000;

/// Why a launch is refused, and the number that says more: an offset, a size, a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub code: ErrorCode,
    /// Byte offset, size needed or value found; 0 where there is none.
    pub detail: u64,
}

impl From<ErrorCode> for Fault {
    fn from(code: ErrorCode) -> Self {
        Self { code, detail: 0 }
    }
}

/// One NPU's kernel: platform, decoded contexts, the graph being submitted.
///
/// `S` is the memory graphs are recorded into and `T` that in which they are kept: static memory in the image, boxed
/// slices on the host.
#[derive(Debug)]
pub struct Kernel<P, S, T> {
    platform: P,
    graphs: Graphs<S, T>,
    vectors: Vectors,
    contexts: ContextTable,
    peers: PeerTables,
    vector: LoadedVector,
    script: LoadedScript,
    program: LoadedProgram,
    completions: Completions,
    job: Option<Job>,
    submission: Submission,
    /// Launches answered.
    answered: u64,
    /// Digest of the launch that was taken last, 0 while it has not been understood.
    digest: u64,
    turns: u64,
    /// When the clock was last read: at the acceptance of a launch and after each expansion, submission and
    /// completion, no more often.
    now_ns: u64,
}

impl<P: Platform, S: DerefMut<Target = [Block]>, T: DerefMut<Target = [Page]>> Kernel<P, S, T> {
    /// Makes a kernel on `platform` that records into `blocks` and keeps graphs in `pages`.
    pub const fn new(platform: P, blocks: S, pages: T) -> Self {
        Self {
            platform,
            graphs: Graphs::new(blocks, pages),
            vectors: Vectors::new(),
            contexts: ContextTable::new(),
            peers: PeerTables::new(),
            vector: LoadedVector::new(),
            script: LoadedScript::new(),
            program: LoadedProgram::new(),
            completions: Completions::new(),
            job: None,
            submission: Submission::new(),
            answered: 0,
            digest: 0,
            turns: 0,
            now_ns: 0,
        }
    }

    /// Moves a kernel that has not started onto `platform`, `blocks` and `pages`: how one that was made at compile time, which
    /// is too large for a stack, gets what is known only at run time.
    pub fn attach(&mut self, platform: P, blocks: S, pages: T) {
        self.platform = platform;
        self.graphs.set_memory(blocks, pages);
    }

    /// Tells the host that launches are taken from now on. Goes on where an earlier kernel on this window stopped.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when the window is not what the platform says.
    pub fn start(&mut self) -> Result<(), ErrorCode> {
        self.graphs.set_limits();
        self.answered = self.platform.load(self.at(LAUNCH_HEAD)?)?;
        self.completions = Completions::starting_at(self.platform.load(self.at(CQ_HEAD)?)?);
        let state = self.at(KERNEL_STATE)?;
        self.platform.store(state, KernelState::Ready as u64)
    }

    /// Does what can be done without waiting; returns whether that was anything.
    pub fn poll(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(1024) {
            self.beat();
        }
        let mut moved = self.reap();
        if self.job.is_none() {
            moved |= self.take_launch();
        } else {
            self.now_ns = self.platform.now_ns();
        }
        if self.job.is_some() {
            moved |= self.advance();
        }
        moved
    }

    /// Returns whether no launch is in hand: until the host posts one, there is nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.job.is_none()
    }

    /// Returns what graphs take, and what the cache has done.
    #[must_use]
    pub fn cache_use(&self) -> CacheUse {
        self.graphs.usage()
    }

    /// Returns the platform, for what the owner has to do on it.
    pub fn platform_mut(&mut self) -> &mut P {
        &mut self.platform
    }

    fn at(&self, offset: u64) -> Result<DeviceAddr, ErrorCode> {
        self.platform.window().checked_add(offset).ok_or(ErrorCode::CONTEXT_ADDRESS)
    }

    fn beat(&mut self) {
        if let Ok(word) = self.at(HEARTBEAT) {
            // A window that cannot be written is found out by the status of the next launch.
            let _ = self.platform.store(word, self.turns);
        }
    }

    /// Takes completions off the ring. An error entry needs no action here: the device has stopped this NPU and the
    /// host reads the same entry.
    fn reap(&mut self) -> bool {
        let mut moved = false;
        while let Ok(Some(cqe)) = self.completions.poll(&mut self.platform) {
            moved = true;
            self.now_ns = self.platform.now_ns();
            self.platform.event(TraceEvent::completed(self.now_ns, &cqe));
        }
        moved
    }

    /// Takes the next launch out of the mailbox, if there is one.
    fn take_launch(&mut self) -> bool {
        let posted = self.at(LAUNCH_TAIL).and_then(|word| self.platform.load(word));
        // More launches than slots cannot be waiting: the word was overwritten, and no slot is to be believed.
        let waiting = posted.map_or(0, |posted| posted.wrapping_sub(self.answered));
        if waiting == 0 || waiting > LAUNCH_SLOTS {
            return false;
        }
        self.platform.observe();
        let mut args = LaunchArgs::new_zeroed();
        let slot = self.answered % LAUNCH_SLOTS;
        let read = self
            .at(LAUNCHES + slot * size_of::<LaunchArgs>() as u64)
            .and_then(|at| self.platform.read(at, args.as_mut_bytes()));
        let posted = read.and_then(|()| Posted::parse(&args));
        self.digest = 0;
        let accepted = posted.map_err(Fault::from).and_then(|posted| self.accept(posted));
        self.platform.event(TraceEvent::launch_taken(self.now_ns, &args, self.digest));
        match accepted {
            Ok(job) => self.job = Some(job),
            // Without a context there is no thread to record the done notify on: the status alone tells the host.
            Err(fault) => self.answer(&Status {
                sequence: args.sequence,
                code: fault.code.0,
                detail: fault.detail,
                ..Status::default()
            }),
        }
        true
    }

    /// Makes a job of a launch. Of a program, every operation is looked at here, the first last: a fault of any
    /// refuses the whole.
    fn accept(&mut self, posted: Posted) -> Result<Job, Fault> {
        let (launch, count) = match posted {
            Posted::Operation(launch) => (launch, 1),
            Posted::Replay(replay) => {
                let count = self.program.load(&self.platform, &replay)?;
                (self.program.launch(0)?, count)
            }
        };
        self.digest = launch.digest();
        let others = (1..count).rev().try_for_each(|index| {
            let other = self.program.launch(index)?;
            self.digest = digest::with(self.digest, other.digest());
            self.open(other)?.plan.map(drop)
        });
        let mut first = self.open(launch)?;
        let behind = others.and_then(|()| self.behind(0, count));
        let behind = behind.unwrap_or_else(|fault| {
            first.plan = Err(fault);
            None
        });
        self.now_ns = self.platform.now_ns();
        Ok(Job::new(first, behind, count, self.now_ns))
    }

    /// Returns the operation behind the one with this index, and its start notify.
    fn behind(&self, index: usize, count: usize) -> Result<Option<(usize, u32)>, Fault> {
        let next = index + 1;
        if next == count {
            return Ok(None);
        }
        Ok(Some((next, self.program.launch(next)?.start_notify)))
    }

    /// Finds the context of an operation and plans it.
    fn open(&mut self, launch: Launch) -> Result<Opened, Fault> {
        let window = self.platform.window();
        let platform = &self.platform;
        let ring = |queue, ring, depth| context::resume(platform, window, (queue, ring, depth));
        let (index, decoded) = self.contexts.find(platform, &launch, ring)?;
        if decoded {
            self.now_ns = self.platform.now_ns();
            self.platform.event(TraceEvent::context_decoded(self.now_ns, &launch));
            self.graphs.forget_before(launch.instance, launch.epoch);
        }
        let context = self.contexts.get(index)?;
        if context.poisoned {
            return Err(ErrorCode::CONTEXT_STALE.into());
        }
        request::check_start(&launch, context)?;
        let ranks = usize::try_from(context.header().ranks).unwrap_or(usize::MAX);
        let loaded = self
            .vector
            .load(&self.platform, &launch, ranks)
            .and_then(|()| self.script.load(&self.platform, &launch));
        let planned = loaded
            .and_then(|()| request::plan(&launch, context, &attached(&self.vector, &self.script, &launch)));
        let plan = planned.and_then(|planned| {
            self.peers.load(&self.platform, &launch, ranks, |peer| planned.needs(peer)).map(|()| planned.plan)
        });
        Ok(Opened { launch, context: index, plan })
    }

    /// Goes on with the operation behind the one that has been submitted.
    fn proceed(&mut self, job: &mut Job) -> Result<(), Fault> {
        let Some((index, _)) = job.behind else { return Ok(()) };
        let opened = self.open(self.program.launch(index)?)?;
        let behind = self.behind(index, job.operations)?;
        job.proceed(opened, behind)
    }

    /// Expands and submits as much of the current job's chunk as fits. One chunk a call: however many there are, the
    /// owner of the kernel gets its turn, completions are reaped and the heart beats.
    fn advance(&mut self) -> bool {
        let Some(mut job) = self.job.take() else { return false };
        if self.is_aborted(&job) {
            return self.give_up(&job, ErrorCode::COMM_ABORTED.into());
        }
        let turn = match self.step(&mut job) {
            Ok(turn) => turn,
            Err(fault) if job.is_untouched() && job.plan.is_some() => {
                job.refuse(fault);
                self.job = Some(job);
                return true;
            }
            Err(fault) => return self.give_up(&job, fault),
        };
        if !turn.complete && self.overdue(&job) {
            return self.give_up(&job, ErrorCode::QUEUE_FULL.into());
        }
        if !turn.complete || job.has_more() {
            if !turn.complete && !job.was_held {
                job.was_held = true;
                self.platform.event(TraceEvent::held(self.now_ns, &job.status));
            }
            self.job = Some(job);
            return turn.sqes + turn.wqes > 0;
        }
        // An expectation that cannot be remembered only loses a check.
        let _ = self.completions.expect(job.last_task());
        self.platform.event(TraceEvent::submitted(self.now_ns, &job.status));
        self.answer(&job.status);
        true
    }

    /// Returns whether the host has told this kernel to drop what it has of the job's communicator.
    fn is_aborted(&self, job: &Job) -> bool {
        let word = self.at(ABORTED).and_then(|word| self.platform.load(word));
        word.is_ok_and(|word| word != 0 && word == job.launch.instance[0])
    }

    /// One turn: get the graph of the next chunk if the last one is submitted, then submit.
    fn step(&mut self, job: &mut Job) -> Result<Turn, Fault> {
        let mut before = self.now_ns;
        if self.submission.is_done() && !job.has_chunks() {
            self.proceed(job)?;
        }
        let context = self.contexts.get(job.context)?;
        if self.submission.is_done() {
            let attached = attached(&self.vector, &self.script, &job.launch);
            let (graph, outcome) = self.graphs.obtain(job, context, &attached)?;
            job.note(outcome);
            if outcome != CacheOutcome::Hit {
                self.now_ns = self.platform.now_ns();
                job.status.expand_ns += self.now_ns.saturating_sub(before);
                before = self.now_ns;
            }
            let pages = self.graphs.pages();
            job.bind(context, (pages, &graph), &self.peers, &mut self.vectors)?;
            self.submission.start(pages, &graph, |queue| context.is_pair(queue));
        }
        let graph = self.graphs.held().ok_or(ErrorCode::PLAN_INTERNAL)?;
        let (_, _, rings) = context.split()?;
        let turn =
            self.submission.turn(&mut self.platform, (self.graphs.pages(), graph), &self.vectors, rings)?;
        let status = &mut job.status;
        status.sqes = status.sqes.saturating_add(turn.sqes);
        status.wqes = status.wqes.saturating_add(turn.wqes);
        status.doorbells = status.doorbells.saturating_add(turn.doorbells);
        self.now_ns = self.platform.now_ns();
        status.submit_ns += self.now_ns.saturating_sub(before);
        if turn.complete {
            self.graphs.put_back();
        }
        Ok(turn)
    }

    /// Full rings are reported a stage after the waits that usually fill them, so that the wait is what a user reads.
    fn overdue(&self, job: &Job) -> bool {
        let limit_ms = u64::from(job.launch.timeout_ms) + QUEUE_FULL_STAGE_MS;
        let limit = limit_ms.saturating_mul(1_000_000);
        self.now_ns.saturating_sub(job.started_ns) > limit
    }

    /// Half a launch is in the rings: nothing may be submitted for this communicator any more.
    fn give_up(&mut self, job: &Job, fault: Fault) -> bool {
        self.contexts.poison(job.launch.instance, job.launch.epoch);
        self.submission.abandon();
        self.graphs.put_back();
        self.answer(&Status { code: fault.code.0, detail: fault.detail, ..job.status });
        true
    }

    /// Writes the answer to the oldest launch.
    fn answer(&mut self, status: &Status) {
        if status.code != 0 {
            self.platform.event(TraceEvent::refused(self.now_ns, status));
        }
        let slot = self.answered % LAUNCH_SLOTS;
        self.answered += 1;
        if let (Ok(at), Ok(head)) =
            (self.at(STATUSES + slot * size_of::<Status>() as u64), self.at(LAUNCH_HEAD))
        {
            // ORDER: the host loads the head (acquire) before it reads the slot. A window that cannot be written
            // leaves the host without an answer, which its own deadline reports.
            let _ = self.platform.write(at, status.as_bytes());
            let _ = self.platform.store(head, self.answered);
        }
    }
}

/// Returns what a launch refers to besides its buffers.
pub(crate) fn attached<'a>(
    vector: &'a LoadedVector,
    script: &'a LoadedScript,
    launch: &Launch,
) -> Tables<'a> {
    Tables { vector: vector.rows(), script: script.of(launch), ..Tables::default() }
}
