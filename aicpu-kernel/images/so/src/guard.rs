//! A defect becomes a status: the panic handler, and what it needs to know of the launch under way.

// UNSAFETY: the handler leaves by a frame, and reads the param of the launch it ends.
#![expect(unsafe_code, reason = "leaves the stack of a launch that cannot go on")]

use core::ffi::CStr;
use core::panic::PanicInfo;
use core::sync::atomic::Ordering;

use hcomm_sink::{Call, DataPlane, Linked};
use wire::ErrorCode;
use wire::image_note::{ImageFlags, ImageNoteRecord};
use wire::npu::Status;
use wire::param::KernelParam;

use crate::entry::answer;
use crate::machine::leave;
use crate::slots::{ALL, Slot};

/// Most stack that one launch takes, bytes; `cargo xtask size` bounds it from the code.
pub(crate) const MAX_STACK: u32 = 16 << 10;

/// What this file is, for who loads it.
// SAFETY: a section of its own; nothing runs it.
#[unsafe(link_section = ".note.aicpu-ts")]
#[used]
static NOTE: ImageNoteRecord = ImageNoteRecord::new(MAX_STACK, ImageFlags::PANIC_FREE);

const COMMUNICATOR: u64 = 1;
const BATCH: u64 = 2;

/// The data plane, with a note in the slot of what is open.
pub(crate) struct Noted {
    pub(crate) slot: &'static Slot,
    pub(crate) linked: Linked,
}

impl DataPlane for Noted {
    #[inline(always)]
    fn call(&mut self, call: &Call<'_>) -> i32 {
        let (opens, closes) = match call {
            Call::Acquire(_) => (COMMUNICATOR, 0),
            Call::BatchStart(_) => (BATCH, 0),
            Call::BatchEnd(_) => (0, BATCH),
            Call::Release(_) => (0, COMMUNICATOR),
            _ => return self.task(call),
        };
        // ORDER: read by the handler of this thread only.
        self.slot.open.fetch_and(!closes, Ordering::Relaxed);
        let result = self.linked.call(call);
        if result == 0 {
            self.slot.open.fetch_or(opens, Ordering::Relaxed);
        }
        result
    }

    fn has_cache(&self) -> bool {
        self.linked.has_cache()
    }

    fn cache_lookup(&mut self, tag: &CStr) -> Result<bool, i32> {
        self.linked.cache_lookup(tag)
    }
}

impl Noted {
    #[inline(always)]
    fn task(&mut self, call: &Call<'_>) -> i32 {
        #[cfg(aicpu_test_panic)]
        assert!(!matches!(call, Call::ThreadRecord { .. }), "the defect that a test wants");
        self.linked.call(call)
    }
}

/// Ends the launch of this thread: closes what is open, answers, and returns from its entry. The communicator's slot
/// serves nothing any more.
// Not inlined: its frame has to lie below that of the entry.
#[inline(never)]
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    let here = 0_u8;
    let here = (&raw const here).addr();
    // The frame of this thread's entry lies above, on the same stack; those of other threads lie elsewhere.
    let near = |slot: &&Slot| {
        slot.frame.load(Ordering::Relaxed).checked_sub(here).is_some_and(|gap| gap < MAX_STACK as usize) // CAST: 16 KiB.
    };
    let Some(slot) = ALL.iter().find(near) else {
        // A defect outside a launch: there is no code outside.
        loop {
            core::hint::spin_loop();
        }
    };
    let frame = slot.frame.load(Ordering::Relaxed);
    // SAFETY: the entry stored the address of the copy in its frame, which is alive.
    let param =
        unsafe { &*core::ptr::with_exposed_provenance::<KernelParam>(slot.param.load(Ordering::Relaxed)) };
    // SAFETY: the loader bound it, see `AicpuTsLaunch`.
    let mut linked = unsafe { Linked::new() };
    let open = slot.open.swap(0, Ordering::Relaxed);
    if open & BATCH != 0 {
        linked.call(&Call::BatchEnd(c""));
    }
    if open & COMMUNICATOR != 0
        && let Ok(comm) = CStr::from_bytes_until_nul(&param.comm)
    {
        linked.call(&Call::Release(comm));
    }
    let code = ErrorCode::KERNEL_PANIC;
    answer(param, &Status { code: code.0, ..Status::default() });
    slot.exit(false);
    // SAFETY: it is the frame of this thread's entry, which called what led here.
    unsafe { leave(frame, u32::from(code.0)) }
}
