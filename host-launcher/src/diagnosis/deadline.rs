//! The deadline has passed: who waits for whom, and where the chain breaks.
//!
//! A wait points from the rank that waits to the rank it waits for. If that rank still has the signal in its rings, it
//! is a victim itself; the chain ends at a rank that was never launched, does not execute, does not answer, or has
//! sent the signal all right.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use device_model::engine::Pending;
use device_model::machine::Outcome;
use wire::npu::{HEADS, HEARTBEAT, LAUNCH_HEAD, MAX_QUEUES, NOTIFIES, QUEUES, QueueSlot, TAILS};
use wire::{Descriptor, DeviceAddr, ErrorCode, Phase, Sqe, SqeFlags, Wqe};
use zerocopy::{FromZeros, IntoBytes};

use super::{Report, finish, known_peer, place, report, split_task};
use crate::communicator::{Communicator, RankState};
use crate::error::Error;

/// How long device and kernels are run on to tell what is slow from what has stopped.
const PROBE: Duration = Duration::from_millis(100);

/// What to do about a deadline that was too short.
const SLOW: &str = "set a longer deadline";

/// What a rank does at the deadline.
enum State {
    /// Nothing: everything it launched is done.
    Done,
    /// It has not launched the newest operation.
    Behind,
    /// Nothing: its kernel has submitted nothing, or not all.
    Silent,
    /// It has a task that nothing holds.
    Runnable(Pending),
    /// Every queue that has a task waits.
    Waits(Vec<Pending>),
}

/// A rank, and a wait at the head of one of its queues.
type Wait<'a> = (u32, &'a Pending);

pub(super) fn explain(comm: &Communicator<'_>, started: Instant) -> Error {
    let newest = comm.ranks.iter().map(|state| state.launched).max().unwrap_or(0);
    let states: Vec<State> = (0..comm.size()).map(|rank| state(comm, rank, newest)).collect();
    let ranks = |wanted: fn(&State) -> bool| -> Vec<u32> {
        (0..).zip(&states).filter(|(_, state)| wanted(state)).map(|(rank, _)| rank).collect()
    };
    let waiting = ranks(|state| matches!(state, State::Waits(_)));
    let behind = ranks(|state| matches!(state, State::Behind));
    let waits: Vec<Wait<'_>> = (0..)
        .zip(&states)
        .filter_map(|(rank, state)| if let State::Waits(list) = state { Some((rank, list)) } else { None })
        .flat_map(|(rank, list)| list.iter().map(move |entry| (rank, entry)))
        .collect();
    let found = if let Some(&culprit) = behind.first() {
        not_started(comm, culprit, &behind, &waits, newest)
    } else if let Some(&culprit) = ranks(|state| matches!(state, State::Silent)).first() {
        silent(comm, culprit, &waits)
    } else if let Some((rank, entry)) = first_runnable(&states) {
        not_executed(comm, rank, entry)
    } else if let Some(culprit) = differing(comm) {
        differs(comm, culprit, &waits)
    } else {
        lost_signal(comm, &waits)
    };
    let victims: Vec<u32> = waiting
        .iter()
        .copied()
        .filter(|rank| *rank != found.rank && Some(*rank) != found.culprit_rank)
        .collect();
    let victims =
        if victims.is_empty() { String::new() } else { format!(" Also waiting: {}.", list(&victims)) };
    let timeout = comm.config.timeout.as_secs_f64();
    let since = comm.cluster.clock().since(started).as_secs_f64();
    finish(
        ErrorCode(found.code),
        Report {
            cause: format!("{}{victims}", found.cause),
            since: format!("{since:.3} s (deadline {timeout:.3} s, set by {})", comm.config.timeout_source),
            ..found
        },
    )
}

