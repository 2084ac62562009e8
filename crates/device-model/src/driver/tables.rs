//! Regions, queues and channels: the slots that the device reads.
//!
//! Each slot has one word that makes it valid. It is stored last, with release order, when a slot is taken, and first
//! when it is given back; the device's side of this is in `engine::tables` and `engine::slots`.

use core::mem::offset_of;
use core::sync::atomic::Ordering;

use wire::npu::{self, Access, ChannelSlot, Protocol, QueueKind, QueueSlot, RegionSlot};
use wire::{DESCRIPTOR_BYTES, DeviceAddr};
use zerocopy::transmute;

use super::tokens::Tokens;
use super::{Books, DriverError, Npu};

/// Number of a queue: its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u16);

/// A registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// What transfers must carry; never 0, never the same again.
    pub token: u32,
    /// Registrations and deregistrations of the slot so far.
    pub generation: u32,
}

/// A connection to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// NPU at the other end, itself allowed.
    pub peer_npu: u32,
    /// How the bytes get there.
    pub protocol: Protocol,
    /// Depth of the queue pair's work queue; ignored where the protocol has none.
    pub depth: u32,
}

/// A connection that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Index into the device's channel table.
    pub index: u16,
    /// The queue pair's queue, where the protocol has one.
    pub queue: Option<QueueId>,
    /// First entry of the queue pair's ring, where the protocol has one.
    pub ring: Option<DeviceAddr>,
    /// What the device sees: what the link reduces, and its longest transfer.
    pub slot: ChannelSlot,
}

impl Npu {
    /// Registers memory for transfers; regions may overlap.
    ///
    /// # Errors
    /// [`DriverError::Argument`] when `len` is 0, [`DriverError::Range`], [`DriverError::RegionsFull`],
    /// [`DriverError::Random`].
    pub fn register(&self, addr: DeviceAddr, len: u64, access: Access) -> Result<Region, DriverError> {
        if len == 0 {
            return Err(DriverError::Argument("a region is empty"));
        }
        self.offset(addr, len)?;
        let mut books = self.books();
        let slot = books.regions.take().ok_or(DriverError::RegionsFull { npu: self.npu })?;
        let token = match self.fresh_token(&mut books, slot) {
            Ok(token) => token,
            Err(error) => {
                books.regions.give_back(slot);
                return Err(error);
            }
        };
        books.tokens.insert(token, slot);
        let at = npu::REGIONS + u64::from(slot) * size_of::<RegionSlot>() as u64;
        let generation = self.next_generation(at + offset_of!(RegionSlot, generation) as u64);
        let slot = RegionSlot { addr: addr.0, len, token, access: access.bits(), generation, reserved: 0 };
        self.window().store_words::<4>(at, transmute!(slot), offset_of!(RegionSlot, token) / 8);
        Ok(Region { token, generation })
    }

    /// Takes a registration back. Its token stays invalid for ever.
    ///
    /// # Errors
    /// [`DriverError::Handle`] when nothing is registered under that token.
    pub fn deregister(&self, token: u32) -> Result<(), DriverError> {
        let mut books = self.books();
        let unknown = DriverError::Handle { what: "region with token", number: u64::from(token) };
        let slot = books.tokens.remove(&token).ok_or(unknown)?;
        let at = npu::REGIONS + u64::from(slot) * size_of::<RegionSlot>() as u64;
        self.window().word(at + offset_of!(RegionSlot, token) as u64).store(0, Ordering::Release);
        let at = at + offset_of!(RegionSlot, generation) as u64;
        self.window().half(at).store(self.next_generation(at), Ordering::Release);
        books.regions.give_back(slot);
        Ok(())
    }

    /// Returns the place and bytes of what is registered under a token.
    #[must_use]
    pub fn registered(&self, token: u32) -> Option<(DeviceAddr, u64)> {
        let slot = *self.books().tokens.get(&token)?;
        let at = npu::REGIONS + u64::from(slot) * size_of::<RegionSlot>() as u64;
        let slot: RegionSlot = transmute!(self.window().load_words::<4>(at));
        Some((DeviceAddr(slot.addr), slot.len))
    }

