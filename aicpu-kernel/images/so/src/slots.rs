//! The kernels of this process, one for each communicator up to some number, and who is inside which.
//!
//! A communicator always gets the same slot, so that what is known of it (contexts, recordings, that it is poisoned) is
//! found again. Two communicators may share one; then one waits while the other is inside.

// UNSAFETY: statics that change behind a lock of this module.
#![expect(unsafe_code, reason = "per-slot statics behind a lock")]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use aicpu_kernel::{CallKernel, TapePage, Tapes};
use hal::Clock;
use wire::ErrorCode;

use crate::machine::Ticks;

/// Slots of the process.
const SLOTS: usize = 8;
/// Pages in which one slot records launches: 8,192 tasks.
const PAGES: usize = 256;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// A defect was met here: nothing is served any more.
const DEAD: u32 = 2;

/// The kernel of a slot.
pub(crate) type SlotKernel = CallKernel<'static, &'static mut [TapePage]>;

/// One kernel, and what a defect inside it needs to get out.
pub(crate) struct Slot {
    state: AtomicU32,
    started: AtomicBool,
    /// Frame of the entry that holds it.
    pub(crate) frame: AtomicUsize,
    /// Address of that entry's param.
    pub(crate) param: AtomicUsize,
    /// Calls of the data plane that must be undone: 1 the communicator, 2 the batch.
    pub(crate) open: AtomicU64,
    kernel: UnsafeCell<SlotKernel>,
    tapes: UnsafeCell<MaybeUninit<Tapes<&'static mut [TapePage]>>>,
    pages: UnsafeCell<[MaybeUninit<TapePage>; PAGES]>,
}

// SAFETY: `kernel`, `tapes` and `pages` are touched only by who has brought `state` from free to held.
unsafe impl Sync for Slot {}

pub(crate) static ALL: [Slot; SLOTS] = [const {
    Slot {
        state: AtomicU32::new(FREE),
        started: AtomicBool::new(false),
        frame: AtomicUsize::new(0),
        param: AtomicUsize::new(0),
        open: AtomicU64::new(0),
        kernel: UnsafeCell::new(CallKernel::new()),
        tapes: UnsafeCell::new(MaybeUninit::uninit()),
        pages: UnsafeCell::new([const { MaybeUninit::uninit() }; PAGES]),
    }
}; SLOTS];

impl Slot {
    /// Enters the slot of a communicator, waiting up to `wait_ms` while another thread is inside.
    ///
    /// # Errors
    /// `KERNEL_BUSY` when that takes longer, `KERNEL_PANIC` when a defect was met there.
    pub(crate) fn enter(instance: [u64; 2], wait_ms: u32) -> Result<&'static Self, ErrorCode> {
        let mixed = (instance[0] ^ instance[1]).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let index = usize::try_from(mixed).unwrap_or(0) % SLOTS;
        let slot = ALL.get(index).ok_or(ErrorCode::KERNEL_BUSY)?;
        let limit = Ticks.now_ns().saturating_add(u64::from(wait_ms) * 1_000_000);
        loop {
            // ORDER: pairs with the release of `exit`: what the last one inside wrote is seen.
            match slot.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(slot),
                Err(DEAD) => return Err(ErrorCode::KERNEL_PANIC),
                Err(_) if Ticks.now_ns() >= limit => return Err(ErrorCode::KERNEL_BUSY),
                Err(_) => core::hint::spin_loop(),
            }
        }
    }

    /// Returns the kernel of a slot, ready to use.
    ///
    /// # Safety
    /// The caller has entered the slot and takes this once before it leaves.
    #[expect(clippy::mut_from_ref, reason = "the caller has the slot for itself")]
    pub(crate) unsafe fn kernel(&'static self) -> &'static mut SlotKernel {
        // SAFETY: the caller has the slot for itself.
        let kernel = unsafe { &mut *self.kernel.get() };
        // ORDER: only who is inside touches it.
        if !self.started.swap(true, Ordering::Relaxed) {
            // SAFETY: as above; this is done once, so the borrow is the only one there ever is.
            let pages = unsafe { &mut *self.pages.get() };
            for page in &mut *pages {
                page.write(TapePage::EMPTY);
            }
            // SAFETY: every element has just been written.
            let pages = unsafe { pages.assume_init_mut() };
            // SAFETY: as for the pages.
            let tapes = unsafe { &mut *self.tapes.get() };
            kernel.start(tapes.write(Tapes::new(pages)));
        }
        kernel
    }

    /// Leaves the slot; `sound` unless a defect was met.
    pub(crate) fn exit(&self, sound: bool) {
        self.frame.store(0, Ordering::Relaxed);
        // ORDER: what was written inside is seen by who enters next.
        self.state.store(if sound { FREE } else { DEAD }, Ordering::Release);
    }
}
