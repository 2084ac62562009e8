//! What the benches share: a context without a device, a rank with a played one, and the physical floors.

pub mod collective;
pub mod floors;
pub mod rank;
pub mod submission;

use device_model::fabric::BASE_STEP;
use task_graph::{Block, Page, Pages, Recorder, Resources, TaskGraph};
use templates::{Needs, Plan, Shape};
use wire::context::{ChannelEntry, Context, ContextHeader, RegionEntry, ThreadEntry};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::{DEFAULT_DEPTH, sdma};
use wire::{DESCRIPTOR_BYTES, DataType, ReduceOp};

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
}

impl Tables {
    /// Makes the tables of rank 0 of `ranks` for an algorithm with all threads it can use.
    #[must_use]
    pub fn new(algorithm: Algorithm, ranks: u32) -> Self {
        let needs = Needs::of(algorithm, ranks);
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

    /// Returns an all-reduce of 1 MiB of fp32 by `algorithm`, in scratch, on one of these ranks.
    ///
    /// # Panics
    /// When there is no plan for it.
    #[must_use]
    pub fn plan(&self, algorithm: Algorithm) -> Plan {
        let shape = Shape {
            op: OpKind::AllReduce,
            algorithm,
            levels: [None; 4],
            staging: Staging::Scratch,
            rank: 0,
            ranks: self.header.ranks,
            root: 0,
            count: 1 << 18,
            dtype: DataType::Fp32,
            reduce: ReduceOp::Sum,
            scratch_len: 200 << 20,
            threads: u16::try_from(self.threads.len()).expect("few threads"),
            inline_reduce: true,
            in_place: false,
            chunk: 0,
            piece: 0,
        };
        Plan::new(&shape, &templates::Tables::default()).expect("has a plan")
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
/// # Panics
/// When the graph is too small.
pub fn expand(plan: &Plan, tables: &Tables, graph: &mut Graph) {
    graph.clear();
    let mut recorder = Recorder::new(graph, tables.resources());
    for chunk in 0..plan.chunks() {
        plan.emit(chunk, &templates::Tables::default(), &mut recorder).expect("fits");
    }
}
