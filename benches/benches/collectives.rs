//! Whole collectives through launcher, kernels, rings and device model, beside the direct ones.

use core::time::Duration;
use std::time::Instant;

use aicpu_benches::collective::Point;
use aicpu_benches::floors::Direct;
use criterion::{BenchmarkId, Criterion, SamplingMode, criterion_group, criterion_main};

fn collectives(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("collectives");
    group.sample_size(12).sampling_mode(SamplingMode::Flat).nresamples(10_000);
    group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(500));
    for point in Point::all() {
        group.bench_function(BenchmarkId::new("run", point), |bencher| {
            point.prepared(None, |once| {
                bencher.iter_custom(|iterations| {
                    let start = Instant::now();
                    (0..iterations).for_each(|_| once());
                    start.elapsed()
                });
            });
        });
        group.bench_function(BenchmarkId::new("floor", point), |bencher| {
            let bytes = usize::try_from(point.bytes).expect("fits");
            let mut direct = Direct::new(point.op, point.ranks as usize, bytes);
            direct.run(1);
            direct.outputs().iter().for_each(|output| point.check(output));
            bencher.iter_custom(|iterations| direct.run(iterations));
        });
    }
    group.finish();
}

criterion_group!(benches, collectives);
criterion_main!(benches);
