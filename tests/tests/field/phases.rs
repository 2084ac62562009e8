//! Where the time of a call goes, in the mode in which the AI CPU expands.

use aicpu_tests::bench::Bench;
use aicpu_tests::scene::{FAR, case};
use aicpu_tests::world::{self, Place};
use host_launcher::communicator::Config;
use wire::launch::{Algorithm, CacheOutcome};
use wire::{Recorded, TraceEvent};

fn bench(cluster: &host_launcher::cluster::Cluster) -> Bench<'_> {
    Bench::new(cluster, Config { timeout: FAR, ..Config::default() }, 16 << 10).unwrap()
}

/// T55, vllm-project/vllm#26914: no profile has operations that the AI CPU expands. The flight recorder has every phase of
/// each, in order and with its time: context decoded, taken, submitted with what expansion and submission took, done.
#[test]
fn every_phase_of_a_call_is_on_record() {
    let cluster = world::threads(3, Place::OneServer, 24 << 20);
    let mut bench = bench(&cluster);
    // That an operation is done its kernel notices when the next one comes.
    for _ in 0..3 {
        bench.run(&case(Algorithm::MeshTwoShot)).unwrap();
    }
    for rank in 0..3 {
        let phases = |sequence: u32| -> (Vec<&str>, Vec<TraceEvent>) {
            let events: Vec<TraceEvent> =
                cluster.npu(rank).trace().into_iter().filter(|event| event.sequence == sequence).collect();
            let name = |event: &TraceEvent| {
                Some(match event.recorded()? {
                    Recorded::LaunchTaken { .. } => "taken",
                    Recorded::ContextDecoded { .. } => "context",
                    Recorded::Expanded => "expanded",
                    Recorded::Doorbell { .. } => "held",
                    Recorded::Submitted { .. } => "submitted",
                    Recorded::Refused { .. } => "refused",
                    Recorded::Completed { .. } => "done",
                })
            };
            (events.iter().filter_map(name).collect(), events)
        };
        let (first, events) = phases(1);
        assert_eq!(first, ["context", "taken", "submitted", "done"], "rank {rank}");
        assert!(events.is_sorted_by_key(|event| event.time_ns), "{events:?}");
        let span = events[3].time_ns - events[0].time_ns;
        let spent = events.iter().find_map(|event| match event.recorded()? {
            Recorded::Submitted { expand_ns, submit_ns, .. } => Some((expand_ns, submit_ns)),
            _ => None,
        });
        let (expand_ns, submit_ns) = spent.unwrap();
        assert!(
            expand_ns > 0 && submit_ns > 0 && u64::from(expand_ns) + u64::from(submit_ns) <= span,
            "{events:?}"
        );
        assert_eq!(
            phases(2).0,
            ["taken", "submitted", "done"],
            "rank {rank}: nothing is decoded or expanded again"
        );
    }
    bench.finish().unwrap();
}

/// T56, hiascend hcclopdev_000006: what the first call costs and what each later one does are two numbers.
#[test]
fn the_first_call_and_the_cached_ones_are_told_apart() {
    let cluster = world::threads(4, Place::OneServer, 24 << 20);
    let mut bench = bench(&cluster);
    let first = bench.run(&case(Algorithm::Ring)).unwrap();
    assert!(
        first.iter().all(|done| done.status.cache == CacheOutcome::Miss as u8 && done.status.expand_ns > 0)
    );
    for _ in 0..3 {
        for done in bench.run(&case(Algorithm::Ring)).unwrap() {
            assert_eq!((done.status.cache, done.status.expand_ns), (CacheOutcome::Hit as u8, 0));
            assert!(done.status.submit_ns > 0 && done.status.sqes == first[0].status.sqes);
        }
    }
    bench.finish().unwrap();
}
