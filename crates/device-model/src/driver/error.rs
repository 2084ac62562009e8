//! What the driver refuses.

use wire::{DeviceAddr, ErrorCode};

/// A refusal of the driver: what, where, and by how much. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// An argument that cannot be meant.
    #[error("{0}")]
    Argument(&'static str),
    /// A range outside the window.
    #[error("{len} bytes at {:#x} are not in the memory of NPU {npu}", addr.0)]
    Range {
        /// NPU.
        npu: u32,
        /// First byte.
        addr: DeviceAddr,
        /// Bytes.
        len: u64,
    },
    /// Something that does not exist, or not any more.
    #[error("there is no {what} {number:#x}")]
    Handle {
        /// Kind of thing.
        what: &'static str,
        /// Its number.
        number: u64,
    },
    /// No block of memory that large.
    #[error("NPU {npu} has no {bytes} bytes of memory left in one piece")]
    MemoryFull {
        /// NPU.
        npu: u32,
        /// Bytes asked for.
        bytes: u64,
    },
    /// No slot for a region.
    #[error("NPU {npu} has no slot for another registered region ({} are taken)", wire::npu::MAX_REGIONS)]
    RegionsFull {
        /// NPU.
        npu: u32,
    },
    /// No queue.
    #[error("NPU {npu} has no queue left ({} are taken)", wire::npu::MAX_QUEUES)]
    QueuesFull {
        /// NPU.
        npu: u32,
    },
    /// No run of notifies that long.
    #[error("NPU {npu} has no {count} consecutive notifies left (of {})", wire::npu::MAX_NOTIFIES)]
    NotifiesFull {
        /// NPU.
        npu: u32,
        /// Notifies asked for.
        count: u32,
    },
    /// No channel.
    #[error("NPU {npu} has no channel left ({} are taken)", wire::npu::MAX_CHANNELS)]
    ChannelsFull {
        /// NPU.
        npu: u32,
    },
    /// No host notify.
    #[error("NPU {npu} has no host notify left ({} are taken)", wire::npu::HOST_NOTIFIES)]
    HostNotifiesFull {
        /// NPU.
        npu: u32,
    },
    /// The launch mailbox is full.
    #[error("NPU {npu} has yet to answer {} launches", wire::npu::LAUNCH_SLOTS)]
    LaunchesFull {
        /// NPU.
        npu: u32,
    },
    /// The system's random numbers are not to be had.
    #[error("no random numbers for a token: {0}")]
    Random(String),
}

impl DriverError {
    /// Returns the stable code.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Argument(_) => ErrorCode::DEVICE_ARGUMENT,
            Self::Range { .. } => ErrorCode::DEVICE_RANGE,
            Self::Handle { .. } => ErrorCode::DEVICE_HANDLE,
            Self::Random(_) => ErrorCode::DEVICE_MEMORY,
            Self::MemoryFull { .. } => ErrorCode::DEVICE_MEMORY_FULL,
            Self::RegionsFull { .. } => ErrorCode::REGIONS_FULL,
            Self::QueuesFull { .. } => ErrorCode::QUEUES_FULL,
            Self::NotifiesFull { .. } => ErrorCode::NOTIFIES_FULL,
            Self::ChannelsFull { .. } => ErrorCode::CHANNELS_FULL,
            Self::HostNotifiesFull { .. } => ErrorCode::HOST_NOTIFIES_FULL,
            Self::LaunchesFull { .. } => ErrorCode::LAUNCHES_FULL,
        }
    }
}
