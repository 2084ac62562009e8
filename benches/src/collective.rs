//! A whole collective through launcher, kernels, rings and device model, ready to be repeated.

use core::fmt;
use core::hint::black_box;

use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Communicator, Config, Operation, Place};
use host_launcher::rank_table::RankTable;
use host_launcher::select::{Question, choose};
use host_launcher::settings::Settings;
use host_launcher::topology::Topology;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ReduceOp};
use zerocopy::IntoBytes;

/// Operations that are compared.
pub const OPERATIONS: [OpKind; 4] =
    [OpKind::AllReduce, OpKind::AllGather, OpKind::ReduceScatter, OpKind::AllToAll];
/// Numbers of ranks.
pub const RANKS: [u32; 3] = [2, 4, 8];
/// Bytes of the larger buffer of a rank.
pub const SIZES: [u64; 6] = [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20];

/// What is measured: an operation on fp32, summed where it reduces, in one server, inputs and outputs apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Operation.
    pub op: OpKind,
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes of the larger buffer of a rank; there is at least one element for each peer.
    pub bytes: u64,
}

impl Point {
    /// Returns all points.
    pub fn all() -> impl Iterator<Item = Self> {
        OPERATIONS.into_iter().flat_map(|op| {
            RANKS.into_iter().flat_map(move |ranks| SIZES.map(|bytes| Self { op, ranks, bytes }))
        })
    }

    /// Returns the elements that an operation counts: of the whole, or of a rank's share.
    #[must_use]
    pub fn count(self) -> u64 {
        let elements = (self.bytes / 4).max(1);
        if self.op == OpKind::AllReduce { elements } else { (elements / u64::from(self.ranks)).max(1) }
    }

    /// Hands `measure` what carries the operation out once, on all ranks; its results have been checked then.
    /// An algorithm and its staging may be demanded; else they are selected.
    ///
    /// # Panics
    /// When a result is wrong, or the operation cannot be carried out.
    pub fn prepared<T>(
        self,
        demand: Option<(Algorithm, Staging)>,
        measure: impl FnOnce(&mut dyn FnMut()) -> T,
    ) -> T {
        let topology = Topology::new(&RankTable::uniform(self.ranks, self.ranks).expect("a legal number"));
        let question = Question {
            op: self.op,
            count: self.count(),
            dtype: DataType::Fp32,
            reduce: ReduceOp::Sum,
            root: 0,
            levels: [None; 4],
            in_place: false,
            algorithm: demand.map(|(algorithm, _)| algorithm),
            staging: demand.map(|(_, staging)| staging),
        };
        let settings = Settings::from_env([]).expect("defaults");
        let choice = choose(&question, &topology, &settings).expect("an algorithm");
        let operation = Operation {
            op: question.op,
            count: question.count,
            algorithm: choice.algorithm,
            levels: choice.levels,
            staging: choice.staging,
            ..Operation::default()
        };
        let (input_len, output_len) = operation.buffer_bytes(0, self.ranks).expect("a size");
        // Staged work takes as much again for each rank, at most.
        let scratch = Config::default().buffer_bytes;
        let memory = input_len + output_len + scratch + (8 << 20);
        let cluster = Cluster::start(topology, memory, &Aicpu::Thread).expect("a cluster");
        let mut comm = Communicator::create(&cluster, Config::default()).expect("a communicator");
        let input = SharedBuffer::new(&cluster, input_len).expect("memory");
        let output = SharedBuffer::new(&cluster, output_len).expect("memory");
        for rank in 0..self.ranks {
            let values = vec![value(rank); usize::try_from(input_len / 4).expect("fits")];
            cluster.npu(rank).write(input.addr(rank), values.as_bytes()).expect("in the buffer");
        }
        let mut once = || {
            let at = |buffer| Place { buffer, offset: 0 };
            comm.launch_all(&operation, at(&input), at(&output)).expect("launches");
            black_box(comm.synchronize().expect("completes"));
        };
        once();
        for rank in 0..self.ranks {
            let mut values = vec![0.0_f32; usize::try_from(output_len / 4).expect("fits")];
            cluster.npu(rank).read(output.addr(rank), values.as_mut_bytes()).expect("in the buffer");
            self.check(&values);
        }
        measure(&mut once)
    }

    /// Checks what a rank has got, when each rank's input consists of its number plus one.
    ///
    /// # Panics
    /// When a value is wrong.
    pub fn check(self, output: &[f32]) {
        if self.op.reduces() {
            let sum = (0..self.ranks).map(value).sum::<f32>();
            assert!(output.iter().all(|found| *found == sum), "{self}: a sum is not {sum}");
            return;
        }
        let share = usize::try_from(self.count()).expect("fits");
        for (rank, block) in (0..).zip(output.chunks(share)) {
            assert!(
                block.iter().all(|found| *found == value(rank)),
                "{self}: what rank {rank} sent is wrong"
            );
        }
    }
}

/// Every element of a rank's input.
fn value(rank: u32) -> f32 {
    f32::from(u16::try_from(rank + 1).expect("few ranks"))
}

/// Prints `all-reduce-8-1024`.
impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.op, self.ranks, self.bytes)
    }
}
