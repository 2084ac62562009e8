//! Everything is done, and yet it is not right: ranks that carried out different operations, and signals left over.
//!
//! Neither makes anybody wait, so no deadline shows them; the bytes are wrong all the same, or will be.

use std::collections::BTreeMap;
use std::time::Instant;

use wire::ErrorCode;

use super::{Report, finish, report};
use crate::communicator::{Communicator, InFlight};
use crate::error::Error;

/// Returns why ranks that launched different things cannot have succeeded. The ranks in the minority are to blame.
pub(crate) fn disagreement(comm: &Communicator<'_>, started: Instant) -> Option<Error> {
    let sequences =
        comm.ranks.iter().flat_map(|state| state.in_flight.iter().map(|launched| launched.sequence));
    let launched = |sequence| {
        (0_u32..).zip(&comm.ranks).filter_map(move |(rank, state)| {
            let own = state.in_flight.iter().find(|launched| launched.sequence == sequence)?;
            Some((rank, own))
        })
    };
    let differ = |sequence: &u32| {
        let mut works = launched(*sequence).map(|(_, own)| own.work);
        let first = works.next();
        works.any(|work| Some(work) != first)
    };
    let sequence = sequences.into_iter().find(differ)?;
    let mut groups: BTreeMap<String, Vec<(u32, InFlight)>> = BTreeMap::new();
    for (rank, own) in launched(sequence) {
        groups.entry(own.work.to_string()).or_default().push((rank, *own));
    }
    // Of two groups of one size, the one without rank 0 is named: somebody has to be.
    let smallest =
        groups.values().min_by_key(|group| (group.len(), group.iter().any(|(rank, _)| *rank == 0)))?;
    let (culprit, minority) = (smallest.first()?.0, smallest.first()?.1.work);
    let others = groups.values().filter(|group| !core::ptr::eq(*group, smallest));
    let (other, usual) = others.max_by_key(|group| group.len())?.first()?;
    let code = ErrorCode::PEER_DIFFERS;
    let cause = format!("rank {culprit} launched {minority}; rank {other} launched {}.", usual.work);
    let base = Report { cause, peer: Some(*other), ..report(comm, code, culprit, sequence) };
    Some(finish(
        code,
        Report { peer_state: "at something else".to_owned(), since: since(comm, started), ..base },
    ))
}

/// Returns why a result cannot be trusted although all ranks are done: somebody has sent a signal more than anybody has
/// waited for, so some wait may have ended too early.
pub(crate) fn left_over(comm: &Communicator<'_>, started: Instant) -> Option<Error> {
    let (rank, notify, peer) = (0..comm.size()).find_map(|rank| {
        let (notify, peer) = comm.set_notify(rank)?;
        Some((rank, notify, peer))
    })?;
    let sequence = comm
        .ranks
        .get(rank as usize)
        .and_then(|state| state.in_flight.back())
        .map_or(0, |last| last.sequence);
    let (code, culprit) = (ErrorCode::NOTIFY_LEFT, peer.unwrap_or(rank));
    let cause = format!(
        "notify {notify} of rank {rank} is set although nobody waits for it any more: rank {culprit} has sent it once too often, \
         and a wait before may have ended too early."
    );
    let base = Report { cause, rank, peer: Some(rank), ..report(comm, code, culprit, sequence) };
    Some(finish(code, Report { since: since(comm, started), ..base }))
}

fn since(comm: &Communicator<'_>, started: Instant) -> String {
    format!("{:.3} s after the host began to wait", comm.cluster.clock().since(started).as_secs_f64())
}
