//! The shared memory of all NPUs: one file, one window per NPU.
//!
//! A [`Fabric`] is this process's mapping of it. The file has no header: window `i` starts at `i × window_bytes`, so
//! that an emulator can map it as a memory node as it is. Whoever opens it passes the configuration it was created
//! with. The layout of a window is `wire::npu`.
//!
//! Beside the mapping, a fabric has marks for the engines of *this* process (`Seat::mark`): hints that save polling,
//! never needed for correctness.

mod between;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};
use wire::{DeviceAddr, ErrorCode, npu};

use crate::clock::Clock;
use crate::memory::Window;
use crate::simulation::Simulation;
pub(crate) use between::Seat;
use between::{Errant, Links};

/// Distance between the default bases of two NPUs: beyond every host pointer, and different for each NPU.
pub const BASE_STEP: u64 = 0x1000_0000_0000;

/// What a fabric consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricConfig {
    /// Number of NPUs, at least 1.
    pub npus: u32,
    /// Bytes of one window: a multiple of 64 KiB, more than `wire::npu::HEAP`.
    pub window_bytes: u64,
    /// Device address of each window's first byte, 64 KiB aligned; empty for `BASE_STEP × (npu + 1)`. Two NPUs may
    /// have the same: an address means something only together with its NPU.
    pub bases: Vec<DeviceAddr>,
    /// Position at which every new queue starts. 0, except where a test wants a counter near its wrap.
    pub first_position: u64,
    /// Seed of a simulation: one thread, a clock of its own, every choice made by the seed. `None` for a fabric that
    /// runs as fast as it can.
    pub seed: Option<u64>,
}

impl FabricConfig {
    /// Returns the configuration of `npus` NPUs with `window_bytes` bytes each and default addresses.
    #[must_use]
    pub const fn new(npus: u32, window_bytes: u64) -> Self {
        Self { npus, window_bytes, bases: Vec::new(), first_position: 0, seed: None }
    }

    fn base(&self, npu: u32) -> DeviceAddr {
        match self.bases.get(npu as usize) {
            Some(base) => *base,
            None => DeviceAddr(BASE_STEP.wrapping_mul(u64::from(npu) + 1)),
        }
    }

    /// Returns the length of the file.
    fn check(&self) -> Result<u64, FabricError> {
        const GRANULE: u64 = 0x1_0000;
        if self.npus == 0 || self.npus > MAX_NPUS {
            return Err(FabricError::Config("the number of NPUs is 0 or above 4096"));
        }
        if !self.window_bytes.is_multiple_of(GRANULE) || self.window_bytes <= npu::HEAP {
            return Err(FabricError::Config("the window is no multiple of 64 KiB, or has no heap"));
        }
        if !self.bases.is_empty() && self.bases.len() != self.npus as usize {
            return Err(FabricError::Config("there is not one base for each NPU"));
        }
        let fits = |base: DeviceAddr| {
            base.0.is_multiple_of(GRANULE) && base.checked_add(self.window_bytes).is_some()
        };
        if !(0..self.npus).all(|npu| fits(self.base(npu))) {
            return Err(FabricError::Config("a base is no multiple of 64 KiB, or the window wraps"));
        }
        let total = self.window_bytes.checked_mul(u64::from(self.npus));
        total
            .filter(|total| *total <= isize::MAX as u64)
            .ok_or(FabricError::Config("the windows together overflow"))
    }
}

/// Most NPUs of one fabric.
const MAX_NPUS: u32 = 4096;

/// Why a fabric could not be made.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The configuration contradicts itself.
    #[error("bad fabric configuration: {0}")]
    Config(&'static str),
    /// The system refused memory or file.
    #[error("cannot {what} the shared memory")]
    System {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not as long as the configuration says.
    #[error("the shared memory has {actual} bytes, the configuration means {expected}")]
    Size {
        /// Bytes of the file.
        actual: u64,
        /// Bytes of the configuration.
        expected: u64,
    },
}

impl FabricError {
    /// Returns the stable code.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Config(_) => ErrorCode::DEVICE_ARGUMENT,
            Self::System { .. } | Self::Size { .. } => ErrorCode::DEVICE_MEMORY,
        }
    }

    fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

/// The memory of all NPUs, mapped into this process. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Fabric {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    seats: Box<[Seat]>,
    errant: Errant,
    links: Links,
    first_position: u64,
    clock: Clock,
    simulation: Option<Simulation>,
}

impl Fabric {
    /// Creates a fabric in anonymous shared memory. Others map it through [`Fabric::file`].
    ///
    /// # Errors
    /// See [`FabricError`].
    pub fn create(config: &FabricConfig) -> Result<Self, FabricError> {
        let bytes = config.check()?;
        let fd = rustix::fs::memfd_create("aicpu-ts-npus", rustix::fs::MemfdFlags::CLOEXEC);
        let file = File::from(fd.map_err(io::Error::from).map_err(FabricError::system("create"))?);
        file.set_len(bytes).map_err(FabricError::system("size"))?;
        Self::map(file, config)
    }

