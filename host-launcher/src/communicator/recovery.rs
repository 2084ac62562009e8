//! Getting out of trouble: abort, suspend, resume, and whether an operation can simply be repeated.
//!
//! All of it rests on one thing: a communicator can be stopped at any time. Its kernels are told to drop what they have
//! of it, its queues leave the devices, and what is under way is waited for. Then nothing works for it any more, and
//! its resources can be given back, or made anew under the next epoch, which no old graph, context or program matches.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;

use serde::Serialize;
use task_graph::{Caps, RegionId, RegionKind, Span, Task, TaskSink, ThreadId};
use templates::Plan;
use wire::npu::ABORTED;
use wire::{ErrorCode, Phase};

use super::{Communicator, Operation};
use crate::cluster::Cluster;
use crate::error::{Error, Result};

/// How long kernels get to answer what they have of a communicator that is stopped.
const QUIESCE: Duration = Duration::from_secs(5);

/// Aborts a communicator, from any thread, also while another waits for it.
#[derive(Clone, Debug, Default)]
pub struct Aborter(Arc<AtomicBool>);

impl Aborter {
    /// Makes the wait under way, and every later call, fail with `COMM_ABORTED`.
    pub fn abort(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns whether the communicator was aborted.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Whether an operation that failed can be repeated with the input it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// No task of any rank writes the input.
    pub possible: bool,
    /// Tasks that write it, in one chunk of one rank.
    pub writes: u64,
}

/// Prints it as a clause.
impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.possible {
            f.write_str("the input is intact: the operation can be repeated")
        } else {
            write!(
                f,
                "{} tasks write the input: it must be filled again before the operation is repeated",
                self.writes
            )
        }
    }
}

