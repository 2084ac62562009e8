//! What narrows the candidates: the caller, `HCCL_DETERMINISTIC=strict`, `HCCL_ALGO`, in this order.
//!
//! `HCCL_ALGO` names an algorithm for each level: inside servers (0), between them (1), between super pods (2). Where
//! the ranks have one level only, its name is that of a flat algorithm. Where they have several, the names are those of
//! a composition's levels; a level left open (`NA`, or not named) leaves the composition its own choice there, and
//! allows the flat algorithm of the name that was given too. What is named and does not exist is refused, never
//! replaced.

use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind};

use super::{Levels, Question, missing};
use crate::error::{Error, Result};
use crate::settings::{self, AlgoName, AlgoOp, Determinism, Settings};
use crate::topology::Topology;

/// What is allowed, and on whose word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// An option or a variable.
    pub by: &'static str,
    /// Algorithms with their levels.
    pub allowed: Vec<(Algorithm, Levels)>,
}

/// Compositions that take an algorithm for each level.
const COMPOSITIONS: [Algorithm; 3] = [Algorithm::TwoLevel, Algorithm::ThreeLevel, Algorithm::Pipeline];

const OPEN: Levels = [None; 4];

impl Demand {
    /// Returns what is asked for; `None` where every candidate will do.
    ///
    /// # Errors
    /// `PLAN_OP` for an algorithm that does not exist, or not for this operation.
    pub(super) fn of(question: &Question, topology: &Topology, settings: &Settings) -> Result<Option<Self>> {
        let op = question.op;
        if question.algorithm == Some(Algorithm::File) {
            return Ok(Some(Self { by: "--algo-file", allowed: vec![(Algorithm::File, OPEN)] }));
        }
        if let Some(algorithm) = question.algorithm {
            if !templates::exists(op, algorithm) {
                return Err(missing(op, algorithm));
            }
            if question.levels != OPEN && !COMPOSITIONS.contains(&algorithm) {
                let names = COMPOSITIONS.map(|algorithm| algorithm.name()).join(", ");
                let message =
                    format!("--levels beside --algo {algorithm}, which has none; these have: {names}");
                return Err(Error::new(ErrorCode::PLAN_OP, message));
            }
            return Ok(Some(Self { by: "--algo", allowed: vec![(algorithm, question.levels)] }));
        }
        if question.levels != OPEN {
            let allowed: Vec<_> =
                COMPOSITIONS.into_iter().filter(|algorithm| templates::exists(op, *algorithm)).collect();
            let Some(_) = allowed.first() else { return Err(missing(op, Algorithm::TwoLevel)) };
            let allowed = allowed.into_iter().map(|algorithm| (algorithm, question.levels)).collect();
            return Ok(Some(Self { by: "--levels", allowed }));
        }
        if op.reduces() && *settings.determinism.value() == Determinism::Strict {
            // What has no strict form of its own is reduced at its root, in rank order as well.
            let strict =
                if templates::exists(op, Algorithm::Strict) { Algorithm::Strict } else { Algorithm::Star };
            return Ok(Some(Self { by: "HCCL_DETERMINISTIC", allowed: vec![(strict, OPEN)] }));
        }
        let levels = name(op).and_then(|name| settings.algo.value().as_ref()?.levels(name));
        match levels {
            Some(levels) => from_levels(op, topology, levels),
            None => Ok(None),
        }
    }
}

/// The field's name of an operation; `None` where it has none.
fn name(op: OpKind) -> Option<AlgoOp> {
    match op {
        OpKind::AllReduce => Some(AlgoOp::AllReduce),
        OpKind::AllGather | OpKind::AllGatherV => Some(AlgoOp::AllGather),
        OpKind::ReduceScatter | OpKind::ReduceScatterV => Some(AlgoOp::ReduceScatter),
        OpKind::Broadcast => Some(AlgoOp::Broadcast),
        OpKind::Reduce => Some(AlgoOp::Reduce),
        OpKind::Scatter => Some(AlgoOp::Scatter),
        OpKind::AllToAll | OpKind::AllToAllV => Some(AlgoOp::AllToAll),
        OpKind::Gather | OpKind::SendReceive | OpKind::Barrier => None,
    }
}

/// The algorithms that a name of the field stands for.
fn algorithms(name: AlgoName) -> &'static [Algorithm] {
    match name {
        AlgoName::Ring => &[Algorithm::Ring],
        AlgoName::HalvingDoubling => &[Algorithm::HalvingDoubling],
        AlgoName::Nhr => &[Algorithm::Nhr],
        AlgoName::Nb => &[Algorithm::Nb],
        AlgoName::FullMesh => &[Algorithm::MeshOneShot, Algorithm::MeshTwoShot, Algorithm::MeshChunk],
        AlgoName::Pairwise => &[Algorithm::Pairwise],
        AlgoName::Pipeline => &[Algorithm::Pipeline],
        AlgoName::Ahc => &[Algorithm::Ahc],
        AlgoName::Na | AlgoName::NhrV1 => &[],
    }
}

