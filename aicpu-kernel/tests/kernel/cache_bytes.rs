//! T28: a replay with moved buffers writes the descriptors that a fresh expansion at those addresses writes.

use hal::SharedMemory;
use proptest::prelude::*;
use templates::{Shape, Tables};
use wire::launch::{
    Algorithm, Buffer, CacheMode, CacheOutcome, ElementRange, OpKind, PeerBuffer, Staging, VectorRow,
};
use wire::npu::Protocol;
use wire::{DataType, Descriptor, DeviceAddr, ErrorCode, LaunchArgs, ReduceOp};
use zerocopy::IntoBytes;

use crate::rig::{INPUT, OUTPUT, Rig, Setup};

/// Pages with which 64 are left for graphs that are kept.
pub(crate) const PAGES: usize = aicpu_kernel::LARGEST_GRAPH_PAGES + 64;
/// Pages with which every graph of at most 16 ranks is kept: mesh by chunks over queue pairs takes the most.
const ROOM: usize = aicpu_kernel::LARGEST_GRAPH_PAGES + 256;
pub(crate) const BLOCKS: usize = 256;

/// An operation, but for where its buffers lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) op: OpKind,
    pub(crate) algorithm: Algorithm,
    pub(crate) staging: Staging,
    pub(crate) dtype: DataType,
    pub(crate) reduce: ReduceOp,
    pub(crate) in_place: bool,
    pub(crate) protocol: Protocol,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) count: u64,
    pub(crate) piece: u64,
    /// Longest transfer of every engine, bytes.
    pub(crate) longest: u64,
}

/// Where the buffers of all ranks lie in one launch, and what else changes from launch to launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) sequence: u32,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) token: u32,
    pub(crate) timeout_ms: u32,
    pub(crate) done_notify: u32,
}

pub(crate) const FIRST: Turn =
    Turn { sequence: 1, input: INPUT, output: OUTPUT, token: 40, timeout_ms: 5000, done_notify: 5 };
const MOVED: Turn = Turn {
    sequence: u32::MAX,
    input: OUTPUT + 0x7_0000_1230,
    output: INPUT - 0x55_5550,
    token: u32::MAX - 300,
    timeout_ms: 1,
    done_notify: 63,
};

impl Case {
    pub(crate) fn setup(&self) -> Setup {
        let pair_depth = if self.protocol.uses_queue_pair() { 512 } else { 0 };
        let threads = u16::try_from(self.ranks.max(2)).expect("at most 16");
        let (protocol, depth) = (self.protocol, 1024);
        let longest = self.longest;
        // Room for any size in one chunk: nobody writes there.
        let scratch = 256 << 20;
        Setup { threads, depth, protocol, pair_depth, longest, scratch, ..Setup::new(self.rank, self.ranks) }
    }

    fn shape(&self, rank: u32) -> Shape {
        Shape {
            op: self.op,
            algorithm: self.algorithm,
            levels: [None; 4],
            staging: self.staging,
            rank,
            ranks: self.ranks,
            root: self.root(),
            count: self.count,
            dtype: self.dtype,
            reduce: self.reduce,
            scratch_len: 0,
            threads: 1,
            inline_reduce: true,
            in_place: self.in_place,
            chunk: 0,
            piece: self.piece,
        }
    }

    fn root(&self) -> u32 {
        if self.op.is_rooted() { self.ranks / 2 } else { 0 }
    }

    /// The rows of one rank: blocks of up to `count` elements, some of none, with gaps between them.
    fn rows(&self, rank: u32) -> Vec<VectorRow> {
        let blocks = |from: u32, to: u32| (u64::from(from) * 5 + u64::from(to) * 3) % (self.count + 1);
        let at = |peer: u32, count| ElementRange { first: u64::from(peer) * (self.count + 1), count };
        let row = |peer: u32| match self.op {
            OpKind::AllGatherV | OpKind::ReduceScatterV => {
                let block = at(peer, blocks(peer, peer));
                VectorRow { send: block, receive: block }
            }
            _ => VectorRow { send: at(peer, blocks(rank, peer)), receive: at(peer, blocks(peer, rank)) },
        };
        if self.op.has_vector() { (0..self.ranks).map(row).collect() } else { Vec::new() }
    }

    /// Bytes of the input and output of one rank.
    fn lengths(&self, rank: u32) -> [u64; 2] {
        let rows = self.rows(rank);
        let tables = Tables { vector: &rows, ..Tables::default() };
        let extents = self.shape(rank).extents(&tables).expect("small").own;
        extents.map(|elements| elements * self.dtype.size_bytes())
    }