impl Communicator<'_> {
    /// Returns a handle that aborts this communicator.
    #[must_use]
    pub fn aborter(&self) -> Aborter {
        self.aborter.clone()
    }

    /// Aborts: nothing of this communicator is executed any more when this returns, on any rank. Other communicators
    /// go on. What was in flight is not done.
    ///
    /// # Errors
    /// `KERNEL_SILENT` when a kernel does not answer.
    pub fn abort(&mut self) -> Result<()> {
        self.aborter.abort();
        self.poisoned = true;
        self.stop()
    }

    /// Suspends, after an error or without one: stops as [`abort`](Self::abort) does, and gives back everything but the
    /// identity. Returns how many launches were dropped, over all ranks. A second time it does nothing.
    ///
    /// # Errors
    /// `KERNEL_SILENT` when a kernel does not answer, those of the driver.
    pub fn suspend(&mut self) -> Result<usize> {
        if self.suspended {
            return Ok(0);
        }
        let dropped = self.ranks.iter().map(|state| state.in_flight.len()).sum();
        self.stop()?;
        self.release()?;
        self.suspended = true;
        Ok(dropped)
    }

    /// Resumes under the next epoch: no graph, context or program from before is valid any more, and programs have to be
    /// captured anew. Undoes an abort, and an error.
    ///
    /// # Errors
    /// `NPU_DEAD` when one of the NPUs is; the communicator stays suspended. `COMM_SUSPENDED` for one that is not
    /// suspended.
    pub fn resume(&mut self) -> Result<()> {
        if !self.suspended {
            return Err(Error::new(ErrorCode::COMM_SUSPENDED, "it is not: there is nothing to resume")
                .remedy("suspend it first"));
        }
        check_alive(self.cluster)?;
        self.identity.epoch += 1;
        let newest = self.ranks.iter().map(|state| state.launched).max().unwrap_or(0);
        for (rank, state) in (0..).zip(&mut self.ranks) {
            // Ranks count from the same number again, and done notifies from where the devices left them.
            state.launched = newest;
            state.done_count = self.cluster.npu(rank).host_notify_count(state.done_notify);
        }
        (self.suspended, self.poisoned) = (false, false);
        self.aborter.clear();
        Ok(())
    }

    /// Takes the queues from the devices and waits until no kernel works on anything of this communicator any more.
    pub(super) fn stop(&mut self) -> Result<()> {
        let (cluster, machine) = (self.cluster, self.cluster.machine());
        let tell = |word: u64| {
            for rank in 0..cluster.topology().ranks() {
                // ORDER: a word of its own; a kernel that sees it late works in vain until then.
                cluster.npu(rank).window().word(ABORTED).store(word, Ordering::Release);
                cluster.wake(rank);
            }
        };
        tell(self.identity.instance[0]);
        // What is held is never posted.
        cluster.order().forget(self.identity.instance);
        self.all_resources().try_for_each(|resources| resources.retire(cluster))?;
        // Retired first: an NPU that executes again finds none of these queues.
        let npu = |rank: u32| cluster.npu(rank).index();
        (0..self.size()).for_each(|rank| machine.reset(npu(rank)));
        // What is dead writes nothing any more, and will not answer.
        let has_answered =
            |rank| machine.is_dead(npu(rank)) || self.answers(rank).all(|status| status.is_some());
        let answered = || {
            // Nobody executes what a kernel still has to submit: without room it would wait until its deadline.
            self.all_resources().for_each(|resources| resources.discard(cluster));
            // A signal that is under way would arrive at whoever gets the notify next.
            (0..self.size()).all(has_answered) && machine.is_quiet()
        };
        let stopped = machine.run_past_errors(answered, cluster.clock().now().checked_add(QUIESCE));
        tell(0);
        if !stopped {
            let silent = (0..self.size()).find(|rank| !has_answered(*rank)).unwrap_or(0);
            let message =
                format!("the kernel of rank {silent} has not answered its launch within {QUIESCE:?}");
            return Err(Error::new(ErrorCode::KERNEL_SILENT, message));
        }
        self.ranks.iter_mut().for_each(|state| state.in_flight.clear());
        Ok(())
    }

    /// Returns whether an operation that failed can be repeated with the input it had: whether no task of any rank writes
    /// it. Computed from the tasks themselves.
    ///
    /// # Errors
    /// As [`chunk_elements`](Self::chunk_elements).
    pub fn retry(&self, operation: &Operation, in_place: bool) -> Result<Retry> {
        let mut writes = 0;
        for rank in 0..self.size() {
            let (shape, tables) = self.planned(operation, rank, in_place)?;
            let refused = |code| Error::new(code, format!("{operation}: cannot be planned"));
            let plan = Plan::new(&shape, &tables).map_err(|error| refused(error.code))?;
            let mut watch = InputWatch { in_place, inline: shape.inline_reduce, writes: 0 };
            // Chunks differ in their places only; the last may be shorter.
            for chunk in [0, plan.chunks().saturating_sub(1)] {
                plan.emit(chunk, &tables, &mut watch).map_err(refused)?;
            }
            writes = writes.max(watch.writes);
        }
        Ok(Retry { possible: writes == 0, writes })
    }
}

/// Refuses to build on an NPU that is dead.
pub(super) fn check_alive(cluster: &Cluster) -> Result<()> {
    match (0..cluster.topology().ranks()).find(|rank| cluster.machine().is_dead(cluster.npu(*rank).index())) {
        None => Ok(()),
        Some(rank) => Err(Error::new(ErrorCode::NPU_DEAD, format!("the NPU of rank {rank} is dead"))),
    }
}

/// Counts the tasks that write an input, of the rank itself or of a peer.
struct InputWatch {
    in_place: bool,
    inline: bool,
    writes: u64,
}

impl TaskSink for InputWatch {
    fn caps(&self, _peer: u32) -> Caps {
        let all = if self.inline { u32::MAX } else { 0 };
        Caps { reduce_types: all, reduce_ops: all, write_notify: true }
    }

    fn mark(&mut self, _phase: Phase, _step: u16) {}

    fn task(&mut self, _thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        let is_input = |region: RegionId| match region.kind() {
            RegionKind::Input => true,
            RegionKind::Output => self.in_place,
            RegionKind::Scratch => false,
        };
        let written: Option<Span> = match *task {
            Task::LocalCopy { dst, .. }
            | Task::LocalReduce { dst, .. }
            | Task::Write { dst, .. }
            | Task::Read { dst, .. } => Some(dst),
            _ => None,
        };
        self.writes += u64::from(written.is_some_and(|span| is_input(span.region)));
        Ok(())
    }
}
