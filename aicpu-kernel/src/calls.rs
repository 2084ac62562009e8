//! The kernel over the public data plane: each task becomes a call, and there are no rings.
//!
//! One launch is served whole: acquire the communicator, start a batch, the operations of the launch (one, or those of
//! a program in turn), end the batch, release. An operation waits for its start, makes its tasks and records the start
//! of the next, or tells the host. Where the library has a task cache and would replay an operation rightly, it records
//! and replays; else the kernel keeps the tasks itself. Either way the device gets the same tasks, and what is not
//! replayed is proved first.
//!
//! What is refused before the first task leaves the communicator sound, and where there is a context the host's
//! notifies are served all the same. A call that fails in the middle poisons it, as a half-filled ring does.

mod custom;
mod desk;
mod handles;
mod operation;
mod tag;
mod tape;

use core::ops::DerefMut;

use hal::{Clock, SharedMemory};
use hcomm_sink::{CallSink, DataPlane, Failure, Handles, LaunchTime, Session, Tally, Traits};
use task_graph::{Task, TaskSink, ThreadId};
use wire::launch::CacheOutcome;
use wire::npu::Status;
use wire::param::Param;
use wire::program::Posted;
use wire::{ErrorCode, LaunchArgs};
use zerocopy::{FromZeros, IntoBytes};

use crate::bindings::LaunchBindings;
use crate::kernel::Fault;
pub use custom::{CustomOperator, serve_custom};
use desk::{Desk, Opened, start_of};
use handles::{Lists, LoadedHandles};
pub use tape::{TapePage, Tapes};

/// Decoded contexts, recorded launches, and room for the handles of one launch.
///
/// `T` is the memory launches are recorded in: static memory in the image, boxed slices in tests.
#[derive(Debug)]
pub struct CallKernel<'a, T> {
    desk: Desk,
    handles: LoadedHandles,
    tapes: Option<&'a mut Tapes<T>>,
}

/// What all operations of a launch share.
struct InHand<'a, M> {
    memory: &'a M,
    param: &'a Param<'a>,
    posted: Posted,
    /// Operations.
    count: usize,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self { code: failure.code, detail: failure.detail }
    }
}

impl<T: DerefMut<Target = [TapePage]>> Default for CallKernel<'_, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, T: DerefMut<Target = [TapePage]>> CallKernel<'a, T> {
    /// Makes a kernel that records nothing until it is [started](Self::start). All its bytes are zero or undefined: a
    /// static one takes no place in a file.
    #[must_use]
    pub const fn new() -> Self {
        Self { desk: Desk::new(), handles: LoadedHandles::new(), tapes: None }
    }

    /// Gives the kernel what it records launches on.
    pub fn start(&mut self, tapes: &'a mut Tapes<T>) {
        self.tapes = Some(tapes);
    }

    /// Serves one launch and says how it went.
    pub fn run<M: SharedMemory, P: DataPlane>(
        &mut self,
        memory: &M,
        plane: &mut P,
        param: &Param<'_>,
        clock: &impl Clock,
    ) -> Status {
        let mut status = Status::default();
        if let Err(Fault { code, detail }) = self.serve(memory, plane, param, clock, &mut status) {
            (status.code, status.detail) = (code.0, detail);
        }
        status
    }

    fn serve<M: SharedMemory, P: DataPlane>(
        &mut self,
        memory: &M,
        plane: &mut P,
        param: &Param<'_>,
        clock: &impl Clock,
        status: &mut Status,
    ) -> Result<(), Fault> {
        let mut args = LaunchArgs::new_zeroed();
        memory.read(param.args, args.as_mut_bytes())?;
        status.sequence = args.sequence;
        let posted = Posted::parse(&args)?;
        let count = self.desk.load(memory, &posted)?;
        let hand = InHand { memory, param, posted, count };
        let first = self.check::<M, P>(&hand)?;
        let begun = clock.now_ns();
        let limit = begun.saturating_add(u64::from(param.acquire_ms) * 1_000_000);
        let mut session = Session::open(plane, param.comm, || {
            core::hint::spin_loop();
            clock.now_ns() < limit
        })?;
        let submitted = self.submit(&hand, first, session.plane(), status);
        let closed = session.close().map_err(Fault::from);
        status.submit_ns = clock.now_ns().saturating_sub(begun);
        let outcome = submitted.and_then(|refused| closed.map(|()| refused));
        // Part of it is submitted, and nothing can take that back.
        if outcome.is_err() {
            self.desk.poison((args.instance, args.epoch));
            if let Some(tapes) = &mut self.tapes {
                tapes.clear(args.instance);
            }
        }
        outcome?.map_or(Ok(()), Err)
    }

