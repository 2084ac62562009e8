//! What a process that is gone has left in the window of an NPU.

use core::fmt;
use core::sync::atomic::Ordering;

use wire::npu::{self, ChannelSlot, KernelState, QueueSlot, RegionSlot};
use zerocopy::transmute;

use crate::memory::Window;

/// A process: its number, and when it started in the count of its system. Numbers are given again, the pair is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Number; 0 for none.
    pub number: u64,
    /// Start.
    pub started: u64,
}

/// What was taken when the process that had a window went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// NPU.
    pub npu: u32,
    /// The process.
    pub owner: Process,
    /// Queues of threads and queue pairs.
    pub queues: u64,
    /// Registered regions.
    pub regions: u64,
    /// Channels.
    pub channels: u64,
    /// Notifies that were set.
    pub notifies: u64,
    /// Launches that no kernel has answered.
    pub launches: u64,
}

/// Prints `NPU 3: process 1234, which is gone, left 5 queues, 12 regions, 3 channels, 0 set notifies, 1 launch`.
impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { npu, owner, queues, regions, channels, notifies, launches } = self;
        write!(
            f,
            "NPU {npu}: process {}, which is gone, left {queues} queues, {regions} regions, {channels} channels, \
             {notifies} set notifies, {launches} launches",
            owner.number
        )
    }
}

impl Window {
    /// Returns the process that has this window.
    #[must_use]
    pub fn owner(&self) -> Process {
        // ORDER: written before anything else of its owner; read by who has nothing yet.
        let [number, started] =
            self.words::<2>(npu::OWNER).each_ref().map(|word| word.load(Ordering::Acquire));
        Process { number, started }
    }

    /// Says which process has this window; the default for none.
    pub fn set_owner(&self, owner: Process) {
        let [number, started] = self.words::<2>(npu::OWNER);
        started.store(owner.started, Ordering::Release);
        number.store(owner.number, Ordering::Release);
    }

    /// Takes back everything that the owner of this window, a process that is gone, had; the window is as new then, and
    /// what lies in its heap means nothing. `npu` is its NPU.
    ///
    /// Nobody else may be using the window.
    #[must_use]
    pub fn reclaim(&self, npu: u32) -> Leftover {
        let count = |table: u64, slots: u64, is_taken: &dyn Fn([u64; 4]) -> bool| {
            (0..slots).filter(|slot| is_taken(self.load_words::<4>(table + 32 * slot))).count() as u64
        };
        let queues = count(npu::QUEUES, npu::MAX_QUEUES, &|words| {
            let slot: QueueSlot = transmute!(words);
            slot.depth != 0
        });
        let regions = count(npu::REGIONS, npu::MAX_REGIONS, &|words| {
            let slot: RegionSlot = transmute!(words);
            slot.token != 0
        });
        let channels = count(npu::CHANNELS, npu::MAX_CHANNELS, &|words| {
            let slot: ChannelSlot = transmute!(words);
            slot.connected != 0
        });
        let word = |at: u64| self.word(at).load(Ordering::Acquire);
        let is_set = |notify: &u64| self.half(npu::NOTIFIES + 4 * notify).load(Ordering::Acquire) != 0;
        let leftover = Leftover {
            npu,
            owner: self.owner(),
            queues,
            regions,
            channels,
            notifies: (0..npu::MAX_NOTIFIES).filter(is_set).count() as u64,
            launches: word(npu::LAUNCH_TAIL).wrapping_sub(word(npu::LAUNCH_HEAD)),
        };
        self.fill(0, npu::HEAP, 0);
        leftover
    }
}

const _: () =
    assert!(size_of::<QueueSlot>() == 32 && size_of::<RegionSlot>() == 32 && size_of::<ChannelSlot>() == 32);
const _: () = assert!(KernelState::Absent as u64 == 0, "a window full of zeros has no kernel");
