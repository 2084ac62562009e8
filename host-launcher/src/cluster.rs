//! The machine a communicator runs on: a fabric of software NPUs, and their AI CPUs.
//!
//! The kernel of each NPU runs either in this process ([`Aicpu::Thread`]) or as the aarch64 image on one core of an
//! emulated machine, shared by all NPUs or not ([`Aicpu::Qemu`]). Everything else is the same for both: the same launches, contexts, rings and
//! device model. Several communicators may share a cluster.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use aicpu_kernel::{Block, DEFAULT_BLOCKS, Kernel, LARGEST_GRAPH_PAGES, Page};
use device_model::driver::Npu;
use device_model::fabric::{Fabric, FabricConfig};
use device_model::machine::{Machine, MachineConfig, Outcome};
use device_model::platform::ModelPlatform;
use wire::ErrorCode;
use wire::boot::{MAX_CORES, WindowPlace};
use wire::npu::{KERNEL_STATE, KernelState, LOG, LOG_BYTES};

use crate::error::{Error, Result};
use crate::image::Image;
use crate::qemu::{Guest, Options};
use crate::topology::Topology;

/// Pages in which a kernel of this process keeps graphs: 2 MiB.
const CACHE_PAGES: usize = 512;
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
}

impl Aicpu {
    fn name(&self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Qemu { options, .. } if options.per_npu => PER_NPU,
            Self::Qemu { .. } => "qemu",
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
    aicpu: &'static str,
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

    /// As [`start`](Self::start), over a fabric made by the caller, with one NPU per rank.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn over(fabric: &Fabric, topology: Topology, aicpu: &Aicpu) -> Result<Self> {
        let npus: Vec<Npu> = (0..fabric.npus()).map(|npu| Npu::new(fabric, npu)).collect();
        let machine = Machine::new(fabric, MachineConfig::default());
        let guests = match aicpu {
            Aicpu::Thread => {
                for npu in 0..fabric.npus() {
                    machine.attach(npu, Box::new(ThreadKernel::start(fabric, npu)?));
                }
                Vec::new()
            }
            Aicpu::Qemu { image, options } => boot(fabric, image, options)?,
        };
        let members = (0..topology.ranks()).collect();
        let shared = Arc::new(Shared { npus, machine, guests, aicpu: aicpu.name() });
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

    /// Returns the device.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.shared.machine
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
        self.shared.guests.iter().try_for_each(Guest::check)
    }

    /// Tells the kernel of a rank that there may be something to do for it; needed after every post.
    pub fn wake(&self, rank: u32) {
        // A machine for several NPUs never sleeps.
        let member = self.members.get(rank as usize).map_or(usize::MAX, |member| *member as usize);
        if self.shared.aicpu == PER_NPU
            && let Some(guest) = self.shared.guests.get(member)
        {
            guest.wake();
        }
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
        let deadline = Instant::now() + Duration::from_secs(20);
        match self.shared.machine.run_until(|| self.shared.npus.iter().all(ready), Some(deadline)) {
            Outcome::Done => Ok(()),
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

/// The kernel on this host: its memory is boxed.
type HostKernel = Kernel<ModelPlatform, Box<[Block]>, Box<[Page]>>;

/// The kernel of one NPU in this process.
struct ThreadKernel(Box<HostKernel>);

impl ThreadKernel {
    fn start(fabric: &Fabric, npu: u32) -> Result<Self> {
        let blocks = vec![Block::EMPTY; DEFAULT_BLOCKS].into_boxed_slice();
        let pages = vec![Page::EMPTY; LARGEST_GRAPH_PAGES + CACHE_PAGES].into_boxed_slice();
        let mut kernel = Box::new(Kernel::new(ModelPlatform::new(fabric, npu), blocks, pages));
        kernel
            .start()
            .map_err(|code| Error::new(code, format!("the kernel of NPU {npu} cannot use its window")))?;
        Ok(Self(kernel))
    }
}

impl device_model::machine::Aicpu for ThreadKernel {
    fn poll(&mut self) -> bool {
        self.0.poll()
    }
}
