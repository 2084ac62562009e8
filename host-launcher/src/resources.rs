//! The resources of one communicator for one algorithm: threads, notifies, channels, and the context that names them.
//!
//! Made on first use and kept: later operations need no handshake, no registration and no new bytes on the device. What
//! an NPU has too little of is refused before anything is made (`quota`).

mod quota;

use core::ops::Range;
use core::sync::atomic::Ordering;

use device_model::driver::{Channel, Link, Npu, QueueId, Region};
use templates::Needs;
use wire::DeviceAddr;
use wire::context::{ChannelEntry, Context, ContextHeader, RegionEntry, ThreadEntry};
use wire::npu::{Access, DOORBELLS, HEADS, QueueKind, TAILS, sdma};

use crate::buffer::driver;
use crate::cluster::Cluster;
use crate::error::{Error, Result};

/// Notifies of the main thread for starts: as many launches may be posted at once.
pub(crate) const START_NOTIFIES: u32 = 16;
/// ACK, DATA, FIN.
pub(crate) const CHANNEL_NOTIFIES: u32 = 3;

/// Who a communicator is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) instance: [u64; 2],
    pub(crate) epoch: u32,
}

/// The scratch buffer of every rank.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) len: u64,
    rows: Vec<(DeviceAddr, Region)>,
}

impl Scratch {
    /// Takes and registers it on every rank, or on none.
    pub(crate) fn new(cluster: &Cluster, len: u64) -> Result<Self> {
        let mut made = Self { len, rows: Vec::new() };
        for rank in 0..cluster.topology().ranks() {
            let npu = cluster.npu(rank);
            let row = npu.alloc(len, 128).and_then(|addr| {
                let region = npu.register(addr, len, Access::all());
                // What cannot be registered is of no use; that it cannot be freed either is not what is told.
                region.map(|region| (addr, region)).inspect_err(|_| drop(npu.free(addr)))
            });
            match row {
                Ok(row) => made.rows.push(row),
                Err(error) => return made.free(cluster).and(Err(driver(error))),
            }
        }
        Ok(made)
    }

    fn entries(&self, cluster: &Cluster) -> Vec<RegionEntry> {
        let entry = |(rank, (addr, region)): (u32, &(DeviceAddr, Region))| {
            let [server, pod] = cluster.topology().place(rank);
            RegionEntry {
                addr: addr.0,
                len: self.len,
                token: region.token,
                generation: region.generation,
                rank,
                server,
                pod,
            }
        };
        (0..).zip(&self.rows).map(entry).collect()
    }

    pub(crate) fn free(self, cluster: &Cluster) -> Result<()> {
        for (rank, (addr, region)) in (0..).zip(self.rows) {
            cluster.npu(rank).deregister(region.token).map_err(driver)?;
            cluster.npu(rank).free(addr).map_err(driver)?;
        }
        Ok(())
    }
}

/// What one rank has for one algorithm.
#[derive(Debug)]
pub(crate) struct RankResources {
    pub(crate) context: (DeviceAddr, u32),
    /// First of the main thread's start notifies.
    pub(crate) start_base: u32,
    threads: Vec<QueueId>,
    /// Each run of notifies that was taken.
    notifies: Vec<Range<u32>>,
    /// The same, neighbours joined: what is looked at after every operation.
    notified: Vec<Range<u32>>,
    channels: Vec<u16>,
    entries: (Vec<ThreadEntry>, Vec<ChannelEntry>),
    /// Entries of each ring.
    depth: u32,
}

impl RankResources {
    /// Creates everything, or nothing.
    fn create(cluster: &Cluster, rank: u32, needs: &Needs, depth: u32) -> Result<Self> {
        let mut made = Self {
            context: (DeviceAddr(0), 0),
            start_base: 0,
            threads: Vec::new(),
            notifies: Vec::new(),
            notified: Vec::new(),
            channels: Vec::new(),
            entries: (Vec::new(), Vec::new()),
            depth,
        };
        match made.fill(cluster, rank, needs) {
            Ok(()) => Ok(made),
            Err(error) => made.free(cluster.npu(rank)).and(Err(error)),
        }
    }

