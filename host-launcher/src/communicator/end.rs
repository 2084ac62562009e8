//! The end of a communicator: its queues leave the devices, its kernels come to rest, everything is given back.
//!
//! Other communicators of the cluster go on. What they share with this one is the NPUs: one that has stopped, at a task
//! of this communicator or otherwise, executes the others' tasks again once the queues of this one are gone.

use core::time::Duration;
use std::time::Instant;

use wire::ErrorCode;

use super::Communicator;
use crate::buffer::driver;
use crate::error::{Error, Result};

/// How long kernels get to finish what they are at when a communicator is destroyed with work in flight.
const QUIESCE: Duration = Duration::from_secs(5);

impl Communicator<'_> {
    /// Gives everything back; after an error, and with operations in flight, too: what those have not done yet is not
    /// done any more.
    ///
    /// After an error, NPUs that have stopped are made to execute again. A queue of another communicator is lost only
    /// if its own task stopped the NPU.
    ///
    /// # Errors
    /// `KERNEL_SILENT` when a kernel has yet to answer a launch: it may still write to what would be given back, so
    /// nothing is. Those of the driver: bookkeeping that does not add up.
    pub fn destroy(mut self) -> Result<()> {
        if self.poisoned || self.ranks.iter().any(|state| !state.in_flight.is_empty()) {
            self.quiesce()?;
        }
        for resources in self.resources.drain().map(|(_, resources)| resources).chain(self.retired.drain(..))
        {
            resources.free(self.cluster)?;
        }
        for ranks in self.programs.values() {
            (0..).zip(ranks).try_for_each(|(rank, own)| own.free(self.cluster, rank))?;
        }
        for (rank, at) in (0..).zip(&self.vectors) {
            self.cluster.npu(rank).free(*at).map_err(driver)?;
        }
        for (rank, at) in self.scripts.values().flat_map(|places| (0..).zip(places)) {
            self.cluster.npu(rank).free(*at).map_err(driver)?;
        }
        for (rank, state) in (0..).zip(&self.ranks) {
            self.cluster.npu(rank).free_host_notify(state.done_notify).map_err(driver)?;
        }
        Ok(())
    }

    /// Takes the queues from the devices and waits until no kernel works on anything of this communicator any more.
    fn quiesce(&self) -> Result<()> {
        let machine = self.cluster.machine();
        self.all_resources().try_for_each(|resources| resources.retire(self.cluster))?;
        // Retired first: an NPU that executes again finds none of these queues.
        (0..self.size()).for_each(|rank| machine.reset(self.cluster.npu(rank).index()));
        let has_answered = |rank| self.answers(rank).all(|status| status.is_some());
        let answered = || {
            // Nobody executes what a kernel still has to submit: without room it would wait until its deadline.
            self.all_resources().for_each(|resources| resources.discard(self.cluster));
            (0..self.size()).all(has_answered)
        };
        if machine.run_past_errors(answered, Instant::now().checked_add(QUIESCE)) {
            return Ok(());
        }
        let silent = (0..self.size()).find(|rank| !has_answered(*rank)).unwrap_or(0);
        let message = format!("the kernel of rank {silent} has not answered its launch within {QUIESCE:?}");
        Err(Error::new(ErrorCode::KERNEL_SILENT, message))
    }
}
