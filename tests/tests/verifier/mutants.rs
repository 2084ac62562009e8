//! Graphs with a mistake in them.

use graph_verifier::{Labelled, RankTasks};
use task_graph::{ChannelNotify, RegionId, RegionKind, Span, Task, ThreadId};
use wire::{DataType, Phase, ReduceOp, Reduction};

/// Bytes of an element of every graph here.
pub(crate) const ELEMENT: u64 = 8;

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit as u64).expect("below a usize")
    }
}

/// A kind of mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mistake {
    /// A task is missing.
    Drop,
    /// A task comes twice.
    Duplicate,
    /// Two neighbours on a thread have changed places.
    Swap,
    /// A transfer begins an element too early or too late, at one end.
    Offset,
    /// A transfer is an element too short or too long.
    Length,
    /// A copy reduces, or a reduction copies.
    CopyOrReduce,
    /// Another notify is set or waited for.
    Notify,
    /// Another peer.
    Peer,
    /// A task is on another thread.
    Thread,
    /// The source or destination is another buffer of the same rank.
    Buffer,
    /// A record and the wait that belongs to it are missing.
    DropPair,
    /// A record comes before tasks that it should come after.
    EarlyRecord,
    /// A write does not set its notify, or sets one too many.
    Fused,
    /// Another reduction.
    Operator,
    /// Source and destination have changed places.
    Ends,
    /// All notifies of one kind between two ranks are missing, in both directions.
    DropKind,
    /// A copy too many, somewhere.
    Insert,
    /// A record and a wait too many, between any two ranks.
    InsertPair,
}

impl Mistake {
    pub(crate) const ALL: [Self; 18] = [
        Self::Drop,
        Self::Duplicate,
        Self::Swap,
        Self::Offset,
        Self::Length,
        Self::CopyOrReduce,
        Self::Notify,
        Self::Peer,
        Self::Thread,
        Self::Buffer,
        Self::DropPair,
        Self::EarlyRecord,
        Self::Fused,
        Self::Operator,
        Self::Ends,
        Self::DropKind,
        Self::Insert,
        Self::InsertPair,
    ];

    /// Makes this mistake somewhere; returns whether it could.
    pub(crate) fn make(self, ranks: &mut [RankTasks], threads: u16, random: &mut Random) -> bool {
        let count = ranks.len();
        let rank = random.below(count);
        if ranks[rank].tasks.is_empty() {
            return false;
        }
        let at = random.below(ranks[rank].tasks.len());
        match self {
            Self::Drop => {
                ranks[rank].tasks.remove(at);
                true
            }
            Self::Duplicate => {
                let task = ranks[rank].tasks[at];
                ranks[rank].tasks.insert(at, task);
                true
            }
            Self::Swap => {
                let tasks = &mut ranks[rank].tasks;
                let thread = tasks[at].thread;
                let next = (at + 1..tasks.len()).find(|next| tasks[*next].thread == thread);
                next.is_some_and(|next| {
                    tasks.swap(at, next);
                    tasks[at] != tasks[next]
                })
            }
            Self::DropPair => drop_pair(ranks, rank, at),
            Self::EarlyRecord => {
                let tasks = &mut ranks[rank].tasks;
                let records =
                    matches!(tasks[at].task, Task::ChannelRecord { .. } | Task::ThreadRecord { .. });
                if !records || at == 0 {
                    return false;
                }
                let record = tasks.remove(at);
                tasks.insert(random.below(at), record);
                true
            }
            Self::DropKind => drop_kind(ranks, rank, at),
            Self::Thread => {
                let task = &mut ranks[rank].tasks[at];
                let other = ThreadId(u16::try_from(random.below(usize::from(threads))).expect("a u16"));
                core::mem::replace(&mut task.thread, other) != other
            }
            Self::Insert => {
                let span = |random: &mut Random| {
                    let kind = [RegionKind::Input, RegionKind::Output, RegionKind::Scratch][random.below(3)];
                    let offset = ELEMENT * random.below(4) as u64;
                    Span { region: RegionId::own(kind), offset, len: ELEMENT }
                };
                let task = Task::LocalCopy { dst: span(random), src: span(random) };
                let thread = ranks[rank].tasks[at].thread;
                ranks[rank].tasks.insert(at, labelled(thread, task));
                true
            }
            Self::InsertPair => {
                let other = random.below(count);
                if other == rank || ranks[other].tasks.is_empty() {
                    return false;
                }
                let notify = [ChannelNotify::Ack, ChannelNotify::Data, ChannelNotify::Fin][random.below(3)];
                let at_other = random.below(ranks[other].tasks.len());
                let (thread, thread_there) =
                    (ranks[rank].tasks[at].thread, ranks[other].tasks[at_other].thread);
                let record = Task::ChannelRecord { peer: number(other), notify };
                ranks[rank].tasks.insert(at, labelled(thread, record));
                let wait = Task::ChannelWait { peer: number(rank), notify };
                ranks[other].tasks.insert(at_other, labelled(thread_there, wait));
                true
            }
            _ => {
                let task = &mut ranks[rank].tasks[at].task;
                let before = *task;
                self.in_task(task, rank, count, random);
                *task != before
            }
        }
    }