    fn fill(&mut self, cluster: &Cluster, rank: u32, needs: &Needs) -> Result<()> {
        let (npu, made) = (cluster.npu(rank), self);
        for thread in 0..needs.threads {
            let main = thread == 0;
            let synchronizing = u32::from(if main { needs.main_notifies } else { needs.sub_notifies });
            let count = synchronizing + if main { START_NOTIFIES } else { 0 };
            let entry = made.thread(npu, count)?;
            if main {
                made.start_base = entry.notify_base + synchronizing;
            }
            made.entries.0.push(entry);
        }
        for channel in cluster.topology().channels(rank) {
            let peer_npu = cluster.npu(channel.peer).index();
            let link = Link { peer_npu, protocol: channel.protocol, depth: made.depth };
            let entry = ChannelEntry { peer: channel.peer, ..made.channel(npu, link)? };
            made.entries.1.push(entry);
        }
        Ok(())
    }

    fn notifies(&mut self, npu: &Npu, count: u32) -> Result<u32> {
        let range = npu.alloc_notifies(count).map_err(driver)?;
        self.notifies.push(range.clone());
        match self.notified.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.notified.push(range.clone()),
        }
        Ok(range.start)
    }

    fn thread(&mut self, npu: &Npu, notify_count: u32) -> Result<ThreadEntry> {
        let depth = self.depth;
        let queue = npu.create_queue(QueueKind::Thread, depth, 0).map_err(driver)?;
        self.threads.push(queue);
        let notify_base = self.notifies(npu, notify_count)?;
        let ring = npu.ring(queue).map_err(driver)?.0;
        let queue = queue.0;
        Ok(ThreadEntry { ring, depth, queue, notify_base, notify_count, ..ThreadEntry::default() })
    }

    /// Connects to a peer; which notify there is filled in once the peer has its own.
    fn channel(&mut self, npu: &Npu, link: Link) -> Result<ChannelEntry> {
        let Channel { index, queue, ring, slot } = npu.connect(link).map_err(driver)?;
        self.channels.push(index);
        Ok(ChannelEntry {
            // Whose rank it is, the caller knows.
            peer: 0,
            index,
            protocol: slot.protocol,
            local_notify: self.notifies(npu, CHANNEL_NOTIFIES)?,
            reduce_types: slot.reduce_types,
            reduce_ops: slot.reduce_ops,
            max_len: slot.max_len,
            ring: ring.map_or(0, |ring| ring.0),
            depth: queue.map_or(0, |_| link.depth),
            queue: queue.map_or(0, |queue| queue.0),
            ..ChannelEntry::default()
        })
    }

    /// Returns the first notify that is set, and the peer that sets it, `None` for this rank itself.
    pub(crate) fn set_notify(&self, npu: &Npu) -> Option<(u32, Option<u32>)> {
        let notify = self.notified.iter().cloned().find_map(|range| npu.first_set(range))?;
        let of = |channel: &&ChannelEntry| {
            (channel.local_notify..channel.local_notify + CHANNEL_NOTIFIES).contains(&notify)
        };
        Some((notify, self.entries.1.iter().find(of).map(|channel| channel.peer)))
    }

    /// The first notify that this rank waits on for `peer`.
    fn notify_for(&self, peer: u32) -> Option<u32> {
        self.entries.1.iter().find(|channel| channel.peer == peer).map(|channel| channel.local_notify)
    }

    fn write_context(&mut self, npu: &Npu, header: &ContextHeader, scratch: &[RegionEntry]) -> Result<()> {
        let (threads, channels) = &self.entries;
        let context = Context { header, threads, regions: scratch, channels };
        let len = Context::encoded_len(threads.len(), scratch.len(), channels.len());
        let mut bytes = vec![0; len];
        context
            .encode(&mut bytes)
            .map_err(|error| Error::new(error.code, format!("a context of {len} bytes cannot be written")))?;
        let length = u32::try_from(len)
            .map_err(|_| Error::new(wire::ErrorCode::CONTEXT_CAPACITY, "4 GiB of context"))?;
        let at = npu.alloc(len as u64, 64).map_err(driver)?;
        self.context = (at, length);
        npu.write(at, &bytes).map_err(driver)
    }

    /// The context without scratch: what a recorder turns names into numbers with.
    pub(crate) fn context_with<'a>(&'a self, header: &'a ContextHeader) -> Context<'a> {
        let (threads, channels) = &self.entries;
        Context { header, threads, regions: &[], channels }
    }

    /// The queue of each thread, then that of each channel's queue pair, 0 where there is none.
    pub(crate) fn ring_queues(&self) -> impl Iterator<Item = u16> {
        let (threads, channels) = &self.entries;
        threads.iter().map(|thread| thread.queue).chain(channels.iter().map(|channel| channel.queue))
    }

    /// The threads, in the order of their numbers.
    pub(crate) fn threads(&self) -> &[ThreadEntry] {
        &self.entries.0
    }

    /// The queue of the main thread.
    pub(crate) fn main_queue(&self) -> u16 {
        self.threads().first().map_or(u16::MAX, |main| main.queue)
    }

    /// The queues of the queue pairs.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = u16> {
        self.entries.1.iter().filter(|channel| channel.depth > 0).map(|channel| channel.queue)
    }

    /// The queues of threads and queue pairs.
    pub(crate) fn queues(&self) -> impl Iterator<Item = QueueId> {
        self.threads.iter().copied().chain(self.pairs().map(QueueId))
    }

    /// Returns whether the device has executed everything that is in the rings.
    pub(crate) fn is_drained(&self, npu: &Npu) -> bool {
        self.queues().all(|queue| {
            let word = |table: u64| npu.window().word(table + 8 * u64::from(queue.0));
            // ORDER: pairs with the device's release store of the head.
            word(HEADS).load(Ordering::Acquire) == word(TAILS).load(Ordering::Acquire)
        })
    }

    /// Rings once more for each thread whose queue is idle although its kernel has announced more than its device has
    /// seen; returns for how many.
    pub(crate) fn ring_again(&self, npu: &Npu) -> u64 {
        let is_rung = |queue: &&QueueId| {
            let word = |table: u64| npu.window().word(table + 8 * u64::from(queue.0));
            // ORDER: the tail is stored with release order behind entries and doorbell. A kernel that rings meanwhile
            // makes the exchange fail.
            let tail = word(TAILS).load(Ordering::Acquire);
            let (doorbell, head) =
                (word(DOORBELLS).load(Ordering::Acquire), word(HEADS).load(Ordering::Acquire));
            let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
            // A tail that lags behind the doorbell is one that is just being written.
            let waiting = half(tail).wrapping_sub(half(doorbell));
            half(head) == half(doorbell)
                && (1..=self.depth).contains(&waiting)
                && word(DOORBELLS)
                    .compare_exchange(doorbell, tail, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        };
        self.threads.iter().filter(is_rung).count() as u64
    }

    /// Takes everything out of the rings, in the stead of a device that no longer does.
    fn discard(&self, npu: &Npu) {
        for queue in self.queues() {
            let word = |table: u64| npu.window().word(table + 8 * u64::from(queue.0));
            // ORDER: pairs with the kernel's acquire load of the head, as the device's own store does.
            word(HEADS).store(word(TAILS).load(Ordering::Acquire), Ordering::Release);
        }
    }

    fn free(self, npu: &Npu) -> Result<()> {
        for queue in self.threads {
            npu.destroy_queue(queue).map_err(driver)?;
        }
        for channel in self.channels {
            npu.disconnect(channel).map_err(driver)?;
        }
        for range in self.notifies {
            npu.free_notifies(range.start).map_err(driver)?;
        }
        if self.context.1 > 0 {
            npu.free(self.context.0).map_err(driver)?;
        }
        Ok(())
    }
}

