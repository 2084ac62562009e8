//! A whole all-reduce of eight ranks through launcher, kernels, rings and device model, beside the direct one.

use core::time::Duration;
use std::time::Instant;

use aicpu_benches::floors;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Communicator, Config, Operation, Place};
use host_launcher::rank_table::RankTable;
use host_launcher::select::{Question, choose};
use host_launcher::settings::Settings;
use host_launcher::topology::Topology;
use wire::launch::OpKind;
use wire::{DataType, ReduceOp};

const RANKS: u32 = 8;

fn all_reduce(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("allreduce");
    group.sample_size(20).measurement_time(Duration::from_secs(3));
    for bytes in [8_u64, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20] {
        let topology = Topology::new(&RankTable::uniform(RANKS, RANKS).expect("a legal number"));
        let question = Question {
            op: OpKind::AllReduce,
            count: bytes / 4,
            dtype: DataType::Fp32,
            reduce: ReduceOp::Sum,
            ..Question::default()
        };
        let settings = Settings::from_env([]).expect("defaults");
        let choice = choose(&question, &topology, &settings).expect("an algorithm");
        let operation = Operation {
            op: question.op,
            count: question.count,
            dtype: question.dtype,
            reduce: question.reduce,
            algorithm: choice.algorithm,
            levels: choice.levels,
            staging: choice.staging,
            ..Operation::default()
        };
        let cluster = Cluster::start(topology, 2 * bytes + (8 << 20), &Aicpu::Thread).expect("a cluster");
        let mut comm = Communicator::create(&cluster, Config::default()).expect("a communicator");
        let input = SharedBuffer::new(&cluster, bytes).expect("memory");
        let output = SharedBuffer::new(&cluster, bytes).expect("memory");
        let mut once = || {
            let at = |buffer| Place { buffer, offset: 0 };
            comm.launch_all(&operation, at(&input), at(&output)).expect("launches");
            comm.synchronize().expect("completes");
        };
        once();
        group.bench_function(BenchmarkId::new("run", bytes), |bencher| {
            bencher.iter_custom(|iterations| {
                let start = Instant::now();
                (0..iterations).for_each(|_| once());
                start.elapsed()
            });
        });
        group.bench_function(BenchmarkId::new("floor", bytes), |bencher| {
            let bytes = usize::try_from(bytes).expect("fits");
            bencher.iter_custom(|iterations| floors::direct_all_reduce(RANKS as usize, bytes, iterations));
        });
    }
    group.finish();
}

criterion_group!(benches, all_reduce);
criterion_main!(benches);
