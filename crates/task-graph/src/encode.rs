//! The communicator's resources, as the recorder needs them to turn names into numbers.

use wire::context::{ChannelEntry, Context, ThreadEntry};
use wire::npu::Protocol;
use wire::{ErrorCode, Reduction, Sqe};

use crate::graph::{QUEUES, QueueIndex};
use crate::{Caps, ChannelNotify, Rank, ThreadId};

/// The threads and channels of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Resources<'a> {
    context: Context<'a>,
}

/// The link to one peer.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The channel's entry.
    pub channel: &'a ChannelEntry,
    /// The graph queue of its queue pair.
    pub queue: QueueIndex,
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

    /// Returns the link to a peer.
    ///
    /// # Errors
    /// `PLAN_INTERNAL` when `peer` is this rank or no rank.
    #[inline(always)]
    pub fn link(&self, peer: Rank) -> Result<Link<'a>, ErrorCode> {
        let rank = self.context.header.rank;
        if peer == rank {
            return Err(ErrorCode::PLAN_INTERNAL);
        }
        // One channel per peer, in rank order, without this rank itself.
        let index = peer as usize - usize::from(peer > rank); // CAST: u32 fits usize.
        let channel = self.context.channels.get(index).ok_or(ErrorCode::PLAN_INTERNAL)?;
        // There are at most QUEUES.
        let queue = QueueIndex(u16::try_from(self.context.threads.len() + index).unwrap_or(u16::MAX));
        Ok(Link { channel, queue })
    }

    /// Returns the index in the device's notify bank of a thread's notify.
    ///
    /// # Errors
    /// `PLAN_INTERNAL` when there is no such thread, or it has no such notify.
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
        self.link(peer).map_or(Caps { reduce_types: 0, reduce_ops: 0, write_notify: false }, Link::caps)
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

impl Link<'_> {
    /// Returns what it can do.
    #[inline(always)]
    #[must_use]
    pub fn caps(self) -> Caps {
        let &ChannelEntry { protocol, reduce_types, reduce_ops, .. } = self.channel;
        Caps { reduce_types, reduce_ops, write_notify: protocol != Protocol::Roce as u8 }
    }

    /// Returns whether transfers go through a queue pair.
    #[inline(always)]
    #[must_use]
    pub(crate) fn is_queue_pair(self) -> bool {
        self.channel.protocol != Protocol::Hccs as u8
    }

    /// Returns the index of a notify that the peer sets here.
    #[inline(always)]
    pub(crate) fn local(self, notify: ChannelNotify) -> u32 {
        self.channel.local_notify + notify as u32
    }

    /// Returns the index at the peer of a notify that is set there.
    #[inline(always)]
    pub(crate) fn remote(self, notify: ChannelNotify) -> u32 {
        self.channel.remote_notify + notify as u32
    }

    /// Returns the peer label of its descriptors: 16 bits; ranks above are labelled as no peer.
    #[inline(always)]
    pub(crate) fn label(self) -> u16 {
        u16::try_from(self.channel.peer).unwrap_or(Sqe::NO_PEER)
    }
}
