//! The entry of the shared object.

// UNSAFETY: the boundary to C: the entry's pointer, the memory it names, the data plane.
#![expect(unsafe_code, reason = "the boundary to the runtime")]
#![expect(unreachable_pub, reason = "exported by its name")]

use core::panic::PanicInfo;

use aicpu_kernel::serve_custom;
use hcomm_sink::Linked;
use platform_aarch64::{memory_of, read_param};
use wire::ErrorCode;
use wire::image_note::{ImageFlags, ImageNoteRecord};
use wire::param::KernelParam;

use crate::operator::AllGather;

/// What this file is, for who loads it: its ABI, and the stack that a launch takes at most.
// SAFETY: a section of its own; nothing runs it.
#[unsafe(link_section = ".note.aicpu-ts")]
#[used]
static NOTE: ImageNoteRecord = ImageNoteRecord::new(32 << 10, ImageFlags::PANIC_FREE);

/// The one exported symbol: serves an all-gather in direct staging, and returns 0 or an error code.
///
/// # Safety
/// `param` points to a param whose memory stays mapped during the call, and the loader bound the data plane.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CustomAllGather(param: *const KernelParam) -> u32 {
    // SAFETY: the caller passes null or a param.
    let param = unsafe { read_param(param) };
    let served = param.ok_or(ErrorCode::PARAM_MAGIC).and_then(|param| {
        // SAFETY: the memory is mapped while the call lasts.
        let memory = unsafe { memory_of(&param) }.ok_or(ErrorCode::PARAM_FIELD)?;
        // SAFETY: the loader bound the data plane.
        let mut plane = unsafe { Linked::new() };
        serve_custom(&memory, &mut plane, &param.parse()?, &AllGather).map_err(|fault| fault.code)
    });
    u32::from(served.err().unwrap_or(ErrorCode::OK).0)
}

/// A defect ends here: this small operator has no way back to its caller.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
