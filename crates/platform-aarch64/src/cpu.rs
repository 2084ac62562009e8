//! Instructions that any privilege level may execute: barriers, the clock, waiting.
//!
//! Elsewhere than on aarch64 the barriers are plain fences, so that what is built on them runs in tests; the rest
//! does not exist there.

// UNSAFETY: the yield hint has no other name than its instruction; `spin_loop` compiles to another one.
#![cfg_attr(
    target_arch = "aarch64",
    expect(unsafe_code, reason = "one hint instruction and the cycle counter")
)]

#[cfg(target_arch = "aarch64")]
use aarch64_cpu::{
    asm::barrier,
    registers::{CNTFRQ_EL0, CNTVCT_EL0, Readable},
};

/// Orders every store before it against every store after it, also for devices that watch memory.
#[inline]
pub fn publish() {
    #[cfg(target_arch = "aarch64")]
    barrier::dmb(barrier::OSHST);
    #[cfg(not(target_arch = "aarch64"))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
}

/// Orders every load before it against every load and store after it, also for devices that write memory.
#[inline]
pub fn observe() {
    #[cfg(target_arch = "aarch64")]
    barrier::dmb(barrier::OSHLD);
    #[cfg(not(target_arch = "aarch64"))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
}

/// Lets another core run. Every turn of every waiting loop executes this.
///
/// An emulator that runs all cores in one thread switches at this instruction and at few others; without it a wait
/// keeps its whole time slice, a hundred milliseconds.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn relax() {
    // SAFETY: `yield` is a hint: it changes no register and no memory.
    unsafe { core::arch::asm!("yield", options(nomem, nostack, preserves_flags)) };
}

/// Returns nanoseconds by the system counter, which all cores share.
#[cfg(target_arch = "aarch64")]
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    // An instruction barrier keeps the counter from being read early.
    barrier::isb(barrier::SY);
    ticks_to_ns(CNTVCT_EL0.get(), CNTFRQ_EL0.get())
}

/// Returns the nanoseconds of `ticks` of a counter that runs at `hertz`; 0 for a counter that does not run.
#[cfg(any(target_arch = "aarch64", test))]
fn ticks_to_ns(ticks: u64, hertz: u64) -> u64 {
    const NS: u64 = 1_000_000_000;
    // Whole seconds apart from the rest, so that no product leaves 64 bits for any frequency below 18 GHz.
    let (Some(seconds), Some(rest)) = (ticks.checked_div(hertz), ticks.checked_rem(hertz)) else { return 0 };
    seconds.wrapping_mul(NS).wrapping_add(rest.wrapping_mul(NS) / hertz.max(1))
}

/// Starts the cycle counter of this core from 0.
///
/// Under `-icount shift=0` one cycle is one instruction. Needs EL1, or EL0 with user access switched on.
#[cfg(target_arch = "aarch64")]
pub fn start_cycles() {
    // SAFETY: these registers belong to the performance monitor, which nothing else in the program uses. Bit 31
    // enables the cycle counter; control bits 0, 2 and 6 mean on, reset, and 64 bits wide.
    unsafe {
        core::arch::asm!(
            "msr pmcntenset_el0, {counter}",
            "msr pmcr_el0, {control}",
            "isb",
            counter = in(reg) 1_u64 << 31,
            control = in(reg) 0b100_0101_u64,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Returns the cycle counter of this core.
#[cfg(target_arch = "aarch64")]
#[inline]
#[must_use]
pub fn cycles() -> u64 {
    let count: u64;
    // SAFETY: reading the counter changes nothing.
    unsafe {
        core::arch::asm!("mrs {}, pmccntr_el0", out(reg) count, options(nomem, nostack, preserves_flags));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::ticks_to_ns;

    #[test]
    fn ticks_become_nanoseconds_without_overflow() {
        assert_eq!(ticks_to_ns(1, 62_500_000), 16);
        assert_eq!(ticks_to_ns(62_500_000, 62_500_000), 1_000_000_000);
        assert_eq!(ticks_to_ns(62_500_000 * 86_400 * 365 + 1, 62_500_000), 31_536_000_000_000_016);
        assert_eq!(ticks_to_ns(5, 1_000_000_000), 5);
        assert_eq!(ticks_to_ns(5, 0), 0);
    }
}
