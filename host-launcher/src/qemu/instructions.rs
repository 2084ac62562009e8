//! How many instructions the aarch64 kernel needs, the same in every run.
//!
//! The image runs on a machine that counts instructions, where the kernel's own measurements are numbers of them. No
//! time is measured here, and nothing of another machine follows from the numbers but their changes.

use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ReduceOp};

use crate::buffer::SharedBuffer;
use crate::cluster::{Aicpu, Cluster};
use crate::communicator::{Communicator, Config, Operation, Place};
use crate::error::Result;
use crate::image::Image;
use crate::qemu::Options;
use crate::rank_table::RankTable;
use crate::run::memory_for;
use crate::topology::Topology;

/// Ranks of the operation that is counted, on one server.
const RANKS: u32 = 8;
/// Elements of it: 1 MiB.
const COUNT: u64 = 1 << 18;

/// One thing that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// What and of which operation, as `expand/nhr-8`.
    pub name: String,
    /// Descriptors of rank 0.
    pub descriptors: u64,
    /// Instructions of rank 0 for all of them.
    pub instructions: u64,
}

impl Count {
    /// Returns the instructions for one descriptor.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "both are far below 2^52")]
    pub fn per_descriptor(&self) -> f64 {
        self.instructions as f64 / self.descriptors.max(1) as f64
    }
}

/// Counts expansion and submission of an all-reduce by every algorithm, each on a machine of its own.
///
/// # Errors
/// Those of the image, the emulator and the operation.
pub fn count(image: Image, options: &Options) -> Result<Vec<Count>> {
    let aicpu = Aicpu::Qemu { image, options: Options { count_instructions: true, ..options.clone() } };
    let staged = Algorithm::ALL.iter().map(|algorithm| (*algorithm, Staging::Scratch));
    let cases = staged.chain([(Algorithm::MeshTwoShot, Staging::Direct)]);
    let mut counts = Vec::new();
    for (algorithm, staging) in cases {
        counts.extend(count_one(&aicpu, algorithm, staging)?);
    }
    Ok(counts)
}

fn count_one(aicpu: &Aicpu, algorithm: Algorithm, staging: Staging) -> Result<[Count; 2]> {
    let operation = Operation {
        op: OpKind::AllReduce,
        count: COUNT,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        algorithm,
        staging,
        chunk: 0,
        piece: 0,
    };
    let bytes = COUNT * operation.dtype.size_bytes();
    let config = Config { buffer_bytes: 2 * u64::from(RANKS) * bytes, ..Config::default() };
    let memory = memory_for(&operation, RANKS, config.buffer_bytes, 1).unwrap_or(u64::MAX);
    let cluster = Cluster::start(Topology::new(&RankTable::uniform(RANKS, RANKS)?), memory, aicpu)?;
    let mut comm = Communicator::create(&cluster, config)?;
    let buffers = [SharedBuffer::new(&cluster, bytes)?, SharedBuffer::new(&cluster, bytes)?];
    let [input, output] = buffers.each_ref().map(|buffer| Place { buffer, offset: 0 });
    comm.launch_all(&operation, input, output)?;
    let answers = comm.synchronize()?;
    // Every rank answers; the first answer is that of rank 0.
    let status = answers.first().map(|done| done.status).unwrap_or_default();
    let descriptors = u64::from(status.sqes) + u64::from(status.wqes);
    let direct = if staging == Staging::Direct { "-direct" } else { "" };
    let name = |what| format!("{what}/{}{direct}-{RANKS}", algorithm.name());
    Ok([("expand", status.expand_ns), ("submit", status.submit_ns)].map(|(what, instructions)| Count {
        name: name(what),
        descriptors,
        instructions,
    }))
}