    /// Looks at every operation before the first is submitted, and returns that: without a plan where any of them is
    /// refused.
    ///
    /// # Errors
    /// Why nothing can be served, not even the host's notifies.
    fn check<M: SharedMemory, P: DataPlane>(&mut self, hand: &InHand<'_, M>) -> Result<Opened, Fault> {
        let Self { desk, handles, .. } = self;
        let mut lists = Lists::new(hand.param);
        let mut look = |index: usize| -> Result<Opened, Fault> {
            let mut opened = desk.open(hand.memory, &hand.posted, index)?;
            lists.take(hand.memory, desk.context(&opened)?.counts(), handles)?;
            let reduces_all = hand.param.reduces_all;
            let operation = desk.operation(&opened);
            let reduced =
                operation.and_then(|it| it.check_reductions::<T, P, LaunchBindings<'_>>(reduces_all));
            opened.plan = reduced.and(opened.plan);
            Ok(opened)
        };
        let mut first = look(0)?;
        match (1..hand.count).try_for_each(|index| look(index)?.plan.map(drop)) {
            Ok(()) => lists.check_spent()?,
            // Without the right handles nobody is told anything.
            Err(fault) if fault.code == ErrorCode::PARAM_HANDLES => return Err(fault),
            Err(fault) => first.plan = first.plan.and(Err(fault)),
        }
        Ok(first)
    }

    /// Submits the operations in turn, or of a launch that is refused the host's notifies alone; returns why it was
    /// refused.
    ///
    /// # Errors
    /// What failed after something had been submitted.
    fn submit<M: SharedMemory, P: DataPlane>(
        &mut self,
        hand: &InHand<'_, M>,
        first: Opened,
        plane: &mut P,
        status: &mut Status,
    ) -> Result<Option<Fault>, Fault> {
        let Self { desk, handles, tapes } = self;
        let InHand { memory, param, ref posted, count } = *hand;
        let count = if first.plan.is_ok() { count } else { 1 };
        let (mut lists, mut tally) = (Lists::new(param), Tally::default());
        for index in 0..count {
            let behind = index + 1;
            let start = (behind < count).then(|| desk.start(memory, posted, behind)).transpose()?;
            let reopened = if count > 1 { Some(desk.open(memory, posted, index)?) } else { None };
            let opened = reopened.as_ref().unwrap_or(&first);
            let context = desk.context(opened)?;
            let [threads, channels] = lists.take(memory, context.counts(), handles)?;
            let next = start.map(|start| lists.next_main(memory).map(|main| (main, start))).transpose()?;
            let time = LaunchTime {
                timeout: opened.launch.timeout_ms.div_ceil(1000),
                start: start_of(&opened.launch, context),
                done: opened.launch.done_notify,
                next,
            };
            let handles = Handles { threads, channels, host: param.host_thread };
            let (resources, bindings) = (context.resources()?, desk.bindings(opened)?);
            let traits = Traits { reduces_all: param.reduces_all, needs_fences: param.fences };
            let mut sink =
                CallSink::new(&mut *plane, resources, &bindings, handles, time, traits).counting_on(tally);
            let chosen = desk.operation(opened).and_then(|operation| {
                let source = operation.source(tapes.as_deref_mut(), &mut sink)?;
                Ok((operation, source))
            });
            let refused = chosen.as_ref().err().copied();
            if let Some(fault) = refused.filter(|_| index > 0) {
                return Err(fault);
            }
            let mut submitted = sink.task(ThreadId::MAIN, &Task::WaitStart);
            if let (Ok(()), Ok((operation, source))) = (submitted, &chosen) {
                submitted = operation
                    .submit(source, tapes.as_deref_mut(), &mut sink)
                    .map(|outcome| note(status, index, outcome, operation.plan.chunks()));
            }
            let ends = next.is_none() || refused.is_some();
            let last = if ends { Task::RecordDone } else { Task::RecordNext };
            submitted = submitted.and_then(|()| sink.task(ThreadId::MAIN, &last));
            tally = sink.tally();
            status.kinds = tally.kinds;
            status.sqes = tally.kinds.iter().fold(0_u32, |sum, count| sum.saturating_add(*count));
            status.steps = tally.steps;
            let failure = sink.failure().map(Fault::from);
            submitted.map_err(|code| failure.unwrap_or(code.into()))?;
            if refused.is_some() {
                return Ok(refused);
            }
        }
        Ok(None)
    }
}

/// Notes what the cache did for an operation: the launch is a hit when every operation is.
fn note(status: &mut Status, index: usize, outcome: CacheOutcome, chunks: u64) {
    if index == 0 || outcome != CacheOutcome::Hit {
        status.cache = outcome as u8;
    }
    status.chunks = status.chunks.saturating_add(u16::try_from(chunks).unwrap_or(u16::MAX));
}
