//! What the entry of a shared object is handed: the param, copied once, and the memory that it names.

// UNSAFETY: a pointer from C, and memory named by a number.
#![expect(unsafe_code, reason = "the boundary to the runtime")]

use core::ptr::{NonNull, with_exposed_provenance_mut};

use wire::param::KernelParam;

use crate::Window;

/// Copies a param; `None` where the pointer is null or not aligned.
///
/// # Safety
/// A pointer that is neither is valid for reads of a param; any bytes are one.
#[must_use]
pub unsafe fn read_param(param: *const KernelParam) -> Option<KernelParam> {
    if param.is_null() || !param.is_aligned() {
        return None;
    }
    let mut words = [0_u64; size_of::<KernelParam>() / size_of::<u64>()];
    for (index, word) in words.iter_mut().enumerate() {
        // SAFETY: a word of the param, aligned as the param is. Read once, whoever else may write it.
        *word = unsafe { param.cast::<u64>().wrapping_add(index).read_volatile() };
    }
    Some(zerocopy::transmute!(words))
}

/// Returns the memory that a param names; `None` where there can be none.
///
/// # Safety
/// The memory is mapped as long as the window is used, and nothing in this program borrows it.
#[must_use]
pub unsafe fn memory_of(param: &KernelParam) -> Option<Window> {
    let mapped = usize::try_from(param.mapped).ok()?;
    let len = usize::try_from(param.memory_len).ok()?;
    mapped.checked_add(len)?;
    param.memory.checked_add(param.memory_len)?;
    let base = NonNull::new(with_exposed_provenance_mut::<u8>(mapped))?;
    // SAFETY: the caller says so.
    unsafe { Window::plain(base, len, param.memory) }
}
