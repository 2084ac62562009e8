//! Custom operators: what every launch needs around the tasks of an algorithm that is not this kernel's.

use hal::SharedMemory;
use hcomm_sink::{CallSink, DataPlane, Handles, LaunchTime, Session, Traits};
use task_graph::{Resources, Task, TaskSink, ThreadId};
use wire::context::Context;
use wire::launch::Launch;
use wire::param::Param;
use wire::{ErrorCode, LaunchArgs};
use zerocopy::{FromZeros, IntoBytes};

use super::handles::{Lists, LoadedHandles};
use crate::bindings::{LaunchBindings, PeerTables};
use crate::kernel::Fault;
use crate::plans::Reach;

/// Words of the largest context that a custom operator is launched with: 8 KiB.
const CONTEXT_WORDS: usize = 1024;

/// An algorithm of one's own.
pub trait CustomOperator {
    /// Writes the tasks of rank `rank` of `ranks`, between the host's start and its done notify.
    ///
    /// # Errors
    /// A code for a launch that this operator does not serve, and what the sink refuses.
    fn emit<S: TaskSink>(
        &self,
        launch: &Launch,
        rank: u32,
        ranks: u32,
        sink: &mut S,
    ) -> Result<(), ErrorCode>;
}

/// Serves one launch with `operator`: reads arguments, context and tables, acquires the communicator, starts a batch,
/// waits for the host, hands over the tasks, tells the host, ends the batch and releases. Nothing is kept; the stack
/// holds 20 KiB.
///
/// # Errors
/// As [`CallKernel::run`](super::CallKernel::run).
pub fn serve_custom<M: SharedMemory, P: DataPlane>(
    memory: &M,
    plane: &mut P,
    param: &Param<'_>,
    operator: &impl CustomOperator,
) -> Result<(), Fault> {
    let mut args = LaunchArgs::new_zeroed();
    memory.read(param.args, args.as_mut_bytes())?;
    let launch = Launch::parse(&args)?;
    let mut words = [0_u64; CONTEXT_WORDS];
    let (at, len) = launch.context;
    let bytes = words.as_mut_bytes().get_mut(..len as usize); // CAST: u32 fits usize.
    let bytes = bytes.ok_or(ErrorCode::CONTEXT_CAPACITY)?;
    memory.read(at, bytes)?;
    let context =
        Context::parse(bytes).map_err(|error| Fault { code: error.code, detail: u64::from(error.offset) })?;
    let (rank, ranks) = (context.header.rank, context.header.ranks);
    let mut peers = PeerTables::new();
    peers.load(memory, &launch, ranks as usize, Reach::default())?; // CAST: u32 fits usize.
    let mut handles = LoadedHandles::new();
    let mut lists = Lists::new(param);
    let [threads, channels] =
        lists.take(memory, [context.threads.len(), context.channels.len()], &mut handles)?;
    lists.check_spent()?;
    let (input, output) = (launch.input, launch.output);
    let bindings = LaunchBindings::new([&input, &output], &peers, context.regions, rank);
    let first = context.threads.first().map_or(0, |main| main.notify_base);
    let time = LaunchTime {
        timeout: launch.timeout_ms.div_ceil(1000),
        start: launch.start_notify.saturating_sub(first),
        done: launch.done_notify,
        next: None,
    };
    let handles = Handles { threads, channels, host: param.host_thread };
    let traits = Traits { reduces_all: param.reduces_all, needs_fences: param.fences };
    let resources = Resources::new(context)?;
    let mut session = Session::open(plane, param.comm, || false)?;
    let mut sink = CallSink::new(session.plane(), resources, &bindings, handles, time, traits);
    let submitted = sink
        .task(ThreadId::MAIN, &Task::WaitStart)
        .and_then(|()| operator.emit(&launch, rank, ranks, &mut sink))
        .and_then(|()| sink.task(ThreadId::MAIN, &Task::RecordDone));
    submitted.map_err(|code| sink.failure().map_or(code.into(), Fault::from))?;
    session.close().map_err(Fault::from)
}
