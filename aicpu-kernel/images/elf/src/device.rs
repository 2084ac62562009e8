//! Registers of the machine's devices.

// UNSAFETY: they lie at fixed addresses of the machine.
#![expect(unsafe_code, reason = "device registers at fixed addresses")]

use core::ptr::NonNull;

use volatile::VolatilePtr;

/// A device of the `virt` machine, by the address of its first register.
#[derive(Clone, Copy)]
pub(crate) enum Device {
    /// GICv2 distributor.
    Distributor = 0x0800_0000,
    /// GICv2 interface of the core.
    CoreInterface = 0x0801_0000,
    /// PL011 UART.
    Uart = 0x0900_0000,
}

/// Returns the register at `offset` (a multiple of 4 below 4096) of a device.
pub(crate) fn register(device: Device, offset: usize) -> VolatilePtr<'static, u32> {
    let address = core::ptr::with_exposed_provenance_mut(device as usize + (offset & 0xffc));
    let address = NonNull::new(address).unwrap_or(NonNull::dangling()); // never null: a constant above 0
    // SAFETY: the machine has this register there, mapped as device memory; accesses of 32 bits are its own.
    unsafe { VolatilePtr::new(address) }
}
