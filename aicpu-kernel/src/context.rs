//! Decoded resource contexts: checked once, kept in owned memory, never read from shared memory again.

use hal::SharedMemory;
use heapless::Vec;
use ring::SubmissionRing;
use task_graph::{QUEUES, QueueIndex, Resources};
use templates::Tables;
use wire::context::{ChannelEntry, Context, ContextHeader, RegionEntry, ThreadEntry};
use wire::launch::Launch;
use wire::npu::{HEADS, TAILS};
use wire::{DeviceAddr, ErrorCode, Reduction};
use zerocopy::IntoBytes;

use crate::cache_key::Surroundings;
use crate::kernel::Fault;
use crate::plans::{Planned, Plans};

/// Contexts that stay decoded; the least recently used gives way.
pub const MAX_CONTEXTS: usize = 8;
/// Ranks of one communicator.
pub const MAX_RANKS: usize = 128;
/// Threads of one context.
pub const MAX_THREADS: usize = 128;

const BUFFER_WORDS: usize = Context::encoded_len(MAX_THREADS, MAX_RANKS, MAX_RANKS) / 8;

/// One communicator and algorithm, as the kernel keeps it.
#[derive(Debug)]
pub(crate) struct OwnedContext {
    header: ContextHeader,
    at: DeviceAddr,
    threads: Vec<ThreadEntry, MAX_THREADS>,
    regions: Vec<RegionEntry, MAX_RANKS>,
    channels: Vec<ChannelEntry, MAX_RANKS>,
    rings: Vec<SubmissionRing, QUEUES>,
    /// First rank of every server.
    servers: Vec<u32, MAX_RANKS>,
    /// First rank of every super pod.
    pods: Vec<u32, MAX_RANKS>,
    /// Longest transfer that no engine splits, bytes.
    longest: u64,
    /// Bytes of the smallest scratch buffer.
    scratch_len: u64,
    plans: Plans,
    /// Set once a submission failed half-way; nothing is submitted any more.
    pub(crate) poisoned: bool,
    used: u64,
}

impl OwnedContext {
    const VACANT: Self = Self {
        header: zerocopy::transmute!([0_u8; size_of::<ContextHeader>()]),
        at: DeviceAddr(0),
        threads: Vec::new(),
        regions: Vec::new(),
        channels: Vec::new(),
        rings: Vec::new(),
        servers: Vec::new(),
        pods: Vec::new(),
        longest: 0,
        scratch_len: 0,
        plans: Plans::new(),
        poisoned: false,
        used: 0,
    };

    /// Takes over a checked context, in place: it is too large for a stack. Leaves nothing of an earlier one.
    fn fill(
        &mut self,
        context: &Context<'_>,
        at: DeviceAddr,
        resume: impl Fn(u16, u64, u32) -> Result<SubmissionRing, ErrorCode>,
    ) -> Result<(), ErrorCode> {
        const FULL: ErrorCode = ErrorCode::CONTEXT_CAPACITY;
        self.vacate();
        for thread in context.threads {
            self.rings.push(resume(thread.queue, thread.ring, thread.depth)?).map_err(|_| FULL)?;
        }
        self.longest = context.header.sdma_max_len;
        for channel in context.channels {
            // Channels without a queue pair get a ring of depth 0 that is never used, so that indices stay simple.
            let ring = if channel.depth == 0 {
                SubmissionRing::new(channel.queue, DeviceAddr(channel.ring), 0)
            } else {
                resume(channel.queue, channel.ring, channel.depth)?
            };
            self.rings.push(ring).map_err(|_| FULL)?;
            self.longest = self.longest.min(channel.max_len);
        }
        for region in context.regions {
            if self.servers.len() == usize::from(region.server) {
                self.servers.push(region.rank).map_err(|_| FULL)?;
            }
            if self.pods.len() == usize::from(region.pod) {
                self.pods.push(region.rank).map_err(|_| FULL)?;
            }
        }
        self.scratch_len = context.regions.iter().map(|region| region.len).min().unwrap_or(0);
        self.threads.extend_from_slice(context.threads).map_err(|_| FULL)?;
        self.regions.extend_from_slice(context.regions).map_err(|_| FULL)?;
        self.channels.extend_from_slice(context.channels).map_err(|_| FULL)?;
        (self.header, self.at) = (*context.header, at);
        Ok(())
    }

