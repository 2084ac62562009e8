//! The operations that are proved, and how.

use aicpu_tests::reference::{FULL_CAPS, PLAIN_CAPS};
use aicpu_tests::variants::Variant;
use graph_verifier::{Counterexample, Machine, Operation as Graph, Proof, verify};
use host_launcher::communicator::Operation;
use host_launcher::prove::Case;
use templates::{Needs, Tables};
use wire::DataType;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::Protocol;

/// An operation of 8-byte elements with all threads it can use, in one chunk. Roots and vectors come from the count.
pub(crate) fn case(op: OpKind, algorithm: Algorithm, staging: Staging, ranks: u32, count: u64) -> Case {
    let variant = Variant { op, algorithm, staging };
    let operation = variant.operation(count, ranks, count + u64::from(ranks));
    Case {
        operation: Operation { dtype: DataType::Int64, piece: 128, ..operation },
        ranks,
        // Two areas of one chunk for every rank: one chunk does it all.
        scratch_len: 2 * u64::from(ranks) * (count * 8).max(1).next_multiple_of(128),
        threads: Needs::of(algorithm, ranks).threads,
        inline_reduce: true,
        in_place: false,
    }
}

/// In chunks of at most so many elements.
pub(crate) fn chunked(case: Case, chunk: u64) -> Case {
    Case { operation: Operation { chunk, ..case.operation }, ..case }
}

/// Whether there is a plan.
pub(crate) fn exists(case: &Case) -> bool {
    (0..case.ranks).all(|rank| case.plan(rank, Tables::default()).is_ok())
}

/// Every operation, algorithm and staging on `ranks` ranks with `count` elements.
pub(crate) fn cases(ranks: u32, count: u64) -> impl Iterator<Item = Case> {
    Variant::all()
        .into_iter()
        .map(move |Variant { op, algorithm, staging }| case(op, algorithm, staging, ranks, count))
}

/// The tasks of all ranks over links that reduce, or only move bytes, as the case says.
pub(crate) fn expand(case: &Case) -> (Machine, Graph) {
    let caps = if case.inline_reduce { FULL_CAPS } else { PLAIN_CAPS };
    let graph = case.graph_over(Tables::default(), |_, _| caps).expect("has a plan");
    (case.machine(&Protocol::Hccs), graph)
}

/// Proves a graph that may follow itself.
pub(crate) fn proof(machine: &Machine, graph: &Graph) -> Result<Proof, Box<Counterexample>> {
    verify(machine, &[graph, graph])
}
