//! Submission: a recorded graph into a warm ring that this core owns, doorbells included, beside copying the bytes.

use core::hint::black_box;

use aicpu_benches::{Graph, Tables, graph, pages};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use device_model::fabric::{Fabric, FabricConfig};
use device_model::platform::ModelPlatform;
use hal::Platform;
use ring::SubmissionRing;
use task_graph::{
    Bindings, Bound, LaunchBase, PackedGraph, Page, Pages, Recorder, RegionId, Span, Task, TaskSink,
    ThreadId, Vectors,
};
use wire::launch::Algorithm;
use wire::{DeviceAddr, npu};

/// Every region somewhere else.
struct Everywhere;

impl Bindings for Everywhere {
    fn bound(&self, region: RegionId) -> Option<Bound> {
        let peer = region.peer().map_or(0, |peer| u64::from(peer) + 1);
        let addr = DeviceAddr(0x7000_0000 * (peer * 3 + region.kind() as u64 + 1));
        Some(Bound { addr, len: u64::MAX >> 1, token: 77 })
    }
}

/// Records `count` copies and writes that alternate over the regions of eight ranks, on one thread.
fn record(count: u32) -> Graph {
    let tables = Tables::new(Algorithm::Ring, 8);
    let mut graph = graph();
    let mut recorder = Recorder::new(&mut graph, tables.resources());
    for index in 0..count {
        let (offset, len) = (u64::from(index) * 512, 512);
        let src = Span { region: RegionId::INPUT, offset, len };
        let task = if index % 3 == 0 {
            Task::LocalCopy { dst: Span { region: RegionId::OUTPUT, ..src }, src }
        } else {
            let peer = 1 + index % 7;
            let region = RegionId::of_peer(peer, task_graph::RegionKind::Scratch);
            Task::Write { peer, dst: Span { region, ..src }, src, reduction: None, notify: None }
        };
        recorder.task(ThreadId::MAIN, &task).expect("fits");
    }
    graph
}

/// Submits the whole graph and announces it; the device's head follows at once.
fn submit<P: Platform>(
    platform: &mut P,
    ring: &mut SubmissionRing,
    (pages, graph): (&Pages<Box<[Page]>>, &PackedGraph),
    vectors: &Vectors,
) {
    let mut cursor = pages.queues(graph).next().expect("one queue").cursor;
    while cursor.left() > 0 {
        let written = ring.fill(platform, cursor.left(), |slots| {
            pages.take(&mut cursor, slots, |into, run| {
                P::rebase(into, run.entries, run.patterns, vectors.bases())
            })
        });
        assert!(written.expect("in the window") > 0, "the ring holds it");
    }
    ring.announce(platform).expect("in the window");
}

fn submission(criterion: &mut Criterion) {
    let fabric = Fabric::create(&FabricConfig::new(1, 8 << 20)).expect("memory");
    let base = fabric.window(0).base();
    let mut group = criterion.benchmark_group("submit");
    for count in [50_u32, 500, 5000] {
        let mut pages = pages();
        let graph = pages.pack(&record(count)).expect("fits");
        let mut vectors = Vectors::new();
        let launch =
            LaunchBase { task: 1 << 32, timeout_ms: 1000, start_notify: 0, done_notify: 0, next_notify: 0 };
        pages.bind(&graph, &Everywhere, &launch, 0, |_| 0, &mut vectors).expect("everything is bound");
        let depth = (count * 2).next_power_of_two();
        let mut platform = ModelPlatform::new(&fabric, 0);
        let mut ring = SubmissionRing::new(0, DeviceAddr(base.0 + npu::HEAP), depth);
        let head = fabric.window(0).half(npu::HEADS);
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_function(BenchmarkId::new("run", count), |bencher| {
            bencher.iter(|| {
                submit(&mut platform, &mut ring, (&pages, black_box(&graph)), &vectors);
                // The device has consumed everything: what it would have published.
                // The word in shared memory is the low half of the position.
                #[expect(clippy::cast_possible_truncation, reason = "the low half is what is stored")]
                head.store(ring.tail() as u32, core::sync::atomic::Ordering::Release);
            });
        });
        let source = vec![1_u8; count as usize * 64];
        let mut target = vec![0_u8; depth as usize * 64];
        let mut at = 0;
        group.bench_function(BenchmarkId::new("floor", count), |bencher| {
            bencher.iter(|| {
                // The same walk through a ring of the same size.
                let first = source.len().min(target.len() - at);
                let (now, later) = black_box(&source).split_at(first);
                target[at..at + first].copy_from_slice(now);
                target[..later.len()].copy_from_slice(later);
                at = (at + source.len()) % target.len();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, submission);
criterion_main!(benches);
