//! The entry of the shared object: from the runtime's param to the calls of the data plane.

// UNSAFETY: the boundary to C: the entry's pointer, the memory it names, the data plane.
#![expect(unsafe_code, reason = "the boundary to the runtime")]
#![expect(unreachable_pub, reason = "exported by its name")]

use core::panic::PanicInfo;
use core::ptr::{NonNull, with_exposed_provenance_mut};

use hal::SharedMemory;
use hcomm_sink::{CallSink, Handles, LaunchTime, Linked, Session};
use platform_aarch64::Window;
use task_graph::{Bindings, Bound, RegionId, RegionKind, Resources, Task, TaskSink, ThreadId};
use wire::context::Context;
use wire::image_note::{ImageFlags, ImageNoteRecord};
use wire::launch::{Launch, OpKind, PeerBuffer};
use wire::param::KernelParam;
use wire::{ErrorCode, LaunchArgs};
use zerocopy::{FromZeros, IntoBytes};

use crate::operator::all_gather;

/// Most ranks that this operator serves.
const RANKS: usize = 64;

/// What this file is, for who loads it: its ABI, and the stack that a launch takes at most.
// SAFETY: a section of its own; nothing runs it.
#[unsafe(link_section = ".note.aicpu-ts")]
#[used]
static NOTE: ImageNoteRecord = ImageNoteRecord::new(32 << 10, ImageFlags::PANIC_FREE);

/// Where the two buffers lie, here and at the peers.
struct Buffers<'a> {
    launch: &'a Launch,
    outputs: &'a [PeerBuffer],
}

impl Bindings for Buffers<'_> {
    fn bound(&self, region: RegionId) -> Option<Bound> {
        match (region.peer(), region.kind()) {
            (None, RegionKind::Input) => {
                let input = &self.launch.input;
                Some(Bound { addr: input.addr, len: input.len, token: input.token })
            }
            (None, RegionKind::Output) => {
                let output = &self.launch.output;
                Some(Bound { addr: output.addr, len: output.len, token: output.token })
            }
            (Some(peer), RegionKind::Output) => {
                let row = self.outputs.get(usize::try_from(peer).ok()?)?;
                Some(Bound { addr: row.addr, len: row.len, token: row.token })
            }
            _ => None,
        }
    }
}

/// The one exported symbol: serves an all-gather in direct staging, and returns 0 or an error code.
///
/// # Safety
/// `param` points to a param whose memory stays mapped during the call, and the loader bound the data plane.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CustomAllGather(param: *const KernelParam) -> u32 {
    if param.is_null() || !param.is_aligned() {
        return u32::from(ErrorCode::PARAM_MAGIC.0);
    }
    // SAFETY: the caller passes a param; it is copied once.
    let param = unsafe { param.read_volatile() };
    u32::from(serve(&param).err().unwrap_or(ErrorCode::OK).0)
}

fn serve(param: &KernelParam) -> Result<(), ErrorCode> {
    let parsed = param.parse()?;
    let mapped =
        usize::try_from(param.mapped).ok().and_then(|at| NonNull::new(with_exposed_provenance_mut(at)));
    let len = usize::try_from(param.memory_len).map_err(|_| ErrorCode::PARAM_FIELD)?;
    // SAFETY: the caller of the entry says that this memory is mapped while the call lasts.
    let memory = mapped.and_then(|base| unsafe { Window::plain(base, len, param.memory) });
    let memory = memory.ok_or(ErrorCode::PARAM_FIELD)?;

    let mut args = LaunchArgs::new_zeroed();
    memory.read(parsed.args, args.as_mut_bytes())?;
    let launch = Launch::parse(&args)?;
    let mut words = [0_u64; 1024];
    let bytes =
        words.as_mut_bytes().get_mut(..launch.context.1 as usize).ok_or(ErrorCode::CONTEXT_CAPACITY)?;
    memory.read(launch.context.0, bytes)?;
    let context = Context::parse(bytes).map_err(|error| error.code)?;
    let (rank, ranks) = (context.header.rank, context.header.ranks);
    if launch.op != OpKind::AllGather || launch.output.peers.0 == 0 {
        return Err(ErrorCode::PLAN_OP);
    }

    let (mut threads, mut channels, mut outputs) = ([0; RANKS], [0; RANKS], [PeerBuffer::default(); RANKS]);
    let outputs = outputs.get_mut(..ranks as usize).ok_or(ErrorCode::PLAN_RANKS)?;
    memory.read(launch.output.peers, outputs.as_mut_bytes())?;
    let threads = threads.get_mut(..parsed.threads.1 as usize).ok_or(ErrorCode::PARAM_HANDLES)?;
    memory.read(parsed.threads.0, threads.as_mut_bytes())?;
    let channels = channels.get_mut(..parsed.channels.1 as usize).ok_or(ErrorCode::PARAM_HANDLES)?;
    memory.read(parsed.channels.0, channels.as_mut_bytes())?;

    // SAFETY: the caller of the entry says that the loader bound the data plane.
    let mut plane = unsafe { Linked::new() };
    let mut session = Session::open(&mut plane, parsed.comm, || false).map_err(|failure| failure.code)?;
    let first = context.threads.first().map_or(0, |main| main.notify_base);
    let time = LaunchTime {
        timeout: launch.timeout_ms.div_ceil(1000),
        start: launch.start_notify.saturating_sub(first),
        done: launch.done_notify,
    };
    let handles = Handles { threads, channels, host: parsed.host_thread };
    let (resources, buffers) = (Resources::new(context)?, Buffers { launch: &launch, outputs });
    let mut sink = CallSink::new(session.plane(), resources, &buffers, handles, time, false);
    sink.task(ThreadId::MAIN, &Task::WaitStart)?;
    all_gather(&mut sink, rank, ranks, launch.count.saturating_mul(launch.dtype.size_bytes()))?;
    sink.task(ThreadId::MAIN, &Task::RecordDone)?;
    session.close().map_err(|failure| failure.code)
}

/// A defect ends here: this small operator has no way back to its caller.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
