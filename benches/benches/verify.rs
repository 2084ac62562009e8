//! Proofs of an all-reduce over all ranks, the operation behind itself, beside copying its tasks that often; and what a
//! kernel checks of the tasks of one rank, beside copying those: of each the structural part, once a graph all it can.

use core::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use graph_verifier::{Checked, Labelled, Lengths, Structure, verify};
use host_launcher::communicator::Operation;
use host_launcher::prove::Case;
use task_graph::{Caps, Rank, Task, TaskSink, ThreadId};
use templates::Needs;
use wire::launch::Algorithm;
use wire::npu::Protocol;
use wire::{ErrorCode, Phase};

/// An all-reduce of 1 MiB of fp32 in scratch.
fn case(algorithm: Algorithm, ranks: u32) -> Case {
    let operation = Operation { count: 1 << 18, algorithm, ..Operation::default() };
    let threads = Needs::of(algorithm, ranks).threads;
    Case { operation, ranks, scratch_len: 200 << 20, threads, inline_reduce: true, in_place: false }
}

const CASES: [(Algorithm, u32); 4] =
    [(Algorithm::Ring, 8), (Algorithm::MeshTwoShot, 8), (Algorithm::Ring, 64), (Algorithm::MeshTwoShot, 64)];

fn proofs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("verify");
    group.sample_size(10);
    for (algorithm, ranks) in CASES {
        let case = case(algorithm, ranks);
        let operation = case.graph(&Protocol::Hccs).expect("has a plan");
        let machine = case.machine(&Protocol::Hccs);
        let name = format!("{algorithm}-{ranks}");
        group.throughput(Throughput::Elements(operation.tasks() as u64));
        group.bench_function(BenchmarkId::new("run", &name), |bencher| {
            bencher.iter(|| verify(&machine, &[&operation, &operation]).expect("sound"));
        });
        group.bench_function(BenchmarkId::new("floor", &name), |bencher| {
            bencher.iter(|| {
                for rank in operation.ranks.iter().chain(&operation.ranks) {
                    black_box(black_box(&rank.tasks).clone());
                }
            });
        });
    }
    group.finish();
}

fn structure(criterion: &mut Criterion) {
    for part in ["structure", "local"] {
        let mut group = criterion.benchmark_group(format!("verify-{part}"));
        for (algorithm, ranks) in CASES {
            let case = case(algorithm, ranks);
            let needs = Needs::of(algorithm, ranks);
            let operation = case.graph(&Protocol::Hccs).expect("has a plan");
            let tasks = &operation.ranks[0].tasks;
            let lengths = [1 << 20, 1 << 20, case.scratch_len];
            let structure = Structure {
                rank: 0,
                ranks,
                threads: needs.threads,
                main_notifies: needs.main_notifies,
                sub_notifies: needs.sub_notifies,
                element: 4,
                in_place: None,
                extents: Lengths::new(lengths, lengths),
            };
            let name = format!("{algorithm}-{ranks}");
            group.throughput(Throughput::Elements(tasks.len() as u64));
            group.bench_function(BenchmarkId::new("run", &name), |bencher| {
                let check = |labelled: &Labelled| structure.check(labelled.thread, &labelled.task);
                if part == "structure" {
                    bencher.iter(|| black_box(tasks).iter().try_for_each(check).expect("sound"));
                } else {
                    bencher.iter(|| {
                        let mut nothing = Nothing;
                        let mut checked = Checked::new(&structure, &mut nothing);
                        let mut put = |own: &Labelled| checked.task(own.thread, &own.task);
                        black_box(tasks).iter().try_for_each(&mut put).expect("sound");
                        checked.finish().expect("sound");
                    });
                }
            });
            group.bench_function(BenchmarkId::new("floor", &name), |bencher| {
                let mut copy = tasks.clone();
                bencher.iter(|| copy.copy_from_slice(black_box(tasks)));
            });
        }
        group.finish();
    }
}

/// A sink that a kernel's recorder would be behind.
struct Nothing;

impl TaskSink for Nothing {
    fn caps(&self, _peer: Rank) -> Caps {
        Caps { reduce_types: u32::MAX, reduce_ops: u32::MAX, write_notify: true }
    }

    fn mark(&mut self, _phase: Phase, _step: u16) {}

    fn task(&mut self, _thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        black_box(task);
        Ok(())
    }
}

criterion_group!(benches, proofs, structure);
criterion_main!(benches);
