//! One rank's kernel with a context, and a hand that plays host and device.

use aicpu_kernel::{Block, Kernel, Page};
use hal::SharedMemory;
use wire::context::{ChannelEntry, Context, ContextHeader, RegionEntry, ThreadEntry};
use wire::launch::{Algorithm, Buffer, OpKind, PeerBuffer, Staging};
use wire::npu::{
    DOORBELLS, HEADS, HEAP, LAUNCH_HEAD, LAUNCH_SLOTS, LAUNCH_TAIL, LAUNCHES, Protocol, STATUSES, Status,
    TAILS, roce, sdma,
};
use wire::{DataType, Descriptor, DeviceAddr, ErrorCode, LaunchArgs, Sqe, Wqe};
use zerocopy::IntoBytes;

use crate::fake::{Fake, WINDOW};

pub(crate) const INSTANCE: [u64; 2] = [11, 22];
pub(crate) const EPOCH: u32 = 3;
pub(crate) const TIMEOUT_MS: u32 = 5000;
/// User buffers lie outside the window: the kernel never touches them.
pub(crate) const INPUT: u64 = 0x1000_0000_0000;
pub(crate) const OUTPUT: u64 = 0x1100_0000_0000;
pub(crate) const SCRATCH: u64 = 0x1200_0000_0000;
/// Bytes of the window that one context and its rings get.
const SLOT: u64 = 0x80_0000;
const PEERS: u64 = 0x8000;
const RINGS: u64 = 0x1_0000;
/// First queue number of a slot's queue pairs.
pub(crate) const PAIRS: u16 = 256;

/// What a context is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) threads: u16,
    pub(crate) depth: u32,
    pub(crate) protocol: Protocol,
    pub(crate) pair_depth: u32,
    pub(crate) scratch: u64,
    /// Token of rank 0's scratch buffer; the next numbers are the other ranks'.
    pub(crate) scratch_token: u32,
    /// Which part of the window and of the queue numbers; contexts of different slots share nothing.
    pub(crate) slot: u16,
    pub(crate) instance: [u64; 2],
    pub(crate) epoch: u32,
    pub(crate) topology: u64,
    /// Longest transfer of every engine, bytes, where that is less than the engine's own.
    pub(crate) longest: u64,
}

impl Setup {
    pub(crate) fn new(rank: u32, ranks: u32) -> Self {
        Self {
            rank,
            ranks,
            threads: 1,
            depth: 2048,
            protocol: Protocol::Hccs,
            pair_depth: 0,
            scratch: 1 << 20,
            scratch_token: 100,
            slot: 0,
            instance: INSTANCE,
            epoch: EPOCH,
            topology: 0,
            longest: u64::MAX,
        }
    }

    pub(crate) fn at(&self) -> u64 {
        HEAP + u64::from(self.slot) * SLOT
    }

    pub(crate) fn first_notify(&self) -> u32 {
        u32::from(self.slot) * 600
    }

    /// The start notify: the last of the main thread's.
    pub(crate) fn start_notify(&self) -> u32 {
        self.first_notify() + 2 * u32::from(self.threads - 1)
    }

    fn threads(&self) -> Vec<ThreadEntry> {
        let main_notifies = 2 * u32::from(self.threads - 1) + 1;
        (0..self.threads)
            .map(|index| ThreadEntry {
                ring: WINDOW + self.at() + RINGS + u64::from(index) * u64::from(self.depth) * 64,
                depth: self.depth,
                queue: self.slot * 8 + index,
                notify_base: self.first_notify()
                    + if index == 0 { 0 } else { main_notifies + 2 * (u32::from(index) - 1) },
                notify_count: if index == 0 { main_notifies } else { 2 },
                ..ThreadEntry::default()
            })
            .collect()
    }

    fn regions(&self) -> Vec<RegionEntry> {
        let region = |rank| RegionEntry {
            addr: SCRATCH + (u64::from(rank) << 32),
            len: self.scratch,
            token: self.scratch_token + rank,
            generation: 1,
            rank,
            server: 0,
            pod: 0,
        };
        (0..self.ranks).map(region).collect()
    }

