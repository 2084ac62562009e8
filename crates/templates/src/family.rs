//! Families: how algorithms carry out operations, and the resources they use.

use core::num::NonZero;

use wire::launch::{Algorithm, OpKind, Staging};

use crate::levels::{self, Levels};
use crate::plan::{CHUNK_ALIGN, Shape};
use crate::tables::Tables;

/// How an algorithm carries out an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Passes of steps over slices of a work area.
    Steps,
    /// Every rank with every other at once, twice at most, reduced in rank order.
    Mesh,
    /// Blocks that go from one rank straight to another.
    Exchange,
    /// Passes of several groups, level by level or at once.
    Composition,
    /// A mesh whose slices come part by part.
    Chunk,
}

/// Returns how `algorithm` carries out `op`; `None` where it does not.
pub(crate) fn family(op: OpKind, algorithm: Algorithm) -> Option<Family> {
    use Algorithm as A;
    use Family::{Chunk, Composition, Exchange, Mesh, Steps};
    use OpKind as O;
    Some(match (op, algorithm) {
        (O::AllReduce, A::Ring | A::HalvingDoubling | A::Nhr | A::Nb | A::Tree) => Steps,
        (O::AllReduce, A::MeshOneShot | A::MeshTwoShot | A::Strict) => Mesh,
        (O::AllReduce, A::Star) => Exchange,
        (O::AllGather | O::AllGatherV | O::ReduceScatter | O::ReduceScatterV, A::Ring | A::Nhr | A::Nb) => {
            Steps
        }
        (
            O::AllGather | O::AllGatherV | O::ReduceScatter | O::ReduceScatterV,
            A::MeshOneShot | A::Pairwise,
        ) => Exchange,
        (O::ReduceScatter | O::ReduceScatterV, A::Strict) => Exchange,
        (O::Broadcast | O::Reduce, A::Ring | A::Nhr | A::Nb | A::Tree) => Steps,
        (O::Scatter | O::Gather, A::Nhr | A::Tree) => Steps,
        (O::Broadcast | O::Reduce | O::Scatter | O::Gather, A::Star) => Exchange,
        (O::AllToAll | O::AllToAllV | O::SendReceive, A::MeshOneShot | A::Pairwise) => Exchange,
        (O::Barrier, A::Ring | A::Nhr | A::Nb) => Steps,
        (
            O::AllReduce | O::AllGather | O::AllGatherV | O::ReduceScatter | O::ReduceScatterV | O::Broadcast,
            A::TwoLevel | A::ThreeLevel,
        ) => Composition,
        (O::AllReduce | O::AllGather | O::AllGatherV | O::ReduceScatter | O::ReduceScatterV, A::Pipeline) => {
            Composition
        }
        (O::AllReduce | O::AllGather | O::ReduceScatter, A::MultiRing) => Composition,
        (O::AllReduce, A::Ahc) => Composition,
        (O::AllReduce | O::ReduceScatter, A::MeshChunk) => Chunk,
        _ => return None,
    })
}

/// Returns whether an operation can be carried out by an algorithm. What a file can do, only the file knows.
#[must_use]
pub fn exists(op: OpKind, algorithm: Algorithm) -> bool {
    family(op, algorithm).is_some()
}

/// The resources a template uses when it gets all it can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Threads, the main one included.
    pub threads: u16,
    /// Notifies of the main thread besides the start notify: two per sub thread.
    pub main_notifies: u16,
    /// Notifies of each sub thread.
    pub sub_notifies: u16,
    /// Least scratch with which it works at all, bytes, for elements of 16 bytes.
    pub least_scratch: u64,
}

impl Shape {
    /// Returns the resources that this operation uses when it gets all it can use.
    #[must_use]
    pub fn needs(&self, tables: &Tables<'_>) -> Needs {
        let levels = NonZero::new(self.ranks).and_then(|ranks| Levels::of(self, tables, ranks).ok());
        Needs::with(levels.map_or(1, |levels| self.useful_threads(&levels)), self.ranks)
    }

    /// Returns the threads that the algorithm can use.
    pub(crate) fn useful_threads(&self, levels: &Levels) -> u16 {
        // Direct work needs no threads of its own: the copies of one rank go to one place, in order, and two threads
        // that read from one peer would share a queue pair. Compositions and rings have several places.
        let apart = matches!(family(self.op, self.algorithm), Some(Family::Composition | Family::Chunk));
        if self.staging == Staging::Direct && !apart {
            return 1;
        }
        if levels::is_composition(self.algorithm) {
            return u16::try_from(levels.mesh).unwrap_or(u16::MAX);
        }
        Needs::of(self.algorithm, self.ranks).threads
    }
}

impl Needs {
    /// Returns what `algorithm` uses on `ranks` ranks of one server.
    #[must_use]
    pub fn of(algorithm: Algorithm, ranks: u32) -> Self {
        let subs = match algorithm {
            _ if ranks <= 1 => 0,
            // One thread for every ring.
            Algorithm::MultiRing => {
                let rings = NonZero::new(ranks).map_or(1, |ranks| levels::strides(ranks).count());
                u16::try_from(rings).unwrap_or(1) - 1
            }
            // NHR shares its copies between two threads.
            Algorithm::Nhr | Algorithm::Nb => 1,
            // One sub thread per peer, so that each transfer runs on its own link.
            Algorithm::MeshOneShot
            | Algorithm::MeshTwoShot
            | Algorithm::MeshChunk
            | Algorithm::TwoLevel
            | Algorithm::ThreeLevel
            | Algorithm::Pipeline
            | Algorithm::Ahc
            | Algorithm::Strict
            | Algorithm::Star => u16::try_from(ranks - 1).unwrap_or(u16::MAX - 1),
            _ => 0,
        };
        Self::with(subs.saturating_add(1), ranks)
    }

    fn with(threads: u16, ranks: u32) -> Self {
        Self {
            threads,
            main_notifies: (threads - 1).saturating_mul(2),
            sub_notifies: 2,
            least_scratch: 2 * u64::from(ranks) * u64::from(ranks) * CHUNK_ALIGN,
        }
    }
}
