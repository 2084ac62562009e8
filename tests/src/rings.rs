//! Finds the notifies and queues of a communicator in what its last operation left in the rings.

use core::sync::atomic::Ordering;

use host_launcher::cluster::Cluster;
use wire::npu::{MAX_QUEUES, QUEUES, QueueKind, QueueSlot, TAILS};
use wire::{Descriptor, DeviceAddr, Phase, Sqe};
use zerocopy::{FromZeros, IntoBytes};

/// The queues that exist on an NPU, of one kind.
///
/// # Panics
/// When there are more queues than a queue number holds.
#[must_use]
pub fn queues(cluster: &Cluster, rank: u32, kind: QueueKind) -> Vec<(u16, QueueSlot)> {
    let slot = |queue: u16| {
        let mut slot = QueueSlot::new_zeroed();
        let at = QUEUES + u64::from(queue) * size_of::<QueueSlot>() as u64;
        cluster.npu(rank).window().read(at, slot.as_mut_bytes());
        (queue, slot)
    };
    let all = (0..u16::try_from(MAX_QUEUES).expect("small")).map(slot);
    all.filter(|(_, slot)| slot.depth > 0 && slot.kind == kind as u8).collect()
}

/// Every notify that the rank's tasks have waited for, once, with the peer that records it.
///
/// # Panics
/// When a ring has wrapped.
#[must_use]
pub fn waited(cluster: &Cluster, rank: u32) -> Vec<(u32, Option<u32>)> {
    let npu = cluster.npu(rank);
    let mut found = Vec::new();
    for (queue, slot) in queues(cluster, rank, QueueKind::Thread) {
        let tail = npu.window().word(TAILS + 8 * u64::from(queue)).load(Ordering::Acquire);
        assert!(tail <= u64::from(slot.depth), "the ring has not wrapped");
        for index in 0..tail {
            let mut entry = Descriptor::new_zeroed();
            npu.read(DeviceAddr(slot.ring + 64 * index), entry.as_mut_bytes()).expect("the ring is there");
            let sqe = Sqe::from(entry);
            let peer = (sqe.peer != Sqe::NO_PEER).then_some(u32::from(sqe.peer));
            if sqe.opcode == Sqe::WAIT
                && sqe.phase != Phase::Start as u8
                && !found.contains(&(sqe.notify, peer))
            {
                found.push((sqe.notify, peer));
            }
        }
    }
    found
}
