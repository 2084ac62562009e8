//! Proofs of expanded operations: the templates' tasks of all ranks, and what they must do, handed to the verifier.
//!
//! The verifier knows no template, and the templates know no verifier; this is where the two meet. Tasks from
//! elsewhere (an algorithm read from a file) become an [`Operation`] of their own and are
//! proved by the same [`graph_verifier::verify`].

use core::time::Duration;
use std::time::Instant;

use graph_verifier::{
    Block, Collective, Collector, Counterexample, Goal, Machine, Obligation, Operation, Order, Proof,
    RankTasks, Request, Rings, Submitter, verify,
};
use task_graph::{Caps, Rank};
use templates::{Needs, Plan, PlanError, Shape};
use wire::launch::{OpKind, Staging};
use wire::npu::{DEFAULT_DEPTH, Protocol, roce, sdma, ub};
use wire::{ErrorCode, Reduction};

use crate::communicator;
use crate::error::{Error, Result};
use crate::topology::Topology;

/// Queues (threads of all ranks) that a proof keeps clocks for: at most 1 GiB of them.
const MOST_QUEUES: u64 = 1 << 14;
/// Ranks of a proof: their tasks take about 1 GiB.
const MOST_RANKS: u32 = 1 << 10;
/// Ranks up to which a proof includes the other operations of the communicator.
const COMPOSED_RANKS: u32 = 16;

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

/// Proves an operation of a machine: behind itself, then before and behind each of `others`, which use the same
/// threads, notifies and scratch.
#[must_use]
pub fn verdict(machine: &Machine, operation: &Operation, others: &[Operation]) -> Verdict {
    let start = Instant::now();
    let mut proof = verify(machine, &[operation, operation]);
    let elapsed = start.elapsed();
    for other in others {
        let both = |first, second| verify(machine, &[first, second]).map(drop);
        proof = proof
            .and_then(|proof| both(operation, other).and_then(|()| both(other, operation)).map(|()| proof));
    }
    let composed = |obligation: &Obligation| !others.is_empty() || *obligation != Obligation::Composition;
    let obligations = Obligation::ALL.into_iter().filter(composed).collect();
    Verdict { tasks: operation.tasks(), proof, obligations, elapsed }
}

/// Expands and proves a shape; on few ranks together with the other operations that use the same resources.
///
/// # Errors
/// What the plan refuses, and `RANKS_RANGE` where there are too many queues to keep clocks for.
pub fn prove(shape: &Shape, links: &impl Links) -> Result<Verdict> {
    let threads = shape.threads.min(Needs::of(shape.algorithm, shape.ranks).threads);
    let queues = u64::from(shape.ranks) * u64::from(threads);
    if queues > MOST_QUEUES || shape.ranks > MOST_RANKS {
        let ranks = shape.ranks;
        let message = format!(
            "a proof over {ranks} ranks with {queues} threads; at most {MOST_RANKS} with {MOST_QUEUES}"
        );
        return Err(Error::new(ErrorCode::RANKS_RANGE, message).remedy("prove fewer ranks"));
    }
    let machine = machine(shape, links);
    let own = operation(shape, links)?;
    let other_ops = OpKind::ALL.iter().filter(|op| **op != shape.op && shape.ranks <= COMPOSED_RANKS);
    // What the other operation cannot do in these resources it does not do on this communicator.
    let others: Vec<_> =
        other_ops.filter_map(|op| operation(&Shape { op: *op, ..*shape }, links).ok()).collect();
    Ok(verdict(&machine, &own, &others))
}

/// What joins each pair of ranks, `None` for a rank and itself.
pub trait Links {
    /// Returns the protocol between two ranks.
    fn between(&self, a: Rank, b: Rank) -> Option<Protocol>;
}

