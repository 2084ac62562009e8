//! What the launcher runs in real topologies: every operation and algorithm, with the threads and scratch it gets there,
//! and the other operations that share them.

use aicpu_tests::variants::Variant;
use aicpu_tests::world::{Place, topology};
use host_launcher::prove::Case;

fn all_proved(place: Place, ranks: &[u32]) {
    let mut proved = 0;
    for &ranks in ranks {
        let topology = topology(ranks, place);
        for variant in Variant::all() {
            for in_place in [false, true] {
                let operation = variant.operation(37, ranks, 5);
                let case = Case::new(operation, &topology, in_place, 1 << 20);
                if (0..ranks).any(|rank| case.plan(rank, topology.groups()).is_err()) {
                    continue;
                }
                let verdict = case.prove(&topology).expect("has a plan");
                if let Err(refuted) = verdict.proof {
                    panic!("{place:?} {case:?}\n{refuted}");
                }
                proved += 1;
            }
        }
    }
    assert!(proved > 100, "{proved}");
}

#[test]
fn one_server() {
    all_proved(Place::OneServer, &[2, 5]);
}

#[test]
fn two_servers_over_roce() {
    all_proved(Place::TwoServers, &[4, 7]);
}

#[test]
fn two_servers_over_ub() {
    all_proved(Place::UnifiedBus, &[4, 6]);
}
