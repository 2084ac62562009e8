//! defmt's sink: frames go into the byte ring of this core's window, where the launcher decodes them.
//!
//! Each core has its own encoder and ring, so no lock is needed and no frame waits for another core.

// UNSAFETY: defmt's logger is a global; here it is one for each core, and cores are known only by a register.
#![expect(unsafe_code, reason = "per-core state behind a global logger")]

use core::cell::UnsafeCell;

use defmt::Encoder;
use platform_aarch64::{LogRing, cpu, el1};
use wire::boot::MAX_CORES;

struct Log {
    encoder: Encoder,
    ring: Option<LogRing>,
}

struct PerCore(UnsafeCell<Log>);

// SAFETY: each core uses its own element only, and nothing on a core interrupts a frame to log another.
unsafe impl Sync for PerCore {}

static LOGS: [PerCore; MAX_CORES] =
    [const { PerCore(UnsafeCell::new(Log { encoder: Encoder::new(), ring: None })) }; MAX_CORES];

/// Runs `work` on the log of this core.
fn with(work: impl FnOnce(&mut Encoder, &mut LogRing)) {
    let Some(log) = LOGS.get(el1::core_index()) else { return };
    // SAFETY: this core's own element, and `work` does not come back here.
    let log = unsafe { &mut *log.0.get() };
    if let Some(ring) = &mut log.ring {
        work(&mut log.encoder, ring);
    }
}

/// Gives this core the ring to log to. Before that its frames go nowhere.
pub(crate) fn attach(ring: LogRing) {
    if let Some(log) = LOGS.get(el1::core_index()) {
        // SAFETY: this core's own element, outside of any frame.
        unsafe { &mut *log.0.get() }.ring = Some(ring);
    }
}

#[defmt::global_logger]
struct CoreLog;

// SAFETY: frames of a core are written one after another, to that core's own encoder.
unsafe impl defmt::Logger for CoreLog {
    fn acquire() {
        with(|encoder, ring| encoder.start_frame(|bytes| ring.stage(bytes)));
    }

    unsafe fn flush() {}

    unsafe fn release() {
        with(|encoder, ring| {
            encoder.end_frame(|bytes| ring.stage(bytes));
            ring.commit();
        });
    }

    unsafe fn write(bytes: &[u8]) {
        with(|encoder, ring| encoder.write(bytes, |bytes| ring.stage(bytes)));
    }
}

defmt::timestamp!("{=u64:us}", cpu::now_ns() / 1000);