    fn channels(&self) -> Vec<ChannelEntry> {
        let pair = self.protocol.uses_queue_pair();
        let rings = RINGS + u64::from(self.threads) * u64::from(self.depth) * 64;
        let (reduce_types, reduce_ops, max_len) = match self.protocol {
            Protocol::Hccs => (sdma::REDUCE_TYPES, sdma::REDUCE_OPS, sdma::MAX_LEN),
            _ => (roce::REDUCE_TYPES, roce::REDUCE_OPS, roce::MAX_LEN),
        };
        let peers = (0..self.ranks).filter(|&peer| peer != self.rank).zip(0_u16..);
        peers
            .map(|(peer, index)| ChannelEntry {
                peer,
                index: 20 + index,
                protocol: self.protocol as u8,
                local_notify: self.first_notify() + 300 + 3 * u32::from(index),
                remote_notify: 7000 + 3 * peer,
                reduce_types,
                reduce_ops,
                max_len: max_len.min(self.longest),
                ring: if pair {
                    WINDOW + self.at() + rings + u64::from(index) * u64::from(self.pair_depth) * 64
                } else {
                    0
                },
                depth: if pair { self.pair_depth } else { 0 },
                queue: if pair { PAIRS + self.slot * 8 + index } else { 0 },
                ..ChannelEntry::default()
            })
            .collect()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let header = ContextHeader {
            instance: self.instance,
            epoch: self.epoch,
            topology_digest: self.topology,
            rank: self.rank,
            ranks: self.ranks,
            sdma_max_len: sdma::MAX_LEN.min(self.longest),
            sdma_reduce_types: sdma::REDUCE_TYPES,
            sdma_reduce_ops: sdma::REDUCE_OPS,
            link_reduce_types: self
                .channels()
                .iter()
                .fold(sdma::REDUCE_TYPES, |all, own| all & own.reduce_types),
            link_reduce_ops: self.channels().iter().fold(sdma::REDUCE_OPS, |all, own| all & own.reduce_ops),
            ..ContextHeader::default()
        };
        let (threads, regions, channels) = (self.threads(), self.regions(), self.channels());
        let context = Context { header: &header, threads: &threads, regions: &regions, channels: &channels };
        let mut bytes = vec![0; Context::encoded_len(threads.len(), regions.len(), channels.len())];
        context.encode(&mut bytes).expect("the buffer has the size asked for");
        bytes
    }

    /// An all-reduce of `count` int32 by ring in scratch, not sealed.
    pub(crate) fn launch(&self, count: u64) -> LaunchArgs {
        let buffer =
            |addr, token| Buffer { addr: DeviceAddr(addr), len: 4 * count, token, ..Buffer::default() };
        LaunchArgs {
            blocks: 1,
            sequence: 9,
            instance: self.instance,
            epoch: self.epoch,
            op: OpKind::AllReduce as u8,
            dtype: DataType::Int32 as u8,
            algorithm: Algorithm::Ring as u8,
            staging: Staging::Scratch as u8,
            count,
            context: DeviceAddr(WINDOW + self.at()),
            context_len: u32::try_from(self.encode().len()).expect("small"),
            input: buffer(INPUT, 41),
            output: buffer(OUTPUT, 42),
            start_notify: self.start_notify(),
            done_notify: 5,
            timeout_ms: TIMEOUT_MS,
            ..LaunchArgs::default()
        }
    }

    pub(crate) fn peer_tables(&self) -> [DeviceAddr; 2] {
        [0, 0x1000].map(|offset| DeviceAddr(WINDOW + self.at() + PEERS + offset))
    }

    /// Where the rows of a vector lie.
    pub(crate) fn vector_table(&self) -> DeviceAddr {
        DeviceAddr(WINDOW + self.at() + PEERS + 0x2000)
    }
}