/// What all ranks have for one algorithm.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) ranks: Vec<RankResources>,
    pub(crate) scratch: Scratch,
}

impl Resources {
    /// Creates everything on every rank, lets the ranks exchange what they need of each other, writes the contexts. Or
    /// creates nothing: what an error leaves half done is given back. Rings have `depth` entries.
    pub(crate) fn create(
        cluster: &Cluster,
        identity: &Identity,
        needs: &Needs,
        scratch_len: u64,
        depth: u32,
    ) -> Result<Self> {
        quota::check(cluster, needs)?;
        let mut made = Self { ranks: Vec::new(), scratch: Scratch::new(cluster, scratch_len)? };
        match made.fill(cluster, identity, needs, depth) {
            Ok(()) => Ok(made),
            Err(error) => made.free(cluster).and(Err(error)),
        }
    }

    fn fill(&mut self, cluster: &Cluster, identity: &Identity, needs: &Needs, depth: u32) -> Result<()> {
        for rank in 0..cluster.topology().ranks() {
            self.ranks.push(RankResources::create(cluster, rank, needs, depth)?);
        }
        handshake(&mut self.ranks)?;
        let regions = self.scratch.entries(cluster);
        for (rank, resources) in (0..).zip(&mut self.ranks) {
            resources.write_context(cluster.npu(rank), &header(cluster, identity, rank), &regions)?;
        }
        Ok(())
    }

