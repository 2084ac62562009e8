//! The address space of the image: what is mapped, and with which rights.

// UNSAFETY: the page tables are written once, before any other core runs, and then belong to the hardware.
#![expect(unsafe_code, reason = "linker symbols and the switch to translated memory")]

use core::cell::UnsafeCell;
use core::ops::Range;

use platform_aarch64::{Access, MapError, PageTables, el1};
use wire::boot::{IMAGE_BASE, MEMORY_GRANULE, RAM_BASE};

use crate::{guest, stacks};

/// Private memory that is mapped when no launcher says how much there is.
const ALONE_LEN: u64 = 64 << 20;
/// Addresses below this are device registers.
const DEVICES_END: u64 = 1 << 30;

/// Level 2 for the first GiB of memory, level 3 for the image and its stacks, and as many again for a fabric that
/// ends inside a GiB.
struct Tables(UnsafeCell<PageTables<12>>);

// SAFETY: written by the first core before it starts the others, afterwards only read.
unsafe impl Sync for Tables {}

static TABLES: Tables = Tables(UnsafeCell::new(PageTables::new()));

unsafe extern "C" {
    static __code_start: u8;
    static __code_end: u8;
    static __constants_end: u8;
}

/// Fills the page tables. Runs once, on the first core, before translation is on.
pub(crate) fn map() -> Result<(), MapError> {
    let boot = guest::boot_info();
    let (private_len, fabric) = if boot.is_present() {
        (boot.private_len, boot.fabric_addr..boot.fabric_addr.saturating_add(boot.fabric_len))
    } else {
        (ALONE_LEN, 0..0)
    };
    let code = range(&raw const __code_start, &raw const __code_end);
    let constants = range(&raw const __code_end, &raw const __constants_end);
    // SAFETY: no other core runs yet, and this one reaches the tables only here.
    let tables = unsafe { &mut *TABLES.0.get() };
    tables.map(0..DEVICES_END, Access::Device)?;
    tables.map(RAM_BASE..RAM_BASE.saturating_add(private_len), Access::ReadWrite)?;
    tables.map(fabric, Access::ReadWrite)?;
    tables.map(code, Access::Code)?;
    tables.map(constants, Access::ReadOnly)?;
    stacks::guards().try_for_each(|guard| tables.map(guard, Access::Guard))
}

/// Switches translation and caches on for this core.
pub(crate) fn enable() {
    // SAFETY: `map` ran before any core came here; nothing changes the tables after it.
    let root = unsafe { &*TABLES.0.get() }.root();
    // SAFETY:
    // 1. The tables are complete and static.
    // 2. They map the image and all memory onto itself.
    unsafe { el1::enable_translation(root) };
}

fn range(start: *const u8, end: *const u8) -> Range<u64> {
    start.addr() as u64..end.addr() as u64
}

const _: () = assert!(IMAGE_BASE.is_multiple_of(MEMORY_GRANULE));