pub(crate) type TestKernel = Kernel<Fake, Box<[Block]>, Box<[Page]>>;

/// A kernel and the memory it shares with the test.
pub(crate) struct Rig {
    pub(crate) kernel: Box<TestKernel>,
    posted: u64,
}

impl Rig {
    /// Makes a kernel that can record `blocks` blocks and keeps no graph, with the contexts of `setups` in its memory.
    pub(crate) fn new(setups: &[Setup], blocks: usize) -> Self {
        Self::with_pages(setups, blocks, 2 * blocks + 16)
    }

    /// As [`new`](Self::new), with `pages` pages for graphs.
    pub(crate) fn with_pages(setups: &[Setup], blocks: usize, pages: usize) -> Self {
        let slots = setups.iter().map(|setup| u64::from(setup.slot) + 1).max().unwrap_or(1);
        let mut fake = Fake::new(HEAP + slots * SLOT);
        for setup in setups {
            fake.write(DeviceAddr(WINDOW + setup.at()), &setup.encode()).expect("inside the window");
        }
        Self { kernel: Self::start(fake, blocks, pages), posted: 0 }
    }

    fn start(fake: Fake, blocks: usize, pages: usize) -> Box<TestKernel> {
        let mut kernel = Box::new(Kernel::new(
            fake,
            vec![Block::EMPTY; blocks].into_boxed_slice(),
            vec![Page::EMPTY; pages].into_boxed_slice(),
        ));
        kernel.start().expect("the window is there");
        kernel
    }

    /// Starts another kernel on the same memory.
    pub(crate) fn restart(&mut self, blocks: usize, pages: usize) {
        let fake = core::mem::take(self.fake());
        self.kernel = Self::start(fake, blocks, pages);
    }

    /// Writes the context of a setup anew, as the host does for another epoch.
    pub(crate) fn write_context(&mut self, setup: &Setup) {
        self.fake().write(DeviceAddr(WINDOW + setup.at()), &setup.encode()).expect("inside the window");
    }

    pub(crate) fn fake(&mut self) -> &mut Fake {
        self.kernel.platform_mut()
    }

    /// Writes the peers' buffers of a launch: `len` bytes each.
    pub(crate) fn write_peers(&mut self, setup: &Setup, len: impl Fn(u32) -> u64) {
        for (table, base) in setup.peer_tables().into_iter().zip([INPUT, OUTPUT]) {
            let rows: Vec<_> = (0..setup.ranks)
                .map(|rank| PeerBuffer {
                    addr: DeviceAddr(base + (u64::from(rank) << 32)),
                    len: len(rank),
                    token: 200 + rank,
                    reserved: 0,
                })
                .collect();
            self.fake().write(table, rows.as_bytes()).expect("inside the window");
        }
    }

    /// Posts a launch as it is.
    pub(crate) fn post_raw(&mut self, args: &LaunchArgs) {
        let slot = LAUNCHES + self.posted % LAUNCH_SLOTS * size_of::<LaunchArgs>() as u64;
        self.posted += 1;
        let posted = self.posted;
        let fake = self.fake();
        fake.write(DeviceAddr(WINDOW + slot), args.as_bytes()).expect("inside the window");
        fake.set_word(LAUNCH_TAIL, posted);
    }

    pub(crate) fn post(&mut self, args: LaunchArgs) {
        self.post_raw(&args.sealed());
    }

    pub(crate) fn answered(&mut self) -> u64 {
        self.fake().word(LAUNCH_HEAD)
    }

    pub(crate) fn all_answered(&mut self) -> bool {
        self.answered() == self.posted
    }

    /// The status of the newest launch.
    pub(crate) fn status(&mut self) -> Status {
        self.statuses(1)[0]
    }

    /// The statuses of the newest `count` launches, the oldest first.
    pub(crate) fn statuses(&mut self, count: u64) -> Vec<Status> {
        let at = |index: u64| STATUSES + index % LAUNCH_SLOTS * size_of::<Status>() as u64;
        (self.posted - count..self.posted).map(|index| self.fake().get(at(index))).collect()
    }

