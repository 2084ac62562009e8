//! A communicator: identity, resources, operations in flight.
//!
//! Launching an operation on a rank is three interactions with the device, whatever the operation's size: record the
//! start notify, post the launch, wait for the done notify. [`Communicator::launch`] does the first two and returns;
//! [`Communicator::synchronize`] is the wait, for everything that is in flight. An error poisons the communicator;
//! destroying it gives everything back, and the next one starts clean.

mod capture;
mod end;
mod launch;
mod operation;
mod recovery;
mod work;

use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use aicpu_kernel::MAX_RANKS;
use device_model::driver::LaunchTicket;
use device_model::machine::Outcome;
use wire::ErrorCode;
use wire::launch::CacheMode;
use wire::launch::{Algorithm, Staging};
use wire::npu::{DEFAULT_DEPTH, Status};

use crate::buffer::driver;
use crate::cluster::Cluster;
use crate::diagnosis;
use crate::error::{Error, Result};
use crate::resources::{Identity, RankResources, Resources};
use capture::RankProgram;
pub use capture::{Capture, Program, Slot};
pub use operation::{Operation, Place};
pub use recovery::{Aborter, Retry};
pub(crate) use work::Work;

/// Interactions with the device per operation and rank: record, launch, wait.
pub const HOST_OPS: u64 = 3;

/// What a communicator is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name for messages; identifies nothing.
    pub name: String,
    /// Upper bound of the scratch buffer per rank, bytes (`HCCL_BUFFSIZE`).
    pub buffer_bytes: u64,
    /// Entries of each ring, a power of two.
    pub queue_depth: u32,
    /// How long an operation may take (`HCCL_EXEC_TIMEOUT`).
    pub timeout: Duration,
    /// Where the timeout comes from, for messages.
    pub timeout_source: String,
    /// Whether kernels may replay recorded graphs and keep them.
    pub cache: CacheMode,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "world".to_owned(),
            buffer_bytes: 200 << 20,
            queue_depth: DEFAULT_DEPTH,
            timeout: Duration::from_secs(1836),
            timeout_source: "the default of HCCL_EXEC_TIMEOUT".to_owned(),
            cache: CacheMode::On,
        }
    }
}

/// What has been created so far: flat once every algorithm has been used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetUp {
    /// Channels connected, over all ranks.
    pub channels: u64,
    /// Contexts written, over all ranks.
    pub contexts: u64,
    /// Bytes of scratch per rank.
    pub scratch_bytes: u64,
}

/// One operation of one rank, answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Rank.
    pub rank: u32,
    /// The kernel's answer.
    pub status: Status,
}

/// A launch on a rank that has not been waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) sequence: u32,
    pub(crate) work: Work,
    ticket: LaunchTicket,
    /// Count of the done notify once this operation is done.
    done_at: u64,
}

/// State of one rank.
#[derive(Debug)]
pub(crate) struct RankState {
    done_notify: u32,
    done_count: u64,
    pub(crate) launched: u32,
    pub(crate) in_flight: VecDeque<InFlight>,
}

/// A group of ranks, one per NPU of a cluster.
#[derive(Debug)]
pub struct Communicator<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    pub(crate) ranks: Vec<RankState>,
    resources: HashMap<(Algorithm, Staging), Resources>,
    retired: Vec<Resources>,
    /// What each program has on every rank, by the program's number.
    programs: HashMap<u32, Vec<RankProgram>>,
    /// Programs captured so far.
    captured: u32,
    set_up: SetUp,
    poisoned: bool,
    suspended: bool,
    aborter: Aborter,
}

impl<'c> Communicator<'c> {
    /// Creates a communicator over all ranks of a cluster. No channel is made before the first operation needs it.
    ///
    /// # Errors
    /// `CONTEXT_CAPACITY` for more ranks than a kernel can know, `NPU_DEAD`, `DEVICE_MEMORY` without random numbers for
    /// its identity, `HOST_NOTIFIES_FULL`.
    pub fn create(cluster: &'c Cluster, config: Config) -> Result<Self> {
        let ranks = cluster.topology().ranks();
        if ranks as usize > MAX_RANKS {
            let message = format!("{ranks} ranks; kernels are built for {MAX_RANKS}");
            return Err(Error::new(ErrorCode::CONTEXT_CAPACITY, message));
        }
        recovery::check_alive(cluster)?;
        let identity = Identity { name: config.name.clone(), instance: random_instance(cluster)?, epoch: 1 };
        let ranks = (0..cluster.topology().ranks())
            .map(|rank| {
                let npu = cluster.npu(rank);
                let done_notify = npu.alloc_host_notify().map_err(driver)?;
                let done_count = npu.host_notify_count(done_notify);
                Ok(RankState { done_notify, done_count, launched: 0, in_flight: VecDeque::new() })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            cluster,
            config,
            identity,
            ranks,
            resources: HashMap::new(),
            retired: Vec::new(),
            programs: HashMap::new(),
            captured: 0,
            set_up: SetUp::default(),
            poisoned: false,
            suspended: false,
            aborter: Aborter::default(),
        })
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.cluster.topology().ranks()
    }

    /// Returns what has been created so far.
    #[must_use]
    pub fn set_up(&self) -> SetUp {
        self.set_up
    }

