//! The life of a core: translation, the boot block, the other cores, then the kernel.

// UNSAFETY: the entry is called by its symbol from the boot code, and the note is placed for the launcher's loader.
#![expect(unsafe_code, reason = "exported symbols and a section of their own")]

use core::convert::Infallible;
use core::sync::atomic::Ordering;

use platform_aarch64::{LogRing, Window, cpu, el1};
use wire::boot::{BootInfo, CoreState, EXIT_ALONE};
use wire::image_note::{ImageFlags, ImageNoteRecord};
use wire::{ErrorCode, npu};

use crate::console::{Piece, line};
use crate::guest::{self, EMPTY_RECORD};
use crate::{log, memory, stacks, stop};

/// What the launcher's loader looks for.
// SAFETY: the linker script puts the section into a note segment and nothing else into the section.
#[unsafe(link_section = ".note.aicpu-ts")]
#[used]
static NOTE: ImageNoteRecord = {
    #[expect(clippy::cast_possible_truncation, reason = "a stack is far below 4 GiB")]
    let stack = stacks::CORE_STACK as u32;
    ImageNoteRecord::new(stack, ImageFlags::PANIC_FREE)
};

unsafe extern "C" {
    /// Where the other cores begin; see `start`.
    fn secondary_start();
}

/// Runs one core; the boot code jumps here with the core's index, on the core's own stack.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
extern "C" fn core_entry(core: usize) -> ! {
    if core == 0 && memory::map().is_err() {
        stop::refuse(ErrorCode::BOOT_FIELD);
    }
    memory::enable();
    cpu::start_cycles();
    let boot = guest::boot_info();
    if !boot.is_present() {
        alone();
    }
    let Err(code) = run(core, &boot);
    stop::refuse(code)
}

/// Tells whoever started the image without a launcher that it boots, and ends the machine.
fn alone() -> ! {
    line(&[
        Piece::Text(b"aicpu-ts image, ABI "),
        Piece::Decimal(u64::from(wire::ABI_MAJOR)),
        Piece::Text(b"."),
        Piece::Decimal(u64::from(wire::ABI_MINOR)),
        Piece::Text(b": translation and caches on, no launcher, nothing to do"),
    ]);
    stop::exit(EXIT_ALONE)
}

/// Serves the window of this core; comes back only when the boot block cannot be used.
fn run(core: usize, boot: &BootInfo) -> Result<Infallible, ErrorCode> {
    let windows = boot.check()?;
    let place = windows.get(core).ok_or(ErrorCode::BOOT_FIELD)?;
    if core == 0 {
        (1..windows.len()).try_for_each(start)?;
    }
    let window = guest::window(boot, place)?;
    log::attach(LogRing::new(&window)?);
    guest::publish(core, CoreState::Running, EMPTY_RECORD);
    defmt::info!("core {=usize} serves the window at {=u64:#x}", core, place.device_addr.0);
    serve(&window)
}

fn start(core: usize) -> Result<(), ErrorCode> {
    let entry = (secondary_start as unsafe extern "C" fn()) as usize as u64;
    // The machine has fewer cores than the boot block has windows: the launcher contradicts itself.
    el1::start_core(core, entry).map_err(|_| ErrorCode::BOOT_FIELD)
}

fn serve(window: &Window) -> Result<Infallible, ErrorCode> {
    let posted = window.table_word(npu::LAUNCH_TAIL)?;
    let answered = window.table_word(npu::LAUNCH_HEAD)?;
    let heartbeat = window.table_word(npu::HEARTBEAT)?;
    let mut beat = 0;
    window.table_word(npu::KERNEL_STATE)?.store(npu::KernelState::Ready as u64, Ordering::Release);
    loop {
        beat += 1;
        heartbeat.store(beat, Ordering::Release);
        answered.store(posted.load(Ordering::Acquire), Ordering::Release);
        cpu::relax();
    }
}
