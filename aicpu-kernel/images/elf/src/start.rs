//! The first instructions of each core, and the exception vectors.
//!
//! Code runs on `SP_EL0`, exceptions on `SP_EL1`, so an overflowed stack still has somewhere to report from.

// UNSAFETY: nothing of Rust's world exists before these instructions have run.
#![expect(unsafe_code, reason = "boot code and vectors are assembly")]

use core::arch::global_asm;

use crate::stacks::{self, CORE_STRIDE, EXCEPTION_STRIDE};

// x0: index of the core. Nothing may be called before floating point is on: compiled code copies with it.
global_asm!(
    ".pushsection .text.start, \"ax\"",
    ".global _start",
    ".type _start, %function",
    "_start:",
    "adrp x1, __bss_start",
    "add  x1, x1, :lo12:__bss_start",
    "adrp x2, __bss_end",
    "add  x2, x2, :lo12:__bss_end",
    "0: cmp  x1, x2",
    "b.hs 1f",
    "stp  xzr, xzr, [x1], #16",
    "b    0b",
    "1: mov  x0, #0",
    ".global secondary_start",
    "secondary_start:",
    "mov  x1, #(3 << 20)", // CPACR_EL1.FPEN: no trap
    "msr  cpacr_el1, x1",
    "msr  tpidr_el1, x0",
    "adrp x1, vectors",
    "add  x1, x1, :lo12:vectors",
    "msr  vbar_el1, x1",
    "add  x3, x0, #1", // stacks grow down: this core's ends where the next one begins
    "adrp x1, {exception_stacks}",
    "add  x1, x1, :lo12:{exception_stacks}",
    "mov  x2, #{exception_stride}",
    "madd x1, x2, x3, x1",
    "msr  spsel, #1",
    "mov  sp, x1",
    "adrp x1, {core_stacks}",
    "add  x1, x1, :lo12:{core_stacks}",
    "ldr  x2, ={core_stride}",
    "madd x1, x2, x3, x1",
    "msr  spsel, #0",
    "mov  sp, x1",
    "isb",
    "mov  x29, #0",
    "mov  x30, #0",
    "b    core_entry",
    ".size _start, . - _start",
    ".popsection",
    exception_stacks = sym stacks::EXCEPTION_STACKS,
    exception_stride = const EXCEPTION_STRIDE,
    core_stacks = sym stacks::CORE_STACKS,
    core_stride = const CORE_STRIDE,
);

// Sixteen vectors of 128 bytes; none returns, so none saves a register.
global_asm!(
    ".pushsection .text.vectors, \"ax\"",
    ".balign 2048",
    ".type vectors, %function",
    "vectors:",
    ".set vector, 0",
    ".rept 16",
    ".balign 128",
    "mov x0, #vector",
    "b   exception_entry",
    ".set vector, vector + 1",
    ".endr",
    ".size vectors, . - vectors",
    ".popsection",
);
