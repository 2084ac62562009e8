//! Proofs of expanded operations: the templates' tasks of all ranks, and what they must do, handed to the verifier.
//!
//! The verifier knows no template, and the templates know no verifier; this is where the two meet. Tasks from
//! elsewhere (an algorithm read from a file) become an [`Operation`](graph_verifier::Operation) of their own and are
//! proved by the same [`graph_verifier::verify`].

use graph_verifier::{
    Block, Collective, Collector, Goal, Machine, Operation, Order, RankTasks, Request, Rings, Submitter,
};
use task_graph::{Caps, Rank};
use templates::{Needs, Plan, PlanError, Shape};
use wire::launch::OpKind;
use wire::npu::{DEFAULT_DEPTH, Protocol, roce, sdma, ub};

use crate::error::{Error, Result};
use crate::topology::Topology;

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
