//! How the operations of a life went.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use wire::launch::{CacheOutcome, OpKind};

use crate::cluster::Cluster;
use crate::communicator::Completed;
use crate::faults::{Cell, Conduct, Kind};

/// How operations went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// How long the last step took, its report included, virtual time.
    pub noticed: Duration,
    /// What struck, which operation, and where that stood.
    pub cells: BTreeSet<Cell>,
    /// What the caches of kernels did, and how often.
    pub cache: BTreeMap<&'static str, u64>,
    /// Digests of all outputs, for each step the number of its part as well.
    pub outputs: BTreeSet<(usize, u64)>,
}

impl Course {
    /// Notes what has struck an operation: hosts and whole NPUs, and the tasks of its ranks.
    pub(super) fn note_struck(
        &mut self,
        cluster: &Cluster,
        op: OpKind,
        faults: &[Kind],
        conduct: &mut Conduct,
    ) {
        let known = |mishap| faults.iter().copied().find(|kind| kind.mishap() == Some(mishap));
        let at_tasks = (0..cluster.topology().ranks())
            .flat_map(|rank| cluster.machine().take_struck(cluster.npu(rank).index()))
            .filter_map(|(mishap, phase)| Some((known(mishap)?, phase)));
        let struck = conduct.struck.drain(..).chain(at_tasks);
        self.cells.extend(struck.map(|(kind, phase)| Cell::new(kind, op, phase)));
    }

    /// Notes a step that was carried out.
    pub(super) fn note_step(&mut self, part: usize, completed: &[Completed], outputs: u64) {
        for own in completed {
            let outcome = CacheOutcome::try_from(own.status.cache).map_or("unknown", CacheOutcome::name);
            *self.cache.entry(outcome).or_default() += 1;
        }
        self.outputs.insert((part, outputs));
    }
}
