//! A communicator: identity, resources, operations in flight.
//!
//! Launching an operation on a rank is three interactions with the device, whatever the operation's size: record the
//! start notify, post the launch, wait for the done notify. [`Communicator::launch`] does the first two and returns;
//! [`Communicator::synchronize`] is the wait, for everything that is in flight. An error poisons the communicator;
//! destroying it gives everything back, and the next one starts clean.

mod budget;
mod capture;
mod end;
mod file;
mod launch;
mod operation;
mod pending;
mod recovery;
mod vector;
mod wait;
mod work;

use core::time::Duration;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;

use aicpu_kernel::MAX_RANKS;
use wire::launch::CacheMode;
use wire::launch::{Algorithm, Staging};
use wire::npu::{DEFAULT_DEPTH, Status};
use wire::{DeviceAddr, ErrorCode};

use crate::buffer::driver;
use crate::cluster::Cluster;
use crate::diagnosis::OnWarning;
use crate::error::{Error, Result};
use crate::resources::{Identity, RankResources, Resources};
use crate::stream::{Mark, Number, Ticket};
pub use budget::Budget;
use capture::RankProgram;
pub use capture::{Capture, Program, Slot};
pub(crate) use operation::refused;
pub use operation::{Operation, Place};
pub use pending::{PendingOperation, Progress};
pub use recovery::{Aborter, Retry};
pub use vector::Vector;
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
    /// When signatures are compared before success is reported.
    pub compare: Compare,
    /// After how much waiting to warn, ascending; what comes after the timeout is not reached.
    pub warn_after: Vec<Duration>,
    /// Whom to warn.
    pub on_warning: OnWarning,
    /// Folder for dumps of all ranks when an operation fails; none are written without one.
    pub dump: Option<PathBuf>,
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
            compare: Compare::default(),
            warn_after: [1, 10, 60].map(Duration::from_secs).to_vec(),
            on_warning: OnWarning::default(),
            dump: None,
        }
    }
}

/// When the signatures of all ranks' launches are compared before success is reported. Kernels always record them, and a
/// report always compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compare {
    /// Never: ranks that were asked for different things may be told success, or wait until the deadline.
    Off,
    /// When something is launched for the first time, and when the host knows that ranks launched different things.
    #[default]
    First,
    /// With every operation.
    Always,
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
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) sequence: u32,
    pub(crate) work: Work,
    pub(crate) ticket: Ticket,
    /// Count of the done notify once this operation is done.
    pub(crate) done_at: u64,
    /// Queue of the thread that records that notify: what follows on the same queue comes after it.
    queue: u16,
}

/// State of one rank.
#[derive(Debug)]
pub(crate) struct RankState {
    pub(crate) done_notify: u32,
    done_count: u64,
    pub(crate) launched: u32,
    pub(crate) in_flight: VecDeque<InFlight>,
}

/// What has resources of its own: an algorithm, those of its levels, where it works, and of algorithm files each file.
type Kind = (Algorithm, [Option<Algorithm>; 4], Staging, Option<u64>);

/// A group of ranks, one per NPU of a cluster.
#[derive(Debug)]
pub struct Communicator<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    pub(crate) ranks: Vec<RankState>,
    /// In the order of first use: a few, so that looking through them is faster than hashing.
    resources: Vec<(Kind, Resources)>,
    retired: Vec<Resources>,
    /// What each program has on every rank, by the program's number.
    programs: HashMap<u32, Vec<RankProgram>>,
    /// Where the vectors of launches in flight lie on each rank; empty until there is one.
    vectors: Vec<DeviceAddr>,
    /// Where the scripts of algorithm files lie on each rank, by the file's digest and whether in place.
    scripts: HashMap<(u64, bool), Vec<DeviceAddr>>,
    /// Programs captured so far.
    captured: u32,
    set_up: SetUp,
    poisoned: bool,
    repeated_doorbells: u64,
    /// What all ranks are known to have been asked for alike at least once.
    agreed: HashSet<Work>,
    /// The one of these that was launched last: what most launches are.
    last_agreed: Option<Work>,
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
        check_capacity(ranks)?;
        recovery::check_alive(cluster)?;
        let identity = Identity { name: config.name.clone(), instance: random_instance(cluster)?, epoch: 1 };
        cluster.order().join(identity.instance, &identity.name);
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
            resources: Vec::new(),
            retired: Vec::new(),
            programs: HashMap::new(),
            vectors: Vec::new(),
            scripts: HashMap::new(),
            captured: 0,
            set_up: SetUp::default(),
            poisoned: false,
            repeated_doorbells: 0,
            agreed: HashSet::new(),
            last_agreed: None,
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

    /// What the communicator has on a rank, for each algorithm that was used.
    pub(crate) fn resources_on(&self, rank: u32) -> impl Iterator<Item = &RankResources> {
        self.all_resources().filter_map(move |resources| resources.ranks.get(rank as usize))
    }

    /// Returns a notify of a rank that is set, and the peer that sets it, `None` for the rank itself.
    pub(crate) fn set_notify(&self, rank: u32) -> Option<(u32, Option<u32>)> {
        let npu = self.cluster.npu(rank);
        self.resources_on(rank).find_map(|resources| resources.set_notify(npu))
    }

    /// What has been created for operations of this kind.
    fn resources_for(&self, operation: &Operation) -> Option<&Resources> {
        let key = operation.kind();
        self.resources.iter().find(|(kind, _)| *kind == key).map(|(_, resources)| resources)
    }

    /// Everything that has been created and not yet given back.
    fn all_resources(&self) -> impl Iterator<Item = &Resources> {
        self.resources.iter().map(|(_, resources)| resources).chain(&self.retired)
    }

    /// Returns the kernel's answers to what of a rank has been posted, `None` where there is none yet.
    fn answers(&self, rank: u32) -> impl Iterator<Item = Option<Status>> {
        let posted =
            self.ranks[rank as usize].in_flight.iter().filter_map(|launched| launched.ticket.number());
        posted.map(move |ticket| self.cluster.npu(rank).status(ticket))
    }

    /// Returns how others see a launch of a rank.
    fn mark(&self, rank: u32, sequence: u32, done_at: u64) -> Mark {
        let number = Number { instance: self.identity.instance, sequence };
        Mark { number, done: (self.ranks[rank as usize].done_notify, done_at) }
    }
}

/// Refuses more ranks than a kernel can know.
pub(crate) fn check_capacity(ranks: u32) -> Result<()> {
    if ranks as usize > MAX_RANKS {
        let message = format!("{ranks} ranks; kernels are built for {MAX_RANKS}");
        return Err(Error::new(ErrorCode::CONTEXT_CAPACITY, message));
    }
    Ok(())
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
