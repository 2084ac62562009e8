//! What kernels have written to the rings, compared between two clusters that got the same calls.
//!
//! Fabrics with the same addresses that get the same calls get the same resources. Only tokens differ, which are
//! random but for the slot in their low bits: those bits are compared.

use core::fmt::Debug;
use core::sync::atomic::Ordering;

use host_launcher::cluster::Cluster;
use wire::npu::{MAX_QUEUES, MAX_REGIONS, QUEUES, QueueSlot, TAILS};
use wire::{Descriptor, DeviceAddr, Lane};
use zerocopy::{FromZeros, IntoBytes};

/// A queue, how many entries it has been given, and those that are still in its ring.
type Written = (QueueSlot, u64, Vec<Descriptor>);

/// Returns a descriptor with its tokens reduced to the slots that they name.
#[must_use]
pub fn without_random_bits(mut entry: Descriptor) -> Descriptor {
    let slot = MAX_REGIONS - 1;
    entry.lanes[Lane::Tokens as usize] &= slot << 32 | slot;
    entry
}

/// Every queue of an NPU with the entries below its tail.
fn written(cluster: &Cluster, rank: u32) -> Vec<Written> {
    let npu = cluster.npu(rank);
    let mut all = Vec::new();
    for queue in 0..MAX_QUEUES {
        let mut slot = QueueSlot::new_zeroed();
        npu.window().read(QUEUES + queue * size_of::<QueueSlot>() as u64, slot.as_mut_bytes());
        if slot.depth == 0 {
            continue;
        }
        let tail = npu.window().word(TAILS + 8 * queue).load(Ordering::Acquire);
        let count = usize::try_from(tail.min(u64::from(slot.depth))).expect("a ring is in memory");
        let mut entries = vec![Descriptor::new_zeroed(); count];
        if count > 0 {
            npu.read(DeviceAddr(slot.ring), entries.as_mut_bytes()).expect("the ring is there");
        }
        all.push((slot, tail, entries.into_iter().map(without_random_bits).collect()));
    }
    all
}

/// Checks that the kernels of two clusters have written the same to every ring, byte for byte.
///
/// # Panics
/// When they have not, with `what` and the first difference.
pub fn assert_same(one: &Cluster, other: &Cluster, what: &impl Debug) {
    for rank in 0..one.topology().ranks() {
        let [one, other] = [written(one, rank), written(other, rank)];
        assert_eq!(one.len(), other.len(), "{what:?}");
        for (queue, (one, other)) in one.iter().zip(&other).enumerate() {
            assert_eq!((one.0, one.1), (other.0, other.1), "{what:?}, rank {rank}, queue {queue}");
            if let Some(at) = one.2.iter().zip(&other.2).position(|(one, other)| one != other) {
                let (one, other) = (one.2[at], other.2[at]);
                panic!("{what:?}, rank {rank}, queue {queue}, entry {at}: {one:x?} and {other:x?}");
            }
        }
    }
}
