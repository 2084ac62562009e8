//! What an algorithm needs on every rank, against what its NPU has left: refused before anything is created. Memory has a
//! budget of its own (`communicator::budget`).

use device_model::driver::Npu;
use templates::Needs;
use wire::ErrorCode;
use wire::npu::{MAX_CHANNELS, MAX_QUEUES, Protocol};

use super::{CHANNEL_NOTIFIES, START_NOTIFIES};
use crate::cluster::Cluster;
use crate::error::{Error, Result};

/// What to do about too many threads.
const FEWER: &str = "choose an algorithm with fewer threads (a ring has 1, NHR 2), or destroy communicators";

/// Checks that all ranks can have what is needed.
///
/// # Errors
/// `QUEUES_FULL`, `CHANNELS_FULL`, `NOTIFIES_FULL`: the first rank with too little, what it needs and what is left.
pub(super) fn check(cluster: &Cluster, needs: &Needs) -> Result<()> {
    (0..cluster.topology().ranks()).try_for_each(|rank| on(cluster, rank, needs))
}

fn on(cluster: &Cluster, rank: u32, needs: &Needs) -> Result<()> {
    let npu: &Npu = cluster.npu(rank);
    let usage = npu.usage();
    let (mut channels, mut pairs) = (0, 0);
    for channel in cluster.topology().channels(rank) {
        channels += 1;
        pairs += u64::from(channel.protocol != Protocol::Hccs);
    }
    let threads = u64::from(needs.threads);
    let subs = threads.saturating_sub(1) * u64::from(needs.sub_notifies);
    let own = u64::from(needs.main_notifies) + u64::from(START_NOTIFIES) + subs;
    let wanted = [
        (ErrorCode::QUEUES_FULL, "queues", threads + pairs, MAX_QUEUES - usage.queues, FEWER),
        (
            ErrorCode::CHANNELS_FULL,
            "channels",
            channels,
            MAX_CHANNELS - usage.channels,
            "destroy communicators that are done",
        ),
        (
            ErrorCode::NOTIFIES_FULL,
            "notifies",
            own + channels * u64::from(CHANNEL_NOTIFIES),
            usage.free_notifies,
            FEWER,
        ),
    ];
    match wanted.into_iter().find(|(_, _, need, left, _)| need > left) {
        None => Ok(()),
        Some((code, what, need, left, remedy)) => {
            let message = format!("rank {rank} needs {need} {what}, NPU {} has {left} left", npu.index());
            Err(Error::new(code, message).remedy(remedy))
        }
    }
}
