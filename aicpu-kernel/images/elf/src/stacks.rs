//! One stack for each core and one for its exceptions, each above a page that faults.

// UNSAFETY: the section keeps the stacks out of the memory that the boot code, which runs on them, zeroes.
#![expect(unsafe_code, reason = "placement in a section of the linker script")]

use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::ops::Range;

use wire::boot::MAX_CORES;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Bytes of stack the kernel has on each core; `cargo xtask size` bounds what it needs.
pub(crate) const CORE_STACK: usize = 64 << 10;
/// Bytes of stack for an exception, which only reports.
const EXCEPTION_STACK: usize = 2 * PAGE;
/// Distance of two core stacks.
pub(crate) const CORE_STRIDE: usize = PAGE + CORE_STACK;
/// Distance of two exception stacks.
pub(crate) const EXCEPTION_STRIDE: usize = PAGE + EXCEPTION_STACK;

/// A page that faults, and the stack above it.
#[repr(C, align(4096))]
pub(crate) struct Stack<const BYTES: usize> {
    guard: [u8; PAGE],
    space: UnsafeCell<[u8; BYTES]>,
}

// SAFETY: only the boot code's stack pointer refers to the space, each core's to its own.
unsafe impl<const BYTES: usize> Sync for Stack<BYTES> {}

impl<const BYTES: usize> Stack<BYTES> {
    const fn new() -> Self {
        Self { guard: [0; PAGE], space: UnsafeCell::new([0; BYTES]) }
    }
}

/// The stacks of the cores.
// SAFETY: `.uninit` is writable memory that nothing initializes and nothing else is placed in.
#[unsafe(link_section = ".uninit")]
pub(crate) static CORE_STACKS: [Stack<CORE_STACK>; MAX_CORES] = [const { Stack::new() }; MAX_CORES];

/// The stacks of the cores' exceptions.
// SAFETY: as above.
#[unsafe(link_section = ".uninit")]
pub(crate) static EXCEPTION_STACKS: [Stack<EXCEPTION_STACK>; MAX_CORES] = [const { Stack::new() }; MAX_CORES];

// For `cargo xtask size`, which compares them with what the code needs.
global_asm!(
    ".global __core_stack_bytes",
    ".set __core_stack_bytes, {core}",
    ".global __exception_stack_bytes",
    ".set __exception_stack_bytes, {exception}",
    core = const CORE_STACK,
    exception = const EXCEPTION_STACK,
);

/// Returns the address ranges of all guard pages.
pub(crate) fn guards() -> impl Iterator<Item = Range<u64>> {
    let core = CORE_STACKS.iter().map(|stack| range(&stack.guard));
    core.chain(EXCEPTION_STACKS.iter().map(|stack| range(&stack.guard)))
}

fn range(page: &[u8; PAGE]) -> Range<u64> {
    let start = page.as_ptr().addr() as u64;
    start..start + PAGE as u64
}
