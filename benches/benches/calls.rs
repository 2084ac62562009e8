//! Calls of the data plane: nanoseconds per task that the sink adds, beside making the same calls.

use core::ffi::CStr;
use core::hint::black_box;

use aicpu_benches::Tables;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hcomm_sink::{
    Call, CallSink, ChannelHandle, DataPlane, Handles, LaunchTime, ThreadHandle, Traits, Transfer,
};
use task_graph::{Bindings, Bound, Caps, Rank, RegionId, RegionKind, Task, TaskSink, ThreadId};
use wire::launch::Algorithm;
use wire::{DeviceAddr, ErrorCode, Phase};

/// A library that does nothing: a function behind a pointer, as every call of a loaded library is.
struct Nothing {
    function: fn(u64, u64, u64, u64, u64) -> i32,
}

#[inline(never)]
fn nothing(a: u64, b: u64, c: u64, d: u64, e: u64) -> i32 {
    black_box((a, b, c, d, e));
    0
}

impl DataPlane for Nothing {
    #[inline(always)]
    fn call(&mut self, call: &Call<'_>) -> i32 {
        let function = self.function;
        match *call {
            Call::Local { thread, transfer: Transfer { dst, src, len, .. } } => {
                function(thread.0, 0, dst.0, src.0, len)
            }
            Call::Write { thread, channel, transfer: Transfer { dst, src, len, .. }, .. }
            | Call::Read { thread, channel, transfer: Transfer { dst, src, len, .. } } => {
                function(thread.0, channel.0, dst.0, src.0, len)
            }
            Call::ThreadRecord { thread, waiter, index } => {
                function(thread.0, waiter.0, u64::from(index), 0, 0)
            }
            Call::ThreadWait { thread, index, timeout } => {
                function(thread.0, 0, u64::from(index), u64::from(timeout), 0)
            }
            Call::ChannelRecord { thread, channel, index } => {
                function(thread.0, channel.0, u64::from(index), 0, 0)
            }
            Call::ChannelWait { thread, channel, index, timeout } => {
                function(thread.0, channel.0, u64::from(index), u64::from(timeout), 0)
            }
            _ => 0,
        }
    }

    fn has_cache(&self) -> bool {
        false
    }

    fn cache_lookup(&mut self, _tag: &CStr) -> Result<bool, i32> {
        Ok(false)
    }
}

/// Buffers of one size, everywhere.
struct Everywhere;

impl Bindings for Everywhere {
    #[inline]
    fn bound(&self, region: RegionId) -> Option<Bound> {
        let base = match region.kind() {
            RegionKind::Input => 1 << 40,
            RegionKind::Output => 2 << 40,
            RegionKind::Scratch => 3 << 40,
        };
        let rank = region.peer().map_or(0, u64::from);
        Some(Bound { addr: DeviceAddr(base + (rank << 32)), len: 1 << 32, token: 1 })
    }
}

/// Collects tasks.
struct Tasks(Vec<(ThreadId, Task)>);

impl TaskSink for Tasks {
    fn caps(&self, _peer: Rank) -> Caps {
        Caps { reduce_types: u32::MAX, reduce_ops: u32::MAX, write_notify: true }
    }

    fn mark(&mut self, _phase: Phase, _step: u16) {}

    fn task(&mut self, thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        self.0.push((thread, *task));
        Ok(())
    }
}

fn calls(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("calls");
    for algorithm in [Algorithm::Ring, Algorithm::MeshTwoShot] {
        for ranks in [8, 64] {
            let tables = Tables::new(algorithm, ranks);
            let mut tasks = Tasks(Vec::new());
            tables.plan(algorithm).emit(0, &tables.groups(), &mut tasks).expect("tasks are collected");
            let tasks = tasks.0;
            let name = format!("{algorithm}-{ranks}");
            let (threads, channels) = ([7_u64; 128], [9_u64; 128]);
            let count = |used: u32| usize::try_from(used).expect("few");
            let handles = Handles {
                threads: &threads[..tables.threads()],
                channels: &channels[..count(ranks) - 1],
                host: 1,
            };
            let time = LaunchTime { timeout: 30, start: 0, done: 0, next: None };
            let traits = Traits { reduces_all: true, needs_fences: false };
            let mut plane = Nothing { function: black_box(nothing) };
            group.throughput(Throughput::Elements(tasks.len() as u64));
            group.bench_function(BenchmarkId::new("run", &name), |bencher| {
                bencher.iter(|| {
                    let resources = tables.resources();
                    let mut sink = CallSink::new(&mut plane, resources, &Everywhere, handles, time, traits);
                    for (thread, task) in black_box(&tasks) {
                        sink.task(*thread, task).expect("nothing fails");
                    }
                });
            });
            // The same calls, with everything known.
            let mut plane = Nothing { function: black_box(nothing) };
            let (thread, channel) = (ThreadHandle(7), ChannelHandle(9));
            let transfer = Transfer { dst: DeviceAddr(1), src: DeviceAddr(2), len: 3, reduction: None };
            let known: Vec<Call<'static>> = tasks
                .iter()
                .map(|(_, task)| match task {
                    Task::LocalCopy { .. } | Task::LocalReduce { .. } => Call::Local { thread, transfer },
                    Task::Write { .. } => Call::Write { thread, channel, transfer, notify: Some(1) },
                    Task::Read { .. } => Call::Read { thread, channel, transfer },
                    Task::ThreadRecord { .. } => Call::ThreadRecord { thread, waiter: thread, index: 1 },
                    Task::ChannelRecord { .. } => Call::ChannelRecord { thread, channel, index: 1 },
                    Task::ChannelWait { .. } => Call::ChannelWait { thread, channel, index: 1, timeout: 30 },
                    _ => Call::ThreadWait { thread, index: 1, timeout: 30 },
                })
                .collect();
            group.bench_function(BenchmarkId::new("floor", &name), |bencher| {
                bencher.iter(|| {
                    for call in black_box(&known) {
                        black_box(plane.call(call));
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, calls);
criterion_main!(benches);
