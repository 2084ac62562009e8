//! What the benches share: a context without a device, a rank with a played one, and the physical floors.

pub mod collective;
pub mod floors;
pub mod neighbours;
pub mod rank;
pub mod submission;

use crate::neighbours::{Acquaintance, Neighbours};
use device_model::fabric::BASE_STEP;
use task_graph::{Block, Page, Pages, Rank, Recorder, Resources, TaskGraph};
use templates::{Plan, Shape};
use wire::context::{ChannelEntry, Context, ContextHeader, RegionEntry, ThreadEntry};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::{DEFAULT_DEPTH, sdma};
use wire::{DESCRIPTOR_BYTES, DataType, ErrorCode, ReduceOp};

/// A graph on the heap.
pub type Graph = TaskGraph<Box<[Block]>>;

/// Where the rings of the tables lie: in the first window of a fabric, with room for a context before them.
const RINGS: u64 = BASE_STEP + 0x10_0000;

/// The tables of one rank of one server, as the launcher would write them.
#[derive(Debug)]
pub struct Tables {
    header: ContextHeader,
    threads: Vec<ThreadEntry>,
    regions: Vec<RegionEntry>,
    channels: Vec<ChannelEntry>,
    /// First ranks of the servers and super pods, of algorithms that have levels.
    starts: [Vec<u32>; 2],
}

impl Tables {
    /// Makes the tables of rank 0 of `ranks` for an algorithm with all threads it can use. One that has levels gets servers
    /// of half the ranks, at most eight, two of which are a super pod; every link is one inside a server all the same.
    #[must_use]
    pub fn new(algorithm: Algorithm, ranks: u32) -> Self {
        let step = (ranks / 2).clamp(1, 8);
        let every = |step: u32| (0..ranks).step_by(step as usize).collect();
        let starts = match algorithm {
            Algorithm::TwoLevel | Algorithm::Pipeline | Algorithm::Ahc => [every(step), Vec::new()],
            Algorithm::ThreeLevel => [every(step), every(2 * step)],
            _ => [Vec::new(), Vec::new()],
        };
        let needs = shape(algorithm, ranks).needs(&groups(&starts));
        // Behind what the main thread synchronizes with lies its start notify.
        let main_notifies = u32::from(needs.main_notifies) + 1;
        let sub_notifies = u32::from(needs.sub_notifies);
        let thread = |queue: u16| ThreadEntry {
            ring: RINGS + u64::from(queue) * u64::from(DEFAULT_DEPTH) * DESCRIPTOR_BYTES as u64,
            depth: DEFAULT_DEPTH,
            queue,
            notify_base: if queue == 0 { 0 } else { main_notifies + sub_notifies * (u32::from(queue) - 1) },
            notify_count: if queue == 0 { main_notifies } else { sub_notifies },
            ..ThreadEntry::default()
        };
        let region = |rank: u32| RegionEntry {
            addr: 0x1000_0000 * u64::from(rank + 1),
            len: 200 << 20,
            token: rank + 1,
            generation: 1,
            rank,
            server: 0,
            pod: 0,
        };
        let channel = |peer: u32| ChannelEntry {
            peer,
            index: u16::try_from(peer).expect("few ranks"),
            local_notify: 4096 + 3 * peer,
            remote_notify: 4096 + 3 * peer,
            reduce_types: sdma::REDUCE_TYPES,
            reduce_ops: sdma::REDUCE_OPS,
            max_len: sdma::MAX_LEN,
            ..ChannelEntry::default()
        };
        Self {
            header: ContextHeader {
                instance: [1, 2],
                ranks,
                sdma_max_len: sdma::MAX_LEN,
                sdma_reduce_types: sdma::REDUCE_TYPES,
                sdma_reduce_ops: sdma::REDUCE_OPS,
                link_reduce_types: sdma::REDUCE_TYPES,
                link_reduce_ops: sdma::REDUCE_OPS,
                ..ContextHeader::default()
            },
            threads: (0..needs.threads).map(thread).collect(),
            regions: (0..ranks).map(region).collect(),
            channels: (1..ranks).map(channel).collect(),
            starts,
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            header: &self.header,
            threads: &self.threads,
            regions: &self.regions,
            channels: &self.channels,
        }
    }

