//! A launch for the loaded kernel, in memory of the test's own, and the calls that it must make.

// UNSAFETY: loads a shared object and calls into it.
#![expect(unsafe_code, reason = "the boundary that is tested")]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::path::PathBuf;

use aicpu_tests::reference::{Collector, Labelled};
use aicpu_tests::variants::Variant;
use host_launcher::communicator::Operation;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use task_graph::{Caps, RegionId, RegionKind, Span, Task};
use templates::{Needs, Plan, Shape, Tables};
use wire::context::{ChannelEntry, Context, ContextHeader, RegionEntry, ThreadEntry};
use wire::launch::{Algorithm, Buffer, OpKind, PeerBuffer, Staging, VectorRow};
use wire::npu::{Protocol, Status, roce, sdma, ub};
use wire::param::KernelParam;
use wire::{ABI_MAJOR, Descriptor, DeviceAddr, ErrorCode, LaunchArgs, Reduction};
use zerocopy::{FromBytes, IntoBytes};

use crate::plane;

/// The entry of the shared object.
pub(crate) type Entry = unsafe extern "C" fn(*const KernelParam) -> u32;

/// Device address of the memory that host and kernel share: no pointer of this process.
pub(crate) const MEMORY: u64 = 0x6100_0000_0000;
const BYTES: usize = 1 << 20;
const ARGS: u64 = 0x0;
const STATUS: u64 = 0x200;
pub(crate) const THREADS: u64 = 0x1000;
pub(crate) const CHANNELS: u64 = 0x2000;
pub(crate) const PEERS: [u64; 2] = [0x3000, 0x5000];
pub(crate) const VECTOR: u64 = 0x7000;
pub(crate) const CONTEXT: u64 = 0x8000;
const SCRATCH: u64 = 0x7300_0000_0000;
const HOST: u64 = 0xbeef_0001;
/// Detail of a launch whose status was not written.
pub(crate) const NO_ANSWER: u64 = u64::MAX;
pub(crate) const TIMEOUT_S: u32 = 7;

/// Returns a file of the directory with the shared objects for this host, or says that there is none.
pub(crate) fn file(name: &str) -> Option<PathBuf> {
    let Some(dir) = std::env::var_os("AICPU_SO_DIR") else {
        eprintln!("SKIPPED: AICPU_SO_DIR names no shared objects; run `cargo xtask test`");
        return None;
    };
    Some(PathBuf::from(dir).join(std::env::consts::ARCH).join(name))
}

/// A loaded shared object.
pub(crate) struct Loaded {
    entry: Entry,
    _library: Library,
}

impl Loaded {
    pub(crate) fn open(name: &str) -> Option<Self> {
        let path = file(name)?;
        // SAFETY: it has no constructors.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // SAFETY: the entry has this type.
        let entry = *unsafe { library.get::<Entry>(b"AicpuTsLaunch\0") }.expect("the entry");
        Some(Self { entry, _library: library })
    }

    /// A kernel of this test's own: one that all tests shared would have to keep the contexts of all.
    pub(crate) fn kernel() -> Option<Self> {
        static COPIES: AtomicU32 = AtomicU32::new(0);
        let path = file("libaicpu_ts_kernel.so")?;
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("libaicpu_ts_kernel_{}_{number}.so", std::process::id());
        let copy = path.with_file_name(&name);
        std::fs::copy(&path, &copy).expect("the directory is writable");
        let loaded = Self::open(&name);
        std::fs::remove_file(&copy).expect("it is there");
        loaded
    }

    /// Calls the entry with a param as it is.
    pub(crate) fn call(&self, param: *const KernelParam) -> ErrorCode {
        // SAFETY: the pointer is null or a param whose memory is the rig's.
        let code = unsafe { (self.entry)(param) };
        ErrorCode(u16::try_from(code).expect("a code"))
    }
}

/// What is launched.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) operation: Operation,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) protocol: Protocol,
    pub(crate) in_place: bool,
    /// Bytes of scratch.
    pub(crate) scratch: u64,
    /// Longest transfer of copy engine and links, bytes.
    pub(crate) longest: u64,
    /// First rank of every server.
    pub(crate) servers: Vec<u32>,
}