    fn vacate(&mut self) {
        self.threads.clear();
        self.regions.clear();
        self.channels.clear();
        self.rings.clear();
        self.servers.clear();
        self.pods.clear();
        self.plans.clear();
        (self.poisoned, self.used) = (false, 0);
    }

    /// Returns whether this is the context at `at`.
    fn is_at(&self, at: DeviceAddr) -> bool {
        self.used > 0 && self.at == at
    }

    pub(crate) fn header(&self) -> &ContextHeader {
        &self.header
    }

    pub(crate) fn threads(&self) -> &[ThreadEntry] {
        &self.threads
    }

    /// Returns how many threads and channels there are.
    pub(crate) fn counts(&self) -> [usize; 2] {
        [self.threads.len(), self.channels.len()]
    }

    pub(crate) fn regions(&self) -> &[RegionEntry] {
        &self.regions
    }

    /// Returns what the cache key of the plan in use depends on.
    pub(crate) fn surroundings(&self) -> Surroundings<'_> {
        let class = self.planned().and_then(|planned| planned.class);
        Surroundings { header: &self.header, channels: &self.channels, class }
    }

    /// Returns the plan in use.
    pub(crate) fn planned(&self) -> Option<&Planned> {
        self.plans.current()
    }

    /// Returns the plans.
    pub(crate) fn plans(&mut self) -> &mut Plans {
        &mut self.plans
    }

    /// Returns the resources.
    pub(crate) fn resources(&self) -> Result<Resources<'_>, ErrorCode> {
        Resources::new(Context {
            header: &self.header,
            threads: &self.threads,
            regions: &self.regions,
            channels: &self.channels,
        })
    }

    /// Returns what plans for this context refer to, with what is attached to the launch.
    pub(crate) fn tables<'a>(&'a self, attached: &Tables<'a>) -> Tables<'a> {
        Tables { servers: &self.servers, pods: &self.pods, ..*attached }
    }

    /// Returns the rings: of the threads, then of the channels.
    pub(crate) fn rings(&mut self) -> &mut [SubmissionRing] {
        &mut self.rings
    }

    /// Returns the low 32 bits of the position a ring has reached.
    pub(crate) fn ring_tail(&self, queue: QueueIndex) -> u32 {
        let tail = self.rings.get(usize::from(queue.0)).map_or(0, SubmissionRing::tail);
        <u32 as ring::Count>::low(tail)
    }

    /// Returns whether `queue` is the ring of a queue pair.
    pub(crate) fn is_pair(&self, queue: QueueIndex) -> bool {
        usize::from(queue.0) >= self.threads.len()
    }

    /// Returns the longest transfer that no engine splits, bytes.
    pub(crate) fn longest_transfer(&self) -> u64 {
        self.longest
    }

    /// Returns the bytes of the smallest scratch buffer.
    pub(crate) fn scratch_len(&self) -> u64 {
        self.scratch_len
    }

    /// Returns whether every link reduces while moving.
    pub(crate) fn reduces_inline(&self, reduction: Reduction) -> bool {
        let (types, ops) = (self.header.link_reduce_types, self.header.link_reduce_ops);
        types >> reduction.dtype as u32 & 1 == 1 && ops >> reduction.op as u32 & 1 == 1
    }
}

/// Makes the producer of a ring in the window of an NPU. The ring may have been used before its context was last
/// dropped, and hold entries not consumed yet.
///
/// # Errors
/// `QUEUE_HEAD` when the words of the ring contradict each other.
pub(crate) fn resume<M: SharedMemory>(
    memory: &M,
    window: DeviceAddr,
    (queue, ring, depth): (u16, u64, u32),
) -> Result<SubmissionRing, ErrorCode> {
    let word = |table: u64| {
        let word = window.checked_add(table + 8 * u64::from(queue)).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        memory.load(word).map(<u32 as ring::Count>::low)
    };
    SubmissionRing::resumed(queue, DeviceAddr(ring), depth, word(HEADS)?, word(TAILS)?)
}

