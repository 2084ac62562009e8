//! Everything is done, and yet it is not right: signals left over.
//!
//! They make nobody wait, so no deadline shows them; the bytes may be wrong all the same, or will be.

use std::time::Instant;

use wire::ErrorCode;

use super::verdict::Case;
use super::{Report, survey};
use crate::communicator::Communicator;
use crate::error::Error;

/// Returns why a result cannot be trusted although all ranks are done: somebody has sent a signal more than anybody has
/// waited for, so some wait may have ended too early. `started` is when the host began to wait.
pub(crate) fn left_over(comm: &Communicator<'_>, started: Instant) -> Option<Error> {
    let (rank, notify, peer) = (0..comm.size()).find_map(|rank| {
        let (notify, peer) = comm.set_notify(rank)?;
        Some((rank, notify, peer))
    })?;
    let waited = comm.cluster.clock().since(started);
    let ranks = survey(comm, waited);
    let in_flight = ranks.iter().find(|own| own.host.rank == rank).and_then(|own| own.host.in_flight.last());
    let sequence = in_flight.map_or(0, |last| last.sequence);
    let culprit = peer.unwrap_or(rank);
    let cause = format!(
        "notify {notify} of rank {rank} is set although nobody waits for it any more: rank {culprit} has sent it once too \
         often, and a wait before may have ended too early."
    );
    let case = Case::new(&ranks, &|_, _| None);
    let base = case.report(ErrorCode::NOTIFY_LEFT, culprit, sequence);
    let since = format!("{:.3} s after the host began to wait", waited.as_secs_f64());
    Some(Error::diagnosed(Report { cause, rank, peer: Some(rank), since, ..base }))
}