    /// Posts a launch that is answered without a device; returns the answer.
    pub(crate) fn run(&mut self, args: LaunchArgs) -> Status {
        self.post(args);
        while self.kernel.poll() {}
        assert!(self.all_answered(), "answered while something can be done");
        self.status()
    }

    pub(crate) fn code(&mut self, args: LaunchArgs) -> ErrorCode {
        ErrorCode(self.run(args).code)
    }

    /// Plays a device that ignores waits: takes everything out of all rings; queue and entries as they lie there.
    pub(crate) fn drain(&mut self, setup: &Setup) -> Vec<(u16, Vec<Descriptor>)> {
        let threads = setup.threads().into_iter().map(|entry| (entry.queue, entry.ring, entry.depth));
        let pairs = setup.channels().into_iter().map(|entry| (entry.queue, entry.ring, entry.depth));
        let rings: Vec<_> = threads.chain(pairs.filter(|(_, _, depth)| *depth > 0)).collect();
        let mut drained = Vec::new();
        for (queue, ring, depth) in rings {
            let tail = self.fake().word(TAILS + 8 * u64::from(queue));
            drained.push((queue, self.take(queue, ring, depth, tail)));
        }
        drained
    }

    /// Plays the device: takes everything announced on a thread's ring, running posts, and moves the heads.
    pub(crate) fn consume(&mut self, setup: &Setup, thread: u16) -> Vec<Sqe> {
        let entry = setup.threads()[usize::from(thread)];
        let fake = self.fake();
        let rung = fake.doorbells.iter().rev().find(|(queue, _)| *queue == entry.queue);
        let tail = rung.map_or(fake.word(HEADS + 8 * u64::from(entry.queue)), |(_, tail)| u64::from(*tail));
        self.take(entry.queue, entry.ring, entry.depth, tail).into_iter().map(Sqe::from).collect()
    }

    /// Plays a queue pair that a post lets run up to `tail`. This device ignores waits, so a later post of another
    /// thread may have let it run further already.
    pub(crate) fn consume_pair(&mut self, setup: &Setup, channel: u16, tail: u32) -> Vec<Wqe> {
        let channels = setup.channels();
        let entry = channels.iter().find(|entry| entry.index == channel).expect("the channel exists");
        let published = self.fake().word(TAILS + 8 * u64::from(entry.queue));
        let ahead = u32::try_from(published).expect("32 bits").wrapping_sub(tail);
        assert!(ahead <= entry.depth, "post of {tail}, published {published}");
        let head = u32::try_from(self.fake().word(HEADS + 8 * u64::from(entry.queue))).expect("32 bits");
        if tail.wrapping_sub(head) > u32::MAX / 2 {
            return Vec::new();
        }
        self.take(entry.queue, entry.ring, entry.depth, u64::from(tail)).into_iter().map(Wqe::from).collect()
    }

    fn take(&mut self, queue: u16, ring: u64, depth: u32, tail: u64) -> Vec<Descriptor> {
        let fake = self.fake();
        let word = HEADS + 8 * u64::from(queue);
        let mut head = u32::try_from(fake.word(word)).expect("32 bits");
        let tail = u32::try_from(tail).expect("32 bits");
        assert!(tail.wrapping_sub(head) <= depth, "the ring holds {depth}");
        let mut taken = Vec::new();
        while head != tail {
            taken.push(fake.get(ring - WINDOW + u64::from(head % depth) * 64));
            head = head.wrapping_add(1);
        }
        fake.set_word(word, u64::from(head));
        taken
    }

    /// Sets both words of a queue before its first use: the ring goes on from there.
    pub(crate) fn start_ring_at(&mut self, queue: u16, position: u32) {
        for table in [HEADS, TAILS, DOORBELLS] {
            self.fake().set_word(table + 8 * u64::from(queue), u64::from(position));
        }
    }
}
