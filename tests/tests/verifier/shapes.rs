//! The shapes that are proved, and how.

use aicpu_tests::reference::{FULL_CAPS, PLAIN_CAPS};
use graph_verifier::{Counterexample, Machine, Operation, Proof, verify};
use host_launcher::prove;
use templates::{Needs, Plan, Shape};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::Protocol;
use wire::{DataType, ReduceOp};

/// An operation of 8-byte elements with all threads it can use, in one chunk.
pub(crate) fn shape(op: OpKind, algorithm: Algorithm, staging: Staging, ranks: u32, count: u64) -> Shape {
    Shape {
        op,
        algorithm,
        staging,
        rank: 0,
        ranks,
        count,
        dtype: DataType::Int64,
        reduce: ReduceOp::Sum,
        // Two areas of one chunk for every rank: one chunk does it all.
        scratch_len: 2 * u64::from(ranks) * (count * 8).max(1).next_multiple_of(128),
        threads: Needs::of(algorithm, ranks).threads,
        inline_reduce: true,
        in_place: false,
        chunk: 0,
        piece: 128,
    }
}

/// Every operation, algorithm and staging on `ranks` ranks that has a plan for `count` elements.
pub(crate) fn shapes(ranks: u32, count: u64) -> impl Iterator<Item = Shape> {
    let all = OpKind::ALL.iter().flat_map(|op| Algorithm::ALL.iter().map(move |algorithm| (*op, *algorithm)));
    let all = all.flat_map(|pair| Staging::ALL.iter().map(move |staging| (pair, *staging)));
    all.map(move |((op, algorithm), staging)| shape(op, algorithm, staging, ranks, count))
        .filter(|shape| Plan::new(shape).is_ok())
}

/// The tasks of all ranks over links that reduce, or only move bytes, as the shape says.
pub(crate) fn expand(shape: &Shape) -> (Machine, Operation) {
    let caps = if shape.inline_reduce { FULL_CAPS } else { PLAIN_CAPS };
    let operation = prove::operation_over(shape, |_, _| caps).expect("has a plan");
    (prove::machine(shape, &Protocol::Hccs), operation)
}

/// Proves an operation that may follow itself.
pub(crate) fn proof(machine: &Machine, operation: &Operation) -> Result<Proof, Box<Counterexample>> {
    verify(machine, &[operation, operation])
}
