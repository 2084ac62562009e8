//! Submission: a bound graph into a warm ring that it owns, doorbells included, beside copying its bytes.

use aicpu_benches::floors::RingCopy;
use aicpu_benches::submission::Submission;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use device_model::fabric::{Fabric, FabricConfig};

fn submission(criterion: &mut Criterion) {
    let fabric = Fabric::create(&FabricConfig::new(1, 8 << 20)).expect("memory");
    let mut group = criterion.benchmark_group("submit");
    for count in [50_u32, 500, 5000] {
        let depth = (count * 2).next_power_of_two();
        let mut submission = Submission::new(&fabric, count, depth);
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_function(BenchmarkId::new("run", count), |bencher| {
            bencher.iter(|| submission.submit());
        });
        let mut floor = RingCopy::new(count, depth);
        group.bench_function(BenchmarkId::new("floor", count), |bencher| bencher.iter(|| floor.turn()));
    }
    group.finish();
}

criterion_group!(benches, submission);
criterion_main!(benches);
