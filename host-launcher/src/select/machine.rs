//! A machine with its ranks: how long an operation takes on it, by the tasks of its own template.

use templates::{Plan, PlanError, Shape, Tables};
use wire::npu::{self, Protocol};
use wire::{ErrorCode, Reduction};

use super::clock;
use super::parts::Parts;
use super::profile::{Costs, Profile};
use super::tasks::{Step, Tasks};
use crate::communicator::Operation;
use crate::topology::Topology;

/// Links and costs.
#[derive(Debug)]
pub struct Machine<'t> {
    topology: &'t Topology,
    costs: Costs,
    /// By rank and peer; a rank's entry for itself does not matter.
    links: Vec<Protocol>,
    /// Upper bound of scratch per rank, bytes.
    scratch: u64,
}

/// The tasks of one chunk, by rank and thread, and how many chunks have the same.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The tasks.
    pub tasks: Vec<Vec<Vec<Step>>>,
    /// Chunks like this one.
    pub times: u64,
}

impl<'t> Machine<'t> {
    /// Makes the machine of a profile with these ranks, whose operations get at most `scratch` bytes on each.
    #[must_use]
    pub fn new(topology: &'t Topology, profile: &Profile, scratch: u64) -> Self {
        let ranks = topology.ranks();
        let link = |rank, peer| topology.link(rank, peer).unwrap_or(Protocol::Hccs);
        let links = (0..ranks).flat_map(|rank| (0..ranks).map(move |peer| link(rank, peer))).collect();
        Self { topology, costs: profile.costs(), links, scratch }
    }

    /// Returns the ranks and their links.
    #[must_use]
    pub fn topology(&self) -> &'t Topology {
        self.topology
    }

    /// Returns the costs.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Returns the longest transfer that no engine splits, bytes.
    #[must_use]
    pub fn longest_transfer(&self) -> u64 {
        let longest = |protocol| match protocol {
            Protocol::Hccs => npu::sdma::MAX_LEN,
            Protocol::Roce => npu::roce::MAX_LEN,
            Protocol::Ub => npu::ub::MAX_LEN,
        };
        let links = self.topology.pairs().into_iter().map(|(protocol, _)| longest(protocol));
        links.fold(npu::sdma::MAX_LEN, u64::min)
    }

    /// Returns the plan of one rank.
    ///
    /// # Errors
    /// Those of planning.
    pub fn plan(&self, operation: &Operation, rank: u32, in_place: bool) -> Result<Plan, PlanError> {
        self.planned(operation, rank, in_place, self.reduces_inline(operation))
    }

    fn reduces_inline(&self, operation: &Operation) -> bool {
        self.topology.reduces_inline(Reduction { dtype: operation.dtype, op: operation.reduce })
    }

    fn planned(
        &self,
        operation: &Operation,
        rank: u32,
        in_place: bool,
        inline_reduce: bool,
    ) -> Result<Plan, PlanError> {
        let ranks = self.topology.ranks();
        let groups = self.topology.groups();
        let tables = self.tables(operation, rank, in_place)?;
        let own = || operation.shape(rank, ranks).needs(&groups).threads;
        let shape = Shape {
            scratch_len: operation.scratch(ranks, &groups, self.scratch),
            threads: tables.script.map_or_else(own, |script| script.header().threads),
            inline_reduce,
            in_place,
            ..operation.shape(rank, ranks)
        };
        Plan::new(&shape, &tables)
    }

    /// Returns what plans of one rank refer to.
    ///
    /// # Errors
    /// Why the operation's algorithm file has no script for it.
    pub fn tables<'o>(
        &'o self,
        operation: &'o Operation,
        rank: u32,
        in_place: bool,
    ) -> Result<Tables<'o>, PlanError> {
        let refused = |error: crate::Error| PlanError { code: error.code(), need: 0, limit: 0 };
        let script = operation.script(rank, in_place).map_err(refused)?;
        Ok(Tables { vector: operation.rows(rank), script, ..self.topology.groups() })
    }

    /// Returns the tasks of an operation, by chunks that differ.
    ///
    /// # Errors
    /// Those of planning.
    pub fn tasks(&self, operation: &Operation, in_place: bool) -> Result<Vec<Chunk>, PlanError> {
        let inline = self.reduces_inline(operation);
        let plans = (0..self.topology.ranks()).map(|rank| self.planned(operation, rank, in_place, inline));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let chunks = plans.first().map_or(0, Plan::chunks);
        // All but the last have the same lengths.
        let distinct = [(0, chunks.saturating_sub(1)), (chunks.saturating_sub(1), chunks.min(1))];
        distinct
            .into_iter()
            .filter(|&(_, times)| times > 0)
            .map(|(index, times)| {
                Ok(Chunk { tasks: self.expand(operation, &plans, index, in_place)?, times })
            })
            .collect()
    }

    fn expand(
        &self,
        operation: &Operation,
        plans: &[Plan],
        chunk: u64,
        in_place: bool,
    ) -> Result<Vec<Vec<Vec<Step>>>, PlanError> {
        let refused = |code| PlanError { code, need: 0, limit: 0 };
        (0..)
            .zip(plans)
            .zip(self.links.chunks(plans.len().max(1)))
            .map(|((rank, plan), links)| {
                let mut tasks = Tasks::new(links);
                plan.emit(chunk, &self.tables(operation, rank, in_place)?, &mut tasks).map_err(refused)?;
                Ok(tasks.into_threads())
            })
            .collect()
    }

    /// Returns the modelled time of an operation: chunks one after the other.
    ///
    /// # Errors
    /// Those of planning; `PLAN_INTERNAL` when its tasks wait for each other for ever.
    pub fn time(&self, operation: &Operation, in_place: bool) -> Result<Parts, PlanError> {
        let stuck = PlanError { code: ErrorCode::PLAN_INTERNAL, need: 0, limit: 0 };
        self.tasks(operation, in_place)?.into_iter().try_fold(Parts::default(), |sum, chunk| {
            Ok(sum + clock::run(&self.costs, chunk.tasks).ok_or(stuck)? * chunk.times)
        })
    }
}