fn state(comm: &Communicator<'_>, rank: u32, newest: u32) -> State {
    if comm.ranks[rank as usize].launched < newest {
        return State::Behind;
    }
    if comm.is_done(rank as usize) {
        return State::Done;
    }
    let mut pending = comm.cluster.machine().pending(rank);
    pending.retain(|entry| comm.owns(rank, entry.queue));
    let window = comm.cluster.npu(rank).window();
    let is_set = |notify: u32| {
        // ORDER: a value for a message.
        window.half(NOTIFIES + 4 * u64::from(notify)).load(Ordering::Acquire) != 0
    };
    let runs =
        |entry: &&Pending| !entry.blocked || (entry.sqe.opcode == Sqe::WAIT && is_set(entry.sqe.notify));
    match pending.iter().find(runs) {
        Some(entry) => State::Runnable(*entry),
        None if pending.is_empty() => State::Silent,
        None => State::Waits(pending),
    }
}

fn first_runnable(states: &[State]) -> Option<Wait<'_>> {
    (0..).zip(states).find_map(|(rank, state)| match state {
        State::Runnable(entry) => Some((rank, entry)),
        _ => None,
    })
}

/// Ranks as people write them: `0-4, 6, 7`.
fn list(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|a, b| a + 1 == *b);
    let text = |run: &[u32]| match run {
        [first, _, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    };
    runs.map(text).collect::<Vec<_>>().join(", ")
}

/// Adds where the wait, or other entry, of a rank stands.
fn located(comm: &Communicator<'_>, (rank, entry): Wait<'_>, report: Report) -> Report {
    let Sqe { step, notify, opcode, phase, peer, .. } = entry.sqe;
    let (sequence, task) = split_task(entry.sqe.task);
    let peer = known_peer(peer);
    let what = match (opcode, peer) {
        (Sqe::WAIT, Some(peer)) => format!("wait notify {notify} from rank {peer}"),
        (Sqe::WAIT, None) if phase == Phase::Start as u8 && task == 0 => {
            format!("wait notify {notify} from the host")
        }
        (Sqe::WAIT, None) if phase == Phase::Start as u8 => {
            format!("wait notify {notify} from the operation before")
        }
        (Sqe::WAIT, None) => format!("wait notify {notify} from another thread"),
        _ => format!("opcode {opcode}"),
    };
    let whereabouts =
        place(comm, rank, sequence, (phase, step), task, &format!("queue {}: {what}", entry.queue));
    Report { rank, step: Some(step), task: Some(task), peer, whereabouts, ..report }
}

fn not_started(
    comm: &Communicator<'_>,
    culprit: u32,
    behind: &[u32],
    waits: &[Wait<'_>],
    sequence: u32,
) -> Report {
    let last = match comm.ranks[culprit as usize].launched {
        0 => "it has started none".to_owned(),
        last => format!("the last it started is #{last}"),
    };
    let cause = format!(
        "rank {culprit} has not started operation #{sequence}; {last}. Ranks behind: {}.",
        list(behind)
    );
    let remedy = format!("look at rank {culprit} first: why did it not call operation #{sequence}?");
    let base = Report {
        cause,
        remedy,
        peer_state: "not started".to_owned(),
        ..report(comm, ErrorCode::PEER_NOT_STARTED, culprit, sequence)
    };
    match victim_of(culprit, waits) {
        Some(wait) => located(comm, wait, base),
        None => base,
    }
}

/// The first wait for a rank, or else the first wait at all.
fn victim_of<'a>(culprit: u32, waits: &[Wait<'a>]) -> Option<Wait<'a>> {
    let for_culprit = waits.iter().find(|(_, entry)| known_peer(entry.sqe.peer) == Some(culprit));
    for_culprit.or(waits.first()).copied()
}

