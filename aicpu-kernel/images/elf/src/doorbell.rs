//! Sleeping until the launcher rings: an idle core uses no processor of the host.
//!
//! The doorbell is a byte on the console. The UART's interrupt wakes the core out of WFI and is never taken, because
//! interrupts stay masked; reading the byte withdraws it. The launcher rings after it has posted, and the core looks
//! for work after it has taken the byte, so no ring is lost. While a launch is in hand the core only naps: it waits
//! for room in a ring, and no device rings for that.

use platform_aarch64::el1;

use crate::device::{Device, register};

/// Interrupt numbers of the `virt` machine: the virtual timer is private to the core, the UART is shared.
const TIMER: usize = 27;
const UART: usize = 33;

const UART_DATA: usize = 0x00;
const UART_FLAGS: usize = 0x18;
const RECEIVE_EMPTY: u32 = 1 << 4;
const UART_MASK: usize = 0x38;
const RECEIVED: u32 = 1 << 4;

const DISTRIBUTOR_CONTROL: usize = 0x000;
const DISTRIBUTOR_ENABLE: usize = 0x100;
const DISTRIBUTOR_TARGET: usize = 0x800;
const CORE_CONTROL: usize = 0x00;
const CORE_PRIORITY: usize = 0x04;

/// Lets the doorbell and the timer wake this core, the only one of the machine.
pub(crate) fn enable() {
    for interrupt in [TIMER, UART] {
        register(Device::Distributor, DISTRIBUTOR_ENABLE + interrupt / 32 * 4).write(1 << (interrupt % 32));
    }
    register(Device::Distributor, DISTRIBUTOR_TARGET + UART / 4 * 4).write(0x0101_0101);
    register(Device::Distributor, DISTRIBUTOR_CONTROL).write(1);
    register(Device::CoreInterface, CORE_PRIORITY).write(0xff);
    register(Device::CoreInterface, CORE_CONTROL).write(1);
    register(Device::Uart, UART_MASK).write(RECEIVED);
}

/// Sleeps until the doorbell rings; not longer than about 60 µs with `work` in hand.
pub(crate) fn sleep(work: bool) {
    if work {
        el1::start_timer();
    }
    el1::sleep();
    el1::stop_timer();
    while register(Device::Uart, UART_FLAGS).read() & RECEIVE_EMPTY == 0 {
        let _ = register(Device::Uart, UART_DATA).read();
    }
}
