//! The communicator's resources, as the recorder needs them to turn names into numbers.

use wire::context::{ChannelEntry, Context, ThreadEntry};
use wire::npu::Protocol;
use wire::{ErrorCode, Reduction};

use crate::graph::{QUEUES, QueueIndex};
use crate::{Caps, ChannelNotify, Rank, ThreadId};

/// The threads and channels of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Resources<'a> {
    context: Context<'a>,
}

impl<'a> Resources<'a> {
    /// Makes resources from a checked context.
    ///
    /// # Errors
    /// `CONTEXT_CAPACITY` when there are more threads and channels than a graph has queues.
    pub fn new(context: Context<'a>) -> Result<Self, ErrorCode> {
        if context.threads.len() + context.channels.len() > QUEUES {
            return Err(ErrorCode::CONTEXT_CAPACITY);
        }
        Ok(Self { context })
    }

    /// Returns the entry of a thread.
    ///
    /// # Errors
    /// `PLAN_INTERNAL` when there is no such thread.
    #[inline(always)]
    pub fn thread(&self, thread: ThreadId) -> Result<&'a ThreadEntry, ErrorCode> {
        self.context.threads.get(usize::from(thread.0)).ok_or(ErrorCode::PLAN_INTERNAL)
    }

    /// Returns the channel to a peer and the graph queue of its queue pair.
    ///
    /// # Errors
    /// `PLAN_INTERNAL` when `peer` is this rank or no rank.
    #[inline(always)]
    pub fn channel(&self, peer: Rank) -> Result<(&'a ChannelEntry, QueueIndex), ErrorCode> {
        let rank = self.context.header.rank;
        if peer == rank {
            return Err(ErrorCode::PLAN_INTERNAL);
        }
        // One channel per peer, in rank order, without this rank itself.
        let index = peer as usize - usize::from(peer > rank); // CAST: u32 fits usize.
        let channel = self.context.channels.get(index).ok_or(ErrorCode::PLAN_INTERNAL)?;
        let queue = u16::try_from(self.context.threads.len() + index);
        Ok((channel, QueueIndex(queue.map_err(|_| ErrorCode::PLAN_INTERNAL)?)))
    }

    /// Returns the index in the device's notify bank of a thread's notify.
    #[inline]
    pub fn thread_notify(&self, thread: ThreadId, index: u16) -> Result<u32, ErrorCode> {
        let entry = self.thread(thread)?;
        if u32::from(index) < entry.notify_count {
            Ok(entry.notify_base + u32::from(index))
        } else {
            Err(ErrorCode::PLAN_INTERNAL)
        }
    }

    /// Returns what the link to `peer` can do; nothing for this rank itself.
    #[inline(always)]
    #[must_use]
    pub fn caps(&self, peer: Rank) -> Caps {
        let Ok((channel, _)) = self.channel(peer) else {
            return Caps { reduce_types: 0, reduce_ops: 0, write_notify: false };
        };
        Caps {
            reduce_types: channel.reduce_types,
            reduce_ops: channel.reduce_ops,
            write_notify: channel.protocol != Protocol::Roce as u8,
        }
    }

    /// Returns whether this device's copy engine does a reduction, or a processor core must.
    #[inline]
    #[must_use]
    pub fn sdma_reduces(&self, reduction: Reduction) -> bool {
        let header = self.context.header;
        let bit = |mask: u32, number: u32| mask >> number & 1 == 1;
        let Reduction { dtype, op } = reduction;
        bit(header.sdma_reduce_types, dtype as u32) && bit(header.sdma_reduce_ops, op as u32)
    }

    /// Returns the longest single transfer of this device's copy engine, bytes.
    #[must_use]
    pub fn sdma_max_len(&self) -> u64 {
        self.context.header.sdma_max_len
    }
}

/// Returns the index of a channel notify, given the first of the three.
#[inline]
pub(crate) const fn channel_notify(base: u32, notify: ChannelNotify) -> u32 {
    base + notify as u32
}
