//! What there is to run: operations, algorithms, staging, and what goes together.

use std::sync::Arc;

use host_launcher::communicator::Operation;
use host_launcher::traffic::Traffic;
use templates::Shape;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ReduceOp};

/// Returns the algorithms that carry out an operation.
#[must_use]
pub fn algorithms(op: OpKind) -> Vec<Algorithm> {
    Algorithm::ALL.iter().copied().filter(|&algorithm| templates::exists(op, algorithm)).collect()
}

/// An operation by an algorithm with a staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Operation.
    pub op: OpKind,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Where it works.
    pub staging: Staging,
}

impl Variant {
    /// Returns every variant that exists on links that reduce while moving, with input and output apart.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for &op in OpKind::ALL {
            for &algorithm in Algorithm::ALL {
                all.extend(Staging::ALL.iter().map(|&staging| Self { op, algorithm, staging }));
            }
        }
        all.retain(|variant| variant.runs(true, false));
        all
    }

    /// Returns whether it can be carried out where links reduce while moving or do not, in place or not.
    #[must_use]
    pub fn runs(self, inline_reduce: bool, in_place: bool) -> bool {
        let Self { op, algorithm, staging } = self;
        let shape = Shape {
            op,
            algorithm,
            levels: [None; 4],
            staging,
            rank: 0,
            ranks: 2,
            root: 0,
            count: 1,
            dtype: DataType::Fp32,
            reduce: ReduceOp::Sum,
            scratch_len: 0,
            threads: 1,
            inline_reduce,
            in_place,
            chunk: 0,
            piece: 0,
        };
        // Blocks that are exchanged between places of their own have no place in common.
        let apart = matches!(op, OpKind::SendReceive | OpKind::AllToAllV);
        let possible = staging == Staging::Scratch || shape.works_directly();
        templates::exists(op, algorithm) && possible && !(in_place && apart)
    }

    /// Returns whether every rank has an input and an output, so that its graph in place is another than out of place.
    #[must_use]
    pub fn aliases_at_every_rank(self) -> bool {
        !(self.op.is_rooted() || self.op.has_vector() || self.op == OpKind::Barrier)
    }

    /// Returns whether it needs links that reduce while moving.
    #[must_use]
    pub fn adds_on_the_way(self) -> bool {
        !self.runs(false, false)
    }

    /// Returns the operation of `count` fp32 elements a rank: blocks of a vector have at most that many, roots and vectors come
    /// from the seed.
    #[must_use]
    pub fn operation(self, count: u64, ranks: u32, seed: u64) -> Operation {
        let Self { op, algorithm, staging } = self;
        let traffic = Traffic::named(op.name()).expect("every operation has a name");
        let vector = traffic.vector(seed, count, ranks).map(Arc::new);
        // The root is any rank.
        let root =
            if op.is_rooted() { u32::try_from(seed % u64::from(ranks)).expect("below a u32") } else { 0 };
        let count = if vector.is_some() || op == OpKind::Barrier { 0 } else { count };
        Operation { op, count, root, vector, algorithm, staging, ..Operation::default() }
    }

    /// Returns the same operation of another size.
    #[must_use]
    pub fn resized(operation: &Operation, count: u64, ranks: u32, seed: u64) -> Operation {
        let Operation { op, algorithm, staging, .. } = *operation;
        let Operation { count, vector, .. } = Self { op, algorithm, staging }.operation(count, ranks, seed);
        Operation { count, vector, ..operation.clone() }
    }
}
