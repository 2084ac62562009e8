//! What a launcher and a bare-metal image tell each other before there is a window.
//!
//! Three things lie at fixed guest addresses in the guest's private memory: the [`BootInfo`] block that the launcher
//! writes before power-on, one [`CoreRecord`] for each core that only that core writes, and above them the image.
//! A record outlives whatever stopped its core: it is what remains to be read after an exception or a defect.
//!
//! Guest addresses are those of QEMU's `virt` machine.

use core::mem::offset_of;

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{ABI_MAJOR, ABI_MINOR, DeviceAddr, ErrorCode};

/// First guest address of memory; the machine puts its device tree there (at most 1 MiB).
pub const RAM_BASE: u64 = 0x4000_0000;
/// Guest address of the [`BootInfo`] block.
pub const BOOT_INFO: u64 = RAM_BASE + 0x10_0000;
/// Guest address of the first [`CoreRecord`].
pub const CORE_RECORDS: u64 = RAM_BASE + 0x11_0000;
/// Guest address at which images are linked.
pub const IMAGE_BASE: u64 = RAM_BASE + 0x20_0000;
/// Cores one image can drive, one for each NPU.
pub const MAX_CORES: usize = 16;
/// Private memory is a multiple of so many bytes; the fabric of 4096.
pub const MEMORY_GRANULE: u64 = 2 << 20;
/// First word of a boot block, `AICPBOOT` in memory.
pub const BOOT_MAGIC: u64 = u64::from_le_bytes(*b"AICPBOOT");

const _: () = {
    assert!(BOOT_INFO + size_of::<BootInfo>() as u64 <= CORE_RECORDS);
    assert!(CORE_RECORDS + (MAX_CORES * size_of::<CoreRecord>()) as u64 <= IMAGE_BASE);
};

/// Where the window of one NPU lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WindowPlace {
    /// Device address of its first byte.
    pub device_addr: DeviceAddr,
    /// Offset of its first byte in the fabric, a multiple of 4096.
    pub offset: u64,
    /// Bytes, a multiple of 4096.
    pub len: u64,
}
const _: () = assert!(size_of::<WindowPlace>() == 24 && offset_of!(WindowPlace, len) == 16);

bitflags! {
    /// How an image is to run.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct BootFlags: u64 {
        /// The kernel's clock is the cycle counter: on a machine that counts instructions, all its times are numbers
        /// of instructions.
        const COUNT = 1;
        /// A core with nothing to do sleeps until a byte arrives on the console. Without this it only lets another
        /// core run.
        const SLEEP = 2;
    }
}

/// The launcher's first words to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BootInfo {
    /// [`BOOT_MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_MAJOR`] of the launcher.
    pub abi_major: u16,
    /// [`crate::ABI_MINOR`] of the launcher.
    pub abi_minor: u16,
    /// Cores to start; core `i` serves `windows[i]`.
    pub core_count: u32,
    /// Bytes of private memory from [`RAM_BASE`] on.
    pub private_len: u64,
    /// Guest address of the fabric's first byte: right behind the private memory.
    pub fabric_addr: u64,
    /// Bytes of the fabric, the memory shared by all NPUs and the host; a multiple of 4096.
    pub fabric_len: u64,
    /// The NPUs' windows; those from `core_count` on are zero.
    pub windows: [WindowPlace; MAX_CORES],
    /// [`BootFlags`].
    pub flags: u64,
}
const _: () = assert!(size_of::<BootInfo>() == 432 && offset_of!(BootInfo, windows) == 40);
const _: () = assert!(offset_of!(BootInfo, flags) == 424);

impl BootInfo {
    /// Makes the block for `windows`, one core each, over `private_len` bytes of private memory and the fabric.
    /// Windows beyond [`MAX_CORES`] are left out, and [`BootInfo::check`] then refuses the block.
    #[must_use]
    pub fn new(private_len: u64, fabric_len: u64, windows: &[WindowPlace]) -> Self {
        let mut places = [WindowPlace::default(); MAX_CORES];
        for (place, window) in places.iter_mut().zip(windows) {
            *place = *window;
        }
        Self {
            magic: BOOT_MAGIC,
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            core_count: u32::try_from(windows.len()).unwrap_or(u32::MAX),
            private_len,
            fabric_addr: RAM_BASE.saturating_add(private_len),
            fabric_len,
            windows: places,
            flags: 0,
        }
    }