/// Nothing is in the rings of a rank, and yet not everything is done: its kernel has not answered.
fn silent(comm: &Communicator<'_>, culprit: u32, waits: &[Wait<'_>]) -> Report {
    let first = comm.ranks[culprit as usize].in_flight.front().map_or(0, |launched| launched.sequence);
    let window = comm.cluster.npu(culprit).window();
    // ORDER: values for a message.
    let word = |at| window.word(at).load(Ordering::Acquire);
    let (code, cause, peer_state) = if comm.has_submitted_all(culprit) {
        let cause = format!("the device of rank {culprit} does not execute what its kernel has submitted.");
        (ErrorCode::HOST_NOTIFY_TIMEOUT, cause, "kernel done")
    } else if goes_on(comm, || (word(HEARTBEAT), word(LAUNCH_HEAD))) {
        let cause =
            format!("the kernel of rank {culprit} is still at work on operation #{first}: it is only slow.");
        (ErrorCode::HOST_NOTIFY_TIMEOUT, cause, "kernel alive")
    } else {
        let cause =
            format!("the kernel of rank {culprit} has not answered the launch of operation #{first}.");
        (ErrorCode::KERNEL_SILENT, cause, "kernel silent")
    };
    let base = Report { cause, peer_state: peer_state.to_owned(), ..report(comm, code, culprit, first) };
    match victim_of(culprit, waits) {
        Some(wait) => located(comm, wait, base),
        None => base,
    }
}

/// A rank has a task that nothing holds: a device that has stopped, or one that is slow.
fn not_executed(comm: &Communicator<'_>, rank: u32, entry: &Pending) -> Report {
    let (cause, remedy) = if goes_on(comm, || comm.cluster.machine().snapshot(rank).executed_total()) {
        ("the operation is still moving: it is only slow.".to_owned(), SLOW.to_owned())
    } else {
        let what = "does not execute a task that nothing holds: it has stopped";
        let remedy = format!("look at the device of rank {rank} first; a longer deadline does not help");
        (format!("the device of rank {rank} {what}."), remedy)
    };
    let (sequence, _) = split_task(entry.sqe.task);
    let base = report(comm, ErrorCode::HOST_NOTIFY_TIMEOUT, rank, sequence);
    located(comm, (rank, entry), Report { cause, remedy, ..base })
}

/// Returns the first rank that has something else in flight than rank 0, launch by launch.
fn differing(comm: &Communicator<'_>) -> Option<u32> {
    let works = |state: &RankState| state.in_flight.iter().map(|launched| launched.work).collect::<Vec<_>>();
    let first = comm.ranks.first().map(works)?;
    (0..).zip(&comm.ranks).find(|(_, state)| works(state) != first).map(|(rank, _)| rank)
}

/// All ranks wait, and they are not at the same operation.
fn differs(comm: &Communicator<'_>, culprit: u32, waits: &[Wait<'_>]) -> Report {
    let pairs = comm.ranks[0].in_flight.iter().zip(&comm.ranks[culprit as usize].in_flight);
    let pair = pairs.into_iter().find(|(first, other)| first.work != other.work);
    let (sequence, cause) = pair.map_or((0, String::new()), |(first, other)| {
        let cause = format!("rank {culprit} launched {}; rank 0 launched {}.", other.work, first.work);
        (other.sequence, cause)
    });
    let base = Report {
        cause,
        peer_state: "at something else".to_owned(),
        ..report(comm, ErrorCode::PEER_DIFFERS, culprit, sequence)
    };
    match victim_of(culprit, waits) {
        Some(wait) => located(comm, wait, base),
        None => base,
    }
}

/// Runs device and kernels on, and returns whether a value changes.
fn goes_on<T: PartialEq>(comm: &Communicator<'_>, value: impl Fn() -> T) -> bool {
    let before = value();
    let deadline = comm.cluster.clock().now().checked_add(PROBE);
    comm.cluster.machine().run_until(|| value() != before, deadline) == Outcome::Done
}

