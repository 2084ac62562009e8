//! Proofs of expanded operations: the templates' tasks of all ranks, and what they must do, handed to the verifier.
//!
//! The verifier knows no template, and the templates know no verifier; this is where the two meet. Tasks from
//! elsewhere (an algorithm read from a file) become a [`Graph`] of their own and are proved by the same [`verdict`].

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use graph_verifier::{
    Block, Collective, Collector, Counterexample, Goal, Machine, Obligation, Operation as Graph, Order,
    Proof, RankTasks, Request, Rings, Submitter, verify,
};
use task_graph::{Caps, Rank};
use templates::{Plan, Shape, Tables};
use wire::launch::{ElementRange, OpKind};
use wire::npu::{DEFAULT_DEPTH, Protocol, roce, sdma, ub};
use wire::{ErrorCode, Reduction};

use crate::communicator::{self, Operation};
use crate::error::{Error, Result};
use crate::topology::Topology;
use crate::traffic::Traffic;

/// Queues (threads of all ranks) that a proof keeps clocks for: at most 1 GiB of them.
const MOST_QUEUES: u64 = 1 << 14;
/// Ranks of a proof: their tasks take about 1 GiB.
const MOST_RANKS: u32 = 1 << 10;
/// Ranks up to which a proof includes the other operations of the communicator.
const COMPOSED_RANKS: u32 = 16;
/// Seed of the vectors of other operations.
const SEED: u64 = 1;

/// What joins each pair of ranks, `None` for a rank and itself.
pub trait Links {
    /// Returns the protocol between two ranks.
    fn between(&self, a: Rank, b: Rank) -> Option<Protocol>;

    /// Returns how the ranks are grouped.
    fn groups(&self) -> Tables<'_> {
        Tables::default()
    }
}

impl Links for Topology {
    fn between(&self, a: Rank, b: Rank) -> Option<Protocol> {
        self.link(a, b)
    }

    fn groups(&self) -> Tables<'_> {
        Self::groups(self)
    }
}

/// The same protocol between all ranks.
impl Links for Protocol {
    fn between(&self, a: Rank, b: Rank) -> Option<Protocol> {
        (a != b).then_some(*self)
    }
}

/// Returns what a link can do by itself.
#[must_use]
pub fn caps(protocol: Option<Protocol>) -> Caps {
    let (reduce_types, reduce_ops) = match protocol {
        None => (0, 0),
        Some(Protocol::Hccs) => (sdma::REDUCE_TYPES, sdma::REDUCE_OPS),
        Some(Protocol::Ub) => (ub::REDUCE_TYPES, ub::REDUCE_OPS),
        Some(Protocol::Roce) => (roce::REDUCE_TYPES, roce::REDUCE_OPS),
    };
    Caps { reduce_types, reduce_ops, write_notify: matches!(protocol, Some(Protocol::Hccs | Protocol::Ub)) }
}

/// What came of a proof.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Tasks of the operation, all ranks.
    pub tasks: usize,
    /// The proof, or what shows that there is none.
    pub proof: core::result::Result<Proof, Box<Counterexample>>,
    /// What was to be proved.
    pub obligations: Vec<Obligation>,
    /// How long the proof took: the operation behind itself.
    pub elapsed: Duration,
}

/// Checks that a proof over so many ranks with so many threads each fits in memory.
///
/// # Errors
/// `RANKS_RANGE` where it does not.
pub fn check_size(ranks: u32, threads: u16) -> Result<()> {
    let queues = u64::from(ranks) * u64::from(threads);
    if queues <= MOST_QUEUES && ranks <= MOST_RANKS {
        return Ok(());
    }
    let message =
        format!("a proof over {ranks} ranks with {queues} threads; at most {MOST_RANKS} with {MOST_QUEUES}");
    Err(Error::new(ErrorCode::RANKS_RANGE, message).remedy("prove fewer ranks"))
}

/// Proves a graph on a machine: behind itself, then before and behind each of `others`, which use the same threads,
/// notifies and scratch.
#[must_use]
pub fn verdict(machine: &Machine, graph: &Graph, others: &[Graph]) -> Verdict {
    let start = Instant::now();
    let mut proof = verify(machine, &[graph, graph]);
    let elapsed = start.elapsed();
    for other in others {
        let both = |first, second| verify(machine, &[first, second]).map(drop);
        proof = proof.and_then(|proof| both(graph, other).and_then(|()| both(other, graph)).map(|()| proof));
    }
    let composed = |obligation: &Obligation| !others.is_empty() || *obligation != Obligation::Composition;
    let obligations = Obligation::ALL.into_iter().filter(composed).collect();
    Verdict { tasks: graph.tasks(), proof, obligations, elapsed }
}