    /// Returns how the image is to run; unknown flags are left out.
    #[must_use]
    pub fn flags(&self) -> BootFlags {
        BootFlags::from_bits_truncate(self.flags)
    }

    /// Returns whether anybody wrote a boot block here; without one the image was started alone.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.magic == BOOT_MAGIC
    }

    /// Checks every field and returns the windows of the cores to start.
    ///
    /// # Errors
    /// `BOOT_ABI` when the block is of another version, `BOOT_FIELD` when a field is out of range.
    pub fn check(&self) -> Result<&[WindowPlace], ErrorCode> {
        if !self.is_present() || (self.abi_major, self.abi_minor) != (ABI_MAJOR, ABI_MINOR) {
            return Err(ErrorCode::BOOT_ABI);
        }
        let count = usize::try_from(self.core_count).map_err(|_| ErrorCode::BOOT_FIELD)?;
        let windows = self.windows.get(..count).ok_or(ErrorCode::BOOT_FIELD)?;
        let is_memory = self.private_len.is_multiple_of(MEMORY_GRANULE)
            && self.fabric_len.is_multiple_of(4096)
            && self.private_len > IMAGE_BASE - RAM_BASE
            && RAM_BASE.checked_add(self.private_len) == Some(self.fabric_addr)
            && self.fabric_addr.checked_add(self.fabric_len).is_some();
        let is_window = |window: &WindowPlace| {
            let end = window.offset.checked_add(window.len);
            window.offset.is_multiple_of(4096)
                && window.len.is_multiple_of(4096)
                && window.len > 0
                && end.is_some_and(|end| end <= self.fabric_len)
                && window.device_addr.checked_add(window.len).is_some()
        };
        let is_known = BootFlags::from_bits(self.flags).is_some();
        if count == 0 || !is_known || !is_memory || !windows.iter().all(is_window) {
            return Err(ErrorCode::BOOT_FIELD);
        }
        Ok(windows)
    }
}

/// What one core is doing: the numbers in [`CoreRecord::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum CoreState {
    /// The core has not run yet.
    Off = 0,
    /// The core runs the kernel.
    Running = 1,
    /// The boot block was refused; the code is in the record.
    Refused = 2,
    /// The kernel met a defect of its own and parked; file and line are in the record.
    Panicked = 3,
    /// A processor exception stopped the core; its registers are in the record.
    Faulted = 4,
}

impl CoreState {
    /// Returns the state with that number.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Off),
            1 => Some(Self::Running),
            2 => Some(Self::Refused),
            3 => Some(Self::Panicked),
            4 => Some(Self::Faulted),
            _ => None,
        }
    }
}

/// What one core leaves for the launcher to read. Only that core writes it; `state` is stored last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct CoreRecord {
    /// [`CoreState`] number; release store, so what it announces is complete.
    pub state: u64,
    /// [`ErrorCode`] when the state is not `Running`.
    pub code: u64,
    /// Exception syndrome (`ESR_EL1`).
    pub esr: u64,
    /// Address of the instruction (`ELR_EL1`).
    pub elr: u64,
    /// Address that was accessed (`FAR_EL1`).
    pub far: u64,
    /// Processor state (`SPSR_EL1`).
    pub spsr: u64,
    /// Which of the sixteen vectors was taken, from 0.
    pub vector: u64,
    /// Line of the source file of a defect.
    pub line: u64,
    /// Path of that file, cut to fit, padded with zeros.
    pub file: [u8; 64],
}
const _: () = assert!(size_of::<CoreRecord>() == 128 && offset_of!(CoreRecord, file) == 64);

/// Exit code of the emulator after a run without a launcher in which everything worked.
pub const EXIT_ALONE: u8 = 0;
/// Exit code after a refused boot block.
pub const EXIT_REFUSED: u8 = 2;
/// Exit code after a processor exception.
pub const EXIT_FAULT: u8 = 3;
/// Exit code after a defect met before any launcher could be told.
pub const EXIT_PANIC: u8 = 4;

#[cfg(test)]
mod tests;
