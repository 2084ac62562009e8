//! Which algorithm carries out an operation, and why.
//!
//! The host chooses, the kernel never does. Every candidate is an algorithm, its levels where it is a composition, and
//! where it works. Its time is modelled from its own tasks: the template of every rank is expanded, and the tasks run
//! on a virtual [`clock`] with the constants of a [`profile`]. The caller's demand, then `HCCL_DETERMINISTIC=strict`,
//! then `HCCL_ALGO` narrow the candidates (`asked`); of what is left the fastest is chosen.
//!
//! In steady state a choice costs a look into a table: sizes within 3 % of each other share their choice
//! ([`Selector::choose`]). [`Selector::explain`] shows every candidate of the very size.
//!
//! Not here: how long a run takes on this or any machine. Times compare candidates.

mod asked;
pub mod bound;
pub mod clock;
mod explain;
pub mod machine;
pub mod parts;
pub mod profile;
pub mod tasks;

use core::fmt;
use std::collections::HashMap;
use std::sync::Arc;

use algorithm_file::AlgorithmFile;
use wire::launch::{Algorithm, ElementRange, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp};

pub use asked::Demand;
pub use explain::{Explanation, Row};

use crate::communicator::{Operation, Vector, check_capacity, refused};
use crate::error::{Error, Result};
use crate::settings::Settings;
use crate::topology::Topology;
use machine::Machine;
use parts::{Parts, micros};
use profile::Profile;

/// Algorithms of a composition's levels from the innermost on; `None` for its own choice.
pub type Levels = [Option<Algorithm>; 4];

/// What is asked for, before an algorithm has been chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// Operation.
    pub op: OpKind,
    /// Elements per rank: of the whole or of a block, with a vector of the largest one.
    pub count: u64,
    /// Element type.
    pub dtype: DataType,
    /// Reduction.
    pub reduce: ReduceOp,
    /// Root of a rooted operation.
    pub root: u32,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// Algorithm demanded by the caller.
    pub algorithm: Option<Algorithm>,
    /// Levels demanded by the caller; all `None` for none.
    pub levels: Levels,
    /// Staging demanded by the caller.
    pub staging: Option<Staging>,
}

/// An all-reduce of nothing, with nothing demanded.
impl Default for Question {
    fn default() -> Self {
        Self {
            op: OpKind::AllReduce,
            count: 0,
            dtype: DataType::Fp32,
            reduce: ReduceOp::Sum,
            root: 0,
            in_place: false,
            algorithm: None,
            levels: [None; 4],
            staging: None,
        }
    }
}

/// One way to carry an operation out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Its levels.
    pub levels: Levels,
    /// Where it works.
    pub staging: Staging,
}

/// Prints `two-level[ring, nhr] (direct)`.
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm.name())?;
        let given = self.levels.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        for (index, level) in self.levels.iter().take(given).enumerate() {
            f.write_str(if index == 0 { "[" } else { ", " })?;
            f.write_str(level.map_or("-", Algorithm::name))?;
        }
        write!(f, "{} ({})", if given > 0 { "]" } else { "" }, self.staging)
    }
}

/// An algorithm and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Algorithms of its levels.
    pub levels: Levels,
    /// Where it works.
    pub staging: Staging,
    /// Why, in one clause.
    pub why: String,
}

/// Most ranks that are modelled.
const MOST_RANKS: u32 = 1 << 10;

/// Chooses for the operations of one set of ranks.
#[derive(Debug)]
pub struct Selector<'t> {
    machine: Machine<'t>,
    profile: Profile,
    settings: Settings,
    /// An algorithm that was loaded as data.
    file: Option<Arc<AlgorithmFile>>,
    /// Choices by question, the count replaced by that of its class.
    chosen: HashMap<Question, Choice>,
}

impl<'t> Selector<'t> {
    /// Makes a selector for ranks on the machine of a profile.
    ///
    /// # Errors
    /// `RANKS_RANGE` for more ranks than there is memory to model: all tasks of all of them.
    pub fn new(topology: &'t Topology, profile: Profile, settings: &Settings) -> Result<Self> {
        let ranks = topology.ranks();
        if ranks > MOST_RANKS {
            let message = format!("a model of {ranks} ranks; at most {MOST_RANKS}");
            return Err(Error::new(ErrorCode::RANKS_RANGE, message).remedy("choose for fewer ranks"));
        }
        let machine = Machine::new(topology, &profile, *settings.buffer_bytes.value());
        Ok(Self { machine, profile, settings: settings.clone(), file: None, chosen: HashMap::new() })
    }

    /// Makes an algorithm that was loaded as data a candidate, for the operation and ranks that it is for.
    #[must_use]
    pub fn offering(self, file: Option<Arc<AlgorithmFile>>) -> Self {
        Self { file, chosen: HashMap::new(), ..self }
    }

