//! Who waits for whom: the graph whose sinks are where to look.
//!
//! A node is a rank, an edge a task at the head of one of its rings that waits for a notify which a peer sets. A rank
//! that waits is a victim; what it waits for may be one too. Ranks that do not wait are sinks: one that has launched less
//! than the others, whose kernel is silent, whose device stands still, or of which nothing is known.

use std::collections::BTreeSet;

use wire::Sqe;

use super::snapshot::{Head, Snapshot};
use super::{known_peer, split_task};

/// What a rank does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing: everything it launched is done.
    Done,
    /// It has not launched the newest operation.
    Behind,
    /// Nothing: its kernel has submitted nothing, or not all.
    Silent,
    /// It has a task that nothing holds.
    Runnable(Head),
    /// Every queue that has a task waits.
    Waits(Vec<Head>),
}

/// A rank, and a task at the head of one of its rings.
pub(super) type Wait<'a> = (u32, &'a Head);

/// The ranks of a communicator with what each does.
#[derive(Debug)]
pub(super) struct Waits<'a> {
    pub(super) ranks: &'a [Snapshot],
    pub(super) states: Vec<(u32, State)>,
}

impl<'a> Waits<'a> {
    pub(super) fn new(ranks: &'a [Snapshot]) -> Self {
        let newest = ranks.iter().map(|rank| rank.host.launched).max().unwrap_or(0);
        let states = ranks.iter().map(|rank| (rank.host.rank, state(rank, newest))).collect();
        Self { ranks, states }
    }

    /// Returns the snapshot of a rank.
    pub(super) fn of(&self, rank: u32) -> Option<&'a Snapshot> {
        self.ranks.iter().find(|snapshot| snapshot.host.rank == rank)
    }

    /// Returns the ranks in a state.
    pub(super) fn ranks(&self, wanted: fn(&State) -> bool) -> Vec<u32> {
        self.states.iter().filter(|(_, state)| wanted(state)).map(|(rank, _)| *rank).collect()
    }

    /// Returns all waits, rank by rank.
    pub(super) fn all(&self) -> Vec<Wait<'_>> {
        self.states
            .iter()
            .flat_map(|(rank, state)| match state {
                State::Waits(list) => list.iter().map(|head| (*rank, head)).collect::<Vec<_>>(),
                _ => Vec::new(),
            })
            .collect()
    }

    /// Returns the ranks that wait for any of `roots` at once, and those that wait for these, and so on.
    pub(super) fn layers(&self, roots: &[u32]) -> Vec<Vec<u32>> {
        let waits = self.all();
        let mut seen: BTreeSet<u32> = roots.iter().copied().collect();
        let mut layers = Vec::new();
        let mut front: BTreeSet<u32> = seen.clone();
        loop {
            let next: BTreeSet<u32> = waits
                .iter()
                .filter(|(rank, head)| {
                    !seen.contains(rank)
                        && known_peer(head.sqe.peer).is_some_and(|peer| front.contains(&peer))
                })
                .map(|(rank, _)| *rank)
                .collect();
            if next.is_empty() {
                return layers;
            }
            seen.extend(&next);
            layers.push(next.iter().copied().collect());
            front = next;
        }
    }

    /// Returns the one of `ranks` that most others wait for, directly or not; the lowest, if several.
    pub(super) fn most_awaited(&self, ranks: &[u32]) -> Option<u32> {
        let victims = |rank: u32| self.layers(&[rank]).iter().map(Vec::len).sum::<usize>();
        ranks.iter().copied().max_by_key(|rank| (victims(*rank), core::cmp::Reverse(*rank)))
    }

    /// Returns the first wait for a rank, or else the first wait at all.
    pub(super) fn victim_of(&self, culprit: u32) -> Option<Wait<'_>> {
        let waits = self.all();
        let awaited = waits.iter().find(|(_, head)| known_peer(head.sqe.peer) == Some(culprit));
        awaited.or(waits.first()).copied()
    }

    /// Returns a circle of waits: each rank waits for the next, and the last for the first.
    pub(super) fn circle(&self) -> Option<Vec<Wait<'_>>> {
        let waits = self.all();
        let next = |rank: u32| {
            waits.iter().find(|(from, head)| *from == rank && known_peer(head.sqe.peer).is_some()).copied()
        };
        let mut path = vec![next(waits.first()?.0)?];
        loop {
            let (_, head) = path.last()?;
            let peer = known_peer(head.sqe.peer)?;
            if let Some(start) = path.iter().position(|(rank, _)| *rank == peer) {
                return Some(path.split_off(start));
            }
            path.push(next(peer)?);
        }
    }
}

fn state(rank: &Snapshot, newest: u32) -> State {
    if rank.host.launched < newest {
        return State::Behind;
    }
    if rank.is_done() {
        return State::Done;
    }
    let heads = rank.heads();
    match heads.iter().find(|head| !head.waits) {
        Some(head) => State::Runnable(*head),
        None if heads.is_empty() => State::Silent,
        None => State::Waits(heads),
    }
}

/// Ranks as people write them: `0-4, 6, 7`.
pub(super) fn list(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|a, b| a + 1 == *b);
    let text = |run: &[u32]| match run {
        [first, _, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    };
    runs.map(text).collect::<Vec<_>>().join(", ")
}

/// Says what a task at the head of a ring is.
pub(super) fn what(rank: &Snapshot, head: &Head) -> String {
    let Sqe { notify, opcode, phase, peer, .. } = head.sqe;
    let (_, task) = split_task(head.sqe.task);
    let starts = phase == wire::Phase::Start as u8;
    let from = match (known_peer(peer), starts) {
        _ if opcode != Sqe::WAIT => return format!("queue {}: opcode {opcode}", head.queue),
        (Some(peer), _) => format!("rank {peer}"),
        (None, true) if task == 0 => "the host".to_owned(),
        (None, true) => "the operation before".to_owned(),
        (None, false) => local(rank, head),
    };
    format!("queue {}: wait notify {notify} from {from}", head.queue)
}

/// Names a signal between two threads of one rank: no peer has to do with it.
fn local(rank: &Snapshot, head: &Head) -> String {
    let own = rank.thread_of(head.queue).map_or("?".to_owned(), |thread| thread.to_string());
    match rank.recorder_of(head.sqe.notify) {
        Some(thread) => format!("local thread {thread} to thread {own}"),
        None => format!("another local thread to thread {own}"),
    }
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