/// Every rank that is not done waits. One of them waits for a signal that nobody will send any more.
fn lost_signal(comm: &Communicator<'_>, waits: &[Wait<'_>]) -> Report {
    let code = ErrorCode::NOTIFY_TIMEOUT;
    let lost = waits.iter().find(|wait| is_lost(comm, wait));
    // Where not all tasks are in the rings, the rank that has come least far is next to the break.
    let least = || waits.iter().min_by_key(|(_, entry)| entry.sqe.task);
    let Some(wait @ (rank, entry)) = lost.or_else(least).copied() else {
        // It was done a moment after the deadline.
        let newest = comm.ranks.first().map_or(0, |state| state.launched);
        let cause = "the operation was done, but late.".to_owned();
        return Report { cause, ..report(comm, ErrorCode::HOST_NOTIFY_TIMEOUT, 0, newest) };
    };
    let (sequence, notify) = (split_task(entry.sqe.task).0, entry.sqe.notify);
    let (culprit, cause) = match known_peer(entry.sqe.peer) {
        Some(peer) if lost.is_some() => (
            peer,
            format!(
                "rank {peer} has sent notify {notify} to rank {rank}, which has not got it: lost, or taken twice."
            ),
        ),
        Some(peer) => {
            (peer, format!("all ranks wait; rank {rank}, which waits for rank {peer}, has come least far."))
        }
        None => (rank, format!("a signal within rank {rank} did not come.")),
    };
    let peer_state = if comm.is_done(culprit as usize) { "alive, done" } else { "alive, waits" };
    let base = Report { cause, peer_state: peer_state.to_owned(), ..report(comm, code, culprit, sequence) };
    located(comm, wait, base)
}

/// Returns whether a signal is gone: its sender has fewer tasks left that set the notify than its receiver has that
/// wait for it. False where the kernel of one of them has not submitted everything.
fn is_lost(comm: &Communicator<'_>, &(rank, entry): &Wait<'_>) -> bool {
    let Sqe { opcode, notify, peer, .. } = entry.sqe;
    let from = known_peer(peer).unwrap_or(rank);
    if opcode != Sqe::WAIT || !comm.has_submitted_all(rank) || !comm.has_submitted_all(from) {
        return false;
    }
    let sets = |task: &&Sqe| {
        let flagged = task.flags & SqeFlags::NOTIFY.bits() != 0;
        let records = match task.opcode {
            Sqe::RECORD => from == rank,
            Sqe::RECORD_PEER | Wqe::RECORD => known_peer(task.peer) == Some(rank),
            Sqe::WRITE | Wqe::WRITE => flagged && known_peer(task.peer) == Some(rank),
            _ => false,
        };
        records && task.notify == notify
    };
    let waits = |task: &&Sqe| task.opcode == Sqe::WAIT && task.notify == notify;
    unexecuted(comm, from).iter().filter(sets).count() < unexecuted(comm, rank).iter().filter(waits).count()
}

/// Returns what is written and not executed in the rings of a rank. Work requests too: the fields that matter here
/// lie where those of a submission entry do.
fn unexecuted(comm: &Communicator<'_>, rank: u32) -> Vec<Sqe> {
    let npu = comm.cluster.npu(rank);
    let word = |table: u64, queue: u64| {
        // ORDER: nothing runs any more; the values are for a message.
        npu.window().word(table + 8 * queue).load(Ordering::Acquire)
    };
    let mut entries = Vec::new();
    for queue in 0..MAX_QUEUES {
        let mut slot = QueueSlot::new_zeroed();
        npu.window().read(QUEUES + queue * size_of::<QueueSlot>() as u64, slot.as_mut_bytes());
        let (head, tail) = (word(HEADS, queue), word(TAILS, queue));
        let left = tail.wrapping_sub(head) & u64::from(u32::MAX);
        for position in (0..left.min(u64::from(slot.depth))).map(|index| head.wrapping_add(index)) {
            let at = slot.ring + position % u64::from(slot.depth) * size_of::<Descriptor>() as u64;
            let mut entry = Descriptor::new_zeroed();
            if npu.read(DeviceAddr(at), entry.as_mut_bytes()).is_ok() {
                entries.push(Sqe::from(entry));
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn ranks_are_listed_as_runs() {
        assert_eq!(list(&[0, 1, 2, 3, 4, 6, 7]), "0-4, 6, 7");
        assert_eq!(list(&[5]), "5");
        assert_eq!(list(&[]), "");
    }
}
