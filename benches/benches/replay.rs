//! Replay: a recorded graph bound to a launch and submitted, and a whole hit of the kernel, beside copying
//! the same bytes.
//!
//! The key of a hit is measured where it is made: `task-cache/benches/hit.rs`.

use aicpu_benches::floors::RingCopy;
use aicpu_benches::rank::Rank;
use aicpu_benches::submission::Submission;
use core::hint::black_box;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use device_model::fabric::{Fabric, FabricConfig};
use wire::program::Posted;

/// Binding and submission alone: two addresses and a task id for each descriptor.
fn replay(criterion: &mut Criterion) {
    let fabric = Fabric::create(&FabricConfig::new(1, 8 << 20)).expect("memory");
    let mut group = criterion.benchmark_group("replay");
    for count in [50_u32, 500, 5000] {
        let depth = (count * 2).next_power_of_two();
        let mut submission = Submission::new(&fabric, count, depth);
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_function(BenchmarkId::new("run", count), |bencher| {
            bencher.iter(|| {
                submission.bind();
                submission.submit();
            });
        });
        let mut floor = RingCopy::new(count, depth);
        group.bench_function(BenchmarkId::new("floor", count), |bencher| bencher.iter(|| floor.turn()));
    }
    group.finish();
}

/// From launch arguments in the mailbox to the last doorbell and the answer. A case is named by the number of
/// descriptors that it is near to.
fn hit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hit");
    for (name, ranks, pieces) in [(50_u32, 4, 5), (500, 8, 31), (5000, 8, 331)] {
        let mut rank = Rank::new(ranks, pieces);
        let status = rank.status();
        let count = status.sqes + status.wqes;
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_function(BenchmarkId::new("run", name), |bencher| {
            bencher.iter_custom(|launches| rank.time(launches));
        });
        let mut floor = RingCopy::new(count, (count * 2).next_power_of_two());
        group.bench_function(BenchmarkId::new("floor", name), |bencher| bencher.iter(|| floor.turn()));
    }
    group.finish();
}

/// The part of a hit that comes before everything the goals count: the launch arguments in the mailbox are copied and
/// checked, checksum first.
fn decode(criterion: &mut Criterion) {
    let args = Rank::new(4, 5).posted();
    let mut group = criterion.benchmark_group("decode");
    group.bench_function("run", |bencher| {
        bencher.iter(|| {
            let copied = *black_box(&args);
            Posted::parse(&copied).is_ok()
        });
    });
    group.bench_function("floor", |bencher| bencher.iter(|| *black_box(&args)));
    group.finish();
}

criterion_group!(benches, replay, hit, decode);
criterion_main!(benches);
