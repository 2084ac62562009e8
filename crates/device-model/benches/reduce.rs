//! Speed of reductions on warm buffers, beside `memcpy` of the same bytes.

use core::hint::black_box;

use aicpu_device_model::reduce::reduce;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wire::{DataType, ReduceOp};
use zerocopy::IntoBytes;

fn reductions(criterion: &mut Criterion) {
    for bytes in [64 << 10, 1 << 20] {
        let mut group = criterion.benchmark_group(format!("reduce/{}KiB", bytes >> 10));
        group.throughput(Throughput::Bytes(bytes as u64)).sample_size(20);
        let (mut dst, src) = (vec![0u64; bytes / 8], vec![0u64; bytes / 8]);
        group.bench_function("memcpy", |bencher| {
            bencher.iter(|| black_box(&mut dst).copy_from_slice(black_box(&src)));
        });
        for &dtype in DataType::ALL.iter().filter(|dtype| dtype.can_reduce()) {
            for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max] {
                group.bench_function(BenchmarkId::new(dtype.name(), op.name()), |bencher| {
                    bencher.iter(|| reduce(dtype, op, black_box(&mut dst).as_mut_bytes(), src.as_bytes()));
                });
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(core::time::Duration::from_millis(100)).measurement_time(core::time::Duration::from_millis(300));
    targets = reductions
}
criterion_main!(benches);