impl Case {
    /// An operation of 1,000 fp32 elements in scratch, at the rank in the middle.
    pub(crate) fn new(op: OpKind, algorithm: Algorithm, ranks: u32) -> Self {
        let variant = Variant { op, algorithm, staging: Staging::Scratch };
        Self {
            operation: variant.operation(1000, ranks, 1),
            rank: ranks / 2,
            ranks,
            protocol: Protocol::Hccs,
            in_place: false,
            scratch: 1 << 20,
            longest: u64::MAX,
            // Two servers, the first of them the larger one.
            servers: if ranks > 1 { vec![0, ranks.div_ceil(2)] } else { vec![0] },
        }
    }

    /// Changes the operation.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Operation)) -> Self {
        change(&mut self.operation);
        self
    }

    /// The same with other counts.
    pub(crate) fn resized(self, count: u64) -> Self {
        let operation = Variant::resized(&self.operation, count, self.ranks, 1);
        Self { operation, ..self }
    }

    fn needs(&self) -> Needs {
        Needs::of(self.operation.algorithm, self.ranks)
    }

    fn link(&self) -> (u32, u32, u64) {
        let (types, ops, longest) = match self.protocol {
            Protocol::Hccs => (sdma::REDUCE_TYPES, sdma::REDUCE_OPS, sdma::MAX_LEN),
            Protocol::Roce => (roce::REDUCE_TYPES, roce::REDUCE_OPS, roce::MAX_LEN),
            Protocol::Ub => (ub::REDUCE_TYPES, ub::REDUCE_OPS, ub::MAX_LEN),
        };
        (types, ops, longest.min(self.longest))
    }

    pub(crate) fn caps(&self) -> Caps {
        let (reduce_types, reduce_ops, _) = self.link();
        Caps { reduce_types, reduce_ops, write_notify: self.protocol != Protocol::Roce }
    }

    /// Bytes of input and output of a rank.
    fn sizes(&self, rank: u32) -> [u64; 2] {
        let (input, output) = self.operation.buffer_bytes(rank, self.ranks).expect("small");
        [input, output]
    }

    /// The rows of this rank; none where the operation has no vector.
    fn rows(&self) -> &[VectorRow] {
        self.operation.vector.as_ref().map_or(&[], |vector| vector.rows(self.rank))
    }

    pub(crate) fn tables(&self) -> Tables<'_> {
        Tables { vector: self.rows(), servers: &self.servers, pods: &[0], script: None }
    }

    /// The plan, made here from the case alone.
    pub(crate) fn plan(&self) -> Result<Plan, ErrorCode> {
        let (types, ops, _) = self.link();
        let Operation { op, algorithm, levels, staging, root, count, dtype, reduce, .. } = self.operation;
        let inline = self.ranks == 1 || types >> dtype as u32 & 1 == 1 && ops >> reduce as u32 & 1 == 1;
        let shape = Shape {
            op,
            algorithm,
            levels,
            staging,
            rank: self.rank,
            ranks: self.ranks,
            root,
            count,
            dtype,
            reduce,
            scratch_len: self.scratch,
            threads: self.needs().threads,
            inline_reduce: inline,
            in_place: self.in_place && self.sizes(self.rank).iter().all(|bytes| *bytes > 0),
            chunk: 0,
            piece: 0,
        };
        Plan::new(&shape, &self.tables()).map_err(|error| error.code)
    }

    pub(crate) fn start_index(&self) -> u32 {
        u32::from(self.needs().main_notifies)
    }
}

/// Shared memory with one case in it.
pub(crate) struct Rig {
    pub(crate) case: Case,
    memory: Vec<Descriptor>,
    pub(crate) args: LaunchArgs,
    pub(crate) param: KernelParam,
    /// Input and output of this launch, and of each peer.
    buffers: [u64; 2],
    /// Number, at the plane, of the context's main thread.
    pub(crate) first_thread: u16,
}

/// Every rig is a communicator of its own.
static INSTANCES: AtomicU64 = AtomicU64::new(1);

impl Rig {
    /// Makes a launch of a communicator of its own.
    pub(crate) fn new(case: Case) -> Self {
        Self::of(case, [INSTANCES.fetch_add(1, Ordering::Relaxed), 0x5eed])
    }