/// An operation and the resources with which it is carried out.
#[derive(Clone, Debug)]
pub struct Case {
    /// The operation.
    pub operation: Operation,
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes of scratch of each rank.
    pub scratch_len: u64,
    /// Threads of each rank; a template uses at most as many as it needs.
    pub threads: u16,
    /// Whether every link reduces the operation's elements while moving.
    pub inline_reduce: bool,
    /// Whether input and output are the same memory, where a rank has both.
    pub in_place: bool,
}

impl Case {
    /// Returns how a communicator with `buffer_bytes` of scratch carries out an operation.
    #[must_use]
    pub fn new(operation: Operation, topology: &Topology, in_place: bool, buffer_bytes: u64) -> Self {
        let ranks = topology.ranks();
        let reduction = Reduction { dtype: operation.dtype, op: operation.reduce };
        let groups = topology.groups();
        let threads = operation.needs(ranks, &groups).threads;
        let scratch_len = operation.scratch(ranks, &groups, buffer_bytes);
        let inline_reduce = topology.reduces_inline(reduction);
        Self { operation, ranks, scratch_len, threads, inline_reduce, in_place }
    }

    /// Returns the shape of one rank.
    ///
    /// # Errors
    /// What [`Operation::elements`] refuses.
    pub fn shape(&self, rank: Rank) -> Result<Shape> {
        // A rank with one buffer has none in place.
        let both = !self.operation.elements(rank, self.ranks)?.contains(&0);
        Ok(Shape {
            scratch_len: self.scratch_len,
            threads: self.threads,
            inline_reduce: self.inline_reduce,
            in_place: self.in_place && both,
            ..self.operation.shape(rank, self.ranks)
        })
    }

    /// Returns the tables of one rank.
    ///
    /// # Errors
    /// What the operation's file refuses.
    pub fn tables<'a>(&'a self, rank: Rank, groups: Tables<'a>) -> Result<Tables<'a>> {
        let script = self.operation.script(rank, self.in_place)?;
        Ok(Tables { vector: self.operation.rows(rank), script, ..groups })
    }

    /// Returns the plan of one rank.
    ///
    /// # Errors
    /// What the plan or the operation's file refuses, and `LAUNCH_OVERLAP` for what cannot be done in place.
    pub fn plan(&self, rank: Rank, groups: Tables<'_>) -> Result<Plan> {
        self.operation.check_file(self.ranks)?;
        if self.in_place {
            self.operation.check_in_place(rank, self.ranks)?;
        }
        let tables = self.tables(rank, groups)?;
        Plan::new(&self.shape(rank)?, &tables).map_err(|error| communicator::refused(&self.operation, error))
    }

    /// Returns what the ranks have: threads, notifies, scratch, links, rings.
    #[must_use]
    pub fn machine(&self, links: &impl Links) -> Machine {
        let needs = self.operation.needs(self.ranks, &links.groups());
        let subs = self.threads.saturating_sub(1);
        // A file counts its own; templates use two for each sub thread.
        let file = self.operation.file.is_some();
        let main_notifies = if file { needs.main_notifies } else { subs.saturating_mul(2) };
        let through_pair = |a, b| links.between(a, b).is_some_and(Protocol::uses_queue_pair);
        let pairs = (0..self.ranks).flat_map(|a| (0..self.ranks).map(move |b| (a, b)));
        let pairs: Vec<bool> = pairs.map(|(a, b)| through_pair(a, b)).collect();
        Machine {
            threads: self.threads,
            main_notifies,
            sub_notifies: needs.sub_notifies,
            scratch: self.scratch_len,
            pairs: if pairs.contains(&true) { pairs } else { Vec::new() },
            rings: Rings { depth: DEFAULT_DEPTH, longest: sdma::MAX_LEN, submitter: Submitter::Skipping },
        }
    }

    /// Expands the operation at every rank.
    ///
    /// # Errors
    /// What the plan refuses.
    pub fn graph(&self, links: &impl Links) -> Result<Graph> {
        self.graph_over(links.groups(), |a, b| caps(links.between(a, b)))
    }

