//! The machine a communicator runs on: a fabric of software NPUs, and their AI CPUs.
//!
//! The kernel of each NPU runs in this process ([`Aicpu::Thread`]), as the aarch64 image on one core of an emulated
//! machine, shared by all NPUs or not ([`Aicpu::Qemu`]), or as a shared object in a program for each NPU
//! ([`Aicpu::Library`]). Everything else is the same for all: the same launches, contexts, rings and device model. Several communicators may share a cluster.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use aicpu_kernel::{Block, DEFAULT_BLOCKS, Kernel, LARGEST_GRAPH_PAGES, Page};
use device_model::clock::Clock;
use device_model::driver::{Leftover, Npu};
use device_model::fabric::{Fabric, FabricConfig};
use device_model::machine::{Machine, MachineConfig, Outcome};
use device_model::platform::{ModelPlatform, SimulatedPlatform};
use hal::Platform;
use wire::ErrorCode;
use wire::boot::{MAX_CORES, WindowPlace};
use wire::npu::{
    KERNEL_STATE, KernelState, LAUNCH_HEAD, LAUNCH_SLOTS, LAUNCH_TAIL, LOG, LOG_BYTES, STATUSES, Status,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::error::{Error, Result};
use crate::image::Image;
use crate::library::{self, Library};
use crate::owner;
use crate::qemu::{Guest, Options};
use crate::stream::{Behind, Order, Stream};
use crate::topology::Topology;

/// Pages in which a kernel of this process keeps graphs: 8 MiB, which take as many descriptors as the 10 MiB of the field's
/// cache.
const CACHE_PAGES: usize = 2048;
/// What runs the kernels of a simulation, by the name users know.
const SIMULATED: &str = "simulated";
/// Name of the machines that must be woken.
const PER_NPU: &str = "qemu-per-npu";
/// Windows are multiples of this many bytes.
const WINDOW_GRANULE: u64 = 2 << 20;

/// What runs the kernels.
#[derive(Debug)]
pub enum Aicpu {
    /// The thread that waits, in this process.
    Thread,
    /// The aarch64 image under QEMU.
    Qemu {
        /// The checked image.
        image: Image,
        /// How it is emulated.
        options: Options,
    },
    /// A shared object, loaded by a program for each NPU.
    Library(library::Options),
}

impl Aicpu {
    fn name(&self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Qemu { options, .. } if options.per_npu => PER_NPU,
            Self::Qemu { .. } => "qemu",
            Self::Library(_) => "library",
        }
    }
}

/// A fabric with a kernel on every NPU, and the ranks that are on it: one NPU per rank of its topology.
#[derive(Debug)]
pub struct Cluster {
    topology: Topology,
    /// The NPU of every rank.
    members: Vec<u32>,
    shared: Arc<Shared>,
}

/// What a cluster and its subsets have in common.
#[derive(Debug)]
struct Shared {
    npus: Vec<Npu>,
    machine: Machine,
    guests: Vec<Guest>,
    libraries: Vec<Library>,
    aicpu: &'static str,
    reclaimed: Vec<Leftover>,
    order: Order,
}

impl Shared {
    fn wake(&self, npu: u32) {
        // A machine for several NPUs never sleeps.
        if self.aicpu == PER_NPU
            && let Some(guest) = self.guests.get(npu as usize)
        {
            guest.wake();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        owner::release(self.npus[0].fabric());
    }
}

impl Cluster {
    /// Builds the NPUs and starts their kernels. `memory` is the device memory per NPU, bytes.
    ///
    /// # Errors
    /// `DEVICE_MEMORY` when the fabric cannot be had, and what the image or the emulator is refused for.
    pub fn start(topology: Topology, memory: u64, aicpu: &Aicpu) -> Result<Self> {
        let window = (memory + wire::npu::HEAP).next_multiple_of(WINDOW_GRANULE);
        let config = FabricConfig::new(topology.ranks(), window);
        let fabric = Fabric::create(&config).map_err(|error| Error::new(error.code(), error.to_string()))?;
        Self::over(&fabric, topology, aicpu)
    }

    /// As [`start`](Self::start), as a simulation under a seed: one thread, virtual time, kernels in this process.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn simulate(topology: Topology, memory: u64, seed: u64) -> Result<Self> {
        let window = (memory + wire::npu::HEAP).next_multiple_of(WINDOW_GRANULE);
        let config = FabricConfig { seed: Some(seed), ..FabricConfig::new(topology.ranks(), window) };
        let fabric = Fabric::create(&config).map_err(|error| Error::new(error.code(), error.to_string()))?;
        Self::over(&fabric, topology, &Aicpu::Thread)
    }

