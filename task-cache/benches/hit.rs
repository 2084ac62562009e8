//! A hit: build the key, hash it, find it, compare it in full. Nanoseconds, hot, with few and many entries.

use core::hint::black_box;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use task_cache::{Alias, Determinism, Directory, Facts, Form, Key, Limits};
use wire::launch::{Algorithm, Staging};
use wire::{DataType, ReduceOp};

fn facts(count: u64) -> Facts {
    Facts {
        instance: [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210],
        epoch: 1,
        op: wire::launch::OpKind::AllReduce,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        algorithm: Algorithm::Ring,
        staging: Staging::Scratch,
        alias: Alias::InPlace,
        form: Form::Exact(count),
        rank: 3,
        ranks: 8,
        root: 0,
        levels: [0; 4],
        chunk: 0,
        piece: 0,
        scratch_len: 200 << 20,
        topology: 0x5bd1_e995_0ecd_1f2b,
        context: 0x4_0000_0000,
        threads: 8,
        determinism: Determinism::On,
        features: 3,
    }
}

/// Fills a directory with the counts below `entries`.
fn filled<const SLOTS: usize>(entries: u64) -> Box<Directory<u64, SLOTS>> {
    let mut directory = Box::new(Directory::new());
    let limits = Limits { units: entries, quota_units: entries, quota_slots: entries, evict: true };
    directory.set_limits(limits);
    for count in 0..entries {
        let id = directory.begin(&Key::new(&facts(count)), 1, &mut |_| ()).expect("there is room");
        directory.verify(id).expect("it is being built");
        directory.publish(id, count).expect("it is verified");
    }
    directory
}

/// As many entries as the kernel has, another one each time; beside the comparison of two keys' bytes.
fn hit(criterion: &mut Criterion) {
    const ENTRIES: u64 = 256;
    let mut group = criterion.benchmark_group("key");
    let mut directory = filled::<256>(ENTRIES);
    let all: Vec<Facts> = (0..ENTRIES).map(|step| facts(step * 37 % ENTRIES)).collect();
    let mut step = 0;
    group.bench_function("run", |bencher| {
        bencher.iter(|| {
            step = if step + 1 == all.len() { 0 } else { step + 1 };
            directory.lookup(&Key::new(black_box(&all[step]))).expect("it is there")
        });
    });
    let (one, other) = ([1_u8; size_of::<Key>()], [1_u8; size_of::<Key>()]);
    group.bench_function("floor", |bencher| bencher.iter(|| black_box(&one) == black_box(&other)));
    group.finish();
}

/// What a hit consists of, and how it depends on the number of entries.
fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parts");
    group.bench_function("build+hash", |bencher| {
        let facts = facts(4096);
        bencher.iter(|| Key::new(black_box(&facts)).hash());
    });
    for entries in [64, 1024] {
        let mut directory = filled::<1024>(entries);
        let same = facts(entries / 2);
        group.bench_function(BenchmarkId::new("same", entries), |bencher| {
            bencher.iter(|| directory.lookup(&Key::new(black_box(&same))));
        });
    }
    group.finish();
}

criterion_group!(benches, hit, parts);
criterion_main!(benches);
