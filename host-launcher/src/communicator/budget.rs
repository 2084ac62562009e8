//! What an operation takes of each NPU when it is used for the first time, told before anything is taken.

use core::fmt;

use serde::Serialize;
use wire::context::Context;
use wire::{DESCRIPTOR_BYTES, ErrorCode};

use super::{Communicator, Operation};
use crate::error::{Error, Result};
use crate::resources::{CHANNEL_NOTIFIES, START_NOTIFIES};

/// What one NPU gives for the first use of an operation; nothing for one that has its resources already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// Bytes of memory: the three below, each rounded up to a line of 64.
    pub bytes: u64,
    /// Bytes of scratch.
    pub scratch_bytes: u64,
    /// Bytes of rings.
    pub ring_bytes: u64,
    /// Bytes of the resource context.
    pub context_bytes: u64,
    /// Queues: a thread's, or a queue pair's.
    pub queues: u64,
    /// Channels to peers.
    pub channels: u64,
    /// Notifies.
    pub notifies: u64,
}

/// Prints `459456 bytes (scratch 65536, rings 393216, context 704), 3 queues, 2 channels, 24 notifies`.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, scratch_bytes, ring_bytes, context_bytes, queues, channels, notifies } = self;
        write!(
            f,
            "{bytes} bytes (scratch {scratch_bytes}, rings {ring_bytes}, context {context_bytes}), {queues} queues, \
             {channels} channels, {notifies} notifies"
        )
    }
}

impl Communicator<'_> {
    /// Returns what the first use of an operation will take of the NPU of a rank.
    #[must_use]
    pub fn budget(&self, operation: &Operation, rank: u32) -> Budget {
        let (cluster, wanted) = (self.cluster, self.scratch_for(operation));
        if self.resources_for(operation).is_some_and(|resources| resources.scratch.len >= wanted) {
            return Budget::default();
        }
        let needs = operation.needs(self.size(), &cluster.topology().groups());
        let (threads, mut channels, mut pairs) = (u64::from(needs.threads), 0, 0);
        for channel in cluster.topology().channels(rank) {
            channels += 1;
            pairs += u64::from(channel.protocol.uses_queue_pair());
        }
        let queues = threads + pairs;
        let ring_bytes = queues * u64::from(self.config.queue_depth) * DESCRIPTOR_BYTES as u64;
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let context = Context::encoded_len(count(threads), self.size() as usize, count(channels));
        let (scratch_bytes, context_bytes) = (wanted, context as u64);
        let subs = threads.saturating_sub(1) * u64::from(needs.sub_notifies);
        let notifies = u64::from(needs.main_notifies)
            + u64::from(START_NOTIFIES)
            + subs
            + channels * u64::from(CHANNEL_NOTIFIES);
        let bytes =
            [scratch_bytes, ring_bytes, context_bytes].map(|bytes| bytes.next_multiple_of(64)).iter().sum();
        Budget { bytes, scratch_bytes, ring_bytes, context_bytes, queues, channels, notifies }
    }

    /// Refuses what an NPU has no memory for, before anything is taken of any.
    pub(super) fn check_memory(&self, operation: &Operation) -> Result<()> {
        for rank in 0..self.size() {
            let (budget, free) = (self.budget(operation, rank), self.cluster.npu(rank).free_bytes());
            if budget.bytes > free {
                let message = format!("rank {rank}: {operation} takes {budget}; {free} bytes are free");
                let remedy = format!("free memory on rank {rank}, or set a smaller HCCL_BUFFSIZE");
                return Err(Error::new(ErrorCode::DEVICE_MEMORY_FULL, message).remedy(remedy));
            }
        }
        Ok(())
    }
}