    /// Makes a launch of this communicator.
    pub(crate) fn of(case: Case, instance: [u64; 2]) -> Self {
        let memory = vec![Descriptor { lanes: [0; 8] }; BYTES / 64];
        let mapped = memory.as_ptr().expose_provenance() as u64;
        let needs = case.needs();
        let mut comm = [0; 128];
        comm[..5].copy_from_slice(b"group");
        let param = KernelParam {
            magic: KernelParam::MAGIC,
            abi: ABI_MAJOR,
            size: 256,
            args: DeviceAddr(MEMORY + ARGS),
            status: DeviceAddr(MEMORY + STATUS),
            threads: DeviceAddr(MEMORY + THREADS),
            channels: DeviceAddr(MEMORY + CHANNELS),
            thread_count: u32::from(needs.threads),
            channel_count: case.ranks - 1,
            host_thread: HOST,
            memory: DeviceAddr(MEMORY),
            mapped,
            memory_len: BYTES as u64,
            flags: KernelParam::REDUCES_ALL,
            acquire_ms: 20_000,
            comm,
            reserved: [0; 5],
        };
        let mut rig = Self {
            case: case.clone(),
            memory,
            args: LaunchArgs::default(),
            param,
            buffers: [0; 2],
            first_thread: 0,
        };
        let context = rig.context(instance);
        rig.write(CONTEXT, &context);
        let threads: Vec<u64> = (0..u64::from(needs.threads)).map(|index| 0xa000 + 16 * index).collect();
        let channels: Vec<u64> = (1..u64::from(case.ranks)).map(|index| 0xc000 + 16 * index).collect();
        rig.write(THREADS, threads.as_bytes());
        rig.write(CHANNELS, channels.as_bytes());
        let peers = (0..case.ranks).filter(|peer| *peer != case.rank);
        let channels = channels.into_iter().zip(peers).collect();
        plane::with(|plane| *plane = plane::Plane { threads, channels, host: HOST, ..Default::default() });
        let (operation, rows) = (rig.case.operation.clone(), rig.case.rows().to_vec());
        rig.write(VECTOR, rows.as_bytes());
        rig.args = LaunchArgs {
            blocks: 1,
            sequence: 1,
            instance,
            epoch: 3,
            op: operation.op as u8,
            dtype: operation.dtype as u8,
            reduce: operation.reduce as u8,
            algorithm: operation.algorithm as u8,
            staging: operation.staging as u8,
            count: operation.count,
            root: operation.root,
            vector: DeviceAddr(if rows.is_empty() { 0 } else { MEMORY + VECTOR }),
            context: DeviceAddr(MEMORY + CONTEXT),
            context_len: u32::try_from(context.len()).expect("small"),
            start_notify: 40 + rig.case.start_index(),
            done_notify: 5,
            timeout_ms: TIMEOUT_S * 1000 - 1,
            ..LaunchArgs::default()
        };
        rig.bind(0);
        rig
    }

    fn context(&self, instance: [u64; 2]) -> Vec<u8> {
        let case = &self.case;
        let (reduce_types, reduce_ops, max_len) = case.link();
        let header = ContextHeader {
            instance,
            epoch: 3,
            rank: case.rank,
            ranks: case.ranks,
            sdma_max_len: sdma::MAX_LEN.min(case.longest),
            sdma_reduce_types: sdma::REDUCE_TYPES,
            sdma_reduce_ops: sdma::REDUCE_OPS,
            link_reduce_types: reduce_types,
            link_reduce_ops: reduce_ops,
            ..ContextHeader::default()
        };
        let needs = case.needs();
        let threads: Vec<_> = (0..needs.threads)
            .map(|index| ThreadEntry {
                ring: 0x4000_0000 + u64::from(index) * 0x10000,
                depth: 64,
                queue: index,
                notify_base: if index == 0 { 40 } else { 2000 + 2 * u32::from(index) },
                notify_count: if index == 0 { case.start_index() + 16 } else { 2 },
                ..ThreadEntry::default()
            })
            .collect();
        let regions: Vec<_> = (0..case.ranks)
            .map(|rank| RegionEntry {
                addr: address(SCRATCH, rank),
                len: case.scratch,
                token: 9,
                generation: 1,
                rank,
                server: u16::from(case.servers.get(1).is_some_and(|second| rank >= *second)),
                pod: 0,
            })
            .collect();
        let pair = case.protocol.uses_queue_pair();
        let channels: Vec<_> = (0..case.ranks)
            .filter(|peer| *peer != case.rank)
            .zip(0_u16..)
            .map(|(peer, index)| ChannelEntry {
                peer,
                index,
                protocol: case.protocol as u8,
                local_notify: 4000 + 3 * u32::from(index),
                remote_notify: 6000 + 3 * peer,
                reduce_types,
                reduce_ops,
                max_len,
                ring: if pair { 0x5000_0000 + u64::from(index) * 0x10000 } else { 0 },
                depth: if pair { 64 } else { 0 },
                queue: if pair { 256 + index } else { 0 },
                ..ChannelEntry::default()
            })
            .collect();
        let context = Context { header: &header, threads: &threads, regions: &regions, channels: &channels };
        let mut bytes = vec![0; Context::encoded_len(threads.len(), regions.len(), channels.len())];
        context.encode(&mut bytes).expect("as long as it says");
        bytes
    }