    /// Makes this mistake in one task, which stays as it is where it has no room for it.
    fn in_task(self, task: &mut Task, rank: usize, ranks: usize, random: &mut Random) {
        match self {
            Self::Offset => {
                if let Some((dst, src)) = ends(task) {
                    let end = if random.below(2) == 0 { dst } else { src };
                    let more = random.below(2) == 0 || end.offset < ELEMENT;
                    end.offset = if more { end.offset + ELEMENT } else { end.offset - ELEMENT };
                }
            }
            Self::Length => {
                if let Some((dst, src)) = ends(task) {
                    let more = random.below(2) == 0 || dst.len == ELEMENT;
                    let len = if more { dst.len + ELEMENT } else { dst.len - ELEMENT };
                    (dst.len, src.len) = (len, len);
                }
            }
            Self::CopyOrReduce => {
                let sum = Reduction { dtype: DataType::Int64, op: ReduceOp::Sum };
                *task = match *task {
                    Task::LocalCopy { dst, src } => Task::LocalReduce { dst, src, reduction: sum },
                    Task::LocalReduce { dst, src, .. } => Task::LocalCopy { dst, src },
                    other => other,
                };
                if let Task::Write { reduction, .. } | Task::Read { reduction, .. } = task {
                    *reduction = if reduction.is_some() { None } else { Some(sum) };
                }
            }
            Self::Notify => match task {
                Task::ChannelRecord { notify, .. }
                | Task::ChannelWait { notify, .. }
                | Task::Write { notify: Some(notify), .. } => {
                    let all = [ChannelNotify::Ack, ChannelNotify::Data, ChannelNotify::Fin];
                    *notify = all[(*notify as usize + 1 + random.below(2)) % 3];
                }
                Task::ThreadRecord { index, .. } | Task::ThreadWait { index } => *index ^= 1,
                _ => {}
            },
            Self::Peer => {
                let other = number(random.below(ranks));
                if other as usize == rank {
                    return;
                }
                match task {
                    Task::ChannelRecord { peer, .. } | Task::ChannelWait { peer, .. } => *peer = other,
                    Task::Write { peer, dst: far, .. } | Task::Read { peer, src: far, .. } => {
                        *peer = other;
                        far.region = RegionId::of_peer(other, far.region.kind());
                    }
                    _ => {}
                }
            }
            Self::Buffer => {
                if let Some((dst, src)) = ends(task) {
                    let end = if random.below(3) == 0 { dst } else { src };
                    let kinds = [RegionKind::Input, RegionKind::Output, RegionKind::Scratch];
                    let kind = kinds[random.below(3)];
                    end.region =
                        end.region.peer().map_or(RegionId::own(kind), |peer| RegionId::of_peer(peer, kind));
                }
            }
            Self::Fused => {
                if let Task::Write { notify, .. } = task {
                    *notify = if notify.is_some() { None } else { Some(ChannelNotify::Data) };
                }
            }
            Self::Operator => {
                if let Task::LocalReduce { reduction, .. }
                | Task::Write { reduction: Some(reduction), .. }
                | Task::Read { reduction: Some(reduction), .. } = task
                {
                    reduction.op = [ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min][random.below(3)];
                }
            }
            Self::Ends => match task {
                Task::LocalCopy { dst, src } | Task::LocalReduce { dst, src, .. } => {
                    core::mem::swap(dst, src);
                }
                Task::Write { peer, dst, src, reduction, .. } => {
                    *task = Task::Read { peer: *peer, dst: *src, src: *dst, reduction: *reduction };
                }
                Task::Read { peer, dst, src, reduction } => {
                    let (peer, dst, src, reduction) = (*peer, *src, *dst, *reduction);
                    *task = Task::Write { peer, dst, src, reduction, notify: None };
                }
                _ => {}
            },
            _ => {}
        }
    }
}

