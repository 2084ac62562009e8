//! Calls of the data plane, as values.

use core::ffi::CStr;

use wire::{DeviceAddr, Reduction};

/// A thread of the data plane. Opaque.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadHandle(pub u64);

/// A channel of the data plane. Opaque.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelHandle(pub u64);

/// What a copy or reduction moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where to.
    pub dst: DeviceAddr,
    /// Where from.
    pub src: DeviceAddr,
    /// Bytes; of a reduction a whole number of elements.
    pub len: u64,
    /// Overwrite, or reduce into the destination.
    pub reduction: Option<Reduction>,
}

/// One call. Names and parameters are those of the public interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// `HcommLocalCopyOnThread`, `HcommLocalReduceOnThread`.
    Local {
        /// On this thread.
        thread: ThreadHandle,
        /// What.
        transfer: Transfer,
    },
    /// `HcommWrite[Reduce][WithNotify]OnThread`.
    Write {
        /// On this thread.
        thread: ThreadHandle,
        /// To the peer of this channel.
        channel: ChannelHandle,
        /// What.
        transfer: Transfer,
        /// Notify of the channel to set at the peer once the data has landed.
        notify: Option<u32>,
    },
    /// `HcommRead[Reduce]OnThread`.
    Read {
        /// On this thread.
        thread: ThreadHandle,
        /// From the peer of this channel.
        channel: ChannelHandle,
        /// What.
        transfer: Transfer,
    },
    /// `HcommThreadNotifyRecordOnThread`.
    ThreadRecord {
        /// On this thread.
        thread: ThreadHandle,
        /// The thread that waits.
        waiter: ThreadHandle,
        /// Its notify.
        index: u32,
    },
    /// `HcommThreadNotifyWaitOnThread`.
    ThreadWait {
        /// On this thread.
        thread: ThreadHandle,
        /// Its notify.
        index: u32,
        /// Seconds.
        timeout: u32,
    },
    /// `HcommChannelNotifyRecordOnThread`.
    ChannelRecord {
        /// On this thread.
        thread: ThreadHandle,
        /// At the peer of this channel.
        channel: ChannelHandle,
        /// Notify of the channel.
        index: u32,
    },
    /// `HcommChannelNotifyWaitOnThread`.
    ChannelWait {
        /// On this thread.
        thread: ThreadHandle,
        /// From the peer of this channel.
        channel: ChannelHandle,
        /// Notify of the channel.
        index: u32,
        /// Seconds.
        timeout: u32,
    },
    /// `HcommChannelFenceOnThread`: later tasks of the channel come behind the earlier ones.
    ChannelFence {
        /// On this thread.
        thread: ThreadHandle,
        /// Of this channel.
        channel: ChannelHandle,
    },
    /// `HcommChannelDrainOnThread`: later tasks of the thread come behind the earlier ones of the channel.
    ChannelDrain {
        /// On this thread.
        thread: ThreadHandle,
        /// Of this channel.
        channel: ChannelHandle,
    },
    /// `HcommBatchModeStart`; an empty tag is a temporary batch.
    BatchStart(&'a CStr),
    /// `HcommBatchModeEnd`.
    BatchEnd(&'a CStr),
    /// `HcommAcquireComm`.
    Acquire(&'a CStr),
    /// `HcommReleaseComm`.
    Release(&'a CStr),
    /// `HcommAicpuTsTaskCacheStart`: the tasks up to the end are recorded under a tag.
    CacheStart {
        /// The recording's name.
        tag: &'a CStr,
        /// Input and output.
        addrs: &'a [DeviceAddr; 2],
        /// Their bytes.
        sizes: &'a [u64; 2],
    },
    /// `HcommAicpuTsTaskCacheEnd`.
    CacheEnd(&'a CStr),
    /// `HcommAicpuTsTaskCacheExecute`: the recorded tasks, with these buffers.
    CacheExecute {
        /// The recording's name.
        tag: &'a CStr,
        /// Input and output.
        addrs: &'a [DeviceAddr; 2],
        /// Their bytes, as at the start.
        sizes: &'a [u64; 2],
    },
    /// `HcommAicpuTsTaskCacheClear`.
    CacheClear(&'a CStr),
}

impl Call<'_> {
    /// Returns the number by which errors name this call (`docs/wire-format.md` section 11).
    #[must_use]
    pub const fn number(&self) -> u8 {
        match self {
            Self::Local { transfer: Transfer { reduction: None, .. }, .. } => 1,
            Self::Local { .. } => 2,
            Self::ThreadRecord { .. } => 3,
            Self::ThreadWait { .. } => 4,
            Self::Write { transfer: Transfer { reduction: None, .. }, notify: None, .. } => 5,
            Self::Write { notify: None, .. } => 6,
            Self::Write { transfer: Transfer { reduction: None, .. }, .. } => 7,
            Self::Write { .. } => 8,
            Self::Read { transfer: Transfer { reduction: None, .. }, .. } => 9,
            Self::Read { .. } => 10,
            Self::ChannelRecord { .. } => 11,
            Self::ChannelWait { .. } => 12,
            Self::BatchStart(_) => 13,
            Self::BatchEnd(_) => 14,
            Self::Acquire(_) => 15,
            Self::Release(_) => 16,
            Self::CacheStart { .. } => 18,
            Self::CacheEnd(_) => 19,
            Self::CacheExecute { .. } => 20,
            Self::CacheClear(_) => 21,
            Self::ChannelFence { .. } => 22,
            Self::ChannelDrain { .. } => 23,
        }
    }
}

/// A library that offers the data plane.
pub trait DataPlane {
    /// Makes a call and returns its result code, 0 for success.
    fn call(&mut self, call: &Call<'_>) -> i32;

    /// Returns whether the library has all five calls of the task cache.
    fn has_cache(&self) -> bool;

    /// `HcommAicpuTsTaskCacheLookup`: whether there is a finished recording of this tag.
    ///
    /// # Errors
    /// The result code, not 0.
    fn cache_lookup(&mut self, tag: &CStr) -> Result<bool, i32>;
}
