//! Lower bounds: what no algorithm goes below on a machine.
//!
//! The published bounds count one port per rank: ⌈log2 p⌉α + 2(p−1)/p·nβ for an all-reduce and so on. A rank with k
//! links at once reaches k + 1 times as many ranks in each step and sends k times as fast, so its bound has
//! ⌈log_{k+1} p⌉ and β/k; with one port it is the published one. Reductions and copies are left out. Where workers
//! are shared, all ranks' bytes go through them.

use wire::launch::OpKind;

use super::machine::Machine;
use super::profile::{LinkCosts, Time, link_index};

/// What bounds a time from below, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Steps that any algorithm takes, in the time of the fastest.
    pub latency: Time,
    /// Bytes that the busiest rank sends or receives, over all its links at once.
    pub bandwidth: Time,
}

impl Bound {
    /// Returns the bound.
    #[must_use]
    pub const fn total(self) -> Time {
        self.latency.saturating_add(self.bandwidth)
    }
}

/// Returns the bound of an operation whose whole (all-reduce, reduce, broadcast) or block (all others) has `bytes`.
#[must_use]
pub fn of(machine: &Machine<'_>, op: OpKind, bytes: u64) -> Bound {
    let (topology, costs) = (machine.topology(), machine.costs());
    let ranks = u64::from(topology.ranks());
    if ranks < 2 {
        return Bound { latency: 0, bandwidth: 0 };
    }
    // The links of the best connected rank: those of a pair each count, those of a port together once.
    let mut links = [0_u64; 3];
    for rank in 0..topology.ranks() {
        let mut own = [0_u64; 3];
        for channel in topology.channels(rank) {
            own[link_index(channel.protocol)] += 1;
        }
        for (most, (own, cost)) in links.iter_mut().zip(own.into_iter().zip(&costs.links)) {
            *most = (*most).max(if cost.port { own.min(1) } else { own });
        }
    }
    let used = || links.into_iter().zip(&costs.links).filter(|(links, _)| *links > 0);
    let at_once: u64 = used().map(|(links, _)| links).sum();
    let step = |link: &LinkCosts| link.latency.min(link.signal);
    let fastest = used().map(|(_, link)| step(link)).min().unwrap_or(0);
    let steps = if op.is_point_to_point() { 1 } else { steps(ranks, at_once) };
    let (busiest, everywhere) = volumes(op, ranks, bytes);
    let over_links = share(busiest, &used().map(|(links, link)| (links, link.byte)).collect::<Vec<_>>());
    let least = used().map(|(_, link)| link.byte).min().unwrap_or(0);
    let over_workers = match u64::from(costs.workers) {
        0 => 0,
        workers => everywhere.saturating_mul(least) / workers,
    };
    Bound { latency: steps.saturating_mul(fastest), bandwidth: over_links.max(over_workers) }
}

/// Steps until every one of `ranks` can have heard of every other, where each talks to `at_once` others in a step.
fn steps(ranks: u64, at_once: u64) -> u64 {
    let mut reached = 1_u64;
    let mut steps = 0;
    while reached < ranks {
        reached = reached.saturating_mul(at_once.max(1) + 1);
        steps += 1;
    }
    steps
}

/// The bytes that the busiest rank sends or receives, and that all ranks send.
fn volumes(op: OpKind, ranks: u64, bytes: u64) -> (u64, u64) {
    let others = bytes.saturating_mul(ranks - 1);
    match op {
        OpKind::AllReduce => (others.saturating_mul(2) / ranks, others.saturating_mul(2)),
        OpKind::Broadcast | OpKind::Reduce => (bytes, others),
        OpKind::Scatter | OpKind::Gather => (others, others),
        OpKind::SendReceive => (bytes, bytes.saturating_mul(ranks)),
        OpKind::Barrier => (0, 0),
        _ => (others, others.saturating_mul(ranks)),
    }
}

/// The time of `bytes` over all links at once, given as numbers of links and their time for a byte: the bytes divided by
/// the sum of the rates.
fn share(bytes: u64, links: &[(u64, Time)]) -> Time {
    let others = |index: usize| {
        let all = links.iter().enumerate().filter(|(other, _)| *other != index);
        all.fold(1_u128, |product, (_, link)| product.saturating_mul(link.1.into()))
    };
    let rates =
        links.iter().enumerate().map(|(index, link)| u128::from(link.0).saturating_mul(others(index)));
    let rates = rates.fold(0, u128::saturating_add);
    let bytes = u128::from(bytes).saturating_mul(others(links.len()));
    bytes.checked_div(rates).map_or(0, |time| Time::try_from(time).unwrap_or(Time::MAX))
}
