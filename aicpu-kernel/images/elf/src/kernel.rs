//! The kernel of each core, and the memory it records graphs into.
//!
//! Both are large, so they are static: neither fits a stack, and there is no heap. The linker script keeps them out
//! of the memory that the boot code zeroes; each core fills its own before it uses it, in place.

// UNSAFETY: each core has a part of a static for itself, and cores are known only by their index.
#![expect(unsafe_code, reason = "per-core statics in a section of their own")]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use aicpu_kernel::{Block, DEFAULT_BLOCKS, Kernel, LARGEST_GRAPH_PAGES, Page};
use platform_aarch64::{Npu, Window};
use wire::boot::MAX_CORES;

/// The kernel as the image runs it.
pub(crate) type ImageKernel = Kernel<Npu, &'static mut [Block], &'static mut [Page]>;

/// Pages of one core: the largest graph, and 512 KiB of graphs kept.
const PAGES: usize = LARGEST_GRAPH_PAGES + 128;

struct PerCore {
    kernel: UnsafeCell<MaybeUninit<ImageKernel>>,
    blocks: UnsafeCell<[MaybeUninit<Block>; DEFAULT_BLOCKS]>,
    pages: UnsafeCell<[MaybeUninit<Page>; PAGES]>,
}

// SAFETY: each core takes its own element only, once.
unsafe impl Sync for PerCore {}

// SAFETY: `.uninit` is writable memory that nothing else is placed in over this; its content means nothing until
// `make` has written it.
#[unsafe(link_section = ".uninit")]
static CORES: [PerCore; MAX_CORES] = [const {
    PerCore {
        kernel: UnsafeCell::new(MaybeUninit::uninit()),
        blocks: UnsafeCell::new([const { MaybeUninit::uninit() }; DEFAULT_BLOCKS]),
        pages: UnsafeCell::new([const { MaybeUninit::uninit() }; PAGES]),
    }
}; MAX_CORES];

/// A kernel of no core, which the compiler has made: what that of each core starts as.
struct Blank(ImageKernel);

// SAFETY: its bytes are copied, nothing else is done with it.
unsafe impl Sync for Blank {}

static BLANK: Blank = Blank(Kernel::new(Npu::new(Window::DETACHED), &mut [], &mut []));

/// Makes the kernel of a core over its NPU; `None` when there is no such core.
///
/// # Safety
/// Called once for each core, by that core.
pub(crate) unsafe fn make(core: usize, npu: Npu) -> Option<&'static mut ImageKernel> {
    let place = CORES.get(core)?;
    // SAFETY: the caller has this element for itself, and comes here once.
    let blocks = filled(unsafe { &mut *place.blocks.get() }, &Block::EMPTY);
    // SAFETY: as for the blocks.
    let pages = filled(unsafe { &mut *place.pages.get() }, &Page::EMPTY);
    // SAFETY: as for the blocks.
    let kernel = unsafe { &mut *place.kernel.get() };
    // SAFETY: two different statics, each as large and aligned as a kernel.
    unsafe { kernel.as_mut_ptr().copy_from_nonoverlapping(&raw const BLANK.0, 1) };
    // SAFETY: it has just been written. A blank kernel owns nothing, so its copy is as good as it is.
    let kernel = unsafe { kernel.assume_init_mut() };
    kernel.attach(npu, blocks, pages);
    Some(kernel)
}

/// Fills memory in place.
fn filled<T: Clone, const N: usize>(memory: &'static mut [MaybeUninit<T>; N], with: &T) -> &'static mut [T] {
    for slot in &mut *memory {
        slot.write(with.clone());
    }
    // SAFETY: every element has just been written.
    unsafe { memory.assume_init_mut() }
}