    /// Returns whether an error has made this communicator useless.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Waits until everything in flight is done, on all ranks.
    ///
    /// # Errors
    /// The first cause, with rank, step, task and peer: a launch that was refused, a device that stopped at an
    /// error, also at one of another communicator's, a deadline that passed; ranks that have not all done the same, or a
    /// signal that nobody waited for, although all is done. `COMM_ABORTED` when an [`Aborter`] was used. The communicator
    /// is poisoned then.
    ///
    /// What is done after the deadline, but before it was noticed, is no error.
    pub fn synchronize(&mut self) -> Result<Vec<Completed>> {
        let cluster = self.cluster;
        let started = cluster.clock().now();
        let deadline = started.checked_add(self.config.timeout);
        let ranks = &self.ranks;
        let settled = || ranks.iter().enumerate().all(|(rank, state)| is_settled(cluster, rank, state));
        let refused =
            || ranks.iter().enumerate().any(|(rank, state)| refusal(cluster, rank, state).is_some());
        // A rank that was refused never signals its peers: waiting for those would only delay the message.
        let mut turns = 0_u32;
        let aborted = || self.aborter.is_aborted();
        let outcome = cluster.machine().run_until(
            || {
                turns = turns.wrapping_add(1);
                settled() || aborted() || (turns.is_multiple_of(64) && refused())
            },
            deadline,
        );
        if aborted() {
            self.abort()?;
            return Err(Error::new(ErrorCode::COMM_ABORTED, "its host aborted it while it was waited for"));
        }
        // A helper may have carried out the last task after this thread looked at the clock.
        let done = outcome == Outcome::Done || (outcome == Outcome::Deadline && settled());
        let failure = if done && !refused() {
            // Ranks that are all done may still not have done the same, or have done it too early.
            diagnosis::disagreement(self, started).or_else(|| diagnosis::left_over(self, started))
        } else {
            let differ =
                if outcome == Outcome::Deadline { diagnosis::disagreement(self, started) } else { None };
            Some(differ.unwrap_or_else(|| diagnosis::explain(self, outcome, started)))
        };
        match failure {
            None => Ok(self.collect()),
            Some(error) => {
                self.poisoned = true;
                Err(error)
            }
        }
    }

    /// Returns a notify of a rank that is set, and the peer that sets it, `None` for the rank itself.
    pub(crate) fn set_notify(&self, rank: u32) -> Option<(u32, Option<u32>)> {
        let npu = self.cluster.npu(rank);
        let mut own = self.all_resources().filter_map(|resources| resources.ranks.get(rank as usize));
        own.find_map(|resources| resources.set_notify(npu))
    }

    /// Returns the kernel's answer to the newest launch of a rank that was refused, and its operation.
    pub(crate) fn refusal_of(&self, rank: usize) -> Option<(InFlight, Status)> {
        refusal(self.cluster, rank, &self.ranks[rank])
    }

    /// Returns whether everything a rank has in flight is done.
    pub(crate) fn is_done(&self, rank: usize) -> bool {
        is_settled(self.cluster, rank, &self.ranks[rank])
    }

    /// Returns the kernel's answer to an operation of a rank that is still in flight.
    pub(crate) fn answer_to(&self, rank: u32, sequence: u32) -> Option<Status> {
        let launched = &self.ranks.get(rank as usize)?.in_flight;
        let launched = launched.iter().find(|launched| launched.sequence == sequence)?;
        self.cluster.npu(rank).status(launched.ticket)
    }

    /// Returns whether the kernel of a rank has submitted all tasks of everything in flight.
    pub(crate) fn has_submitted_all(&self, rank: u32) -> bool {
        self.answers(rank).all(|status| status.is_some_and(|status| status.code == 0))
    }

    /// Returns whether a queue of a rank's NPU is this communicator's.
    pub(crate) fn owns(&self, rank: u32, queue: u16) -> bool {
        let resources = self.all_resources().filter_map(|resources| resources.ranks.get(rank as usize));
        resources.flat_map(RankResources::queues).any(|own| own.0 == queue)
    }

    /// Everything that has been created and not yet given back.
    fn all_resources(&self) -> impl Iterator<Item = &Resources> {
        self.resources.values().chain(&self.retired)
    }

    /// Returns the kernel's answers to what a rank has in flight, `None` where there is none yet.
    fn answers(&self, rank: u32) -> impl Iterator<Item = Option<Status>> {
        let in_flight = self.ranks[rank as usize].in_flight.iter();
        in_flight.map(move |launched| self.cluster.npu(rank).status(launched.ticket))
    }

    fn collect(&mut self) -> Vec<Completed> {
        let mut completed = Vec::new();
        for (rank, state) in (0..).zip(&mut self.ranks) {
            let npu = self.cluster.npu(rank);
            let answers = state.in_flight.drain(..).filter_map(|launched| npu.status(launched.ticket));
            completed.extend(answers.map(|status| Completed { rank, status }));
        }
        completed
    }
}

/// 128 bits that no other communicator has.
fn random_instance(cluster: &Cluster) -> Result<[u64; 2]> {
    let word = || {
        cluster.npu(0).fabric().random().map_err(|error| {
            Error::new(
                ErrorCode::DEVICE_MEMORY,
                format!("no random numbers for the communicator's identity: {error}"),
            )
        })
    };
    Ok([word()? | 1, word()?])
}

fn is_settled(cluster: &Cluster, rank: usize, state: &RankState) -> bool {
    let Some(last) = state.in_flight.back() else { return true };
    // CAST: ranks are counted in u32.
    let npu = cluster.npu(u32::try_from(rank).unwrap_or(u32::MAX));
    npu.host_notify_count(state.done_notify) >= last.done_at && npu.status(last.ticket).is_some()
}

fn refusal(cluster: &Cluster, rank: usize, state: &RankState) -> Option<(InFlight, Status)> {
    let npu = cluster.npu(u32::try_from(rank).ok()?);
    let answers =
        state.in_flight.iter().filter_map(|launched| Some((*launched, npu.status(launched.ticket)?)));
    answers.into_iter().find(|(_, status)| status.code != 0)
}