    /// The arguments of a launch whose buffers lie as `turn` says, with the tables of the peers' written.
    pub(crate) fn args(&self, rig: &mut Rig, turn: &Turn, cache: CacheMode) -> LaunchArgs {
        let setup = self.setup();
        let share = self.count * self.dtype.size_bytes();
        let [input_len, output_len] = self.lengths(self.rank);
        // Buffers of one rank begin here; in place, the share of a rank lies at its place in the whole.
        let places = |rank: u32| {
            let base = u64::from(rank) << 40;
            let (input, output) = (turn.input + base, turn.output + base);
            let shift = u64::from(rank) * share;
            let block = u64::from(rank) * (self.count + 1) * self.dtype.size_bytes();
            match self.op {
                _ if !self.in_place => [input, output],
                OpKind::AllGather | OpKind::Gather => [input + shift, input],
                OpKind::ReduceScatter | OpKind::Scatter => [input, input + shift],
                OpKind::AllGatherV => [input + block, input],
                OpKind::ReduceScatterV => [input, input + block],
                _ => [input, input],
            }
        };
        let rows = self.rows(self.rank);
        let vector = if rows.is_empty() { DeviceAddr(0) } else { setup.vector_table() };
        rig.fake().write(setup.vector_table(), rows.as_bytes()).expect("inside the window");
        let tables = setup.peer_tables();
        for (table, which) in tables.into_iter().zip([0, 1]) {
            let row = |rank: u32| PeerBuffer {
                addr: DeviceAddr(places(rank)[which]),
                len: self.lengths(rank)[which],
                token: turn.token + 2 * rank,
                reserved: 0,
            };
            let rows: Vec<_> = (0..self.ranks).map(row).collect();
            rig.fake().write(table, rows.as_bytes()).expect("inside the window");
        }
        let [input, output] = places(self.rank);
        let buffer =
            |addr, len, token, peers| Buffer { addr: DeviceAddr(addr), len, token, reserved: 0, peers };
        LaunchArgs {
            op: self.op as u8,
            dtype: self.dtype as u8,
            reduce: self.reduce as u8,
            algorithm: self.algorithm as u8,
            staging: self.staging as u8,
            cache: cache as u8,
            count: if rows.is_empty() { self.count } else { 0 },
            root: self.root(),
            vector,
            piece: self.piece,
            input: buffer(input, input_len, turn.token + 2 * self.rank, tables[0]),
            output: buffer(output, output_len, turn.token + 2 * self.rank, tables[1]),
            sequence: turn.sequence,
            timeout_ms: turn.timeout_ms,
            done_notify: turn.done_notify,
            ..setup.launch(0)
        }
    }

    /// Launches at two places, one after the other; returns what the rings got, all in all.
    fn launch(&self, cache: CacheMode, turns: [Turn; 2]) -> Result<[Launched; 2], u32> {
        let setup = self.setup();
        let mut rig = Rig::with_pages(&[setup], BLOCKS, ROOM);
        let mut launch = |turn| {
            let args = self.args(&mut rig, turn, cache);
            let status = rig.run(args);
            let descriptors = rig.drain(&setup);
            let outcome = CacheOutcome::try_from(status.cache).expect("a number the kernel has");
            if status.code == 0 { Ok(Launched { outcome, descriptors }) } else { Err(status.code) }
        };
        Ok([launch(&turns[0])?, launch(&turns[1])?])
    }

    /// Checks a replay against a fresh expansion; returns the descriptors compared, `None` for what is refused.
    fn check(&self, turns: [Turn; 2]) -> Option<usize> {
        let (cached, fresh) = (self.launch(CacheMode::On, turns), self.launch(CacheMode::Off, turns));
        let (cached, fresh) = match (cached, fresh) {
            (Ok(cached), Ok(fresh)) => (cached, fresh),
            (cached, fresh) => {
                let (refusal, same) = (cached.err(), fresh.err());
                assert_eq!(refusal, same, "{self:?}");
                // What is refused cannot be done; there is room for everything else.
                let refusal = ErrorCode(u16::try_from(refusal.expect("refused")).expect("a code"));
                let cannot = [ErrorCode::PLAN_STAGING, ErrorCode::LAUNCH_OVERLAP];
                assert!(cannot.contains(&refusal), "{self:?}: {refusal}");
                return None;
            }
        };
        assert_eq!(
            cached.each_ref().map(|launched| launched.outcome),
            [CacheOutcome::Miss, CacheOutcome::Hit]
        );
        assert_eq!(fresh.each_ref().map(|launched| launched.outcome), [CacheOutcome::Bypassed; 2]);
        for (cached, fresh) in cached.iter().zip(&fresh) {
            assert_eq!(cached.descriptors, fresh.descriptors, "{self:?}");
        }
        let [first, moved] = &cached;
        assert_ne!(first.descriptors, moved.descriptors, "{self:?}");
        Some(moved.descriptors.iter().map(|(_, entries)| entries.len()).sum())
    }
}

/// What one launch has written, queue after queue.
struct Launched {
    outcome: CacheOutcome,
    descriptors: Vec<(u16, Vec<Descriptor>)>,
}

/// Every operation by every algorithm and staging that exists.
pub(crate) fn variants() -> Vec<(OpKind, Algorithm, Staging)> {
    let mut list = Vec::new();
    for &op in OpKind::ALL {
        for &algorithm in Algorithm::ALL.iter().filter(|&&algorithm| templates::exists(op, algorithm)) {
            list.extend(Staging::ALL.iter().map(|&staging| (op, algorithm, staging)));
        }
    }
    list.retain(|&(op, algorithm, staging)| {
        let case = Case { op, algorithm, staging, in_place: false, ..SMALL };
        staging == Staging::Scratch || case.shape(0).works_directly()
    });
    list
}

