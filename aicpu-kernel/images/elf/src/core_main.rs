//! The life of a core: translation, the boot block, the other cores, then the kernel.

// UNSAFETY: the entry is called by its symbol from the boot code, and the note is placed for the launcher's loader.
#![expect(unsafe_code, reason = "exported symbols, a section, and what a core does once")]

use core::convert::Infallible;

use platform_aarch64::{LogRing, Npu, cpu, el1};
use wire::ErrorCode;
use wire::boot::{BootFlags, BootInfo, CoreState, EXIT_ALONE};
use wire::image_note::{ImageFlags, ImageNoteRecord};

use crate::console::{Piece, line};
use crate::guest::{self, EMPTY_RECORD};
use crate::kernel::ImageKernel;
use crate::{doorbell, kernel, log, memory, stacks, stop};

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
    let npu = Npu::new(window);
    let npu = if boot.flags().contains(BootFlags::COUNT) { npu.counting() } else { npu };
    // SAFETY: this core comes here once, with its own index.
    let kernel = unsafe { kernel::make(core, npu) }.ok_or(ErrorCode::BOOT_FIELD)?;
    kernel.start()?;
    if boot.flags().contains(BootFlags::SLEEP) {
        doorbell::enable();
        serve(kernel, |kernel| doorbell::sleep(!kernel.is_idle()))
    } else {
        serve(kernel, |_| cpu::relax())
    }
}

fn start(core: usize) -> Result<(), ErrorCode> {
    let entry = (secondary_start as unsafe extern "C" fn()) as usize as u64;
    // The machine has fewer cores than the boot block has windows: the launcher contradicts itself.
    el1::start_core(core, entry).map_err(|_| ErrorCode::BOOT_FIELD)
}

/// Runs the kernel for ever; `rest` after each turn that finds nothing to do.
fn serve(kernel: &mut ImageKernel, rest: impl Fn(&ImageKernel)) -> ! {
    loop {
        if !kernel.poll() {
            rest(kernel);
        }
    }
}