    /// Returns the tables as the kernel sees them.
    ///
    /// # Panics
    /// When there are more queues than a graph has.
    #[must_use]
    pub fn resources(&self) -> Resources<'_> {
        Resources::new(self.context()).expect("few queues")
    }

    /// Returns the number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Returns the tables as the bytes in device memory that the kernel decodes.
    fn encode(&self) -> Vec<u8> {
        let len = Context::encoded_len(self.threads.len(), self.regions.len(), self.channels.len());
        let mut bytes = vec![0; len];
        self.context().encode(&mut bytes).expect("the buffer has the size asked for");
        bytes
    }

    /// Returns the servers and super pods.
    #[must_use]
    pub fn groups(&self) -> templates::Tables<'_> {
        groups(&self.starts)
    }

    /// Returns what `algorithm` does of 1 MiB of fp32 in scratch on one of these ranks: an all-reduce, or an all-to-all
    /// where it is for that.
    ///
    /// # Panics
    /// When there is no plan for it.
    #[must_use]
    pub fn plan(&self, algorithm: Algorithm) -> Plan {
        let threads = u16::try_from(self.threads.len()).expect("few threads");
        let shape = Shape { threads, ..shape(algorithm, self.header.ranks) };
        Plan::new(&shape, &self.groups()).expect("has a plan")
    }
}

fn groups([servers, pods]: &[Vec<u32>; 2]) -> templates::Tables<'_> {
    templates::Tables { servers, pods, ..templates::Tables::default() }
}

fn shape(algorithm: Algorithm, ranks: u32) -> Shape {
    let (op, count) = match algorithm {
        Algorithm::Pairwise => (OpKind::AllToAll, (1 << 18) / u64::from(ranks)),
        _ => (OpKind::AllReduce, 1 << 18),
    };
    Shape {
        op,
        algorithm,
        levels: [None; 4],
        staging: Staging::Scratch,
        rank: 0,
        ranks,
        root: 0,
        count,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        scratch_len: 200 << 20,
        threads: 1,
        inline_reduce: true,
        in_place: false,
        chunk: 0,
        piece: 0,
    }
}

/// Returns an empty graph with room for 16,384 descriptors.
#[must_use]
pub fn graph() -> Graph {
    TaskGraph::new(vec![Block::EMPTY; 512].into_boxed_slice())
}

/// Returns an empty pool with room for a packed graph of the same size.
#[must_use]
pub fn pages() -> Pages<Box<[Page]>> {
    Pages::new(vec![Page::EMPTY; aicpu_kernel::LARGEST_GRAPH_PAGES].into_boxed_slice())
}

/// Expands all chunks of a plan into an emptied graph.
///
/// # Errors
/// `GRAPH_FULL` when it is too small.
///
/// # Panics
/// When there are more queues than a graph has.
pub fn expand(plan: &Plan, tables: &Tables, graph: &mut Graph) -> Result<(), ErrorCode> {
    graph.clear();
    let mut recorder = Recorder::new(graph, tables.resources());
    (0..plan.chunks()).try_for_each(|chunk| plan.emit(chunk, &tables.groups(), &mut recorder))
}

/// An expansion with more ranks than a context holds: the ranks that rank 0 deals with have a context to themselves.
#[derive(Debug)]
pub struct Large {
    plan: Plan,
    numbers: Vec<Rank>,
    tables: Tables,
}

impl Large {
    /// Prepares an algorithm.
    ///
    /// # Panics
    /// When rank 0 deals with more ranks than a context holds.
    #[must_use]
    pub fn new(algorithm: Algorithm, ranks: u32) -> Self {
        let plan = Tables::new(algorithm, ranks).plan(algorithm);
        let mut acquaintance = Acquaintance::default();
        plan.emit(0, &templates::Tables::default(), &mut acquaintance).expect("takes everything");
        let mut numbers = vec![0; ranks as usize];
        for (number, peer) in (1..).zip(&acquaintance.peers) {
            numbers[*peer as usize] = number;
        }
        let known = u32::try_from(acquaintance.peers.len() + 1).expect("few ranks");
        Self { plan, numbers, tables: Tables::new(algorithm, known) }
    }

    /// Expands all chunks into an emptied graph.
    ///
    /// # Errors
    /// `GRAPH_FULL` when it is too small.
    pub fn expand(&self, graph: &mut Graph) -> Result<(), ErrorCode> {
        graph.clear();
        let mut sink = Neighbours::new(&self.numbers, Recorder::new(graph, self.tables.resources()));
        (0..self.plan.chunks())
            .try_for_each(|chunk| self.plan.emit(chunk, &templates::Tables::default(), &mut sink))
    }
}
