//! Every candidate of one operation: its time, or why it was rejected.

use templates::PlanError;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{ErrorCode, Reduction};

use super::asked::existing_levels;
use super::bound::{self, Bound};
use super::parts::Parts;
use super::{Candidate, Choice, Demand, Levels, Question, Selector, why};
use crate::communicator::refused;
use crate::error::{Error, Result};

/// One candidate.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is.
    pub candidate: Candidate,
    /// Its modelled time; `None` where it cannot be carried out.
    pub time: Option<Parts>,
    /// Why it is out of the question; `None` where it is not.
    pub rejected: Option<String>,
}

/// How an operation was decided.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// What was asked.
    pub question: Question,
    /// Every candidate that could be carried out: the chosen one first, then those with more modelled time, then the
    /// rejected ones.
    pub rows: Vec<Row>,
    /// Algorithms that do not carry the operation out.
    pub missing: Vec<Algorithm>,
    /// What narrowed the candidates.
    pub demand: Option<Demand>,
    /// What no algorithm goes below.
    pub bound: Bound,
    /// The choice, or what planning said of the first candidate that was allowed.
    outcome: Result<Choice>,
}

impl Explanation {
    pub(super) fn new(selector: &Selector<'_>, question: &Question, demand: Option<Demand>) -> Self {
        let (exist, missing): (Vec<_>, Vec<_>) =
            built_in().partition(|algorithm| templates::exists(question.op, *algorithm));
        let mut failure = None;
        let leveled = existing_levels(selector.machine.topology()).len() > 1;
        let file = selector.file.iter().map(|_| FILE);
        let mut rows: Vec<Row> = candidates(&exist, leveled, demand.as_ref())
            .into_iter()
            .chain(file)
            .map(|candidate| {
                let operation = selector.operation(question, candidate);
                let unwanted = unwanted(question, demand.as_ref(), candidate);
                // A file is for one operation of one number of ranks.
                let other =
                    (candidate == FILE).then(|| operation.check_file(selector.ranks()).err()).flatten();
                let time = match other {
                    Some(error) => Err((error.message().to_owned(), error)),
                    None => selector
                        .machine
                        .time(&operation, question.in_place)
                        .map_err(|error| (unplanned(selector, question, error), refused(&operation, error))),
                };
                let rejected = match &time {
                    Err((reason, _)) => Some(reason.clone()),
                    Ok(_) => unwanted.clone(),
                };
                // Of the two stagings the second, scratch, has the better reason.
                if let (Err((_, error)), None) = (&time, unwanted) {
                    failure = Some(error.clone());
                }
                Row { candidate, time: time.ok(), rejected }
            })
            .collect();
        rows.sort_by_key(|row| {
            (row.rejected.is_some(), row.time.is_none(), row.time.as_ref().map_or(0, Parts::total))
        });
        if let Some(chosen) = preferred(&rows) {
            let chosen = rows.remove(chosen);
            rows.insert(0, chosen);
        }
        let mut possible = rows
            .iter()
            .filter(|row| row.rejected.is_none())
            .filter_map(|row| row.time.as_ref().map(|time| (row.candidate, time)));
        let outcome = match possible.next() {
            Some(first) => {
                let by = demand.as_ref().map(|demand| demand.by);
                let Candidate { algorithm, levels, staging } = first.0;
                let why = why(first, possible.next(), &selector.profile, by);
                Ok(Choice { algorithm, levels, staging, why })
            }
            None => Err(failure.unwrap_or_else(|| {
                let message = format!("{} cannot be carried out as asked", question.op);
                Error::new(ErrorCode::PLAN_OP, message)
            })),
        };
        let bytes = question.count.saturating_mul(question.dtype.size_bytes());
        let bound = bound::of(&selector.machine, question.op, bytes);
        Self { question: *question, rows, missing, demand, bound, outcome }
    }

    /// Returns the choice.
    ///
    /// # Errors
    /// What planning said of the first candidate that was allowed, when none can be carried out.
    pub fn choice(&self) -> Result<Choice> {
        self.outcome.clone()
    }
}

/// The algorithm that was loaded as data: it works in scratch.
const FILE: Candidate =
    Candidate { algorithm: Algorithm::File, levels: [None; 4], staging: Staging::Scratch };

/// Who is preferred among equals: the fewer steps wait for each other, the better links and helpers share the work.
const PREFERENCE: [Algorithm; 8] = [
    Algorithm::MeshOneShot,
    Algorithm::MeshTwoShot,
    Algorithm::Star,
    Algorithm::Tree,
    Algorithm::HalvingDoubling,
    Algorithm::Nhr,
    Algorithm::Nb,
    Algorithm::MeshChunk,
];

/// Times that differ by less than this part are equal: no profile is more exact.
const EQUAL: u64 = 32;