    /// Returns the machine that times are modelled on.
    #[must_use]
    pub fn machine(&self) -> &Machine<'t> {
        &self.machine
    }

    /// Returns the profile of that machine.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Chooses: of what the caller, `HCCL_DETERMINISTIC` and `HCCL_ALGO` leave, the candidate with the least modelled
    /// time. It is modelled for the middle of the count's class, once.
    ///
    /// # Errors
    /// `PLAN_OP` when what is demanded cannot carry out the operation; what planning refuses, when it refuses
    /// everything; `CONTEXT_CAPACITY` for more ranks than a kernel can know.
    pub fn choose(&mut self, question: &Question) -> Result<Choice> {
        check_capacity(self.ranks())?;
        let class = Question { count: class(question.count), ..*question };
        if let Some(choice) = self.chosen.get(&class)
            && self.machine.plan(&self.operation(question, choice.candidate()), 0, question.in_place).is_ok()
        {
            return Ok(choice.clone());
        }
        match self.explain(&class).and_then(|explanation| explanation.choice()) {
            Ok(choice) => {
                self.chosen.insert(class, choice.clone());
                Ok(choice)
            }
            // What is refused for the class may be refused for another reason, or not at all, at this size.
            Err(_) => self.explain(question)?.choice(),
        }
    }

    /// Shows every candidate: its time, or why it was rejected.
    ///
    /// # Errors
    /// `PLAN_OP` when what is demanded cannot carry out the operation.
    pub fn explain(&self, question: &Question) -> Result<Explanation> {
        let demand = Demand::of(question, self.machine.topology(), &self.settings)?;
        Ok(Explanation::new(self, question, demand))
    }

    /// Returns the modelled time of one candidate.
    ///
    /// # Errors
    /// What planning refuses.
    pub fn time(&self, question: &Question, candidate: Candidate) -> Result<Parts> {
        let operation = self.operation(question, candidate);
        self.machine.time(&operation, question.in_place).map_err(|error| refused(&operation, error))
    }

    /// Returns the operation that is modelled, as [`operation`], with the file that is offered where that is the candidate.
    #[must_use]
    pub fn operation(&self, question: &Question, candidate: Candidate) -> Operation {
        let file = self.file.clone().filter(|_| candidate.algorithm == Algorithm::File);
        Operation { file, ..operation(question, self.ranks(), candidate) }
    }

    fn ranks(&self) -> u32 {
        self.machine.topology().ranks()
    }
}

impl Choice {
    /// Returns the choice of an algorithm that was loaded as data.
    #[must_use]
    pub fn of_file(file: &AlgorithmFile) -> Self {
        let why = format!("{:?}, asked for by --algo-file", file.algorithm().name);
        Self { algorithm: Algorithm::File, levels: [None; 4], staging: Staging::Scratch, why }
    }

    /// Returns what was chosen.
    #[must_use]
    pub fn candidate(&self) -> Candidate {
        Candidate { algorithm: self.algorithm, levels: self.levels, staging: self.staging }
    }
}

/// Chooses once, on the default profile.
///
/// # Errors
/// As [`Selector::choose`].
pub fn choose(question: &Question, topology: &Topology, settings: &Settings) -> Result<Choice> {
    Selector::new(topology, Profile::default(), settings)?.choose(question)
}

/// Returns the operation that is modelled: blocks of a vector are all as long as the longest, and a send-receive goes
/// to the next rank.
#[must_use]
pub fn operation(question: &Question, ranks: u32, candidate: Candidate) -> Operation {
    let Question { op, count, dtype, reduce, root, .. } = *question;
    let vector = vector(op, count, ranks as usize).map(Arc::new);
    let Candidate { algorithm, levels, staging } = candidate;
    let count = if vector.is_some() || op == OpKind::Barrier { 0 } else { count };
    Operation { op, count, root, vector, dtype, reduce, algorithm, levels, staging, ..Operation::default() }
}

fn vector(op: OpKind, count: u64, ranks: usize) -> Option<Vector> {
    let next = |from: usize, to: usize| (from + 1) % ranks == to && from != to;
    let matrix = |sent: &dyn Fn(usize, usize) -> u64| {
        let rows = (0..ranks).map(|from| (0..ranks).map(|to| sent(from, to)).collect());
        Vector::of_matrix(&rows.collect::<Vec<_>>())
    };
    match op {
        OpKind::AllGatherV | OpKind::ReduceScatterV => {
            let block = |index| ElementRange { first: index * count, count };
            Some(Vector::of_blocks(&(0..ranks as u64).map(block).collect::<Vec<_>>()))
        }
        OpKind::AllToAllV => matrix(&|_, _| count),
        OpKind::SendReceive => matrix(&|from, to| if next(from, to) { count } else { 0 }),
        _ => None,
    }
}

/// Returns the count that stands for all of its class: itself if it is small or a multiple of a sixteenth of its octave,
/// where templates have their edges, else the middle between two such.
#[must_use]
pub fn class(count: u64) -> u64 {
    const STEPS: u32 = 4;
    match count.checked_ilog2() {
        None | Some(0..=STEPS) => count,
        Some(power) => {
            let width = 1 << (power - STEPS);
            if count.is_multiple_of(width) { count } else { count / width * width + width / 2 }
        }
    }
}

/// What the modelled time says, for a reason.
fn why(
    choice: (Candidate, &Parts),
    second: Option<(Candidate, &Parts)>,
    profile: &Profile,
    by: Option<&str>,
) -> String {
    let (_, parts) = choice;
    let limit = parts.limit().map_or(String::new(), |part| format!(", mostly {}", part.name()));
    let asked = by.map_or(String::new(), |by| format!("asked for by {by}, "));
    let second = second.map_or(String::new(), |(candidate, parts)| {
        let relation = if parts.total() < choice.1.total() { "taken as equal:" } else { "next" };
        format!("; {relation} {candidate} {:.1} µs", micros(parts.total()))
    });
    format!("{asked}{:.1} µs modelled on {}{limit}{second}", micros(parts.total()), profile.name)
}

/// Refuses an algorithm that does not carry an operation out.
fn missing(op: OpKind, algorithm: Algorithm) -> Error {
    let carries = |algorithm: &&Algorithm| templates::exists(op, **algorithm);
    let names: Vec<_> = Algorithm::ALL.iter().filter(carries).map(|algorithm| algorithm.name()).collect();
    let message = format!("{op} is not carried out by {algorithm}; it is by {}", names.join(", "));
    Error::new(ErrorCode::PLAN_OP, message)
}