    /// As [`start`](Self::start), over a fabric made by the caller, with one NPU per rank. What a process that is gone has
    /// left in it is taken back: [`reclaimed`](Self::reclaimed).
    ///
    /// # Errors
    /// As [`start`](Self::start), and `NPU_HELD` when another process is using the fabric.
    pub fn over(fabric: &Fabric, topology: Topology, aicpu: &Aicpu) -> Result<Self> {
        let reclaimed = owner::claim(fabric)?;
        let npus: Vec<Npu> = (0..fabric.npus()).map(|npu| Npu::new(fabric, npu)).collect();
        let machine = Machine::new(fabric, MachineConfig::default());
        let (mut guests, mut libraries) = (Vec::new(), Vec::new());
        match aicpu {
            Aicpu::Thread => {
                (0..fabric.npus()).try_for_each(|npu| attach(&machine, fabric, npu))?;
            }
            Aicpu::Qemu { image, options } => guests = boot(fabric, image, options)?,
            Aicpu::Library(options) => libraries = Library::start(fabric, options)?,
        }
        let aicpu = if fabric.is_simulated() { SIMULATED } else { aicpu.name() };
        let members = (0..topology.ranks()).collect();
        let shared =
            Arc::new(Shared { npus, machine, guests, libraries, aicpu, reclaimed, order: Order::default() });
        let cluster = Self { topology, members, shared };
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    /// Returns a cluster of some of these ranks, numbered anew in the order given, on the same NPUs and kernels. Its
    /// communicators work beside those of all ranks; its buffers are its own.
    ///
    /// # Errors
    /// `ARGUMENT_VALUE` for no rank, a rank that is none or comes twice, and ranks of one server with one of another between
    /// them.
    pub fn subset(&self, ranks: &[u32]) -> Result<Self> {
        let topology = self.topology.subset(ranks)?;
        let members = ranks.iter().filter_map(|rank| self.members.get(*rank as usize).copied()).collect();
        Ok(Self { topology, members, shared: Arc::clone(&self.shared) })
    }

    /// Returns the rank that is on an NPU; `None` where none of these is.
    #[must_use]
    pub fn rank_on(&self, npu: u32) -> Option<u32> {
        let rank = self.members.iter().position(|member| *member == npu)?;
        u32::try_from(rank).ok()
    }

    /// Returns how the ranks are connected.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the handle on the NPU of a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn npu(&self, rank: u32) -> &Npu {
        &self.shared.npus[self.members[rank as usize] as usize]
    }

    /// Returns what processes that are gone had left in the NPUs, and was taken back.
    #[must_use]
    pub fn reclaimed(&self) -> &[Leftover] {
        &self.shared.reclaimed
    }

    /// Returns the device.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.shared.machine
    }

    /// Returns the clock by which devices and host live.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.shared.npus[0].fabric().clock()
    }

    /// Takes all faults out of the NPU of a rank, and restarts the NPU and its kernel if it is dead. What communicators
    /// had on a dead one is gone, and waits to be given back.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn repair(&self, rank: u32) -> Result<()> {
        let (machine, npu) = (self.machine(), self.npu(rank));
        let dead = machine.is_dead(npu.index());
        npu.exhaust_at(None);
        machine.repair(npu.index());
        if dead {
            self.answer_for_the_dead(rank);
            attach(machine, npu.fabric(), npu.index())?;
        }
        Ok(())
    }

    /// Answers what a dead kernel has not: the next one must not take launches of communicators that are gone.
    fn answer_for_the_dead(&self, rank: u32) {
        let window = self.npu(rank).window();
        let (head, tail) = (window.word(LAUNCH_HEAD), window.word(LAUNCH_TAIL));
        // ORDER: nobody else uses these words now.
        let (answered, posted) = (head.load(Ordering::Acquire), tail.load(Ordering::Acquire));
        let status = Status { code: ErrorCode::NPU_DEAD.0, ..Status::default() };
        for launch in answered..posted.min(answered + LAUNCH_SLOTS) {
            let slot = launch % LAUNCH_SLOTS;
            window.write(STATUSES + slot * size_of::<Status>() as u64, status.as_bytes());
        }
        head.store(posted, Ordering::Release);
    }

    /// Returns what runs the kernels, by the name users know.
    #[must_use]
    pub fn aicpu(&self) -> &'static str {
        self.shared.aicpu
    }

    /// Returns the emulated machines, where the kernels run in such: one for up to 16 NPUs, or one for each.
    #[must_use]
    pub fn guests(&self) -> &[Guest] {
        &self.shared.guests
    }

    /// Checks that every kernel's core still runs, where they are emulated.
    ///
    /// # Errors
    /// Those of [`Guest::check`].
    pub fn check(&self) -> Result<()> {
        self.shared.guests.iter().try_for_each(Guest::check)?;
        self.shared.libraries.iter().try_for_each(Library::check)
    }

    /// Tells the kernel of a rank that there may be something to do for it; needed after every post.
    pub fn wake(&self, rank: u32) {
        self.shared.wake(self.members.get(rank as usize).copied().unwrap_or(u32::MAX));
    }

    /// Makes a stream: launches on it come one after the other on each NPU, of whatever communicator of the machine.
    #[must_use]
    pub fn stream(&self) -> Stream {
        self.shared.order.stream()
    }

    /// Returns how many launches are held until others are done, on all NPUs of the machine.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.order.held()
    }

    /// What launches come after.
    pub(crate) fn order(&self) -> &Order {
        &self.shared.order
    }

    /// Posts the launches that were held and need wait no longer.
    #[inline]
    pub(crate) fn advance(&self) {
        self.shared.order.advance(&self.shared.npus, |npu| self.shared.wake(npu));
    }

    /// Returns which operations are behind others that are not done, on all NPUs of the machine.
    #[must_use]
    pub fn behind(&self) -> Vec<Behind> {
        self.shared.order.behind(&self.shared.npus)
    }

    /// Returns how many tasks the machine has carried out, on all its NPUs.
    pub(crate) fn executed(&self) -> u64 {
        let npus = self.shared.npus.iter();
        npus.map(|npu| self.machine().snapshot(npu.index()).executed_total()).sum()
    }

    /// Takes the bytes that the kernel of a rank has logged since the last time; [`LogStream`] decodes them. Kernels in
    /// this process log nothing.
    ///
    /// [`LogStream`]: crate::qemu::log::LogStream
    #[must_use]
    pub fn take_log(&self, rank: u32) -> Vec<u8> {
        let window = self.npu(rank).window();
        let read = window.word(LOG + 8);
        // ORDER: pairs with the kernel's release store: the bytes below the count are complete.
        let (start, end) = (read.load(Ordering::Relaxed), window.word(LOG).load(Ordering::Acquire));
        let mut bytes = Vec::new();
        // More than the ring holds was not written by a kernel.
        if end.wrapping_sub(start) <= LOG_BYTES {
            let mut at = start;
            while at != end {
                let offset = at % LOG_BYTES;
                let count = end.wrapping_sub(at).min(LOG_BYTES - offset);
                let filled = bytes.len();
                bytes.resize(filled + usize::try_from(count).unwrap_or(0), 0);
                window.read(LOG + 16 + offset, &mut bytes[filled..]);
                at = at.wrapping_add(count);
            }
        }
        // ORDER: pairs with the kernel's acquire load: what was read may be overwritten.
        read.store(end, Ordering::Release);
        bytes
    }

    fn wait_until_ready(&self) -> Result<()> {
        let ready = |npu: &Npu| {
            let state = npu.window().word(KERNEL_STATE).load(Ordering::Acquire);
            state == KernelState::Ready as u64
        };
        let deadline = self.clock().now() + Duration::from_secs(20);
        let settled = || self.shared.npus.iter().all(ready) || self.check().is_err();
        match self.shared.machine.run_until(settled, Some(deadline)) {
            Outcome::Done => self.check(),
            _ => Err(Error::new(
                ErrorCode::KERNEL_SILENT,
                "a kernel did not say that it takes launches within 20 s",
            )),
        }
    }
}

