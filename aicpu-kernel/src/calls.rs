//! The kernel over the public data plane: each task becomes a call, and there are no rings.
//!
//! One launch is served whole: acquire the communicator, start a batch, wait for the host, the tasks, tell the host,
//! end the batch, release. Where the library has a task cache and would replay this launch rightly, it records and
//! replays; else the kernel keeps the tasks itself. Either way the device gets the same tasks.
//!
//! What is refused before the first task leaves the communicator sound, and where there is a context the host's
//! notifies are served all the same. A call that fails in the middle poisons it, as a half-filled ring does.

mod tag;
mod tape;

use core::ops::DerefMut;

use hal::{Clock, SharedMemory};
use hcomm_sink::{Call, CallSink, DataPlane, Failure, Handles, LaunchTime, Session};
use ring::SubmissionRing;
use task_cache::Key;
use task_graph::{Bindings, Task, TaskSink, ThreadId};
use templates::{Plan, Shape, Tables};
use wire::launch::{CacheOutcome, Launch, Staging};
use wire::npu::Status;
use wire::param::Param;
use wire::{DeviceAddr, ErrorCode, LaunchArgs, Reduction};
use zerocopy::{FromZeros, IntoBytes};

use crate::bindings::{LaunchBindings, LoadedVector, PeerTables};
use crate::cache_key;
use crate::context::{ContextTable, MAX_RANKS, MAX_THREADS, OwnedContext};
use crate::kernel::{Fault, attached};
use crate::request;
use crate::script::LoadedScript;
use tag::Tag;
use tape::{Counted, Pass};
pub use tape::{TapePage, Tapes};

/// Decoded contexts, recorded launches, and room for the handles of one launch.
///
/// `T` is the memory launches are recorded in: static memory in the image, boxed slices in tests.
#[derive(Debug)]
pub struct CallKernel<'a, T> {
    contexts: ContextTable,
    vector: LoadedVector,
    script: LoadedScript,
    peers: PeerTables,
    threads: [u64; MAX_THREADS],
    channels: [u64; MAX_RANKS],
    tapes: Option<&'a mut Tapes<T>>,
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
        Self {
            contexts: ContextTable::new(),
            vector: LoadedVector::new(),
            script: LoadedScript::new(),
            peers: PeerTables::new(),
            threads: [0; MAX_THREADS],
            channels: [0; MAX_RANKS],
            tapes: None,
        }
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
        let Self { contexts, vector, script, peers, threads, channels, tapes } = self;
        let mut args = LaunchArgs::new_zeroed();
        memory.read(param.args, args.as_mut_bytes())?;
        status.sequence = args.sequence;
        let launch = Launch::parse(&args)?;
        // The rings of a context are another build's.
        let ring = |queue, ring, depth| Ok(SubmissionRing::new(queue, DeviceAddr(ring), depth));
        let (index, _) = contexts.find(memory, &launch, ring)?;
        let context = contexts.get(index)?;
        if context.poisoned {
            return Err(ErrorCode::CONTEXT_STALE.into());
        }
        request::check_start(&launch, context)?;
        check_handles(param, context)?;
        let handles = Handles {
            threads: load_handles(memory, param.threads, threads)?,
            channels: load_handles(memory, param.channels, channels)?,
            host: param.host_thread,
        };
        let ranks = usize::try_from(context.header().ranks).unwrap_or(usize::MAX);
        let planned = vector
            .load(memory, &launch, ranks)
            .and_then(|()| script.load(memory, &launch))
            .and_then(|()| request::plan(&launch, context, &attached(vector, script, &launch)))
            .and_then(|planned| {
                peers.load(memory, &launch, ranks, |peer| planned.needs(peer)).map(|()| planned.plan)
            });
        let begun = clock.now_ns();
        let limit = begun.saturating_add(u64::from(param.acquire_ms) * 1_000_000);
        let mut session = Session::open(plane, param.comm, || {
            core::hint::spin_loop();
            clock.now_ns() < limit
        })?;
        let bindings = LaunchBindings {
            input: launch.input,
            output: launch.output,
            scratch: context.regions(),
            rank: context.header().rank,
            peers,
        };
        let first = context.threads().first().map_or(0, |main| main.notify_base);
        let time = LaunchTime {
            timeout: launch.timeout_ms.div_ceil(1000),
            start: launch.start_notify - first,
            done: launch.done_notify,
        };
        let resources = context.resources()?;
        let mut sink = CallSink::new(session.plane(), resources, &bindings, handles, time, param.reduces_all);
        let tables = context.tables(&attached(vector, script, &launch));
        let plan = planned.and_then(|plan| {
            let expansion = Expansion { plan: &plan, tables: &tables };
            check_reductions::<T, _>(expansion, context, &mut sink, param.reduces_all).map(|()| plan)
        });
        let expansion = plan.as_ref().ok().map(|plan| Expansion { plan, tables: &tables });
        let submitted = submit(&launch, expansion, context, tapes.as_deref_mut(), &mut sink, status);
        let failure = sink.failure().map(Fault::from);
        note(&sink, status);
        let submitted = submitted.map_err(|code| failure.unwrap_or(code.into()));
        let outcome = submitted.and(session.close().map_err(Fault::from));
        status.submit_ns = clock.now_ns().saturating_sub(begun);
        // Part of it is submitted, and nothing can take that back.
        if outcome.is_err() {
            contexts.poison(launch.instance, launch.epoch);
            if let Some(tapes) = tapes {
                tapes.clear(launch.instance);
            }
        }
        outcome.and(plan.map(drop))
    }
}

