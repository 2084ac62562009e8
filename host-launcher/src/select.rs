//! Which algorithm carries out an operation, and why.

use core::fmt;

use algorithm_file::AlgorithmFile;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp, Reduction};

use crate::communicator::Operation;
use crate::error::{Error, Result};
use crate::settings::{AlgoName, AlgoOp, Settings};
use crate::topology::Topology;

/// Largest all-reduce for which one exchange of everything beats two of slices, bytes; measured on the device model.
const ONE_SHOT_BYTES: u64 = 32 << 10;

/// What is asked for, before an algorithm has been chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Operation.
    pub op: OpKind,
    /// Elements per rank.
    pub count: u64,
    /// Element type.
    pub dtype: DataType,
    /// Reduction.
    pub reduce: ReduceOp,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// Algorithm demanded by the caller.
    pub algorithm: Option<Algorithm>,
    /// Staging demanded by the caller.
    pub staging: Option<Staging>,
}

/// An algorithm and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Where it works.
    pub staging: Staging,
    /// Why, in one clause.
    pub why: String,
}

impl Choice {
    /// Returns the choice of an algorithm that was loaded as data.
    #[must_use]
    pub fn of_file(file: &AlgorithmFile) -> Self {
        let why = format!("{:?}, asked for by --algo-file", file.algorithm().name);
        Self { algorithm: Algorithm::File, staging: Staging::Scratch, why }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.algorithm, self.staging, self.why)
    }
}

/// Chooses: what the caller demands, else what `HCCL_ALGO` says, else by size and links.
///
/// # Errors
/// `PLAN_OP` when what is demanded cannot carry out the operation.
pub fn choose(question: &Question, topology: &Topology, settings: &Settings) -> Result<Choice> {
    let (algorithm, why) = match (question.algorithm, from_settings(question.op, topology, settings)?) {
        (Some(algorithm), _) => (algorithm, "asked for by --algo".to_owned()),
        (None, Some(algorithm)) => (algorithm, "asked for by HCCL_ALGO".to_owned()),
        (None, None) => by_size(question, topology),
    };
    if !templates::exists(question.op, algorithm) {
        let carries = |algorithm: &&Algorithm| templates::exists(question.op, **algorithm);
        let names: Vec<_> = Algorithm::ALL.iter().filter(carries).map(|algorithm| algorithm.name()).collect();
        let message =
            format!("{} is not carried out by {algorithm}; it is by {}", question.op, names.join(", "));
        return Err(Error::new(ErrorCode::PLAN_OP, message));
    }
    let direct = Operation {
        op: question.op,
        count: question.count,
        dtype: question.dtype,
        reduce: question.reduce,
        algorithm,
        staging: Staging::Direct,
        ..Operation::default()
    };
    let reduction = Reduction { dtype: question.dtype, op: question.reduce };
    let shape = templates::Shape {
        inline_reduce: topology.reduces_inline(reduction),
        in_place: question.in_place,
        ..direct.shape(0, topology.ranks())
    };
    let possible = shape.works_directly();
    let staging = question.staging.unwrap_or(if possible { Staging::Direct } else { Staging::Scratch });
    Ok(Choice { algorithm, staging, why })
}

fn by_size(question: &Question, topology: &Topology) -> (Algorithm, String) {
    use OpKind as O;
    let bytes = question.count.saturating_mul(question.dtype.size_bytes());
    let across = topology.servers() > 1;
    let place = if across { format!("{} servers", topology.servers()) } else { "one server".to_owned() };
    let (algorithm, why) = match question.op {
        O::AllReduce if !across && bytes <= ONE_SHOT_BYTES => {
            (Algorithm::MeshOneShot, format!("{bytes} bytes ≤ {ONE_SHOT_BYTES}: one exchange"))
        }
        O::AllReduce if !across => {
            (Algorithm::MeshTwoShot, format!("{bytes} bytes > {ONE_SHOT_BYTES}: all links, least bytes"))
        }
        O::AllReduce | O::AllGather | O::AllGatherV | O::ReduceScatter | O::ReduceScatterV | O::Broadcast
            if across =>
        {
            (Algorithm::Nhr, "fewest steps for any number of ranks".to_owned())
        }
        O::Reduce | O::Scatter | O::Gather if across => {
            (Algorithm::Tree, "fewest steps for any number of ranks".to_owned())
        }
        O::Broadcast | O::Reduce | O::Scatter | O::Gather => {
            (Algorithm::Star, "all links of the root at once".to_owned())
        }
        O::AllToAll | O::AllToAllV | O::SendReceive if across => {
            (Algorithm::Pairwise, "one peer at a time".to_owned())
        }
        O::Barrier => (Algorithm::Nb, "fewest steps for any number of ranks".to_owned()),
        _ => (Algorithm::MeshOneShot, "one exchange over all links".to_owned()),
    };
    (algorithm, format!("{place}, {why}"))
}

fn from_settings(op: OpKind, topology: &Topology, settings: &Settings) -> Result<Option<Algorithm>> {
    let of = match op {
        OpKind::AllReduce => AlgoOp::AllReduce,
        OpKind::AllGather | OpKind::AllGatherV => AlgoOp::AllGather,
        OpKind::ReduceScatter | OpKind::ReduceScatterV => AlgoOp::ReduceScatter,
        OpKind::Broadcast => AlgoOp::Broadcast,
        OpKind::Reduce => AlgoOp::Reduce,
        OpKind::Scatter => AlgoOp::Scatter,
        OpKind::AllToAll | OpKind::AllToAllV => AlgoOp::AllToAll,
        // The field has no name for these.
        OpKind::Gather | OpKind::SendReceive | OpKind::Barrier => return Ok(None),
    };
    let Some(levels) = settings.algo.value().as_ref().and_then(|algo| algo.levels(of)) else {
        return Ok(None);
    };
    // One flat algorithm runs over all ranks: the level that spans them decides.
    let level = usize::from(topology.servers() > 1);
    let at = |level: usize| levels.get(level).filter(|name| *name != AlgoName::Na);
    let Some(name) = at(level).or_else(|| at(1 - level)) else { return Ok(None) };
    named(name).map(Some).ok_or_else(|| {
        let message =
            format!("HCCL_ALGO asks for {:?} at level {level}, which is not implemented", name.name());
        let remedy = "use ring, H-D_R, NHR or fullmesh, or unset HCCL_ALGO";
        Error::new(ErrorCode::PLAN_OP, message).remedy(remedy)
    })
}

fn named(name: AlgoName) -> Option<Algorithm> {
    match name {
        AlgoName::Ring => Some(Algorithm::Ring),
        AlgoName::HalvingDoubling => Some(Algorithm::HalvingDoubling),
        AlgoName::Nhr => Some(Algorithm::Nhr),
        AlgoName::FullMesh => Some(Algorithm::MeshTwoShot),
        _ => None,
    }
}