/// The contexts this kernel has decoded.
#[derive(Debug)]
pub(crate) struct ContextTable {
    list: [OwnedContext; MAX_CONTEXTS],
    buffer: [u64; BUFFER_WORDS],
    clock: u64,
}

impl ContextTable {
    pub(crate) const fn new() -> Self {
        Self { list: [OwnedContext::VACANT; MAX_CONTEXTS], buffer: [0; BUFFER_WORDS], clock: 0 }
    }

    /// Returns the context at an index that [`find`](Self::find) returned.
    ///
    /// # Errors
    /// `CONTEXT_STALE` when it has been dropped since.
    pub(crate) fn get(&mut self, index: usize) -> Result<&mut OwnedContext, ErrorCode> {
        self.list.get_mut(index).filter(|context| context.used > 0).ok_or(ErrorCode::CONTEXT_STALE)
    }

    /// Returns the same, to look at.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn view(&self, index: usize) -> Result<&OwnedContext, ErrorCode> {
        self.list.get(index).filter(|context| context.used > 0).ok_or(ErrorCode::CONTEXT_STALE)
    }

    /// Lets nothing be submitted any more on the contexts of a communicator.
    pub(crate) fn poison(&mut self, instance: [u64; 2], epoch: u32) {
        let of = |context: &&mut OwnedContext| {
            (context.header.instance, context.header.epoch) == (instance, epoch)
        };
        self.list.iter_mut().filter(of).for_each(|context| context.poisoned = true);
    }

    /// Returns the index of the context that a launch names, and whether it had to be decoded. `ring` makes the
    /// producer of a ring by queue number, address and depth.
    ///
    /// # Errors
    /// `CONTEXT_*` with the byte offset at fault: bytes that are no good, an identity other than the launch's; what
    /// `ring` refuses.
    pub(crate) fn find<M: SharedMemory>(
        &mut self,
        memory: &M,
        launch: &Launch,
        ring: impl Fn(u16, u64, u32) -> Result<SubmissionRing, ErrorCode>,
    ) -> Result<(usize, bool), Fault> {
        self.clock += 1;
        let known = self.list.iter_mut().enumerate().find(|(_, context)| {
            context.is_at(launch.context.0)
                && context.header.instance == launch.instance
                && context.header.epoch == launch.epoch
        });
        if let Some((index, context)) = known {
            context.used = self.clock;
            return Ok((index, false));
        }
        let bytes = Self::fetch(&mut self.buffer, memory, launch)?;
        let context = Context::parse(bytes)
            .map_err(|error| Fault { code: error.code, detail: u64::from(error.offset) })?;
        if (context.header.instance, context.header.epoch) != (launch.instance, launch.epoch) {
            return Err(Fault { code: ErrorCode::CONTEXT_STALE, detail: u64::from(context.header.epoch) });
        }
        // A new context at the same place replaces the old one: its communicator is gone.
        self.list.iter_mut().filter(|context| context.is_at(launch.context.0)).for_each(OwnedContext::vacate);
        // Vacant places first. A poisoned context goes last: decoded anew it would be taken for a sound one.
        let oldest =
            self.list.iter_mut().enumerate().min_by_key(|(_, context)| (context.poisoned, context.used));
        let (index, place) = oldest.ok_or(ErrorCode::CONTEXT_CAPACITY)?;
        place.fill(&context, launch.context.0, ring)?;
        place.used = self.clock;
        Ok((index, true))
    }

    /// Copies the context's bytes out of shared memory, once.
    fn fetch<'a, M: SharedMemory>(
        buffer: &'a mut [u64; BUFFER_WORDS],
        memory: &M,
        launch: &Launch,
    ) -> Result<&'a [u8], Fault> {
        let (at, len) = launch.context;
        let too_long = Fault { code: ErrorCode::CONTEXT_CAPACITY, detail: u64::from(len) };
        let len = usize::try_from(len).map_err(|_| too_long)?;
        let bytes = buffer.as_mut_bytes().get_mut(..len).ok_or(too_long)?;
        memory.read(at, bytes)?;
        Ok(bytes)
    }
}