/// A plan, and what it refers to.
#[derive(Clone, Copy)]
struct Expansion<'a> {
    plan: &'a Plan,
    tables: &'a Tables<'a>,
}

impl Expansion<'_> {
    fn emit(&self, sink: &mut impl TaskSink) -> Result<(), ErrorCode> {
        (0..self.plan.chunks()).try_for_each(|chunk| self.plan.emit(chunk, self.tables, sink))
    }

    /// Whether a launch touches the user's input and output here, no peer's, and not as one memory.
    fn is_two_buffers(&self) -> bool {
        self.plan.shape().staging == Staging::Scratch && !self.plan.shape().in_place
    }
}

/// Submits a launch: the host's start, the tasks of the plan if there is one, the host's done.
fn submit<T, P, B>(
    launch: &Launch,
    expansion: Option<Expansion<'_>>,
    context: &OwnedContext,
    tapes: Option<&mut Tapes<T>>,
    sink: &mut CallSink<'_, P, B>,
    status: &mut Status,
) -> Result<(), ErrorCode>
where
    T: DerefMut<Target = [TapePage]>,
    P: DataPlane,
    B: Bindings,
{
    sink.task(ThreadId::MAIN, &Task::WaitStart)?;
    if let Some(expansion) = expansion {
        let Expansion { plan, tables } = expansion;
        let wanted =
            cache_key::of(launch, plan, &context.surroundings(), tables, 0, None).map(|wanted| wanted.key);
        let outcome = match (wanted, tapes) {
            // The library replays two buffers, and tells them apart by their addresses.
            (Some(key), _) if sink.plane().has_cache() && expansion.is_two_buffers() => {
                through_library::<T, _, _>(launch, expansion, &Tag::new(&key, launch.timeout_ms), sink)
            }
            (Some(key), Some(tapes)) => through_tapes(expansion, &key, tapes, sink),
            (_, _) => expansion.emit(&mut Pass::<T, _>::on(sink)).map(|()| CacheOutcome::Bypassed),
        };
        status.cache = outcome? as u8;
        status.chunks = u16::try_from(plan.chunks()).unwrap_or(u16::MAX);
    }
    sink.task(ThreadId::MAIN, &Task::RecordDone)
}

