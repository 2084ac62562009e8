//! The kernel's loop: one turn at a time, never blocking.

use core::ops::DerefMut;

use hal::Platform;
use ring::Completions;
use task_graph::{Block, Page};
use wire::npu::{
    ABORTED, CQ_HEAD, HEARTBEAT, KERNEL_STATE, KernelState, LAUNCH_HEAD, LAUNCH_SLOTS, LAUNCH_TAIL, LAUNCHES,
    STATUSES, Status,
};
use wire::program::Posted;
use wire::{ErrorCode, LaunchArgs, TraceEvent};
use zerocopy::IntoBytes;

use crate::graphs::{CacheUse, Graphs};
use crate::job::Job;
use crate::port::Port;
use crate::work::Work;

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
    port: Port<P>,
    graphs: Graphs<S, T>,
    work: Work,
    completions: Completions,
    /// Where launch arguments are copied to.
    args: LaunchArgs,
    job: Option<Job>,
    /// Launches answered.
    answered: u64,
    turns: u64,
}

impl<P: Platform, S: DerefMut<Target = [Block]>, T: DerefMut<Target = [Page]>> Kernel<P, S, T> {
    /// Makes a kernel on `platform` that records into `blocks` and keeps graphs in `pages`.
    pub const fn new(platform: P, blocks: S, pages: T) -> Self {
        Self {
            port: Port { platform, now_ns: 0 },
            graphs: Graphs::new(blocks, pages),
            work: Work::NONE,
            completions: Completions::new(),
            args: zerocopy::transmute!([0_u8; size_of::<LaunchArgs>()]),
            job: None,
            answered: 0,
            turns: 0,
        }
    }

    /// Moves a kernel that has not started onto `platform`, `blocks` and `pages`: how one that was made at compile time, which
    /// is too large for a stack, gets what is known only at run time.
    pub fn attach(&mut self, platform: P, blocks: S, pages: T) {
        self.port.platform = platform;
        self.graphs.set_memory(blocks, pages);
    }

    /// Tells the host that launches are taken from now on. Goes on where an earlier kernel on this window stopped.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when the window is not what the platform says.
    pub fn start(&mut self) -> Result<(), ErrorCode> {
        self.answered = self.port.load(LAUNCH_HEAD)?;
        self.completions = Completions::starting_at(self.port.load(CQ_HEAD)?);
        self.port.store(KERNEL_STATE, KernelState::Ready as u64)
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
            self.port.tick();
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
        &mut self.port.platform
    }

    fn beat(&mut self) {
        // A window that cannot be written is found out by the status of the next launch.
        let _ = self.port.store(HEARTBEAT, self.turns);
    }

    /// Takes completions off the ring. An error entry needs no action here: the device has stopped this NPU and the
    /// host reads the same entry.
    fn reap(&mut self) -> bool {
        let mut moved = false;
        while let Ok(Some(cqe)) = self.completions.poll(&mut self.port.platform) {
            moved = true;
            self.port.tick();
            self.port.event(|now| TraceEvent::completed(now, &cqe));
        }
        moved
    }

    /// Takes the next launch out of the mailbox, if there is one.
    fn take_launch(&mut self) -> bool {
        // More launches than slots cannot be waiting: the word was overwritten, and no slot is to be believed.
        let waiting = self.port.load(LAUNCH_TAIL).map_or(0, |posted| posted.wrapping_sub(self.answered));
        if waiting == 0 || waiting > LAUNCH_SLOTS {
            return false;
        }
        self.port.platform.observe();
        let slot = self.answered % LAUNCH_SLOTS;
        let at = self.port.at(LAUNCHES + slot * size_of::<LaunchArgs>() as u64);
        let read = at.and_then(|at| self.port.platform.read(at, self.args.as_mut_bytes()));
        self.work.digest = 0;
        // Looked at where it is: it is large.
        let accepted = match &read.and_then(|()| Posted::parse(&self.args)) {
            Ok(posted) => self.work.accept(&mut self.port, &mut self.graphs, posted, &mut self.job),
            Err(code) => Err((*code).into()),
        };
        let (args, digest) = (&self.args, self.work.digest);
        self.port.event(|now| TraceEvent::launch_taken(now, args, digest));
        // Without a context there is no thread to record the done notify on: the status alone tells the host.
        if let Err(fault) = accepted {
            let sequence = self.args.sequence;
            let refused = Status { sequence, code: fault.code.0, detail: fault.detail, ..Status::default() };
            self.answer(&refused);
        }
        true
    }

    /// Expands and submits as much of the current job's chunk as fits. One chunk a call: however many there are, the
    /// owner of the kernel gets its turn, completions are reaped and the heart beats.
    fn advance(&mut self) -> bool {
        let aborted = self.port.load(ABORTED).unwrap_or(0);
        let Some(job) = &mut self.job else { return false };
        // The host has told this kernel to drop what it has of a communicator.
        if aborted != 0 && aborted == job.launch.instance[0] {
            return self.give_up(ErrorCode::COMM_ABORTED.into());
        }
        let turn = match self.work.step(&mut self.port, &mut self.graphs, job) {
            Ok(turn) => turn,
            Err(fault) if job.is_untouched() && job.is_planned() => {
                job.refuse(fault);
                return true;
            }
            Err(fault) => return self.give_up(fault),
        };
        if !turn.complete && is_overdue(job, self.port.now_ns) {
            return self.give_up(ErrorCode::QUEUE_FULL.into());
        }
        if !turn.complete || job.has_more() {
            if !turn.complete && !job.was_held {
                job.was_held = true;
                self.port.event(|now| TraceEvent::held(now, &job.status));
            }
            return turn.sqes + turn.wqes > 0;
        }
        // An expectation that cannot be remembered only loses a check.
        let _ = self.completions.expect(job.last_task());
        let status = job.status;
        self.job = None;
        self.port.event(|now| TraceEvent::submitted(now, &status));
        self.answer(&status);
        true
    }

    /// Half a launch is in the rings: nothing may be submitted for this communicator any more.
    fn give_up(&mut self, fault: Fault) -> bool {
        if let Some(job) = self.job.take() {
            self.work.give_up(&job);
            self.graphs.put_back();
            self.answer(&Status { code: fault.code.0, detail: fault.detail, ..job.status });
        }
        true
    }

    /// Writes the answer to the oldest launch.
    fn answer(&mut self, status: &Status) {
        if status.code != 0 {
            self.port.event(|now| TraceEvent::refused(now, status));
        }
        let slot = self.answered % LAUNCH_SLOTS;
        self.answered += 1;
        if let Ok(at) = self.port.at(STATUSES + slot * size_of::<Status>() as u64) {
            // ORDER: the host loads the head (acquire) before it reads the slot. A window that cannot be written
            // leaves the host without an answer, which its own deadline reports.
            let _ = self.port.platform.write(at, status.as_bytes());
            let _ = self.port.store(LAUNCH_HEAD, self.answered);
        }
    }
}

/// Full rings are reported a stage after the waits that usually fill them, so that the wait is what a user reads.
fn is_overdue(job: &Job, now_ns: u64) -> bool {
    let limit_ms = u64::from(job.launch.timeout_ms) + QUEUE_FULL_STAGE_MS;
    let limit = limit_ms.saturating_mul(1_000_000);
    now_ns.saturating_sub(job.started_ns) > limit
}
