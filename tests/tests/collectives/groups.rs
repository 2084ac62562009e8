//! Communicators over some of the ranks, over overlapping devices, in flight at the same time.

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::variants::Variant;
use aicpu_tests::world::{self, Place};
use host_launcher::communicator::Config;
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind, Staging};

const BYTES: u64 = 8 * 8 * 1003;

fn case(op: OpKind, algorithm: Algorithm, ranks: u32, seed: u64) -> Case {
    let variant = Variant { op, algorithm, staging: Staging::Scratch };
    Case { operation: variant.operation(1003, ranks, seed), in_place: false, shift: 0, seed }
}

/// Within a server, across, every second rank, servers and ranks in another order, and one alone.
const GROUPS: [&[u32]; 6] =
    [&[0, 1, 2, 3], &[4, 5, 6, 7], &[1, 3, 5, 7], &[6, 4, 7, 1, 0], &[2], &[0, 1, 2, 3, 4, 5, 6, 7]];

#[test]
fn every_group_of_ranks_is_a_world_of_its_own() {
    let cluster = world::threads(8, Place::TwoServers, 24 << 20);
    for group in GROUPS {
        let subset = cluster.subset(group).unwrap();
        let ranks = u32::try_from(group.len()).unwrap();
        assert_eq!((subset.topology().ranks(), subset.rank_on(group[0])), (ranks, Some(0)));
        for (index, npu) in (0..).zip(group) {
            assert_eq!(subset.npu(index).index(), *npu);
        }
        let mut bench = Bench::new(&subset, Config::default(), BYTES).unwrap();
        for (seed, (op, algorithm)) in (1..).zip([
            (OpKind::AllReduce, Algorithm::Nhr),
            (OpKind::AllGatherV, Algorithm::Nb),
            (OpKind::AllToAll, Algorithm::Pairwise),
            (OpKind::Broadcast, Algorithm::Tree),
        ]) {
            bench.run(&case(op, algorithm, ranks, seed)).unwrap();
        }
        bench.finish().unwrap();
    }
}

/// Operations of four communicators that share devices are in flight together, launched by each rank in an order of its
/// own.
#[test]
fn communicators_over_overlapping_devices_do_not_mix() {
    let cluster = world::threads(8, Place::TwoServers, 32 << 20);
    let subsets: Vec<_> =
        [GROUPS[0], GROUPS[2], GROUPS[3]].map(|group| cluster.subset(group).unwrap()).into();
    let mut world = Bench::new(&cluster, Config::default(), BYTES).unwrap();
    let mut benches: Vec<_> =
        subsets.iter().map(|subset| Bench::new(subset, Config::default(), BYTES).unwrap()).collect();
    for seed in 0..20 {
        let all = case(OpKind::AllReduce, Algorithm::Ring, 8, seed);
        let interleaved = |world: &mut Bench<'_>| {
            (0..4).try_for_each(|rank| world.launch_on(rank, &all))?;
            for (bench, ranks) in benches.iter_mut().zip([4, 4, 5]) {
                bench.run(&case(OpKind::AllReduce, Algorithm::HalvingDoubling, ranks, seed))?;
            }
            (4..8).rev().try_for_each(|rank| world.launch_on(rank, &all))
        };
        world.run_with(&all, interleaved).unwrap();
    }
    benches.into_iter().try_for_each(Bench::finish).unwrap();
    world.finish().unwrap();
}

#[test]
fn what_is_no_group() {
    let cluster = world::threads(4, Place::TwoServers, 4 << 20);
    for (ranks, what) in [
        (&[][..], "no ranks"),
        (&[4], "none of 4 ranks"),
        (&[1, 1], "comes twice"),
        (&[0, 2, 1], "one server do not follow"),
    ] {
        let error = cluster.subset(ranks).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ARGUMENT_VALUE);
        assert!(error.message().contains(what), "{error}");
    }
}