/// Returns the place of the row that is chosen, of rows by time: the fastest, or one that is as fast and preferred.
fn preferred(rows: &[Row]) -> Option<usize> {
    let possible = || {
        let rows = rows.iter().enumerate().filter(|(_, row)| row.rejected.is_none());
        rows.filter_map(|(index, row)| Some((index, row.candidate, row.time?.total())))
    };
    let (_, _, best) = possible().next()?;
    let rank = |candidate: Candidate| {
        let place = PREFERENCE.iter().position(|algorithm| *algorithm == candidate.algorithm);
        place.unwrap_or(PREFERENCE.len())
    };
    let equal = possible().filter(|(_, _, time)| *time <= best.saturating_add(best / EQUAL));
    equal.min_by_key(|(_, candidate, _)| rank(*candidate)).map(|(index, ..)| index)
}

/// The algorithms that need no file.
fn built_in() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.iter().copied().filter(|algorithm| *algorithm != Algorithm::File)
}

/// What is tried at the levels of a composition besides its own choice.
const LEVELS: [&[Algorithm]; 2] = [
    &[Algorithm::MeshTwoShot, Algorithm::Ring],
    &[Algorithm::Ring, Algorithm::HalvingDoubling, Algorithm::Nhr, Algorithm::Nb],
];

/// Every algorithm there is, where ranks have several levels with what they may run, and what is demanded, with both
/// stagings.
fn candidates(exist: &[Algorithm], leveled: bool, demand: Option<&Demand>) -> Vec<Candidate> {
    let open = exist.iter().map(|algorithm| (*algorithm, Levels::default()));
    let mut all: Vec<(Algorithm, Levels)> = open.collect();
    if leveled && exist.contains(&Algorithm::TwoLevel) {
        let [inside, across] = LEVELS;
        let pairs = inside.iter().flat_map(|inner| across.iter().map(move |outer| (*inner, *outer)));
        // Mesh and NHR are what it chooses itself.
        let pairs = pairs.filter(|pair| *pair != (Algorithm::MeshTwoShot, Algorithm::Nhr));
        all.extend(pairs.map(|(inner, outer)| (Algorithm::TwoLevel, [Some(inner), Some(outer), None, None])));
    }
    let asked = demand.iter().flat_map(|demand| &demand.allowed);
    for asked in asked.filter(|(algorithm, _)| *algorithm != Algorithm::File) {
        if !all.contains(asked) {
            all.push(*asked);
        }
    }
    let staged = |(algorithm, levels)| {
        [Staging::Direct, Staging::Scratch].map(|staging| Candidate { algorithm, levels, staging })
    };
    all.into_iter().flat_map(staged).collect()
}

/// Why a candidate that can be carried out is not wanted.
fn unwanted(question: &Question, demand: Option<&Demand>, candidate: Candidate) -> Option<String> {
    let Candidate { algorithm, levels, staging } = candidate;
    match (demand, question.staging) {
        (Some(demand), _) if !demand.allowed.contains(&(algorithm, levels)) => {
            Some(format!("not what {} asks for", demand.by))
        }
        (_, Some(asked)) if asked != staging => Some(format!("--staging asks for {asked}")),
        // The strict order is its own choice: it costs and nobody asked for it.
        (None, _) if algorithm == Algorithm::Strict => {
            Some("only where HCCL_DETERMINISTIC is strict".to_owned())
        }
        _ => None,
    }
}

/// Why a candidate cannot be carried out.
fn unplanned(selector: &Selector<'_>, question: &Question, error: PlanError) -> String {
    let PlanError { code, need, limit } = error;
    match code {
        ErrorCode::PLAN_STAGING if question.in_place => {
            "cannot work directly where input and output are the same memory".to_owned()
        }
        ErrorCode::PLAN_STAGING if reduces_on_the_way(selector, question) => {
            "cannot work directly: its result is put together in scratch".to_owned()
        }
        ErrorCode::PLAN_STAGING => {
            let (dtype, reduce) = (question.dtype, question.reduce);
            format!("cannot work directly: not every link reduces {dtype} {reduce} while moving it")
        }
        ErrorCode::PLAN_SCRATCH => format!("needs {need} bytes of scratch, HCCL_BUFFSIZE allows {limit}"),
        _ => {
            let summary = code.info().map_or("refused", |info| info.summary);
            match (need, limit) {
                (0, 0) => summary.to_owned(),
                _ => format!("{summary} (needs {need}, there is {limit})"),
            }
        }
    }
}

fn reduces_on_the_way(selector: &Selector<'_>, question: &Question) -> bool {
    let reduction = Reduction { dtype: question.dtype, op: question.reduce };
    !question.op.reduces()
        || question.op == OpKind::ReduceScatterV
        || selector.machine.topology().reduces_inline(reduction)
}