impl Links for Topology {
    fn between(&self, a: Rank, b: Rank) -> Option<Protocol> {
        self.link(a, b)
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

/// Returns the shape in which a communicator with `buffer_bytes` of scratch carries out an operation.
#[must_use]
pub fn shape(
    operation: &communicator::Operation,
    topology: &Topology,
    in_place: bool,
    buffer_bytes: u64,
) -> Shape {
    let reduction = Reduction { dtype: operation.dtype, op: operation.reduce };
    let ranks = topology.ranks();
    // As the communicator does: direct work has one thread.
    let threads = match operation.staging {
        Staging::Direct => 1,
        Staging::Scratch => Needs::of(operation.algorithm, ranks).threads,
    };
    let shape = Shape {
        op: operation.op,
        algorithm: operation.algorithm,
        staging: operation.staging,
        rank: 0,
        ranks,
        count: operation.count,
        dtype: operation.dtype,
        reduce: operation.reduce,
        scratch_len: 0,
        threads,
        inline_reduce: false,
        in_place,
        chunk: operation.chunk,
        piece: operation.piece,
    };
    let scratch_len = communicator::scratch_len(&shape, buffer_bytes);
    Shape { scratch_len, inline_reduce: topology.reduces_inline(reduction), ..shape }
}

/// Returns what the ranks have for a shape: threads, notifies, scratch, links, rings.
#[must_use]
pub fn machine(shape: &Shape, links: &impl Links) -> Machine {
    let needs = Needs::of(shape.algorithm, shape.ranks);
    let threads = needs.threads.min(shape.threads);
    let through_pair = |a, b| links.between(a, b).is_some_and(Protocol::uses_queue_pair);
    let pairs = (0..shape.ranks).flat_map(|a| (0..shape.ranks).map(move |b| (a, b)));
    let pairs: Vec<bool> = pairs.map(|(a, b)| through_pair(a, b)).collect();
    Machine {
        threads,
        main_notifies: needs.main_notifies.min(2 * threads.saturating_sub(1)),
        sub_notifies: needs.sub_notifies,
        scratch: shape.scratch_len,
        pairs: if pairs.contains(&true) { pairs } else { Vec::new() },
        rings: Rings { depth: DEFAULT_DEPTH, longest: sdma::MAX_LEN, submitter: Submitter::Skipping },
    }
}

/// Expands a shape at every rank, whatever rank it names.
///
/// # Errors
/// What the plan refuses.
pub fn operation(shape: &Shape, links: &impl Links) -> Result<Operation> {
    operation_over(shape, |a, b| caps(links.between(a, b)))
}

/// Expands a shape at every rank over links that can do what `caps` says.
///
/// # Errors
/// What the plan refuses.
pub fn operation_over(shape: &Shape, caps: impl Fn(Rank, Rank) -> Caps) -> Result<Operation> {
    let refused = |error: PlanError| {
        let message = format!("{} by {} on {} ranks has no plan", shape.op, shape.algorithm, shape.ranks);
        Error::new(error.code, format!("{message}: needs {}, there is {}", error.need, error.limit))
    };
    let mut ranks = Vec::with_capacity(shape.ranks as usize);
    let mut chunk = 0;
    for rank in 0..shape.ranks {
        let plan = Plan::new(&Shape { rank, ..*shape }).map_err(refused)?;
        chunk = plan.chunk_elements();
        ranks.push(expand(&plan, |peer| caps(rank, peer))?);
    }
    let name =
        format!("{} × {} {} by {} ({})", shape.op, shape.count, shape.dtype, shape.algorithm, shape.staging);
    Ok(Operation { name, goal: Goal::new(&request(shape, chunk)), ranks })
}

/// The tasks of all chunks of one rank; each chunk is a graph.
fn expand(plan: &Plan, caps: impl Fn(Rank) -> Caps) -> Result<RankTasks> {
    let mut collector = Collector::new(caps);
    for chunk in 0..plan.chunks() {
        if chunk > 0 {
            collector.end_graph();
        }
        plan.emit(chunk, &mut collector)
            .map_err(|code| Error::new(code, format!("chunk {chunk} cannot be expanded")))?;
    }
    Ok(collector.into_tasks())
}

/// Returns what a shape asks for, in the verifier's terms; `chunk` is the plan's.
fn request(shape: &Shape, chunk: u64) -> Request {
    let (ranks, count) = (shape.ranks, shape.count);
    let collective = match shape.op {
        OpKind::AllReduce => Collective::AllReduce { count },
        OpKind::AllGather => Collective::AllGather { blocks: Block::equal(ranks, count) },
        OpKind::ReduceScatter => Collective::ReduceScatter { blocks: Block::equal(ranks, count) },
    };
    let order = Order::of(shape.algorithm);
    let Shape { dtype, reduce, in_place, .. } = *shape;
    Request { collective, ranks, dtype, reduce, in_place, order, chunk }
}
