//! The kernel of each core, and the memory it records graphs into.
//!
//! Both are large, so they are static: neither fits a stack, and there is no heap. The linker script keeps them out
//! of the memory that the boot code zeroes; each core fills its own before it uses it.

// UNSAFETY: each core has a part of a static for itself, and cores are known only by their index.
#![expect(unsafe_code, reason = "per-core statics in a section of their own")]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use aicpu_kernel::{Block, Kernel};
use platform_aarch64::Npu;
use wire::boot::MAX_CORES;

/// Blocks of 32 descriptors that one chunk is recorded into, as many as the kernel of a host thread has.
const BLOCKS: usize = 512;

/// The kernel as the image runs it.
pub(crate) type ImageKernel = Kernel<Npu, &'static mut [Block]>;

struct PerCore {
    kernel: UnsafeCell<MaybeUninit<ImageKernel>>,
    blocks: UnsafeCell<[MaybeUninit<Block>; BLOCKS]>,
}

// SAFETY: each core takes its own element only, once.
unsafe impl Sync for PerCore {}

// SAFETY: `.uninit` is writable memory that nothing else is placed in over this; its content means nothing until
// `make` has written it.
#[unsafe(link_section = ".uninit")]
static CORES: [PerCore; MAX_CORES] = [const {
    PerCore {
        kernel: UnsafeCell::new(MaybeUninit::uninit()),
        blocks: UnsafeCell::new([const { MaybeUninit::uninit() }; BLOCKS]),
    }
}; MAX_CORES];

/// Makes the kernel of a core over its NPU; `None` when there is no such core.
///
/// # Safety
/// Called once for each core, by that core.
#[inline(never)] // the kernel passes through this frame, which must be gone before it runs
pub(crate) unsafe fn make(core: usize, npu: Npu) -> Option<&'static mut ImageKernel> {
    let place = CORES.get(core)?;
    // SAFETY: the caller has this element for itself, and comes here once.
    let blocks = unsafe { &mut *place.blocks.get() };
    for block in &mut *blocks {
        block.write(Block::EMPTY);
    }
    // SAFETY: all of them have just been written.
    let blocks = unsafe { blocks.assume_init_mut() };
    // SAFETY: as for the blocks.
    let kernel = unsafe { &mut *place.kernel.get() };
    Some(kernel.write(Kernel::new(npu, blocks)))
}
