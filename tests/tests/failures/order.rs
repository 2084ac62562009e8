//! Communicators whose operations come in different orders on different NPUs.

use core::time::Duration;
use std::time::Instant;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::scene::{FAR, case};
use aicpu_tests::world::{self, Place};
use host_launcher::Error;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::Config;
use host_launcher::diagnosis::{OnWarning, Warning};
use host_launcher::stream::Stream;
use wire::ErrorCode;
use wire::launch::Algorithm;

fn bench<'c>(cluster: &'c Cluster, name: &str) -> Bench<'c> {
    let config = Config {
        name: name.to_owned(),
        timeout: FAR,
        warn_after: vec![Duration::from_millis(100), Duration::from_millis(500)],
        on_warning: OnWarning::tell(|_: &Warning| ()),
        ..Config::default()
    };
    Bench::new(cluster, config, 64 << 10).unwrap()
}

/// Waits for an operation that can never be done, which must be found out long before its deadline.
fn failure(bench: &mut Bench<'_>) -> Error {
    let start = Instant::now();
    let error = bench.communicator().synchronize().unwrap_err();
    assert!(start.elapsed() < FAR / 2, "{error}");
    error
}

fn assert_goes_on(cluster: &Cluster, benches: Vec<Bench<'_>>) {
    benches.into_iter().for_each(|bench| bench.abandon().unwrap());
    assert_eq!(cluster.behind(), []);
    let mut next = bench(cluster, "next");
    next.run(&case(Algorithm::Nhr)).unwrap();
    next.finish().unwrap();
}

/// The operation with so many chunks that a kernel cannot hand over all at once.
fn long() -> Case {
    let mut long = case(Algorithm::Ring);
    long.operation.chunk = 1;
    long
}

#[test]
fn operations_on_one_stream_in_different_orders_are_named() {
    let cluster = world::threads(2, Place::OneServer, 32 << 20);
    let (mut red, mut blue) = (bench(&cluster, "red"), bench(&cluster, "blue"));
    let case = case(Algorithm::Ring);
    // Once in one order: nothing is wrong with that.
    let stream = cluster.stream();
    for rank in 0..2 {
        red.launch_in(Some(&stream), rank, &case).unwrap();
        blue.launch_in(Some(&stream), rank, &case).unwrap();
    }
    blue.communicator().synchronize().unwrap();
    red.communicator().synchronize().unwrap();
    red.launch_in(Some(&stream), 0, &case).unwrap();
    blue.launch_in(Some(&stream), 0, &case).unwrap();
    blue.launch_in(Some(&stream), 1, &case).unwrap();
    red.launch_in(Some(&stream), 1, &case).unwrap();
    let error = failure(&mut red);
    let report = error.diagnosis().unwrap();
    assert_eq!(
        (error.code(), report.culprit_rank, report.sequence),
        (ErrorCode::COMM_ORDER, Some(1), 2),
        "{error}"
    );
    let circle = "on NPU 1 \"red\" #2 is behind \"blue\" #2, on NPU 0 \"blue\" #2 is behind \"red\" #2";
    let other = "on NPU 0 \"blue\" #2 is behind \"red\" #2, on NPU 1 \"red\" #2 is behind \"blue\" #2";
    let starts = |circle: &str| {
        report.cause.starts_with(&format!("communicators are called in different orders: {circle}."))
    };
    assert!(starts(circle) || starts(other), "{error}");
    // The other one is asked too: it says the same of its own operation.
    let error = failure(&mut blue);
    let report = error.diagnosis().unwrap();
    assert_eq!((error.code(), report.culprit_rank), (ErrorCode::COMM_ORDER, Some(0)), "{error}");
    assert_goes_on(&cluster, vec![red, blue]);
}

#[test]
fn three_communicators_in_a_circle_over_npus_that_no_two_share() {
    let cluster = world::threads(3, Place::OneServer, 32 << 20);
    let pairs = [[0, 1], [1, 2], [2, 0]].map(|pair| cluster.subset(&pair).unwrap());
    let mut all: Vec<_> =
        ["red", "green", "blue"].into_iter().zip(&pairs).map(|(name, pair)| bench(pair, name)).collect();
    let stream = cluster.stream();
    let case = case(Algorithm::Ring);
    // On each NPU the operation of the one that begins there comes first.
    for (bench, rank) in [(0, 0), (2, 1), (1, 0), (0, 1), (2, 0), (1, 1)] {
        all[bench].launch_in(Some(&stream), rank, &case).unwrap();
    }
    for (bench, culprit) in all.iter_mut().zip(0..) {
        let error = failure(bench);
        assert_eq!(error.code(), ErrorCode::COMM_ORDER, "{culprit}: {error}");
        for name in ["\"red\" #1", "\"green\" #1", "\"blue\" #1"] {
            assert!(error.to_string().contains(name), "{error}");
        }
    }
    assert_goes_on(&cluster, all);
}

/// Without streams, what is launched first holds the kernel until all its tasks are in the rings.
#[test]
fn kernels_that_are_at_different_operations_are_named() {
    let cluster = world::threads(2, Place::OneServer, 32 << 20);
    let (mut red, mut blue) = (bench(&cluster, "red"), bench(&cluster, "blue"));
    let in_different_orders = |red: &mut Bench<'_>, blue: &mut Bench<'_>, case: &Case| {
        red.launch_on(0, case).unwrap();
        blue.launch_on(0, case).unwrap();
        blue.launch_on(1, case).unwrap();
        red.launch_on(1, case).unwrap();
    };
    // Short ones are all in the rings, and the order does not matter.
    in_different_orders(&mut red, &mut blue, &case(Algorithm::Ring));
    red.communicator().synchronize().unwrap();
    blue.communicator().synchronize().unwrap();
    in_different_orders(&mut red, &mut blue, &long());
    let error = failure(&mut red);
    assert_eq!(error.code(), ErrorCode::COMM_ORDER, "{error}");
    assert!(error.to_string().contains("on NPU 0 \"blue\" #2 is behind \"red\" #2"), "{error}");
    assert_goes_on(&cluster, vec![red, blue]);
}

/// Behind an operation that cannot be done for a reason of its own: that one is named, and nobody's order.
#[test]
fn an_operation_behind_one_that_is_stuck_is_said_to_be_behind() {
    let cluster = world::threads(2, Place::OneServer, 32 << 20);
    let mut red = bench(&cluster, "red");
    let config = Config { name: "blue".to_owned(), timeout: Duration::from_millis(200), ..Config::default() };
    let mut blue = Bench::new(&cluster, config, 64 << 10).unwrap();
    let case = case(Algorithm::Ring);
    let stream: Stream = cluster.stream();
    red.launch_in(Some(&stream), 0, &case).unwrap();
    for rank in 0..2 {
        blue.launch_in(Some(&stream), rank, &case).unwrap();
    }
    let error = blue.communicator().synchronize().unwrap_err();
    let report = error.diagnosis().unwrap();
    assert_eq!((error.code(), report.culprit_rank), (ErrorCode::PEER_NOT_STARTED, Some(0)), "{error}");
    let cause =
        "rank 0 has not begun the operation: on NPU 0 \"blue\" #1 is behind \"red\" #1, which is not done.";
    assert!(report.cause.starts_with(cause), "{error}");
    assert_eq!(report.remedy, "look at communicator \"red\" first");
    assert_goes_on(&cluster, vec![red, blue]);
}
