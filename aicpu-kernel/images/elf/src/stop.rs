//! Where a core ends: exceptions, defects, refusals.
//!
//! Each leaves the core's record, a line on the console and `Parked` in the window. A defect parks its core: it
//! never returns and never rings a doorbell, and the other cores go on. After an exception memory may be anything,
//! so the whole machine ends, with an exit code.

// UNSAFETY: the exception entry is called by its symbol from the vectors.
#![expect(unsafe_code, reason = "an exported symbol")]

use core::panic::PanicInfo;
use core::sync::atomic::Ordering;

use platform_aarch64::el1::{self, Syndrome};
use wire::boot::{CoreRecord, CoreState, EXIT_FAULT, EXIT_PANIC, EXIT_REFUSED};
use wire::{ErrorCode, npu};

use crate::console::{Piece, line};
use crate::guest::{self, EMPTY_RECORD};

/// The first of the vectors that mean: an exception inside the exception code.
const NESTED: u64 = 4;

/// Reports a processor exception and ends the machine. Called by the vectors with their number.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
extern "C" fn exception_entry(vector: u64) -> ! {
    if (NESTED..2 * NESTED).contains(&vector) {
        exit(EXIT_FAULT);
    }
    let core = el1::core_index();
    let Syndrome { esr, elr, far, spsr } = Syndrome::read();
    let code = u64::from(ErrorCode::KERNEL_FAULT.0);
    guest::publish(
        core,
        CoreState::Faulted,
        CoreRecord { code, esr, elr, far, spsr, vector, ..EMPTY_RECORD },
    );
    mark_parked(core);
    line(&[
        Piece::Text(b"core "),
        Piece::Decimal(core as u64),
        Piece::Text(b": exception, vector "),
        Piece::Decimal(vector),
        Piece::Text(b": ESR "),
        Piece::Hex(esr),
        Piece::Text(b" ELR "),
        Piece::Hex(elr),
        Piece::Text(b" FAR "),
        Piece::Hex(far),
        Piece::Text(b" SPSR "),
        Piece::Hex(spsr),
    ]);
    exit(EXIT_FAULT)
}

/// Reports a defect and parks the core.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let core = el1::core_index();
    let (path, at) =
        info.location().map_or(("?", 0), |location| (location.file(), u64::from(location.line())));
    let mut file = [0; 64];
    file.iter_mut().zip(path.bytes()).for_each(|(to, from)| *to = from);
    let code = u64::from(ErrorCode::KERNEL_PANIC.0);
    guest::publish(core, CoreState::Panicked, CoreRecord { code, line: at, file, ..EMPTY_RECORD });
    mark_parked(core);
    line(&[
        Piece::Text(b"core "),
        Piece::Decimal(core as u64),
        Piece::Text(b": defect at "),
        Piece::Text(path.as_bytes()),
        Piece::Text(b":"),
        Piece::Decimal(at),
    ]);
    if !guest::boot_info().is_present() {
        exit(EXIT_PANIC);
    }
    el1::park()
}

/// Reports that the boot block cannot be used and ends the machine.
pub(crate) fn refuse(code: ErrorCode) -> ! {
    let core = el1::core_index();
    guest::publish(core, CoreState::Refused, CoreRecord { code: u64::from(code.0), ..EMPTY_RECORD });
    exit(EXIT_REFUSED)
}

/// Ends the machine with an exit code of `wire::boot`.
pub(crate) fn exit(code: u8) -> ! {
    semihosting::process::exit(i32::from(code))
}

fn mark_parked(core: usize) {
    let boot = guest::boot_info();
    let place = boot.check().ok().and_then(|windows| windows.get(core));
    if let Some(place) = place
        && let Ok(window) = guest::window(&boot, place)
        && let Ok(word) = window.table_word(npu::KERNEL_STATE)
    {
        // ORDER: pairs with the launcher's acquire load: the core's record is complete.
        word.store(npu::KernelState::Parked as u64, Ordering::Release);
    }
}