/// Takes labels away: what is wrong must be seen without them.
pub(crate) fn without_labels(ranks: &mut [RankTasks]) {
    for task in ranks.iter_mut().flat_map(|rank| &mut rank.tasks) {
        (task.phase, task.step) = (Phase::Run, 0);
    }
}

fn labelled(thread: ThreadId, task: Task) -> Labelled {
    Labelled { thread, phase: Phase::Run, step: 0, task }
}

fn number(rank: usize) -> u32 {
    u32::try_from(rank).expect("few ranks")
}

/// Both ends of a transfer.
fn ends(task: &mut Task) -> Option<(&mut Span, &mut Span)> {
    match task {
        Task::LocalCopy { dst, src }
        | Task::LocalReduce { dst, src, .. }
        | Task::Write { dst, src, .. }
        | Task::Read { dst, src, .. } => Some((dst, src)),
        _ => None,
    }
}

/// Which notify of which rank a task sets: rank, and peer and notify or thread and index.
fn sets(rank: usize, task: &Task) -> Option<(usize, Task)> {
    match *task {
        Task::ChannelRecord { peer, notify } | Task::Write { peer, notify: Some(notify), .. } => {
            Some((peer as usize, Task::ChannelWait { peer: number(rank), notify }))
        }
        Task::ThreadRecord { index, .. } => Some((rank, Task::ThreadWait { index })),
        _ => None,
    }
}

/// Removes a record and the wait that belongs to it, counted from the beginning.
fn drop_pair(ranks: &mut [RankTasks], rank: usize, at: usize) -> bool {
    let record = ranks[rank].tasks[at];
    let Some((other, wait)) = sets(rank, &record.task) else { return false };
    let on = match record.task {
        Task::ThreadRecord { thread, .. } => Some(thread),
        _ => None,
    };
    let same = |labelled: &Labelled| {
        sets(rank, &labelled.task) == Some((other, wait))
            && (on.is_none()
                || matches!(labelled.task, Task::ThreadRecord { thread, .. } if Some(thread) == on))
    };
    let before = ranks[rank].tasks[..at].iter().filter(|labelled| same(labelled)).count();
    let waits =
        |labelled: &Labelled| labelled.task == wait && on.is_none_or(|thread| labelled.thread == thread);
    let found = ranks[other].tasks.iter().enumerate().filter(|(_, task)| waits(task)).nth(before);
    let Some((found, _)) = found else { return false };
    if let Task::Write { notify, .. } = &mut ranks[rank].tasks[at].task {
        *notify = None;
        ranks[other].tasks.remove(found);
        return true;
    }
    ranks[other].tasks.remove(found);
    // In the same list the wait may have been before the record.
    let at = if other == rank && found < at { at - 1 } else { at };
    ranks[rank].tasks.remove(at);
    true
}

/// Removes all notifies of the kind that a task sets, between its rank and the peer, in both directions.
fn drop_kind(ranks: &mut [RankTasks], rank: usize, at: usize) -> bool {
    let Task::ChannelRecord { peer, notify } = ranks[rank].tasks[at].task else { return false };
    for (rank, peer) in [(rank, peer as usize), (peer as usize, rank)] {
        ranks[rank].tasks.retain(|labelled| {
            !matches!(labelled.task,
                Task::ChannelRecord { peer: other, notify: kind } | Task::ChannelWait { peer: other, notify: kind }
                if other as usize == peer && kind == notify)
        });
        for labelled in &mut ranks[rank].tasks {
            if let Task::Write { peer: other, notify: kind, .. } = &mut labelled.task
                && *other as usize == peer
                && *kind == Some(notify)
            {
                *kind = None;
            }
        }
    }
    true
}
