//! T29: addresses are told apart by what they are, never by their value.

use core::sync::atomic::Ordering;

use aicpu_tests::variants::Variant;
use aicpu_tests::world::{self, Place};
use device_model::fabric::{BASE_STEP, Fabric, FabricConfig};
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Config, Operation};
use wire::context::{Context, RegionEntry};
use wire::launch::OpKind;
use wire::npu::{LAUNCH_SLOTS, LAUNCH_TAIL, LAUNCHES};
use wire::{DeviceAddr, LaunchArgs};
use zerocopy::{FromZeros, IntoBytes};

use crate::rotation::{HIT, MISS, Rotation, Step};

const WINDOW: u64 = 32 << 20;
/// Bytes of a buffer: as much as one communicator takes of a device, rings and scratch buffer.
const BYTES: u64 = 512 << 10;
const COUNT: u64 = 1000;

/// Two NPUs whose windows have the same addresses.
fn cluster(place: Place) -> Cluster {
    let bases = vec![DeviceAddr(BASE_STEP); 2];
    let fabric = Fabric::create(&FabricConfig { bases, ..FabricConfig::new(2, WINDOW) }).unwrap();
    Cluster::over(&fabric, world::topology(2, place), &Aicpu::Thread).unwrap()
}

/// The scratch buffers of both ranks, as the kernel of `rank` got them with its newest launch.
fn scratch(cluster: &Cluster, rank: u32) -> Vec<RegionEntry> {
    let npu = cluster.npu(rank);
    let slot = (npu.window().word(LAUNCH_TAIL).load(Ordering::Acquire) - 1) % LAUNCH_SLOTS;
    let mut args = LaunchArgs::new_zeroed();
    npu.window().read(LAUNCHES + slot * size_of::<LaunchArgs>() as u64, args.as_mut_bytes());
    let mut words = vec![0_u64; args.context_len.div_ceil(8) as usize];
    let bytes = &mut words.as_mut_bytes()[..args.context_len as usize];
    npu.read(args.context, bytes).unwrap();
    Context::parse(bytes).unwrap().regions.to_vec()
}

/// The input of rank 0 that the first step uses lies where rank 1 has its scratch buffer.
fn meets(cluster: &Cluster, operation: Operation, in_place: bool) {
    // What rank 1 allocates first makes way for its scratch buffer once the users' buffers are there.
    let filler = cluster.npu(1).alloc(BYTES, 128).unwrap();
    let mut rotation = Rotation::new(cluster, Config::default(), BYTES, 3);
    cluster.npu(1).free(filler).unwrap();
    let first = rotation.buffer(0, 0).addr(0).0;
    // Recorded where the addresses are equal, replayed elsewhere and there again.
    for (seed, pair, outcome) in [(1, 0, MISS), (2, 1, HIT), (3, 2, HIT), (4, 0, HIT)] {
        let step = Step { operation: operation.clone(), in_place, pair, seed };
        assert_eq!(rotation.outcomes(&step), [outcome; 2], "{operation}, pair {pair}");
    }
    let peer = scratch(cluster, 0)[1];
    let user = first..=first + BYTES;
    assert!(user.contains(&peer.addr) && user.contains(&(peer.addr + peer.len)), "{operation}: {peer:?}");
    rotation.finish();
}

#[test]
fn t29_a_peers_scratch_at_the_address_of_a_users_buffer() {
    let mut met = 0;
    for place in [Place::OneServer, Place::TwoServers, Place::UnifiedBus] {
        let cluster = cluster(place);
        for variant in Variant::all() {
            for in_place in [false, true] {
                let operation = variant.operation(COUNT, 2, 1);
                // What has no scratch, or no input at rank 0, cannot meet.
                if variant.runs(place != Place::TwoServers, in_place) && variant.op != OpKind::Barrier {
                    meets(&cluster, operation, in_place);
                    met += 1;
                }
            }
        }
    }
    assert!(met >= 400, "{met}");
}

/// Every buffer has the same address on both ranks.
#[test]
fn t29_buffers_of_both_ranks_at_the_same_addresses() {
    let cluster = cluster(Place::OneServer);
    let mut rotation = Rotation::new(&cluster, Config::default(), 8 * COUNT, 3);
    for pair in 0..3 {
        for which in 0..2 {
            let buffer = rotation.buffer(pair, which);
            assert_eq!(buffer.addr(0), buffer.addr(1));
        }
    }
    for variant in Variant::all() {
        let operation = variant.operation(COUNT, 2, 1);
        for (seed, pair, outcome) in [(1, 0, MISS), (2, 1, HIT), (3, 2, HIT), (4, 0, HIT)] {
            let step = Step { operation: operation.clone(), in_place: false, pair, seed };
            assert_eq!(rotation.outcomes(&step), [outcome; 2], "{operation}, pair {pair}");
        }
    }
    rotation.finish();
}
