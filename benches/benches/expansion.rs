//! Expansion: nanoseconds per descriptor, recorded into a warm graph, beside copying the same bytes. Every algorithm with
//! 8 and 64 ranks, and NHR with 1,024.

use core::hint::black_box;
use core::time::Duration;

use aicpu_benches::{Graph, Large, Tables, expand, graph};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wire::ErrorCode;
use wire::launch::Algorithm;

fn expansion(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("expansion");
    group.sample_size(50);
    group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
    let built_in = Algorithm::ALL.iter().filter(|algorithm| **algorithm != Algorithm::File);
    for (algorithm, ranks) in built_in.flat_map(|algorithm| [(*algorithm, 8), (*algorithm, 64)]) {
        let tables = Tables::new(algorithm, ranks);
        let plan = tables.plan(algorithm);
        measure(&mut group, (algorithm, ranks), |graph| expand(black_box(&plan), &tables, graph));
    }
    let large = Large::new(Algorithm::Nhr, 1024);
    measure(&mut group, (Algorithm::Nhr, 1024), |graph| black_box(&large).expand(graph));
    group.finish();
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    (algorithm, ranks): (Algorithm, u32),
    expand: impl Fn(&mut Graph) -> Result<(), ErrorCode>,
) {
    let mut graph = graph();
    if let Err(code) = expand(&mut graph) {
        // Nor could a kernel, which has as much room; such algorithms are not selected there.
        eprintln!("expansion of {algorithm} with {ranks} ranks: {code}");
        return;
    }
    let descriptors = graph.len();
    group.throughput(Throughput::Elements(u64::from(descriptors)));
    let name = format!("{algorithm}-{ranks}");
    group.bench_function(BenchmarkId::new("run", &name), |bencher| bencher.iter(|| expand(&mut graph)));
    let source = vec![1_u8; descriptors as usize * 64];
    let mut target = vec![0_u8; source.len()];
    group.bench_function(BenchmarkId::new("floor", &name), |bencher| {
        bencher.iter(|| target.copy_from_slice(black_box(&source)));
    });
}

criterion_group!(benches, expansion);
criterion_main!(benches);