    /// Expands the operation at every rank over links that can do what `caps` says.
    ///
    /// # Errors
    /// What the plan refuses.
    pub fn graph_over(&self, groups: Tables<'_>, caps: impl Fn(Rank, Rank) -> Caps) -> Result<Graph> {
        let mut ranks = Vec::with_capacity(self.ranks as usize);
        let mut chunk = 0;
        for rank in 0..self.ranks {
            let plan = self.plan(rank, groups)?;
            chunk = plan.chunk_elements();
            let tables = self.tables(rank, groups)?;
            ranks.push(expand(&plan, &tables, |peer| caps(rank, peer))?);
        }
        Ok(Graph { name: self.operation.to_string(), goal: Goal::new(&self.request(chunk)), ranks })
    }

    /// Expands and proves the operation; on few ranks together with the other operations that use the same resources.
    ///
    /// # Errors
    /// What the plan refuses, and `RANKS_RANGE` where there are too many queues to keep clocks for.
    pub fn prove(&self, links: &impl Links) -> Result<Verdict> {
        check_size(self.ranks, self.threads)?;
        let own = self.graph(links)?;
        // What another operation cannot do in these resources it does not do on this communicator.
        let others: Vec<_> = self.others().filter_map(|other| other.graph(links).ok()).collect();
        Ok(verdict(&self.machine(links), &own, &others))
    }

    /// The other operations by this algorithm and staging.
    fn others(&self) -> impl Iterator<Item = Self> {
        let own = self.operation.op;
        let alone = self.operation.file.is_some() || self.ranks > COMPOSED_RANKS;
        let ops = OpKind::ALL.iter().filter(move |op| **op != own && !alone);
        let largest = self.operation.shape(0, self.ranks).count;
        ops.map(move |op| {
            let traffic = Traffic::named(op.name());
            let vector = traffic.and_then(|traffic| traffic.vector(SEED, largest, self.ranks)).map(Arc::new);
            let count = if vector.is_some() || *op == OpKind::Barrier { 0 } else { largest };
            let operation = Operation { op: *op, root: 0, count, vector, ..self.operation.clone() };
            Self { operation, ..self.clone() }
        })
    }

    /// What the operation asks for, in the verifier's terms; `chunk` is the plan's.
    fn request(&self, chunk: u64) -> Request {
        let Operation { op, count, root, dtype, reduce, algorithm, .. } = self.operation;
        let ranks = self.ranks;
        let block = |range: ElementRange| Block { at: range.first, count: range.count };
        let rows = |rank| self.operation.rows(rank).iter();
        let collective = match op {
            OpKind::AllReduce => Collective::AllReduce { count },
            OpKind::Reduce => Collective::Reduce { count, root },
            OpKind::ReduceScatter => Collective::ReduceScatter { blocks: Block::equal(ranks, count) },
            OpKind::ReduceScatterV => {
                Collective::ReduceScatter { blocks: rows(0).map(|row| block(row.send)).collect() }
            }
            OpKind::AllGather => Collective::AllGather { blocks: Block::equal(ranks, count) },
            OpKind::AllGatherV => {
                Collective::AllGather { blocks: rows(0).map(|row| block(row.receive)).collect() }
            }
            OpKind::Broadcast => Collective::Broadcast { count, root },
            OpKind::Scatter => Collective::Scatter { count, root },
            OpKind::Gather => Collective::Gather { count, root },
            OpKind::AllToAll => {
                let all = vec![Block::equal(ranks, count); ranks as usize];
                Collective::AllToAll { send: all.clone(), receive: all }
            }
            OpKind::AllToAllV | OpKind::SendReceive => Collective::AllToAll {
                send: (0..ranks).map(|rank| rows(rank).map(|row| block(row.send)).collect()).collect(),
                receive: (0..ranks).map(|rank| rows(rank).map(|row| block(row.receive)).collect()).collect(),
            },
            OpKind::Barrier => Collective::Barrier,
        };
        let order = Order::of(op, algorithm);
        Request { collective, ranks, dtype, reduce, in_place: self.in_place, order, chunk }
    }
}

/// The tasks of all chunks of one rank; each chunk is a graph.
fn expand(plan: &Plan, tables: &Tables<'_>, caps: impl Fn(Rank) -> Caps) -> Result<RankTasks> {
    let mut collector = Collector::new(caps);
    for chunk in 0..plan.chunks() {
        if chunk > 0 {
            collector.end_graph();
        }
        plan.emit(chunk, tables, &mut collector)
            .map_err(|code| Error::new(code, format!("chunk {chunk} cannot be expanded")))?;
    }
    Ok(collector.into_tasks())
}
