//! What only a bare-metal image at EL1 may touch: translation, exceptions, the other cores.
//!
//! Made for QEMU's `virt` machine. It does not maintain caches by address: a machine whose caches hold stale lines
//! at power-on would need that before translation is switched on.

// UNSAFETY: switching translation on changes what every address means; no type can promise that the tables are right.
#![expect(unsafe_code, reason = "system registers that change the machine under the program")]

use aarch64_cpu::asm::{self, barrier};
use aarch64_cpu::registers::{
    CNTFRQ_EL0, CNTV_CTL_EL0, CNTV_TVAL_EL0, ELR_EL1, ESR_EL1, FAR_EL1, ID_AA64MMFR0_EL1, MAIR_EL1,
    ReadWriteable, Readable, SCTLR_EL1, SPSR_EL1, TCR_EL1, TPIDR_EL1, TTBR0_EL1, Writeable,
};
use smccc::Hvc;
use smccc::psci;

use crate::Access;

/// Switches translation and both caches on, with the page tables whose root is at `root`.
///
/// Until then memory is uncached and every access must be aligned, and no lock may be taken.
///
/// # Safety
/// 1. `root` is `PageTables::root` of tables that are complete, stay where they are and are not changed any more.
/// 2. They map the running code, its stack and its data onto themselves.
pub unsafe fn enable_translation(root: u64) {
    MAIR_EL1.set(Access::MEMORY_ATTRIBUTES);
    TCR_EL1.write(
        TCR_EL1::T0SZ.val(25)
            + TCR_EL1::TG0::KiB_4
            + TCR_EL1::SH0::Inner
            + TCR_EL1::ORGN0::WriteBack_ReadAlloc_WriteAlloc_Cacheable
            + TCR_EL1::IRGN0::WriteBack_ReadAlloc_WriteAlloc_Cacheable
            + TCR_EL1::EPD1::DisableTTBR1Walks
            + TCR_EL1::IPS.val(ID_AA64MMFR0_EL1.read(ID_AA64MMFR0_EL1::PARange).min(0b101)),
    );
    TTBR0_EL1.set(root);
    // The tables above must be in memory, and nothing old in the translation buffers, before the first walk.
    barrier::dsb(barrier::SY);
    // SAFETY: dropping translations that are not in use yet changes nothing.
    unsafe { core::arch::asm!("tlbi vmalle1", "ic iallu", options(nostack, preserves_flags)) };
    barrier::dsb(barrier::SY);
    barrier::isb(barrier::SY);
    SCTLR_EL1.modify(SCTLR_EL1::M::Enable + SCTLR_EL1::C::Cacheable + SCTLR_EL1::I::Cacheable);
    barrier::isb(barrier::SY);
}

/// The registers that say why an exception was taken.
#[derive(Clone, Copy, Debug)]
pub struct Syndrome {
    /// What happened (`ESR_EL1`).
    pub esr: u64,
    /// Where (`ELR_EL1`).
    pub elr: u64,
    /// Which address was accessed, for faults of an access (`FAR_EL1`).
    pub far: u64,
    /// Processor state before (`SPSR_EL1`).
    pub spsr: u64,
}

impl Syndrome {
    /// Reads the registers of the newest exception.
    #[must_use]
    pub fn read() -> Self {
        Self { esr: ESR_EL1.get(), elr: ELR_EL1.get(), far: FAR_EL1.get(), spsr: SPSR_EL1.get() }
    }
}

/// Returns the index of this core, as the boot code left it in `TPIDR_EL1`.
#[inline]
#[must_use]
pub fn core_index() -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits on this target")]
    let index = TPIDR_EL1.get() as usize;
    index
}

/// Starts core `index` at the physical address `entry`, with `index` in its first register.
///
/// # Errors
/// When the firmware refuses: no such core, or it runs already.
pub fn start_core(index: usize, entry: u64) -> Result<(), psci::Error> {
    psci::cpu_on::<Hvc>(affinity(index), entry, index as u64)
}

/// Returns the affinity of core `index` on the `virt` machine: sixteen to a cluster.
fn affinity(index: usize) -> u64 {
    let index = index as u64;
    ((index / 16) << 8) | (index % 16)
}

/// Sleeps until an interrupt is pending. Interrupts stay masked, as they are at power-on: none is taken.
pub fn sleep() {
    asm::wfi();
}

/// Makes the virtual timer's interrupt pending in about 60 µs: every 2^-14 of a second.
pub fn start_timer() {
    CNTV_TVAL_EL0.set(CNTFRQ_EL0.get() >> 14);
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::SET);
}

/// Withdraws the virtual timer's interrupt.
pub fn stop_timer() {
    CNTV_CTL_EL0.set(0);
}

/// Stops this core for good without using the processor.
pub fn park() -> ! {
    loop {
        asm::wfi();
    }
}
