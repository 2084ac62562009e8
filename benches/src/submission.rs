//! A recorded graph on its way into a ring that this core owns, with a device that consumes at once.

use core::sync::atomic::Ordering;

use device_model::fabric::Fabric;
use device_model::platform::ModelPlatform;
use hal::Rebase;
use ring::SubmissionRing;
use task_graph::{
    Bindings, Bound, LaunchBase, PackedGraph, Page, Pages, Recorder, RegionId, RegionKind, Span, Task,
    TaskSink, ThreadId, Vectors,
};
use wire::launch::Algorithm;
use wire::{DeviceAddr, npu};

use crate::{Graph, Tables, graph, pages};

/// Every region somewhere else, and all of them at another place in each launch.
struct Everywhere {
    shift: u64,
}

impl Bindings for Everywhere {
    fn bound(&self, region: RegionId) -> Option<Bound> {
        let peer = region.peer().map_or(0, |peer| u64::from(peer) + 1);
        let addr = DeviceAddr(0x7000_0000 * (peer * 3 + region.kind() as u64 + 1) + self.shift);
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
            let region = RegionId::of_peer(peer, RegionKind::Scratch);
            Task::Write { peer, dst: Span { region, ..src }, src, reduction: None, notify: None }
        };
        recorder.task(ThreadId::MAIN, &task).expect("fits");
    }
    graph
}

/// A packed graph, the addition vectors of its launch, and the ring it goes into.
#[derive(Debug)]
pub struct Submission {
    platform: ModelPlatform,
    fabric: Fabric,
    ring: SubmissionRing,
    pages: Pages<Box<[Page]>>,
    graph: PackedGraph,
    vectors: Vectors,
    launches: u32,
}

impl Submission {
    /// Records `count` descriptors, for a ring of `depth` in the first window of `fabric`.
    ///
    /// # Panics
    /// When graph or pages are too small.
    #[must_use]
    pub fn new(fabric: &Fabric, count: u32, depth: u32) -> Self {
        let base = fabric.window(0).base();
        let mut pages = pages();
        let graph = pages.pack(&record(count)).expect("fits");
        let mut submission = Self {
            platform: ModelPlatform::new(fabric, 0),
            ring: SubmissionRing::new(0, DeviceAddr(base.0 + npu::HEAP), depth),
            fabric: fabric.clone(),
            pages,
            graph,
            vectors: Vectors::new(),
            launches: 0,
        };
        submission.bind();
        submission
    }

    /// Binds the graph to another launch: new addresses, new task ids.
    ///
    /// # Panics
    /// Never: everything is bound.
    #[inline]
    pub fn bind(&mut self) {
        self.launches = self.launches.wrapping_add(1);
        let base = LaunchBase {
            task: u64::from(self.launches) << 32,
            timeout_ms: 1000,
            start_notify: 0,
            done_notify: 0,
            next_notify: 0,
        };
        let bindings = Everywhere { shift: u64::from(self.launches % 1024) * 512 };
        let bound = self.pages.bind(&self.graph, &bindings, &base, 0, |_| 0, &mut self.vectors);
        bound.expect("everything is bound");
    }

    /// Submits the whole graph and announces it; the device's head follows at once.
    ///
    /// # Panics
    /// When the ring is smaller than the graph.
    #[inline]
    pub fn submit(&mut self) {
        let (pages, bases) = (&self.pages, self.vectors.bases());
        let mut cursor = pages.queues(&self.graph).next().expect("one queue").cursor;
        while cursor.left() > 0 {
            let written = self.ring.fill(&mut self.platform, cursor.left(), |slots| {
                pages.take(&mut cursor, slots, |into, run| {
                    ModelPlatform::rebase(into, run.entries, run.patterns, bases);
                })
            });
            assert!(written.expect("in the window") > 0, "the ring holds it");
        }
        self.ring.announce(&mut self.platform).expect("in the window");
        consume(&self.fabric, 0);
    }
}

/// Plays a device that has consumed everything announced on a queue.
#[inline]
pub(crate) fn consume(fabric: &Fabric, queue: u16) {
    let word = |table: u64| fabric.window(0).half(table + 8 * u64::from(queue));
    let tail = word(npu::DOORBELLS).load(Ordering::Acquire);
    word(npu::HEADS).store(tail, Ordering::Release);
}