fn boot(fabric: &Fabric, image: &Image, options: &Options) -> Result<Vec<Guest>> {
    let mut offset = 0;
    let mut windows = Vec::new();
    for npu in 0..fabric.npus() {
        let window = fabric.window(npu);
        windows.push(WindowPlace { device_addr: window.base(), offset, len: window.bytes() });
        offset += window.bytes();
    }
    let per_machine = if options.per_npu { 1 } else { MAX_CORES };
    let start = |windows| Guest::start(image, windows, fabric.file(), options);
    let guests: Vec<Guest> = windows.chunks(per_machine).map(start).collect::<Result<_>>()?;
    guests.iter().try_for_each(|guest| guest.wait_until_running(options.deadline))?;
    Ok(guests)
}

/// A kernel on this host: its memory is boxed.
type HostKernel<P> = Kernel<P, Box<[Block]>, Box<[Page]>>;

/// The kernel of one NPU in this process.
struct ThreadKernel<P>(Box<HostKernel<P>>);

/// Starts a kernel in this process and makes it resident on an NPU.
fn attach(machine: &Machine, fabric: &Fabric, npu: u32) -> Result<()> {
    match SimulatedPlatform::new(fabric, npu) {
        Some(platform) => machine.attach(npu, Box::new(ThreadKernel::start(platform, npu)?)),
        None => machine.attach(npu, Box::new(ThreadKernel::start(ModelPlatform::new(fabric, npu), npu)?)),
    };
    Ok(())
}

impl<P: Platform> ThreadKernel<P> {
    fn start(platform: P, npu: u32) -> Result<Self> {
        // Zeros cost nothing until they are touched, and a kernel reads no block or page that it has not written.
        let full = |_| Error::new(ErrorCode::DEVICE_MEMORY, format!("no memory for the kernel of NPU {npu}"));
        let blocks = <[Block]>::new_box_zeroed_with_elems(DEFAULT_BLOCKS).map_err(full)?;
        let pages = <[Page]>::new_box_zeroed_with_elems(LARGEST_GRAPH_PAGES + CACHE_PAGES).map_err(full)?;
        let mut kernel = Box::new(Kernel::new(platform, blocks, pages));
        kernel
            .start()
            .map_err(|code| Error::new(code, format!("the kernel of NPU {npu} cannot use its window")))?;
        Ok(Self(kernel))
    }
}

impl<P: Platform + Send> device_model::machine::Aicpu for ThreadKernel<P> {
    fn poll(&mut self) -> bool {
        self.0.poll()
    }
}
