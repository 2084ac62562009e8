//! The AI CPU's cores: in the field each communicator's kernel holds one until its waits are over, and the seventh
//! blocks without a word. Here one kernel serves all communicators of an NPU and never waits.

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::scene::{FAR, case};
use aicpu_tests::world::{self, Place};
use host_launcher::communicator::Config;
use wire::launch::Algorithm;

/// T37, constraints.md of the field: seven communicators on six cores whose waits cross, so that with a core held by
/// each none could go on.
#[test]
fn more_communicators_than_cores_with_crossed_waits_all_finish() {
    const COMMUNICATORS: u32 = 9;
    let cluster = world::threads(2, Place::OneServer, 24 << 20);
    let mut benches: Vec<Bench<'_>> = (0..COMMUNICATORS)
        .map(|number| {
            let config = Config { name: format!("comm-{number}"), timeout: FAR, ..Config::default() };
            Bench::new(&cluster, config, 64 << 10).unwrap()
        })
        .collect();
    for (seed, bench) in (0..).zip(&mut benches) {
        bench.run(&Case { seed, ..case(Algorithm::Ring) }).unwrap();
    }
    // Rank 0 starts them in order, rank 1 in the opposite order: the first of each waits for the last of the other.
    for bench in &mut benches {
        bench.launch_on(0, &case(Algorithm::Ring)).unwrap();
        let pending = bench.communicator().pending();
        assert_eq!(pending.len(), 1, "rank 0 alone");
    }
    for bench in benches.iter_mut().rev() {
        bench.launch_on(1, &case(Algorithm::Ring)).unwrap();
    }
    for bench in &mut benches {
        bench.communicator().synchronize().unwrap();
    }
    benches.into_iter().for_each(|bench| bench.finish().unwrap());
}