    /// Gives the launch other buffers, the `set`-th, at this rank and at the peers.
    pub(crate) fn bind(&mut self, set: u64) {
        let case = self.case.clone();
        let input = 0x7100_0000_0000 + set * 0x40_0000;
        let output = if case.in_place { input } else { 0x7200_0000_0000 + set * 0x40_0000 };
        let (mut own_input, mut own_output) = (address(input, case.rank), address(output, case.rank));
        if case.in_place {
            // The share of this rank lies at its place in the whole.
            let (in_input, in_output) = case.operation.in_place(case.rank);
            (own_input, own_output) = (own_input + in_input, own_output + in_output);
        }
        self.buffers = [input, output];
        let [input_len, output_len] = case.sizes(case.rank);
        let direct = case.operation.staging == Staging::Direct;
        for ((table, base), which) in PEERS.into_iter().zip([input, output]).zip([0, 1]) {
            let row = |rank| {
                let len = case.sizes(rank)[which];
                PeerBuffer { addr: DeviceAddr(address(base, rank)), len, token: 1, reserved: 0 }
            };
            let rows: Vec<_> = (0..case.ranks).map(row).collect();
            self.write(table, rows.as_bytes());
        }
        let buffer = |addr, len, table| Buffer {
            addr: DeviceAddr(addr),
            len,
            token: 1,
            reserved: 0,
            peers: DeviceAddr(if direct { MEMORY + table } else { 0 }),
        };
        self.args.input = buffer(own_input, input_len, PEERS[0]);
        self.args.output = buffer(own_output, output_len, PEERS[1]);
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let offset = usize::try_from(offset).expect("small");
        self.memory.as_mut_bytes()[offset..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Returns bytes of the memory.
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        &self.memory.as_bytes()[usize::try_from(offset).expect("small")..][..len]
    }

    /// Changes a byte of the context.
    pub(crate) fn damage_context(&mut self, offset: u64) {
        let at = usize::try_from(CONTEXT + offset).expect("small");
        self.memory.as_mut_bytes()[at] ^= 0x40;
    }

    /// Launches, and returns the answer and the lines of the calls.
    pub(crate) fn launch(&mut self, kernel: &Loaded) -> (Status, Vec<String>) {
        let args = self.args.sealed();
        self.launch_raw(kernel, &args)
    }

    /// Launches these arguments.
    pub(crate) fn launch_raw(&mut self, kernel: &Loaded, args: &LaunchArgs) -> (Status, Vec<String>) {
        self.write(ARGS, args.as_bytes());
        self.write(STATUS, &[0xff; 64]);
        plane::with(|plane| plane.lines.clear());
        let code = kernel.call(&raw const self.param);
        let at = usize::try_from(STATUS).expect("small");
        let written = &self.memory.as_bytes()[at..][..64];
        let status = if written == [0xff; 64] {
            Status { code: code.0, detail: NO_ANSWER, ..Status::default() }
        } else {
            Status::read_from_bytes(written).expect("64 bytes")
        };
        assert_eq!(code.0, status.code, "the entry returns what the status says");
        (status, plane::with(|plane| plane.lines.clone()))
    }

    /// Where a span lies.
    fn locate(&self, span: Span) -> u64 {
        let rank = span.region.peer().unwrap_or(self.case.rank);
        let base = match span.region.kind() {
            RegionKind::Scratch => address(SCRATCH, rank),
            RegionKind::Input if span.region == RegionId::INPUT => self.args.input.addr.0,
            RegionKind::Output if span.region == RegionId::OUTPUT => self.args.output.addr.0,
            RegionKind::Input => address(self.buffers[0], rank),
            RegionKind::Output => address(self.buffers[1], rank),
        };
        base + span.offset
    }

    /// The calls that the case must make: what the template writes, task by task, within the session.
    pub(crate) fn expected(&self, timeout: u32) -> Vec<String> {
        [self.prologue(timeout), self.tasks(timeout), epilogue()].concat()
    }

    /// The calls of the operation alone.
    pub(crate) fn tasks(&self, timeout: u32) -> Vec<String> {
        let plan = self.case.plan().expect("a case with a plan");
        let mut collector = Collector::new(self.case.caps());
        for chunk in 0..plan.chunks() {
            plan.emit(chunk, &self.case.tables(), &mut collector).expect("a collector takes everything");
        }
        let mut lines = Vec::new();
        for Labelled { thread, task, .. } in &collector.tasks {
            self.push(&mut lines, self.first_thread + thread.0, task, timeout);
        }
        lines
    }

    /// What comes before the tasks.
    pub(crate) fn prologue(&self, timeout: u32) -> Vec<String> {
        let start = self.case.start_index();
        vec!["acquire \"group\"".into(), "batch-start \"\"".into(), format!("wait 0 {start} {timeout}")]
    }

    fn push(&self, lines: &mut Vec<String>, thread: u16, task: &Task, timeout: u32) {
        let (_, _, link) = self.case.link();
        let own = sdma::MAX_LEN.min(self.case.longest);
        match *task {
            Task::LocalCopy { dst, src } => {
                for (dst, src, len, _) in self.cut(dst, src, own) {
                    lines.push(format!("copy {thread} {dst:#x} {src:#x} {len}"));
                }
            }
            Task::LocalReduce { dst, src, reduction } => {
                for (dst, src, len, _) in self.cut(dst, src, own) {
                    let how = elements(len, reduction);
                    lines.push(format!("reduce {thread} {dst:#x} {src:#x} {how}"));
                }
            }
            Task::Write { peer, dst, src, reduction, notify } => {
                for (dst, src, len, last) in self.cut(dst, src, link) {
                    let notify = notify.filter(|_| last).map_or("-".to_owned(), |at| (at as u32).to_string());
                    lines.push(match reduction {
                        None => format!("write {thread} {peer} {dst:#x} {src:#x} {len} {notify}"),
                        Some(how) => format!(
                            "write-reduce {thread} {peer} {dst:#x} {src:#x} {} {notify}",
                            elements(len, how)
                        ),
                    });
                }
            }
            Task::Read { peer, dst, src, reduction } => {
                for (dst, src, len, _) in self.cut(dst, src, link) {
                    lines.push(match reduction {
                        None => format!("read {thread} {peer} {dst:#x} {src:#x} {len}"),
                        Some(how) => {
                            format!("read-reduce {thread} {peer} {dst:#x} {src:#x} {}", elements(len, how))
                        }
                    });
                }
            }
            Task::ThreadRecord { thread: waiter, index } => {
                let waiter = self.first_thread + waiter.0;
                lines.push(format!("record {thread} {waiter} {index}"));
            }
            Task::ThreadWait { index } => lines.push(format!("wait {thread} {index} {timeout}")),
            Task::ChannelRecord { peer, notify } => {
                lines.push(format!("channel-record {thread} {peer} {}", notify as u32));
            }
            Task::ChannelWait { peer, notify } => {
                lines.push(format!("channel-wait {thread} {peer} {} {timeout}", notify as u32));
            }
            Task::WaitStart | Task::RecordDone | Task::RecordNext => panic!("templates write none"),
        }
    }

    /// Pieces of at most `most` bytes, whole granules of 512: destination, source, length, whether it is the last.
    fn cut(&self, dst: Span, src: Span, most: u64) -> Vec<(u64, u64, u64, bool)> {
        let (dst_at, src_at, piece) = (self.locate(dst), self.locate(src), most / 512 * 512);
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < src.len {
            let left = src.len - at;
            let len = if left > most { piece } else { left };
            pieces.push((dst_at + at, src_at + at, len, at + len == src.len));
            at += len;
        }
        pieces
    }
}

/// What comes behind the tasks.
pub(crate) fn epilogue() -> Vec<String> {
    vec!["record 0 host 5".into(), "batch-end \"\"".into(), "release \"group\"".into()]
}

fn elements(len: u64, Reduction { dtype, op }: Reduction) -> String {
    format!("{} {} {}", len / dtype.size_bytes(), dtype as u32, op as u32)
}

/// The address of a rank's part of something that every rank has.
fn address(base: u64, rank: u32) -> u64 {
    base + (u64::from(rank) << 32)
}
