//! What a kernel has still to write: of an operation longer than its rings, the rest is nowhere on the device.
//!
//! The host expands the operation once more, with the recorder that kernels use, and takes what comes behind the last
//! entry of each ring. So a signal that was lost is told from one that is still to be sent, however short the rings are.

use std::collections::HashMap;

use aicpu_kernel::DEFAULT_BLOCKS;
use task_graph::{Block, Recorder, Resources, Task, TaskGraph, TaskSink, ThreadId};
use wire::launch::LaunchArgs;
use wire::{Phase, Sqe};

use super::snapshot::Snapshot;
use crate::communicator::{Communicator, Work};

/// Returns the signals and waits of a rank's operations in flight that are not in its rings yet; `None` where that cannot
/// be told: of a captured program, and of what kernels refuse.
pub(super) fn of(comm: &Communicator<'_>, snapshot: &Snapshot) -> Option<Vec<Sqe>> {
    if snapshot.has_submitted_all() {
        return Some(Vec::new());
    }
    let last: HashMap<u16, u64> =
        snapshot.rings.iter().filter_map(|ring| Some((ring.queue, ring.last()?))).collect();
    let mut unwritten = Vec::new();
    let state = comm.ranks.get(snapshot.host.rank as usize)?;
    for launched in &state.in_flight {
        if snapshot.status(launched.sequence).is_some() {
            continue;
        }
        let args = snapshot.launch(launched.sequence)?;
        let Work::Operation(operation) = &launched.work else { return None };
        expand(comm, snapshot.host.rank, operation, &args, |queue, sqe| {
            if last.get(&queue).is_none_or(|last| sqe.task > *last) {
                unwritten.push(sqe);
            }
        })?;
    }
    Some(unwritten)
}

/// Tells the entries of one launch, each with its queue, as its kernel writes them; addresses are left out.
fn expand(
    comm: &Communicator<'_>,
    rank: u32,
    operation: &crate::communicator::Operation,
    args: &LaunchArgs,
    mut tell: impl FnMut(u16, Sqe),
) -> Option<()> {
    let (plan, tables) = comm.plan_of(rank, operation, args).ok()?;
    let own = comm.resources_of(rank, operation).ok()?;
    let header = comm.context_header(rank);
    let resources = Resources::new(own.context_with(&header)).ok()?;
    let queues: Vec<u16> = own.ring_queues().collect();
    let mut graph = Box::new(TaskGraph::new(vec![Block::EMPTY; DEFAULT_BLOCKS]));
    let (mut base, chunks) = (0, plan.chunks().max(1));
    for chunk in 0..chunks {
        graph.clear();
        let mut recorder = Recorder::new(&mut *graph, resources);
        if chunk == 0 {
            recorder.mark(Phase::Start, 0);
            recorder.task(ThreadId::MAIN, &Task::WaitStart).ok()?;
        }
        if chunk < plan.chunks() {
            plan.emit(chunk, &tables, &mut recorder).ok()?;
        }
        if chunk + 1 == chunks {
            recorder.mark(Phase::Finish, 0);
            recorder.task(ThreadId::MAIN, &Task::RecordDone).ok()?;
        }
        for queue in graph.queues() {
            let device_queue = *queues.get(usize::from(queue.0))?;
            for entry in graph.entries(*queue) {
                let mut sqe = Sqe::from(entry);
                // As the kernel counts them.
                sqe.task = sqe.task.wrapping_add(u64::from(args.sequence) << 32 | u64::from(base));
                if sqe.phase == Phase::Start as u8 {
                    sqe.notify = args.start_notify;
                }
                tell(device_queue, sqe);
            }
        }
        base = u32::wrapping_add(base, graph.len());
    }
    Some(())
}
