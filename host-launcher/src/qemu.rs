//! A guest under QEMU: one emulated machine whose cores serve the NPUs of this process.
//!
//! [`Guest::boot`] places a checked image and a boot block in the guest's private memory, starts the emulator with
//! the NPUs' fabric as second memory, and returns when every core runs. [`Guest::check`] says whether they still do,
//! and why not. Both memories are files without a name, so nothing is left behind by a crash of either side, and the
//! emulator dies with the thread that watches it.
//!
//! What the cores then do is between the kernel and the device model, in the fabric; this module does not read it.
//! The text log in it is decoded by [`log`].

pub mod instructions;
pub mod log;
mod memory;
pub(crate) mod process;

use core::time::Duration;
use std::ffi::OsString;
use std::fs::File;
use std::thread;
use std::time::Instant;

use wire::ErrorCode;
use wire::boot::{BootFlags, BootInfo, CoreRecord, CoreState, IMAGE_BASE, RAM_BASE, WindowPlace};

use crate::error::{Error, Result};
use crate::image::Image;
use memory::PrivateMemory;
pub use process::Ended;
use process::{Emulator, path};

/// How the machine is emulated.
#[derive(Clone, Debug)]
pub struct Options {
    /// Program to start.
    pub program: OsString,
    /// Bytes of private memory for code, stacks and kernel state, a multiple of 2 MiB. Only what is touched is used.
    pub private_bytes: u64,
    /// Longest time from start until every core runs.
    pub deadline: Duration,
    /// Makes the kernels measure in instructions instead of nanoseconds, at half the speed. What one core counts while
    /// it does not yield is the same in every run.
    pub count_instructions: bool,
    /// A cluster gets a machine of one core for each NPU, which sleeps while there is nothing to do; otherwise one
    /// machine with a core for each of up to 16 NPUs, which uses one processor of the host all the time and answers
    /// faster.
    pub per_npu: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            program: "qemu-system-aarch64".into(),
            private_bytes: 64 << 20,
            deadline: Duration::from_secs(20),
            count_instructions: false,
            per_npu: false,
        }
    }
}

/// A running machine. Dropping it ends the emulator.
#[derive(Debug)]
pub struct Guest {
    emulator: Emulator,
    private: PrivateMemory,
    cores: usize,
}

impl Guest {
    /// Boots `image` with one core for each of `windows`, which lie in `fabric`.
    ///
    /// # Errors
    /// `SEGMENT_PLACE` when the image does not fit, `BOOT_FIELD` when the windows do not, `EMULATOR_MEMORY`,
    /// `EMULATOR_START`, `EMULATOR_EXIT` or `EMULATOR_TIMEOUT` when the machine does not come up, and what
    /// [`Guest::check`] reports when a core stops.
    pub fn boot(image: &Image, windows: &[WindowPlace], fabric: &File, options: &Options) -> Result<Self> {
        let guest = Self::start(image, windows, fabric, options)?;
        guest.wait_until_running(options.deadline)?;
        Ok(guest)
    }

    /// Does the first half of [`boot`](Self::boot), up to the start of the emulator.
    pub(crate) fn start(
        image: &Image,
        windows: &[WindowPlace],
        fabric: &File,
        options: &Options,
    ) -> Result<Self> {
        let fabric_len =
            fabric.metadata().map_err(|error| memory::refused("measure the fabric", &error))?.len();
        let mut flags = BootFlags::empty();
        flags.set(BootFlags::COUNT, options.count_instructions);
        flags.set(BootFlags::SLEEP, options.per_npu);
        let boot =
            BootInfo { flags: flags.bits(), ..BootInfo::new(options.private_bytes, fabric_len, windows) };
        boot.check().map_err(|code| {
            let memory = format!("{} bytes of private memory, {fabric_len} of fabric", options.private_bytes);
            Error::new(code, format!("{} windows over {memory}: {windows:?}", windows.len()))
        })?;
        let private = PrivateMemory::new(options.private_bytes)?;
        for piece in image.place(RAM_BASE, options.private_bytes)? {
            if piece.offset < IMAGE_BASE - RAM_BASE && !piece.bytes.is_empty() {
                let found = format!("a segment at {:#x}, below the image area", RAM_BASE + piece.offset);
                return Err(Error::new(ErrorCode::SEGMENT_PLACE, found));
            }
            private.write(piece.offset, piece.bytes)?;
        }
        private.write_boot_info(&boot)?;
        let arguments = arguments(options, windows.len(), image.entry(), (&private, fabric), &boot);
        let emulator = Emulator::start(&options.program, arguments)?;
        Ok(Self { emulator, private, cores: windows.len() })
    }

    /// Wakes the core of a machine that sleeps while there is nothing to do. Call it after posting.
    pub fn wake(&self) {
        self.emulator.ring();
    }

