//! What a communicator took is there again after it has gone, however it ended.

use aicpu_tests::bench::Bench;
use aicpu_tests::variants::algorithms;
use aicpu_tests::world::{self, Place};
use host_launcher::cluster::Cluster;
use host_launcher::communicator::Config;
use wire::launch::{Algorithm, OpKind};
use wire::npu::{
    CHANNELS, ChannelSlot, MAX_CHANNELS, MAX_NOTIFIES, MAX_QUEUES, MAX_REGIONS, QUEUES, QueueSlot, REGIONS,
    RegionSlot,
};
use zerocopy::{FromZeros, IntoBytes};

use aicpu_tests::scene::{Scene, case};

const RANKS: u32 = 4;

/// What an NPU has left or in use: free bytes, regions, queues, channels, and whether every notify can be had.
#[derive(Debug, PartialEq, Eq)]
struct Use {
    free_bytes: u64,
    regions: usize,
    queues: usize,
    channels: usize,
}

fn in_use(cluster: &Cluster) -> Vec<Use> {
    let of = |rank: u32| {
        let npu = cluster.npu(rank);
        let all = npu.alloc_notifies(u32::try_from(MAX_NOTIFIES).unwrap());
        npu.free_notifies(all.expect("no notify is taken").start).unwrap();
        let host: Vec<u32> = core::iter::from_fn(|| npu.alloc_host_notify().ok()).collect();
        assert_eq!(host.len(), 64, "host notifies");
        host.into_iter().for_each(|notify| npu.free_host_notify(notify).unwrap());
        let mut regions = vec![RegionSlot::new_zeroed(); usize::try_from(MAX_REGIONS).unwrap()];
        let mut queues = vec![QueueSlot::new_zeroed(); usize::try_from(MAX_QUEUES).unwrap()];
        let mut channels = vec![ChannelSlot::new_zeroed(); usize::try_from(MAX_CHANNELS).unwrap()];
        npu.window().read(REGIONS, regions.as_mut_bytes());
        npu.window().read(QUEUES, queues.as_mut_bytes());
        npu.window().read(CHANNELS, channels.as_mut_bytes());
        Use {
            free_bytes: npu.free_bytes(),
            regions: regions.iter().filter(|slot| slot.token != 0).count(),
            queues: queues.iter().filter(|slot| slot.depth != 0).count(),
            channels: channels.iter().filter(|slot| slot.connected != 0).count(),
        }
    };
    (0..RANKS).map(of).collect()
}

#[test]
fn two_hundred_communicators_leave_nothing_behind() {
    let cluster = world::threads(RANKS, Place::TwoServers, 16 << 20);
    let before = in_use(&cluster);
    assert!(before.iter().all(|rank| (rank.regions, rank.queues, rank.channels) == (0, 0, 0)));
    let all = algorithms(OpKind::AllReduce);
    for turn in 0..200 {
        let mut bench = Bench::new(&cluster, Config::default(), 64 << 10).unwrap();
        for offset in 0..2 {
            bench.run(&case(all[(turn + offset) % all.len()])).unwrap();
        }
        bench.finish().unwrap();
    }
    assert_eq!(in_use(&cluster), before);
}

#[test]
fn failed_communicators_leave_nothing_behind() {
    let cluster = world::threads(RANKS, Place::TwoServers, 16 << 20);
    let before = in_use(&cluster);
    for _ in 0..10 {
        let mut scene = Scene::new(&cluster);
        scene.bench().launch_on(0, &case(Algorithm::MeshOneShot)).unwrap();
        scene.failure();
        scene.recovers();
    }
    assert_eq!(in_use(&cluster), before);
}
