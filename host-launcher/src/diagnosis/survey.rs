//! Takes snapshots of a communicator's ranks.

use core::sync::atomic::Ordering;
use core::time::Duration;

use device_model::driver::{LaunchTicket, Npu};
use device_model::machine::Outcome;
use wire::npu::{DOORBELLS, HEADS, HEAP, HEARTBEAT, LAUNCH_HEAD, MAX_QUEUES, QUEUES, QueueSlot, TAILS};
use wire::program::{MAX_OPERATIONS, ProgramEntry, ProgramHeader};
use wire::{Descriptor, DeviceAddr, LaunchArgs, Sqe};
use zerocopy::{FromZeros, IntoBytes};

use super::snapshot::{HostView, Launched, ProgramCopy, Ring, Snapshot, Thread};
use super::unwritten;
use crate::cluster::Cluster;
use crate::communicator::{Communicator, InFlight};

/// How many executed entries of each ring are kept.
const EXECUTED: u32 = 64;
/// How long device and kernel of a rank are run on to tell what is slow from what has stopped.
const PROBE: Duration = Duration::from_millis(100);

/// What may go on or have stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The kernel on the AI CPU.
    Kernel,
    /// The engines.
    Device,
}

/// Takes a snapshot of every rank, `waited` being how long the host has been waiting.
pub(crate) fn all(comm: &Communicator<'_>, waited: Duration) -> Vec<Snapshot> {
    (0..comm.size()).map(|rank| one(comm, rank, waited)).collect()
}

fn one(comm: &Communicator<'_>, rank: u32, waited: Duration) -> Snapshot {
    let npu = comm.cluster.npu(rank);
    let mut tables = vec![0; usize::try_from(HEAP).unwrap_or(0)];
    npu.window().read(0, &mut tables);
    let host = host_view(comm, rank, waited);
    let queues = host.threads.iter().map(|thread| thread.queue).chain(host.pairs.iter().copied());
    let rings = queues.filter_map(|queue| ring(npu, queue)).collect();
    let mut snapshot = Snapshot { host, tables, rings, programs: Vec::new(), unwritten: None };
    let replays = snapshot.host.in_flight.iter().filter_map(|launched| snapshot.launch(launched.sequence));
    let replays: Vec<LaunchArgs> = replays.filter(|args| args.kind == LaunchArgs::REPLAY).collect();
    snapshot.programs = replays.iter().filter_map(|args| program(npu, args)).collect();
    snapshot.unwritten = unwritten::of(comm, &snapshot);
    snapshot
}

fn host_view(comm: &Communicator<'_>, rank: u32, waited: Duration) -> HostView {
    let state = &comm.ranks[rank as usize];
    let window = comm.cluster.npu(rank).window();
    let resources = || comm.resources_on(rank);
    let threads = resources().flat_map(|own| {
        (0..).zip(own.threads()).map(|(index, entry)| Thread {
            index,
            queue: entry.queue,
            notify_base: entry.notify_base,
            notify_count: entry.notify_count,
        })
    });
    let launched = |launched: &InFlight| Launched {
        sequence: launched.sequence,
        ticket: launched.ticket.number().map_or(Launched::HELD, LaunchTicket::number),
        what: launched.work.to_string(),
        tables: launched.work.tables_digest(),
        done: (state.done_notify, launched.done_at),
    };
    HostView {
        comm: comm.identity.name.clone(),
        instance: comm.identity.instance,
        epoch: comm.identity.epoch,
        rank,
        npu: comm.cluster.npu(rank).index(),
        ranks: comm.size(),
        place: comm.cluster.topology().whereabouts(rank).unwrap_or_default(),
        launched: state.launched,
        in_flight: state.in_flight.iter().map(launched).collect(),
        threads: threads.collect(),
        pairs: resources().flat_map(|own| own.pairs()).collect(),
        window: (window.base().0, window.bytes()),
        timeout_ms: u64::try_from(comm.config.timeout.as_millis()).unwrap_or(u64::MAX),
        timeout_source: comm.config.timeout_source.clone(),
        waited_us: u64::try_from(waited.as_micros()).unwrap_or(u64::MAX),
        moves: None,
        behind: comm.cluster.behind(),
    }
}

/// Copies the end of a ring; `None` for a queue that the device does not have, or has no more.
fn ring(npu: &Npu, queue: u16) -> Option<Ring> {
    let mut slot = QueueSlot::new_zeroed();
    let index = u64::from(queue);
    if index >= MAX_QUEUES {
        return None;
    }
    npu.window().read(QUEUES + index * size_of::<QueueSlot>() as u64, slot.as_mut_bytes());
    let half = |table: u64| -> u32 {
        // ORDER: pairs with the release stores of kernel and device; a ring that moves on meanwhile is read again.
        let word = npu.window().word(table + 8 * index).load(Ordering::Acquire);
        u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
    };
    if slot.depth == 0 {
        return None;
    }
    let (head, tail, doorbell) = (half(HEADS), half(TAILS), half(DOORBELLS));
    let left = tail.wrapping_sub(head).min(slot.depth);
    // The tail is written after the doorbell: what has been announced may be more.
    let announced = doorbell.wrapping_sub(head).min(slot.depth);
    let left = left.max(announced);
    let kept = EXECUTED.min(slot.depth - left).min(head);
    let entry = |position: u32| {
        // The table may hold anything by now.
        let at = slot.ring.checked_add(u64::from(position % slot.depth) * size_of::<Descriptor>() as u64)?;
        let mut entry = Descriptor::new_zeroed();
        npu.read(DeviceAddr(at), entry.as_mut_bytes()).ok().map(|()| Sqe::from(entry))
    };
    let entries = |first: u32, count: u32| -> Vec<Sqe> {
        (0..count).filter_map(|index| entry(first.wrapping_add(index))).collect()
    };
    let executed = entries(head.wrapping_sub(kept), kept);
    let left = entries(head, left);
    let announced = usize::try_from(announced).unwrap_or(0).min(left.len());
    Some(Ring { queue, head, executed, left, announced })
}

fn program(npu: &Npu, args: &LaunchArgs) -> Option<ProgramCopy> {
    let mut header = ProgramHeader::new_zeroed();
    npu.read(args.context, header.as_mut_bytes()).ok()?;
    let count = usize::try_from(header.count).ok().filter(|count| *count <= MAX_OPERATIONS)?;
    let mut entries = vec![ProgramEntry::new_zeroed(); count];
    let body = args.context.checked_add(size_of::<ProgramHeader>() as u64)?;
    npu.read(body, entries.as_mut_bytes()).ok()?;
    Some(ProgramCopy { sequence: args.sequence, entries })
}

/// Runs all devices and kernels on, and returns whether that part of a rank goes on.
pub(crate) fn moves(cluster: &Cluster, rank: u32, part: Part) -> bool {
    let window = cluster.npu(rank).window();
    // ORDER: only whether any value changes matters.
    let word = |at: u64| window.word(at).load(Ordering::Acquire);
    let value = || match part {
        Part::Kernel => word(HEARTBEAT).wrapping_add(word(LAUNCH_HEAD)),
        Part::Device => (0..MAX_QUEUES).map(|queue| word(HEADS + 8 * queue)).fold(0, u64::wrapping_add),
    };
    let before = value();
    let deadline = cluster.clock().now().checked_add(PROBE);
    cluster.machine().run_until(|| value() != before, deadline) == Outcome::Done
}