/// Whether a name is that of a composition rather than of a level's algorithm.
fn composes(name: AlgoName) -> bool {
    matches!(name, AlgoName::Pipeline | AlgoName::Ahc)
}

fn from_levels(op: OpKind, topology: &Topology, levels: settings::Levels) -> Result<Option<Demand>> {
    let demand = |allowed| Ok(Some(Demand { by: "HCCL_ALGO", allowed }));
    let there = existing_levels(topology);
    let named = |level: usize| levels.get(level).filter(|name| *name != AlgoName::Na);
    let refuse = |level: usize, why: &str| {
        let name = levels.get(level).map_or("", AlgoName::name);
        let column = levels.column(level).unwrap_or(0);
        let message = format!("HCCL_ALGO asks for {name:?} at column {column}: {why}");
        Error::new(ErrorCode::PLAN_OP, message).remedy("name another algorithm, or unset HCCL_ALGO")
    };
    let given: Vec<usize> = (0..3).filter(|&level| named(level).is_some()).collect();
    if let Some(&level) =
        given.iter().find(|&&level| named(level).is_some_and(|name| algorithms(name).is_empty()))
    {
        return Err(refuse(level, "there is no such algorithm here"));
    }
    let flat = |level: usize| -> Result<Vec<(Algorithm, Levels)>> {
        let all = named(level).map_or(&[][..], algorithms);
        let carried: Vec<_> = all
            .iter()
            .filter(|algorithm| templates::exists(op, **algorithm))
            .map(|&algorithm| (algorithm, OPEN))
            .collect();
        if carried.is_empty() {
            let why =
                all.first().map_or(String::new(), |algorithm| missing(op, *algorithm).message().to_owned());
            return Err(refuse(level, &why));
        }
        Ok(carried)
    };
    if there.len() < 2 {
        // The level there is decides, or else the one named for others.
        let own = there.iter().chain(&given).find(|&&level| named(level).is_some_and(|name| !composes(name)));
        return own.map_or(Ok(None), |&level| demand(flat(level)?));
    }
    let relevant: Vec<usize> = given.into_iter().filter(|level| there.contains(level)).collect();
    let Some(&outermost) = relevant.last() else { return Ok(None) };
    let mut allowed = compositions(op, topology, &|level| named(level).filter(|_| relevant.contains(&level)));
    if relevant.len() == 1 && !named(outermost).is_some_and(composes) {
        // Nothing is said of the other level: one algorithm over all ranks will do as well.
        match flat(outermost) {
            Ok(carried) => allowed.extend(carried),
            Err(error) if allowed.is_empty() => return Err(error),
            Err(_) => {}
        }
    }
    if allowed.is_empty() {
        let why = format!("{op} is not carried out level by level with these algorithms");
        return Err(refuse(outermost, &why));
    }
    demand(allowed)
}

/// The compositions with these names at their levels.
fn compositions(
    op: OpKind,
    topology: &Topology,
    named: &dyn Fn(usize) -> Option<AlgoName>,
) -> Vec<(Algorithm, Levels)> {
    let composition = (0..3).filter_map(named).find(|name| composes(*name));
    let (composition, depth) = match composition {
        Some(AlgoName::Ahc) => (Algorithm::Ahc, 2),
        Some(_) => (Algorithm::Pipeline, 2),
        None if topology.groups().pods.len() > 1 && named(2).is_some() => (Algorithm::ThreeLevel, 3),
        None => (Algorithm::TwoLevel, 2),
    };
    if !templates::exists(op, composition) {
        return Vec::new();
    }
    let mut all = vec![OPEN];
    for level in 0..depth {
        let choices: Vec<Option<Algorithm>> = match named(level).filter(|name| !composes(*name)) {
            None => vec![None],
            // The levels of a composition have one mesh.
            Some(AlgoName::FullMesh) => vec![Some(Algorithm::MeshTwoShot)],
            Some(name) => algorithms(name).iter().copied().map(Some).collect(),
        };
        all = all
            .into_iter()
            .flat_map(|levels| {
                choices.iter().map(move |&choice| {
                    let mut levels = levels;
                    levels[level] = choice;
                    levels
                })
            })
            .collect();
    }
    all.into_iter().map(|levels| (composition, levels)).collect()
}

/// The levels at which these ranks meet each other.
pub(super) fn existing_levels(topology: &Topology) -> Vec<usize> {
    let groups = topology.groups();
    let (servers, pods) = (groups.servers.len().max(1), groups.pods.len().max(1));
    let ranks = topology.ranks() as usize;
    let wide = [ranks > servers, servers > pods, pods > 1];
    (0..3).filter(|&level| wide[level]).collect()
}