    /// Creates a queue: takes memory for its ring, which starts empty at the fabric's first position, and a slot.
    /// `channel` is 0 for a thread. For queue pairs use [`Npu::connect`].
    ///
    /// # Errors
    /// [`DriverError::Argument`] when `depth` is no power of two, [`DriverError::QueuesFull`],
    /// [`DriverError::MemoryFull`].
    pub fn create_queue(&self, kind: QueueKind, depth: u32, channel: u16) -> Result<QueueId, DriverError> {
        self.create_queue_with(kind, depth, channel, &mut self.books())
    }

    fn create_queue_with(
        &self,
        kind: QueueKind,
        depth: u32,
        channel: u16,
        books: &mut Books,
    ) -> Result<QueueId, DriverError> {
        if !depth.is_power_of_two() || depth > MAX_DEPTH {
            return Err(DriverError::Argument("a queue's depth is no power of two, or above 65536"));
        }
        let ring = self.alloc_with(u64::from(depth) * DESCRIPTOR_BYTES as u64, 64, books)?;
        let Some(id) = books.queues.take().and_then(|id| u16::try_from(id).ok()) else {
            books.heap.give_back(ring.0);
            return Err(DriverError::QueuesFull { npu: self.npu });
        };
        books.rings.insert(QueueId(id), ring);
        let start = self.fabric.first_position() & u64::from(u32::MAX);
        for table in [npu::DOORBELLS, npu::HEADS, npu::TAILS] {
            self.window().word(table + 8 * u64::from(id)).store(start, Ordering::Relaxed);
        }
        let at = queue_offset(id);
        let generation = self.next_generation(at + offset_of!(QueueSlot, generation) as u64);
        let kind = kind as u8;
        let slot = QueueSlot { ring: ring.0, depth, kind, channel, generation, ..QueueSlot::default() };
        self.window().store_words::<4>(at, transmute!(slot), offset_of!(QueueSlot, generation) / 8);
        Ok(QueueId(id))
    }

    /// Returns the address of a queue's first entry.
    ///
    /// # Errors
    /// [`DriverError::Handle`] when there is no such queue.
    pub fn ring(&self, queue: QueueId) -> Result<DeviceAddr, DriverError> {
        let ring = self.books().rings.get(&queue).copied();
        ring.ok_or(DriverError::Handle { what: "queue", number: u64::from(queue.0) })
    }

    /// Takes a queue from the device, which drops it when it next looks at it, whatever is still in it. Ring and slot
    /// stay taken until the queue is destroyed: a kernel may go on writing there, the host may read. A queue that has
    /// been retired can be retired again.
    ///
    /// A thread that is executing the queue's tasks at this moment may go on with them for a while;
    /// [`Machine::reset`](crate::machine::Machine::reset) returns after that.
    ///
    /// # Errors
    /// [`DriverError::Handle`] when there is no such queue.
    pub fn retire_queue(&self, queue: QueueId) -> Result<(), DriverError> {
        let books = self.books();
        let unknown = DriverError::Handle { what: "queue", number: u64::from(queue.0) };
        books.rings.get(&queue).map(|_| self.close(queue)).ok_or(unknown)
    }

    /// Destroys a queue and frees its ring, whatever is still in it.
    ///
    /// # Errors
    /// [`DriverError::Handle`] when there is no such queue.
    pub fn destroy_queue(&self, queue: QueueId) -> Result<(), DriverError> {
        self.destroy_queue_with(queue, &mut self.books())
    }

    fn destroy_queue_with(&self, queue: QueueId, books: &mut Books) -> Result<(), DriverError> {
        let unknown = DriverError::Handle { what: "queue", number: u64::from(queue.0) };
        let ring = books.rings.remove(&queue).ok_or(unknown)?;
        self.close(queue);
        books.queues.give_back(u32::from(queue.0));
        books.heap.give_back(ring.0);
        Ok(())
    }

    /// Makes the slot of a queue one that holds none.
    fn close(&self, queue: QueueId) {
        let at = queue_offset(queue.0);
        self.window().half(at + offset_of!(QueueSlot, depth) as u64).store(0, Ordering::Relaxed);
        let at = at + offset_of!(QueueSlot, generation) as u64;
        self.window().half(at).store(self.next_generation(at), Ordering::Release);
    }

