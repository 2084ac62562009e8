//! The end of a communicator: its queues leave the devices, its kernels come to rest, everything is given back.
//!
//! Other communicators of the cluster go on. What they share with this one is the NPUs: one that has stopped, at a task
//! of this communicator or otherwise, executes the others' tasks again once the queues of this one are gone.

use super::Communicator;
use crate::buffer::driver;
use crate::error::Result;

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
            self.stop()?;
        }
        self.cluster.order().leave(self.identity.instance);
        self.release()?;
        (0..)
            .zip(&self.ranks)
            .try_for_each(|(rank, state)| self.cluster.npu(rank).free_host_notify(state.done_notify))
            .map_err(driver)
    }

    /// Gives back everything but the identity.
    pub(super) fn release(&mut self) -> Result<()> {
        let resources = self.resources.drain(..).map(|(_, resources)| resources);
        resources.chain(self.retired.drain(..)).try_for_each(|resources| resources.free(self.cluster))?;
        for (_, ranks) in self.programs.drain() {
            (0..).zip(&ranks).try_for_each(|(rank, own)| own.free(self.cluster, rank))?;
        }
        for (rank, at) in (0..).zip(self.vectors.drain(..)) {
            self.cluster.npu(rank).free(at).map_err(driver)?;
        }
        for (rank, at) in self.scripts.drain().flat_map(|(_, places)| (0..).zip(places)) {
            self.cluster.npu(rank).free(at).map_err(driver)?;
        }
        Ok(())
    }
}
