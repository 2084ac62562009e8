//! How much memory a run takes: of each NPU, and of the machine that they are modelled on.

use std::fs;

use wire::ErrorCode;

use crate::communicator::Operation;
use crate::error::{Error, Result};

/// What a run with `buffers` pairs of buffers needs of device memory per rank: buffers, scratch of at most
/// `scratch_bytes`, rings, contexts, tables.
#[must_use]
pub fn memory_for(operation: &Operation, ranks: u32, scratch_bytes: u64, buffers: u32) -> Option<u64> {
    const RING: u64 = 2048 * 64;
    let (input, output) = operation.largest_buffers(ranks).ok()?;
    // At most a ring per thread and one per queue pair, 8 KiB of everything else per rank.
    let rings = 2 * u64::from(ranks) * RING + (8 << 10) * u64::from(ranks);
    let pair = input.max(output).checked_add(output)?;
    pair.checked_mul(u64::from(buffers))?.checked_add(2 * scratch_bytes)?.checked_add(rings + (4 << 20))
}

/// Checks that this machine has the memory that a run of so many communicators fills: buffers of the NPUs, what goes into
/// them, and what must come out. A system that says nothing about its memory is not asked again.
///
/// # Errors
/// `DEVICE_MEMORY` with both figures; what [`Operation::elements`] refuses.
pub fn check_memory(operation: &Operation, ranks: u32, buffers: u32, communicators: u32) -> Result<()> {
    let Some(available) = available() else { return Ok(()) };
    let (input, output) = operation.largest_buffers(ranks)?;
    let pairs =
        u128::from(ranks) * u128::from(buffers) * (u128::from(input.max(output)) + u128::from(output));
    let mut bytes = pairs + u128::from(output);
    for rank in 0..ranks {
        let (input, output) = operation.buffer_bytes(rank, ranks)?;
        bytes += u128::from(input) + u128::from(output);
    }
    let bytes = bytes * u128::from(communicators);
    if bytes <= u128::from(available) {
        return Ok(());
    }
    let mib = |bytes: u128| bytes >> 20;
    let message = format!(
        "{operation} on {ranks} ranks fills {} MiB, all NPUs and what is compared with them; {} MiB are available here",
        mib(bytes),
        mib(available.into()),
    );
    Err(Error::new(ErrorCode::DEVICE_MEMORY, message)
        .remedy("take fewer elements, ranks, communicators or buffers that take turns, or a larger machine"))
}

/// Returns the bytes of memory that Linux says a program could use without swapping.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