    /// Returns how many channels there are at all ranks.
    pub(crate) fn channels(&self) -> usize {
        self.ranks.iter().map(|rank| rank.channels.len()).sum()
    }

    /// Takes all queues from the devices, which may finish what they are at until they are reset.
    pub(crate) fn retire(&self, cluster: &Cluster) -> Result<()> {
        for (rank, resources) in (0..).zip(&self.ranks) {
            let npu = cluster.npu(rank);
            resources.queues().try_for_each(|queue| npu.retire_queue(queue)).map_err(driver)?;
        }
        Ok(())
    }

    /// Takes everything out of the rings of all ranks. For queues that have been retired: nobody else does then.
    pub(crate) fn discard(&self, cluster: &Cluster) {
        for (rank, resources) in (0..).zip(&self.ranks) {
            resources.discard(cluster.npu(rank));
        }
    }

    pub(crate) fn free(self, cluster: &Cluster) -> Result<()> {
        for (rank, resources) in (0..).zip(self.ranks) {
            resources.free(cluster.npu(rank))?;
        }
        self.scratch.free(cluster)
    }
}

/// Tells every channel which notify its peer waits on.
fn handshake(ranks: &mut [RankResources]) -> Result<()> {
    for rank in 0..ranks.len() {
        let own = u32::try_from(rank).unwrap_or(u32::MAX);
        for index in 0..ranks[rank].entries.1.len() {
            let peer = ranks[rank].entries.1[index].peer as usize;
            let notify = ranks[peer].notify_for(own).ok_or_else(|| {
                let message = format!("rank {rank} has a channel to rank {peer}, which has none back");
                Error::new(wire::ErrorCode::SQE_CHANNEL, message)
            })?;
            ranks[rank].entries.1[index].remote_notify = notify;
        }
    }
    Ok(())
}

pub(crate) fn header(cluster: &Cluster, identity: &Identity, rank: u32) -> ContextHeader {
    let mut name = [0; 64];
    // A name is for messages only; what does not fit is cut at a character.
    let mut end = identity.name.len().min(name.len() - 1);
    while !identity.name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].copy_from_slice(&identity.name.as_bytes()[..end]);
    let (link_reduce_types, link_reduce_ops) = cluster.topology().link_reductions();
    ContextHeader {
        instance: identity.instance,
        epoch: identity.epoch,
        rank,
        ranks: cluster.topology().ranks(),
        device: cluster.npu(rank).index(),
        topology_digest: cluster.topology().digest(),
        sdma_max_len: sdma::MAX_LEN,
        sdma_reduce_types: sdma::REDUCE_TYPES,
        sdma_reduce_ops: sdma::REDUCE_OPS,
        name,
        link_reduce_types,
        link_reduce_ops,
        ..ContextHeader::default()
    }
}
