//! What launcher and image share outside of the windows: boot block and core records.

// UNSAFETY: both lie at fixed addresses of the guest's memory, where the launcher reads and writes too.
#![expect(unsafe_code, reason = "structures at fixed addresses")]
#![expect(clippy::cast_possible_truncation, reason = "usize has 64 bits on the only target")]

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};

use platform_aarch64::Window;
use wire::ErrorCode;
use wire::boot::{BOOT_INFO, BootInfo, CORE_RECORDS, CoreRecord, CoreState, MAX_CORES, WindowPlace};

/// Copies the boot block. The launcher wrote it before power-on and does not write it again.
pub(crate) fn boot_info() -> BootInfo {
    let block = ptr::with_exposed_provenance::<BootInfo>(BOOT_INFO as usize);
    // SAFETY: the address is in memory and aligned, and any bytes are a boot block.
    unsafe { block.read_volatile() }
}

/// Returns the window at `place` of a checked boot block.
pub(crate) fn window(boot: &BootInfo, place: &WindowPlace) -> Result<Window, ErrorCode> {
    // `BootInfo::check` made sure that nothing wraps.
    let base = ptr::with_exposed_provenance_mut(boot.fabric_addr.wrapping_add(place.offset) as usize);
    let base = NonNull::new(base).ok_or(ErrorCode::BOOT_FIELD)?;
    // SAFETY:
    // 1. The fabric is memory of the machine, and `check` found the window inside it.
    // 2. Core and stop code each make one window, and the stop code runs when the core's is no longer in use.
    unsafe { Window::new(base, place.len as usize, place.device_addr) }.ok_or(ErrorCode::BOOT_FIELD)
}

/// Publishes the record of a core.
pub(crate) fn publish(core: usize, state: CoreState, record: CoreRecord) {
    if core >= MAX_CORES {
        return;
    }
    let address = CORE_RECORDS as usize + core * size_of::<CoreRecord>();
    let place = ptr::with_exposed_provenance_mut::<CoreRecord>(address);
    // SAFETY: the address is in memory and aligned, and only this core writes its record.
    unsafe { place.write_volatile(CoreRecord { state: CoreState::Off as u64, ..record }) };
    // SAFETY: `state` is the first field: an aligned word that both sides access atomically.
    let word = unsafe { AtomicU64::from_ptr(place.cast()) };
    // ORDER: pairs with the launcher's acquire load: the record is complete.
    word.store(state as u64, Ordering::Release);
}

/// A record with nothing in it.
pub(crate) const EMPTY_RECORD: CoreRecord =
    CoreRecord { state: 0, code: 0, esr: 0, elr: 0, far: 0, spsr: 0, vector: 0, line: 0, file: [0; 64] };
