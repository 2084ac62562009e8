//! Expansion: nanoseconds per descriptor, recorded into a warm graph, beside copying the same bytes.

use aicpu_benches::{Tables, expand, graph};
use core::hint::black_box;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wire::launch::Algorithm;

fn expansion(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("expansion");
    for algorithm in [Algorithm::Nhr, Algorithm::MeshTwoShot] {
        for ranks in [8, 64] {
            let tables = Tables::new(algorithm, ranks);
            let plan = tables.plan(algorithm);
            let mut graph = graph();
            expand(&plan, &tables, &mut graph);
            let descriptors = graph.len();
            group.throughput(Throughput::Elements(u64::from(descriptors)));
            let name = format!("{algorithm}-{ranks}");
            group.bench_function(BenchmarkId::new("run", &name), |bencher| {
                bencher.iter(|| expand(black_box(&plan), &tables, &mut graph));
            });
            let source = vec![1_u8; descriptors as usize * 64];
            let mut target = vec![0_u8; source.len()];
            group.bench_function(BenchmarkId::new("floor", &name), |bencher| {
                bencher.iter(|| target.copy_from_slice(black_box(&source)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, expansion);
criterion_main!(benches);
