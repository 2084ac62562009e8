//! What depends on the processor: the way into a launch and out of it, and the clock.
//!
//! A defect cannot unwind through C, so the entry keeps the registers that a C caller wants back in one frame, and
//! [`leave`] returns from the entry with that frame, wherever it is called.

// UNSAFETY: functions made of instructions.
#![expect(unsafe_code, reason = "registers that the language does not know")]
#![expect(unreachable_pub, reason = "exported by its name")]

use core::arch::naked_asm;

use wire::param::KernelParam;

use crate::entry::serve;

/// The one exported symbol: serves a launch, and returns 0 or an error code.
///
/// # Safety
/// `param` is null, or points to a param whose memory stays mapped during the call. The data plane that the loader
/// bound is that of `include/aicpu_ts/hcomm.h`.
// SAFETY: no other symbol has this name. The body keeps what the calling convention says it must, and passes the
// argument and the frame on.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn AicpuTsLaunch(param: *const KernelParam) -> u32 {
    naked_asm!(
        "stp x29, x30, [sp, #-160]!",
        "mov x29, sp",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x1, sp",
        "bl {serve}",
        "mov w1, w0",
        "mov x0, sp",
        "b {leave}",
        serve = sym serve,
        leave = sym leave,
    )
}

/// Returns from the entry whose frame this is, with a code.
///
/// # Safety
/// The entry with this frame is active on this stack.
// SAFETY: gives back what the entry has kept.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn leave(frame: usize, code: u32) -> ! {
    naked_asm!(
        "mov sp, x0",
        "mov w0, w1",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "ldp x29, x30, [sp], #160",
        "ret",
    )
}

/// The one exported symbol: serves a launch, and returns 0 or an error code.
///
/// # Safety
/// As on aarch64.
// SAFETY: as on aarch64.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn AicpuTsLaunch(param: *const KernelParam) -> u32 {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "mov rsi, rsp",
        "call {serve}",
        "mov esi, eax",
        "mov rdi, rsp",
        "jmp {leave}",
        serve = sym serve,
        leave = sym leave,
    )
}

/// Returns from the entry whose frame this is, with a code.
///
/// # Safety
/// As on aarch64.
// SAFETY: as on aarch64.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn leave(frame: usize, code: u32) -> ! {
    naked_asm!(
        "mov rsp, rdi",
        "mov eax, esi",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// The clock of this processor.
pub(crate) struct Ticks;

impl hal::Clock for Ticks {
    #[cfg(target_arch = "aarch64")]
    fn now_ns(&self) -> u64 {
        platform_aarch64::cpu::now_ns()
    }

    /// Roughly: half the time-stamp counter, right for a processor of 2 GHz.
    #[cfg(target_arch = "x86_64")]
    fn now_ns(&self) -> u64 {
        // SAFETY: reading the counter changes nothing.
        unsafe { core::arch::x86_64::_rdtsc() / 2 }
    }
}