    /// Connects this NPU to another, one way, and creates the queue pair where the protocol has one.
    ///
    /// # Errors
    /// [`DriverError::Argument`] when the peer does not exist, [`DriverError::ChannelsFull`], and those of
    /// [`Npu::create_queue`].
    pub fn connect(&self, link: Link) -> Result<Channel, DriverError> {
        if link.peer_npu >= self.fabric.npus() {
            return Err(DriverError::Argument("the peer of a connection does not exist"));
        }
        let mut books = self.books();
        let taken = books.channels.take().and_then(|index| u16::try_from(index).ok());
        let index = taken.ok_or(DriverError::ChannelsFull { npu: self.npu })?;
        let mut slot = capabilities(link.protocol);
        slot.peer_npu = link.peer_npu;
        let mut channel = Channel { index, queue: None, ring: None, slot };
        if link.protocol.uses_queue_pair() {
            let made = self.create_queue_with(QueueKind::QueuePair, link.depth, index, &mut books);
            let queue = made.inspect_err(|_| {
                books.channels.give_back(u32::from(index));
            })?;
            books.pairs.insert(index, queue);
            channel.slot.queue = queue.0;
            channel.queue = Some(queue);
            channel.ring = books.rings.get(&queue).copied();
        }
        self.window().store_words::<4>(channel_offset(index), transmute!(channel.slot), 0);
        Ok(channel)
    }

    /// Cuts a connection and destroys its queue pair.
    ///
    /// # Errors
    /// [`DriverError::Handle`] when there is no such channel.
    pub fn disconnect(&self, channel: u16) -> Result<(), DriverError> {
        let mut books = self.books();
        let given = books.channels.give_back(u32::from(channel));
        given.ok_or(DriverError::Handle { what: "channel", number: u64::from(channel) })?;
        self.window().word(channel_offset(channel)).store(0, Ordering::Release);
        match books.pairs.remove(&channel) {
            Some(queue) => self.destroy_queue_with(queue, &mut books),
            None => Ok(()),
        }
    }

    /// Returns a random token that names `slot` and was never used.
    fn fresh_token(&self, books: &mut Books, slot: u32) -> Result<u32, DriverError> {
        let random = self.fabric.random().map_err(|error| DriverError::Random(error.to_string()))?;
        let tokens = books.fresh_tokens.entry(slot).or_insert_with(|| Tokens::new(slot, random));
        tokens.next().ok_or(DriverError::RegionsFull { npu: self.npu })
    }

    /// Returns the generation after the one stored at `offset`; 0, which means "never taken", is passed over.
    fn next_generation(&self, offset: u64) -> u32 {
        self.window().half(offset).load(Ordering::Relaxed).checked_add(1).unwrap_or(1)
    }
}

/// Deepest queue.
const MAX_DEPTH: u32 = 1 << 16;

const fn queue_offset(id: u16) -> u64 {
    npu::QUEUES + id as u64 * size_of::<QueueSlot>() as u64
}

const fn channel_offset(index: u16) -> u64 {
    npu::CHANNELS + index as u64 * size_of::<ChannelSlot>() as u64
}

/// Returns a connected slot with what links of a protocol can do.
fn capabilities(protocol: Protocol) -> ChannelSlot {
    let (reduce_types, reduce_ops, max_len) = match protocol {
        Protocol::Hccs => (npu::sdma::REDUCE_TYPES, npu::sdma::REDUCE_OPS, npu::sdma::MAX_LEN),
        Protocol::Roce => (npu::roce::REDUCE_TYPES, npu::roce::REDUCE_OPS, npu::roce::MAX_LEN),
        Protocol::Ub => (npu::ub::REDUCE_TYPES, npu::ub::REDUCE_OPS, npu::ub::MAX_LEN),
    };
    let protocol = protocol as u8;
    ChannelSlot { connected: 1, protocol, reduce_types, reduce_ops, max_len, ..ChannelSlot::default() }
}
