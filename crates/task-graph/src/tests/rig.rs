//! A context with a link of each kind, and a graph to record into.

use std::boxed::Box;
use std::vec::Vec;

use wire::context::{ChannelEntry, Context, ContextHeader, RegionEntry, ThreadEntry};
use wire::npu::{Protocol, roce, sdma, ub};
use wire::{DataType, Descriptor, DeviceAddr, ReduceOp, Reduction};

use crate::{
    BLOCK_ENTRIES, Bindings, Block, Bound, LaunchBase, PackedGraph, Page, Pages, Pattern, QueueIndex,
    Recorder, RegionId, RegionKind, Resources, Span, Task, TaskGraph, TaskSink, ThreadId, Vectors,
};

/// This rank; the others are reached over HCCS (0), RoCE (2) and UB (3).
pub(super) const RANK: u32 = 1;
pub(super) const THREADS: u16 = 3;
pub(super) const HCCS: u32 = 0;
pub(super) const ROCE: u32 = 2;
pub(super) const UB: u32 = 3;
/// The graph queue of a queue pair: behind the threads, in the order of the channels.
pub(super) const ROCE_QUEUE: QueueIndex = QueueIndex(THREADS + 1);
pub(super) const UB_QUEUE: QueueIndex = QueueIndex(THREADS + 2);

pub(super) const SUM: Option<Reduction> = Some(Reduction { dtype: DataType::Fp32, op: ReduceOp::Sum });

/// The tables of a context.
pub(super) struct Tables {
    header: ContextHeader,
    threads: Vec<ThreadEntry>,
    regions: Vec<RegionEntry>,
    channels: Vec<ChannelEntry>,
}

impl Tables {
    pub(super) fn new() -> Self {
        let header = ContextHeader {
            rank: RANK,
            ranks: 4,
            sdma_max_len: sdma::MAX_LEN,
            sdma_reduce_types: sdma::REDUCE_TYPES,
            sdma_reduce_ops: sdma::REDUCE_OPS,
            ..ContextHeader::default()
        };
        let thread = |index: u16| ThreadEntry {
            queue: index,
            notify_base: 10 * u32::from(index),
            notify_count: 6,
            ..ThreadEntry::default()
        };
        let links = [
            (HCCS, Protocol::Hccs, sdma::MAX_LEN, sdma::REDUCE_TYPES),
            (ROCE, Protocol::Roce, roce::MAX_LEN, roce::REDUCE_TYPES),
            (UB, Protocol::Ub, ub::MAX_LEN, ub::REDUCE_TYPES),
        ];
        let channel = |(peer, protocol, max_len, reduce_types)| ChannelEntry {
            peer,
            index: 50 + u16::try_from(peer).expect("small"),
            protocol: protocol as u8,
            local_notify: 100 + 10 * peer,
            remote_notify: 200 + 10 * peer,
            reduce_types,
            reduce_ops: sdma::REDUCE_OPS,
            max_len,
            ..ChannelEntry::default()
        };
        Self {
            header,
            threads: (0..THREADS).map(thread).collect(),
            regions: Vec::new(),
            channels: links.into_iter().map(channel).collect(),
        }
    }

    pub(super) fn resources(&self) -> Resources<'_> {
        let Self { header, threads, regions, channels } = self;
        Resources::new(Context { header, threads, regions, channels }).expect("fits")
    }
}

pub(super) type Graph = TaskGraph<Box<[Block]>>;

pub(super) fn graph(blocks: usize) -> Graph {
    TaskGraph::new(std::vec![Block::EMPTY; blocks].into_boxed_slice())
}

/// Records tasks at phase run, step 7.
pub(super) fn record(graph: &mut Graph, tasks: &[(u16, Task)]) -> Result<(), wire::ErrorCode> {
    let tables = Tables::new();
    let mut recorder = Recorder::new(graph, tables.resources());
    recorder.mark(wire::Phase::Run, 7);
    tasks.iter().try_for_each(|(thread, task)| recorder.task(ThreadId(*thread), task))
}

/// Everything in a queue: descriptors and their patterns.
pub(super) fn contents(graph: &Graph, queue: QueueIndex) -> Vec<(Descriptor, Pattern)> {
    let mut cursor = graph.cursor(queue);
    let mut seen = Vec::new();
    while cursor.left() > 0 {
        let run = graph.run(&cursor, u32::MAX);
        assert!(!run.entries.is_empty() && run.entries.len() <= BLOCK_ENTRIES);
        for (entry, pattern) in run.entries.iter().zip(run.patterns) {
            seen.push((*entry, graph.patterns.get(*pattern).expect("interned")));
        }
        graph.advance(&mut cursor, u32::try_from(run.entries.len()).expect("small"));
    }
    assert_eq!(seen.len(), graph.queue_len(queue) as usize);
    seen
}

/// A packed copy of a graph, in a pool of its own.
pub(super) struct Packed {
    pub(super) pages: Pages<Box<[Page]>>,
    pub(super) graph: PackedGraph,
}

pub(super) fn pack(graph: &Graph) -> Packed {
    let mut pages = Pages::new(std::vec![Page::EMPTY; 400].into_boxed_slice());
    let graph = pages.pack(graph).expect("fits");
    Packed { pages, graph }
}

impl Packed {
    pub(super) fn bind(
        &self,
        places: &Places,
        base: &LaunchBase,
        wqe_tail: impl Fn(QueueIndex) -> u32,
        vectors: &mut Vectors,
    ) -> Result<(), crate::Unbound> {
        self.pages.bind(&self.graph, places, base, 0, wqe_tail, vectors)
    }

    /// Everything in a queue, with a launch's bases added.
    pub(super) fn rebased(&self, queue: QueueIndex, vectors: &Vectors) -> Vec<Descriptor> {
        let mut seen = Vec::new();
        for run in self.pages.queues(&self.graph).filter(|run| run.queue == queue) {
            let mut cursor = run.cursor;
            while cursor.left() > 0 {
                // Pieces that end nowhere in particular.
                let mut into = [Descriptor::default(); 5];
                let taken = self.pages.take(&mut cursor, &mut into, |into, run| {
                    wire::rebase(into, run.entries, run.patterns, vectors.bases());
                });
                seen.extend_from_slice(&into[..taken]);
            }
        }
        seen
    }
}

pub(super) fn span(region: RegionId, offset: u64, len: u64) -> Span {
    Span { region, offset, len }
}

pub(super) fn peer(rank: u32, offset: u64, len: u64) -> Span {
    span(RegionId::of_peer(rank, RegionKind::Scratch), offset, len)
}

/// Bindings with a different place and token for every region.
pub(super) struct Places {
    pub(super) len: u64,
    pub(super) missing: Option<RegionId>,
}

impl Places {
    pub(super) fn place(region: RegionId) -> Bound {
        let number = region.number() + 1;
        let token = u32::try_from(number).expect("small") * 1000;
        Bound { addr: DeviceAddr(number << 40 | 0x1230), len: 0, token }
    }
}

impl Bindings for Places {
    fn bound(&self, region: RegionId) -> Option<Bound> {
        (self.missing != Some(region)).then(|| Bound { len: self.len, ..Self::place(region) })
    }
}

pub(super) const BASE: LaunchBase =
    LaunchBase { task: 77 << 32 | 4000, timeout_ms: 1234, start_notify: 8, done_notify: 6, next_notify: 9 };

/// Ring positions of the queue pairs before the graph, one near the wrap.
pub(super) fn wqe_tail(queue: QueueIndex) -> u32 {
    if queue == ROCE_QUEUE { u32::MAX - 2 } else { 500 }
}