    /// Creates a fabric in a new file at `path`, which must not exist. The caller removes the file.
    ///
    /// # Errors
    /// See [`FabricError`].
    pub fn create_at(path: &Path, config: &FabricConfig) -> Result<Self, FabricError> {
        let bytes = config.check()?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(FabricError::system("create"))?;
        file.set_len(bytes).map_err(FabricError::system("size"))?;
        Self::map(file, config)
    }

    /// Maps the fabric that another process, or another part of this one, created at `path` with `config`.
    ///
    /// # Errors
    /// See [`FabricError`].
    pub fn open(path: &Path, config: &FabricConfig) -> Result<Self, FabricError> {
        let expected = config.check()?;
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(FabricError::system("open"))?;
        let actual = file.metadata().map_err(FabricError::system("measure"))?.len();
        if actual == expected { Self::map(file, config) } else { Err(FabricError::Size { actual, expected }) }
    }

    fn map(file: File, config: &FabricConfig) -> Result<Self, FabricError> {
        let mapping: MmapRaw = MmapOptions::new().map_raw(&file).map_err(FabricError::system("map"))?;
        let mapping = Arc::new(mapping);
        // PANIC: `check` bounded the product of both by the address space, so the length of one window fits too.
        let bytes = usize::try_from(config.window_bytes).expect("checked against the address space");
        let window = |npu| Window::new(Arc::clone(&mapping), npu as usize * bytes, bytes, config.base(npu));
        let seats = (0..config.npus).map(|npu| Seat::new(window(npu))).collect();
        let simulation = config.seed.map(|seed| Simulation::new(config.npus, seed));
        let clock = simulation.as_ref().map_or_else(Clock::real, |simulation| simulation.clock().clone());
        let first_position = config.first_position;
        Ok(Self {
            inner: Arc::new(Inner {
                file,
                seats,
                errant: Errant::default(),
                links: Links::default(),
                first_position,
                clock,
                simulation,
            }),
        })
    }

    /// Returns the number of NPUs.
    #[must_use]
    pub fn npus(&self) -> u32 {
        // CAST: there are at most MAX_NPUS.
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_NPUS")]
        let npus = self.inner.seats.len() as u32;
        npus
    }

    /// Returns the window of an NPU.
    ///
    /// # Panics
    /// When there is no such NPU.
    #[inline]
    #[must_use]
    pub fn window(&self, npu: u32) -> &Window {
        &self.inner.seats[npu as usize].window
    }

    /// Returns an NPU if there is one of that number.
    #[inline]
    pub(crate) fn seat(&self, npu: u32) -> Option<&Seat> {
        self.inner.seats.get(npu as usize)
    }

    /// Marks an NPU as worth looking after.
    #[inline]
    pub(crate) fn mark(&self, npu: u32) {
        self.inner.seats[npu as usize].mark();
    }

    /// Takes the mark of the first marked NPU from `from` on upwards, going round.
    #[inline]
    pub(crate) fn take_mark(&self, from: u32) -> Option<u32> {
        between::take_mark(&self.inner.seats, from)
    }

    /// Returns the file behind the memory, for handing its descriptor to another process.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.inner.file
    }

    /// Returns the position at which every new queue starts.
    #[must_use]
    pub fn first_position(&self) -> u64 {
        self.inner.first_position
    }

    /// Returns the clock by which its NPUs live.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Returns whether this is a simulation.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.inner.simulation.is_some()
    }

    /// Returns random bits: the system's, or those of the simulation's seed.
    ///
    /// # Errors
    /// What the system says when it has none.
    pub fn random(&self) -> Result<u64, getrandom::Error> {
        match self.simulation() {
            Some(simulation) => Ok(simulation.dice().u64(..)),
            None => getrandom::u64(),
        }
    }

    /// Returns a number that depends on every event of a simulation so far; 0 where nothing is simulated.
    #[must_use]
    pub fn event_digest(&self) -> u64 {
        self.simulation().map_or(0, Simulation::digest)
    }

    /// Returns how many events a simulation has had so far; 0 where nothing is simulated.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.simulation().map_or(0, Simulation::events)
    }

    /// Returns whether faults have given one notify a signal too many and also one too few. A notify is one bit: what its
    /// device sees of the two is what it sees where neither happened.
    #[must_use]
    pub fn has_masked_signals(&self) -> bool {
        self.inner.errant.are_masked()
    }

    #[inline]
    pub(crate) fn simulation(&self) -> Option<&Simulation> {
        self.inner.simulation.as_ref()
    }

    #[inline]
    pub(crate) fn links(&self) -> &Links {
        &self.inner.links
    }

    #[inline]
    pub(crate) fn errant(&self) -> &Errant {
        &self.inner.errant
    }
}
