//! One rank's kernel on the host, with the bench in the place of the other ranks, the host and the device.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use aicpu_kernel::{Block, DEFAULT_BLOCKS, Kernel, LARGEST_GRAPH_PAGES, Page};
use device_model::fabric::{BASE_STEP, Fabric, FabricConfig};
use device_model::platform::ModelPlatform;
use wire::launch::{Algorithm, Buffer, CacheOutcome, OpKind, PeerBuffer, Staging};
use wire::npu::{HEAP, LAUNCH_HEAD, LAUNCH_SLOTS, LAUNCH_TAIL, LAUNCHES, STATUSES, Status};
use wire::{DataType, DeviceAddr, LaunchArgs};
use zerocopy::{FromZeros, IntoBytes};

use crate::Tables;
use crate::submission::consume;

/// Tables of the peers' inputs and outputs, between the context and the rings.
const PEERS: [u64; 2] = [HEAP + 0x2_0000, HEAP + 0x3_0000];
/// User buffers lie outside the window: the kernel never touches them.
const BUFFERS: [u64; 2] = [0x7000_0000_0000, 0x7100_0000_0000];

/// Bytes of a piece.
const PIECE: u64 = 512;

type BoxedKernel = Box<Kernel<ModelPlatform, Box<[Block]>, Box<[Page]>>>;

/// A kernel with a context, and one operation that is launched again and again on it.
#[derive(Debug)]
pub struct Rank {
    kernel: BoxedKernel,
    fabric: Fabric,
    queues: u16,
    args: LaunchArgs,
    posted: u64,
}

impl Rank {
    /// Starts a kernel and launches a direct two-shot all-reduce twice, so that its graph is in the cache.
    /// The more ranks and pieces of each slice, the more descriptors.
    ///
    /// # Panics
    /// When the second launch is no hit.
    #[must_use]
    pub fn new(ranks: u32, pieces: u64) -> Self {
        let algorithm = Algorithm::MeshTwoShot;
        let len = u64::from(ranks) * pieces * PIECE;
        let tables = Tables::new(algorithm, ranks);
        let fabric = Fabric::create(&FabricConfig::new(1, 16 << 20)).expect("memory");
        let window = fabric.window(0);
        let context = tables.encode();
        window.write(HEAP, &context);
        let buffer = |index: usize| Buffer {
            addr: DeviceAddr(BUFFERS[index]),
            len,
            token: 7,
            peers: DeviceAddr(BASE_STEP + PEERS[index]),
            ..Buffer::default()
        };
        for (table, base) in PEERS.into_iter().zip(BUFFERS) {
            let row = |rank: u64| PeerBuffer {
                addr: DeviceAddr(base + (rank << 32)),
                len,
                token: 200,
                reserved: 0,
            };
            let rows: Vec<_> = (0..u64::from(ranks)).map(row).collect();
            window.write(table, rows.as_bytes());
        }
        let mut kernel = Box::new(Kernel::new(
            ModelPlatform::new(&fabric, 0),
            vec![Block::EMPTY; DEFAULT_BLOCKS].into_boxed_slice(),
            vec![Page::EMPTY; 2 * LARGEST_GRAPH_PAGES].into_boxed_slice(),
        ));
        kernel.start().expect("the window is there");
        let args = LaunchArgs {
            blocks: 1,
            instance: tables.header.instance,
            epoch: tables.header.epoch,
            op: OpKind::AllReduce as u8,
            dtype: DataType::Fp32 as u8,
            algorithm: algorithm as u8,
            staging: Staging::Direct as u8,
            count: len / DataType::Fp32.size_bytes(),
            piece: PIECE,
            context: DeviceAddr(BASE_STEP + HEAP),
            context_len: u32::try_from(context.len()).expect("small"),
            input: buffer(0),
            output: buffer(1),
            start_notify: tables.threads[0].notify_base + tables.threads[0].notify_count - 1,
            timeout_ms: 1000,
            ..LaunchArgs::default()
        };
        let queues = u16::try_from(tables.threads.len()).expect("few threads");
        let mut rank = Self { kernel, fabric, queues, args, posted: 0 };
        rank.time(2);
        let status = rank.status();
        assert_eq!((status.code, status.cache), (0, CacheOutcome::Hit as u8), "the second launch hits");
        rank
    }

    /// Returns the answer to the newest launch.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status = Status::new_zeroed();
        let slot = (self.posted - 1) % LAUNCH_SLOTS;
        self.fabric.window(0).read(STATUSES + slot * size_of::<Status>() as u64, status.as_mut_bytes());
        status
    }

    /// Returns the launch arguments that were posted last, as they lie in the mailbox.
    #[must_use]
    pub fn posted(&self) -> LaunchArgs {
        self.args.sealed()
    }

    /// Times `launches` launches, each from the mailbox to the last doorbell and the answer, not the posting.
    pub fn time(&mut self, launches: u64) -> Duration {
        let mut spent = Duration::ZERO;
        let mut left = launches;
        while left > 0 {
            let batch = left.min(LAUNCH_SLOTS);
            (0..batch).for_each(|_| self.post());
            let start = Instant::now();
            self.serve();
            spent += start.elapsed();
            left -= batch;
        }
        spent
    }

    /// Posts the operation with other buffers and another sequence than the time before.
    fn post(&mut self) {
        let slot = self.posted % LAUNCH_SLOTS;
        self.posted += 1;
        self.args.sequence = self.args.sequence.wrapping_add(1);
        let shift = self.posted % 1024 * 512;
        for (buffer, base) in [&mut self.args.input, &mut self.args.output].into_iter().zip(BUFFERS) {
            buffer.addr = DeviceAddr(base + shift);
        }
        self.fabric
            .window(0)
            .write(LAUNCHES + slot * size_of::<LaunchArgs>() as u64, self.args.sealed().as_bytes());
        self.fabric.window(0).word(LAUNCH_TAIL).store(self.posted, Ordering::Release);
    }

    /// Lets the kernel answer everything posted, on a device that consumes at once.
    fn serve(&mut self) {
        while self.fabric.window(0).word(LAUNCH_HEAD).load(Ordering::Acquire) < self.posted {
            self.kernel.poll();
            (0..self.queues).for_each(|queue| consume(&self.fabric, queue));
        }
    }
}
