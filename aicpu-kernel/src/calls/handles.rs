//! The handles of the data plane for the threads and channels of each operation.

use hal::SharedMemory;
use hcomm_sink::ThreadHandle;
use wire::param::Param;
use wire::{DeviceAddr, ErrorCode};
use zerocopy::IntoBytes;

use crate::context::{MAX_RANKS, MAX_THREADS};
use crate::kernel::Fault;

/// The handles of one operation, copied out of shared memory once.
#[derive(Debug)]
pub(super) struct LoadedHandles {
    threads: [u64; MAX_THREADS],
    channels: [u64; MAX_RANKS],
}

impl LoadedHandles {
    pub(super) const fn new() -> Self {
        Self { threads: [0; MAX_THREADS], channels: [0; MAX_RANKS] }
    }
}

/// Goes through the lists of a param, which have the handles of one operation behind those of the other.
pub(super) struct Lists<'p> {
    param: &'p Param<'p>,
    /// Handles of threads and channels that have been taken.
    taken: [u32; 2],
}

impl<'p> Lists<'p> {
    pub(super) const fn new(param: &'p Param<'p>) -> Self {
        Self { param, taken: [0; 2] }
    }

    /// Copies the handles of the next operation, which has so many threads and channels.
    ///
    /// # Errors
    /// `PARAM_HANDLES` and how many there should be when a list is too short, `CONTEXT_ADDRESS` when it lies outside
    /// the memory.
    pub(super) fn take<'a, M: SharedMemory>(
        &mut self,
        memory: &M,
        counts: [usize; 2],
        into: &'a mut LoadedHandles,
    ) -> Result<[&'a [u64]; 2], Fault> {
        let begin = self.taken;
        for (taken, count) in self.taken.iter_mut().zip(counts) {
            *taken = taken.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
        let Param { threads, channels, .. } = *self.param;
        if self.taken[0] > threads.1 || self.taken[1] > channels.1 {
            return Err(self.fault());
        }
        let LoadedHandles { threads: of_threads, channels: of_channels } = into;
        Ok([
            load(memory, threads.0, begin[0], of_threads.get_mut(..counts[0]))?,
            load(memory, channels.0, begin[1], of_channels.get_mut(..counts[1]))?,
        ])
    }

    /// Returns the main thread of the operation behind the one that was taken last.
    pub(super) fn next_main<M: SharedMemory>(&self, memory: &M) -> Result<ThreadHandle, Fault> {
        let mut handle = [0];
        load(memory, self.param.threads.0, self.taken[0], Some(&mut handle))?;
        let [handle] = handle;
        Ok(ThreadHandle(handle))
    }

    /// Checks that nothing is left over.
    ///
    /// # Errors
    /// `PARAM_HANDLES` and how many there should be.
    pub(super) fn check_spent(&self) -> Result<(), Fault> {
        let Param { threads, channels, .. } = *self.param;
        if self.taken == [threads.1, channels.1] { Ok(()) } else { Err(self.fault()) }
    }

    fn fault(&self) -> Fault {
        let [threads, channels] = self.taken.map(u64::from);
        Fault { code: ErrorCode::PARAM_HANDLES, detail: threads | channels << 32 }
    }
}

fn load<'a, M: SharedMemory>(
    memory: &M,
    at: DeviceAddr,
    first: u32,
    into: Option<&'a mut [u64]>,
) -> Result<&'a [u64], Fault> {
    let rows = into.ok_or(ErrorCode::CONTEXT_CAPACITY)?;
    if !rows.is_empty() {
        let at = at.checked_add(8 * u64::from(first)).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        memory.read(at, rows.as_mut_bytes())?;
    }
    Ok(rows)
}