/// An all-reduce of two ranks.
const SMALL: Case = Case {
    op: OpKind::AllReduce,
    algorithm: Algorithm::Ring,
    staging: Staging::Scratch,
    dtype: DataType::Fp32,
    reduce: ReduceOp::Sum,
    in_place: false,
    protocol: Protocol::Hccs,
    rank: 0,
    ranks: 2,
    count: 8,
    piece: 0,
    longest: u64::MAX,
};

/// Whether a variant exists only where links add on the way.
pub(crate) fn adds_on_the_way(op: OpKind, algorithm: Algorithm, staging: Staging) -> bool {
    let case = Case { op, algorithm, staging, ..SMALL };
    let shape = Shape { inline_reduce: false, ..case.shape(0) };
    staging == Staging::Direct && !shape.works_directly()
}

/// Types that the links reduce, and types that they leave to a core.
pub(crate) const TYPES: [(DataType, ReduceOp); 5] = [
    (DataType::Fp32, ReduceOp::Sum),
    (DataType::Bf16, ReduceOp::Max),
    (DataType::Int64, ReduceOp::Min),
    (DataType::Fp16, ReduceOp::Prod),
    (DataType::Int8, ReduceOp::Sum),
];

/// The full product of variant, aliasing, type, and 1 to 16 ranks; links and rank rotate.
#[test]
fn t28_replays_with_moved_buffers_write_what_a_fresh_expansion_writes() {
    let (mut replayed, mut refused, mut descriptors) = (0, 0, 0);
    for (op, algorithm, staging) in variants() {
        for ranks in 1..=16 {
            for (turn, (dtype, reduce)) in (0_u32..).zip(TYPES) {
                for in_place in [false, true] {
                    let turn = turn + ranks;
                    let links = if adds_on_the_way(op, algorithm, staging) { 1 } else { 3 };
                    let protocol = [Protocol::Hccs, Protocol::Roce, Protocol::Ub][turn as usize % links];
                    let reduce = if op.reduces() { reduce } else { ReduceOp::Sum };
                    let (rank, count) = (turn % ranks, 3 * u64::from(ranks) + 5);
                    let piece = u64::from(turn % 2) * 128;
                    let case = Case {
                        op,
                        algorithm,
                        staging,
                        dtype,
                        reduce,
                        in_place,
                        protocol,
                        rank,
                        ranks,
                        count,
                        piece,
                        longest: u64::MAX,
                    };
                    match case.check([FIRST, MOVED]) {
                        Some(count) => (replayed, descriptors) = (replayed + 1, descriptors + count),
                        None => {
                            // Types that links do not add, and places that cannot be one buffer.
                            assert!(in_place || adds_on_the_way(op, algorithm, staging), "{case:?}");
                            refused += 1;
                        }
                    }
                }
            }
        }
    }
    assert_eq!(replayed + refused, variants().len() * 16 * TYPES.len() * 2);
    assert!(replayed > 9000 && descriptors > 500_000, "{replayed} {descriptors}");
}

/// An address that every type may have, of memory that ends far below the wrap.
fn place() -> impl Strategy<Value = u64> {
    (1..1_u64 << 43).prop_map(|line| line * 16)
}

fn turn() -> impl Strategy<Value = Turn> {
    let rest = (any::<u32>(), 1..u32::MAX - 100, 1..=u32::MAX, 0..64_u32);
    (place(), 0..1_u64 << 20, any::<bool>(), rest).prop_map(
        |(input, distance, before, (sequence, token, timeout_ms, done_notify))| {
            // Not so near to each other that they overlap, and often near enough to look like one buffer.
            let distance = (distance + 0x10_0000) * 16;
            let output = if before { input.saturating_sub(distance).max(16) } else { input + distance };
            Turn { sequence, input: input.max(distance + 16), output, token, timeout_ms, done_notify }
        },
    )
}

proptest! {
    #[test]
    fn t28_replays_at_any_place(
        (op, algorithm, staging) in prop::sample::select(variants()),
        (dtype, reduce) in prop::sample::select(TYPES.to_vec()),
        in_place in any::<bool>(),
        protocol in prop::sample::select(vec![Protocol::Hccs, Protocol::Roce, Protocol::Ub]),
        (ranks, rank) in (1..=16_u32, 0..16_u32),
        (count, piece) in (0..1500_u64, 0..5_u64),
        turns in [turn(), turn()],
    ) {
        let reduce = if op.reduces() { reduce } else { ReduceOp::Sum };
        let case = Case {
            op, algorithm, staging, dtype, reduce, in_place, protocol,
            rank: rank % ranks, ranks, count, piece: piece * 128, longest: u64::MAX,
        };
        prop_assume!(turns[0].sequence != turns[1].sequence);
        case.check(turns);
    }
}
