//! One launch: the param, the slot, the kernel, the answer.

// UNSAFETY: the param is a pointer from C, and names memory by a number.
#![expect(unsafe_code, reason = "the boundary to the runtime")]

use core::sync::atomic::Ordering;

use hal::SharedMemory;
use hcomm_sink::Linked;
use platform_aarch64::{Window, memory_of, read_param};
use wire::npu::Status;
use wire::param::KernelParam;
use wire::{DeviceAddr, ErrorCode, LaunchArgs};
use zerocopy::IntoBytes;

use crate::guard::Noted;
use crate::machine::Ticks;
use crate::slots::Slot;

/// Serves the launch of an entry, whose frame is given.
pub(crate) extern "C" fn serve(param: *const KernelParam, frame: usize) -> u32 {
    // SAFETY: the caller of the entry passes null or a param (`AicpuTsLaunch`).
    let Some(param) = (unsafe { read_param(param) }) else {
        return u32::from(ErrorCode::PARAM_MAGIC.0);
    };
    let code = launch(&param, frame).unwrap_or_else(|code| {
        answer(&param, &Status { code: code.0, ..Status::default() });
        code
    });
    u32::from(code.0)
}

/// Serves a launch; the code is in the answer already.
///
/// # Errors
/// Why there is no answer yet.
fn launch(param: &KernelParam, frame: usize) -> Result<ErrorCode, ErrorCode> {
    let parsed = param.parse()?;
    let memory = window(param).ok_or(ErrorCode::PARAM_FIELD)?;
    let mut instance = [0_u64; 2];
    let at = parsed.args.checked_add(core::mem::offset_of!(LaunchArgs, instance) as u64);
    memory.read(at.ok_or(ErrorCode::CONTEXT_ADDRESS)?, instance.as_mut_bytes())?;

    let slot = Slot::enter(instance, parsed.acquire_ms)?;
    slot.param.store((&raw const *param).expose_provenance(), Ordering::Relaxed);
    slot.frame.store(frame, Ordering::Relaxed);
    // SAFETY: this thread has just entered, and takes it once.
    let kernel = unsafe { slot.kernel() };
    // SAFETY: the loader bound the symbols, and the caller of the entry says that they are the data plane's.
    let mut plane = Noted { slot, linked: unsafe { Linked::new() } };
    let status = kernel.run(&memory, &mut plane, &parsed, &Ticks);
    slot.exit(true);
    answer(param, &status);
    Ok(ErrorCode(status.code))
}

/// Writes the answer, where there is a place for it.
pub(crate) fn answer(param: &KernelParam, status: &Status) {
    if param.parse().is_ok()
        && param.status != DeviceAddr(0)
        && let Some(mut memory) = window(param)
    {
        // A place outside the memory is nowhere: the value that the entry returns says as much.
        let _ = memory.write(param.status, status.as_bytes());
    }
}

/// The memory that the param names.
fn window(param: &KernelParam) -> Option<Window> {
    // SAFETY: the caller of the entry says that this memory is mapped while the call lasts, and the window does not
    // outlive it. The kernel reads by atomic accesses, and writes only the answer.
    unsafe { memory_of(param) }
}