    /// Returns the number of the emulator's process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.emulator.id()
    }

    /// Checks that every core runs.
    ///
    /// # Errors
    /// `KERNEL_FAULT` with the registers of a core that met an exception, `KERNEL_PANIC` with the place of a defect,
    /// the code with which a core refused the boot block, `EMULATOR_EXIT` when the emulator has ended.
    pub fn check(&self) -> Result<()> {
        self.all_running().map(drop)
    }

    /// Returns how the emulator ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.emulator.ended()
    }

    /// Returns what emulator and image have printed so far.
    #[must_use]
    pub fn console(&self) -> String {
        self.emulator.console()
    }

    /// Waits for the second half of [`boot`](Self::boot).
    pub(crate) fn wait_until_running(&self, deadline: Duration) -> Result<()> {
        let start = Instant::now();
        while !self.all_running()? {
            if start.elapsed() > deadline {
                let states: Vec<_> =
                    (0..self.cores).map(|core| self.private.record(core).map(|r| r.state)).collect();
                let message =
                    format!("after {deadline:?} the cores' states are {states:?}{}", self.last_words());
                return Err(Error::new(ErrorCode::EMULATOR_TIMEOUT, message));
            }
            thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    }

    /// Returns whether every core has come up, or why one has stopped.
    fn all_running(&self) -> Result<bool> {
        // Asked before the records: a record that explains the end is complete by then.
        let ended = self.emulator.ended();
        let mut running = 0;
        for core in 0..self.cores {
            let record = self.private.record(core)?;
            match CoreState::from_number(record.state) {
                Some(CoreState::Running) => running += 1,
                Some(CoreState::Off) => {}
                _ => return Err(stopped(core, &record)),
            }
        }
        match ended {
            Some(ended) => Err(Error::new(ErrorCode::EMULATOR_EXIT, format!("{ended}{}", self.last_words()))),
            None => Ok(running == self.cores),
        }
    }

    fn last_words(&self) -> String {
        match self.console().trim_end() {
            "" => ", and nothing was printed".to_owned(),
            text => format!("; last words: {:?}", text.lines().last().unwrap_or(text)),
        }
    }
}

/// Says why a core stopped.
fn stopped(core: usize, record: &CoreRecord) -> Error {
    // CAST: a core writes a 16-bit code.
    let code = u16::try_from(record.code).map_or(ErrorCode::KERNEL_FAULT, ErrorCode);
    let message = match CoreState::from_number(record.state) {
        Some(CoreState::Panicked) => {
            let file: Vec<u8> = record.file.iter().copied().take_while(|byte| *byte != 0).collect();
            format!("defect at {}:{}", String::from_utf8_lossy(&file), record.line)
        }
        Some(CoreState::Faulted) => {
            let CoreRecord { esr, elr, far, spsr, .. } = record;
            format!("{}: ESR {esr:#x} ELR {elr:#x} FAR {far:#x} SPSR {spsr:#x}", exception_class(*esr))
        }
        Some(CoreState::Refused) => "the image refuses the boot block".to_owned(),
        _ => format!("the core's record has the unknown state {}", record.state),
    };
    Error::new(code, message).at(format!("core {core}"))
}

/// Names the class of an exception (Arm ARM, ESR_EL1.EC).
fn exception_class(esr: u64) -> &'static str {
    match esr >> 26 & 0x3f {
        0x00 => "undefined instruction",
        0x07 => "floating point is off",
        0x20 | 0x21 => "instruction fetch from memory that is not code",
        0x22 => "misaligned program counter",
        0x24 | 0x25 if esr & 0x3c == 0x04 => "access to memory that is not mapped",
        0x24 | 0x25 if esr & 0x3c == 0x0c => "write to memory that is read-only",
        0x24 | 0x25 => "access to memory refused",
        0x26 => "misaligned stack pointer",
        0x3c => "breakpoint instruction",
        _ => "exception",
    }
}

/// Returns the emulator's command line.
fn arguments(
    options: &Options,
    cores: usize,
    entry: u64,
    (private, fabric): (&PrivateMemory, &File),
    boot: &BootInfo,
) -> Vec<OsString> {
    let kib = |bytes: u64| bytes / 1024;
    let memory = |id: &str, file: &File, len: u64| {
        format!("memory-backend-file,id={id},share=on,mem-path={},size={}K", path(file), kib(len))
    };
    // The first interrupt controller of the machine knows eight cores.
    let machine = if cores > 8 { "virt,gic-version=3" } else { "virt" };
    let mut list: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| list.extend(words.iter().map(OsString::from));
    add(&["-no-user-config", "-nodefaults", "-display", "none", "-monitor", "none"]);
    add(&["-machine", machine, "-cpu", "cortex-a72", "-smp", &cores.to_string()]);
    add(&["-accel", "tcg,thread=single", "-m", &format!("{}K", kib(boot.private_len + boot.fabric_len))]);
    add(&["-object", &memory("private", private.file(), boot.private_len), "-numa", "node,memdev=private"]);
    add(&["-object", &memory("fabric", fabric, boot.fabric_len), "-numa", "node,memdev=fabric"]);
    add(&["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
    add(&["-semihosting-config", "enable=on,target=native"]);
    add(&["-device", &format!("loader,addr={entry:#x},cpu-num=0")]);
    if options.count_instructions {
        add(&["-icount", "shift=0,sleep=off"]);
    }
    list
}

#[cfg(test)]
mod tests;