/// Lets the library replay, or record while the tasks are submitted.
fn through_library<T, P, B>(
    launch: &Launch,
    expansion: Expansion<'_>,
    tag: &Tag,
    sink: &mut CallSink<'_, P, B>,
) -> Result<CacheOutcome, ErrorCode>
where
    T: DerefMut<Target = [TapePage]>,
    P: DataPlane,
    B: Bindings,
{
    let (tag, addrs, sizes) =
        (tag.as_c_str(), &[launch.input.addr, launch.output.addr], &[launch.input.len, launch.output.len]);
    match sink.plane().cache_lookup(tag) {
        Ok(true) => {
            sink.control(&Call::CacheExecute { tag, addrs, sizes })?;
            return Ok(CacheOutcome::Hit);
        }
        // Nothing in a cache fails an operation: without a recording the tasks are submitted as ever.
        Ok(false) if sink.plane().call(&Call::CacheStart { tag, addrs, sizes }) == 0 => {}
        _ => return expansion.emit(&mut Pass::<T, _>::on(sink)).map(|()| CacheOutcome::Bypassed),
    }
    let emitted = expansion.emit(&mut Pass::<T, _>::on(sink));
    let ended = sink.plane().call(&Call::CacheEnd(tag));
    if emitted.is_err() || ended != 0 {
        // Half a recording must never be found. That a clear fails changes nothing: the communicator goes, or the
        // library has not got what it could not end.
        let _ = sink.plane().call(&Call::CacheClear(tag));
    }
    emitted.map(|()| CacheOutcome::Miss)
}

/// Replays what this kernel has recorded, or records while the tasks are submitted.
fn through_tapes<T, P, B>(
    expansion: Expansion<'_>,
    key: &Key,
    tapes: &mut Tapes<T>,
    sink: &mut CallSink<'_, P, B>,
) -> Result<CacheOutcome, ErrorCode>
where
    T: DerefMut<Target = [TapePage]>,
    P: DataPlane,
    B: Bindings,
{
    if let Some(replayed) = tapes.replay(key, sink) {
        return replayed.map(|()| CacheOutcome::Hit);
    }
    let tasks = count(expansion, &mut Pass::<T, _>::counting(sink))?.tasks;
    tapes.record(key, tasks, sink, |pass| expansion.emit(pass))?;
    Ok(CacheOutcome::Miss)
}

fn count<T, S>(expansion: Expansion<'_>, counter: &mut Pass<'_, T, S>) -> Result<Counted, ErrorCode>
where
    T: DerefMut<Target = [TapePage]>,
    S: TaskSink,
{
    expansion.emit(counter)?;
    Ok(counter.counted())
}

/// Refuses local reductions that neither the copy engine nor the data plane does.
fn check_reductions<T, S>(
    expansion: Expansion<'_>,
    context: &OwnedContext,
    sink: &mut S,
    reduces_all: bool,
) -> Result<(), Fault>
where
    T: DerefMut<Target = [TapePage]>,
    S: TaskSink,
{
    let Shape { dtype, reduce, .. } = *expansion.plan.shape();
    let reduction = Reduction { dtype, op: reduce };
    if reduces_all
        || context.resources()?.sdma_reduces(reduction)
        || count(expansion, &mut Pass::<T, S>::counting(sink))?.reduces == 0
    {
        return Ok(());
    }
    Err(Fault { code: ErrorCode::PLANE_REDUCE, detail: dtype as u64 | (reduce as u64) << 8 })
}

fn check_handles(param: &Param<'_>, context: &OwnedContext) -> Result<(), Fault> {
    let there = [param.threads.1 as usize, param.channels.1 as usize]; // CAST: u32 fits usize.
    let needed = [context.threads().len(), context.surroundings().channels.len()];
    if there == needed {
        return Ok(());
    }
    let [threads, channels] = needed.map(|count| count as u64);
    Err(Fault { code: ErrorCode::PARAM_HANDLES, detail: threads | channels << 32 })
}

/// Copies handles out of shared memory.
fn load_handles<'a, M: SharedMemory>(
    memory: &M,
    (at, count): (DeviceAddr, u32),
    into: &'a mut [u64],
) -> Result<&'a [u64], Fault> {
    let rows = into.get_mut(..count as usize).ok_or(ErrorCode::CONTEXT_CAPACITY)?; // CAST: u32 fits usize.
    if count > 0 {
        memory.read(at, rows.as_mut_bytes())?;
    }
    Ok(rows)
}

/// Tells the host what was submitted.
fn note<P: DataPlane, B: Bindings>(sink: &CallSink<'_, P, B>, status: &mut Status) {
    status.kinds = sink.kinds();
    status.sqes = sink.kinds().iter().fold(0_u32, |sum, count| sum.saturating_add(*count));
    status.steps = sink.steps();
}
