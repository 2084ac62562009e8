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
/// Bytes of a piece where transfers are cut, so that there are many descriptors.
const PIECE: u64 = 2048;

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

/// Counts an all-reduce by every algorithm, each on a machine of its own: its expansion, its submission after that,
/// and its replay, from the launch to the last doorbell.
///
/// # Errors
/// Those of the image, the emulator and the operation.
pub fn count(image: Image, options: &Options) -> Result<Vec<Count>> {
    let aicpu = Aicpu::Qemu { image, options: Options { count_instructions: true, ..options.clone() } };
    let exist = Algorithm::ALL.iter().filter(|algorithm| templates::exists(OpKind::AllReduce, **algorithm));
    let staged = exist.map(|algorithm| (*algorithm, Staging::Scratch, 0));
    let direct = [0, PIECE].map(|piece| (Algorithm::MeshTwoShot, Staging::Direct, piece));
    let mut counts = Vec::new();
    for (algorithm, staging, piece) in staged.chain(direct) {
        counts.extend(count_one(&aicpu, algorithm, staging, piece)?);
    }
    Ok(counts)
}

fn count_one(aicpu: &Aicpu, algorithm: Algorithm, staging: Staging, piece: u64) -> Result<[Count; 3]> {
    let operation = Operation {
        op: OpKind::AllReduce,
        count: COUNT,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        algorithm,
        staging,
        piece,
        ..Operation::default()
    };
    let bytes = COUNT * operation.dtype.size_bytes();
    let config = Config { buffer_bytes: 2 * u64::from(RANKS) * bytes, ..Config::default() };
    let memory = memory_for(&operation, RANKS, config.buffer_bytes, 1).unwrap_or(u64::MAX);
    let cluster = Cluster::start(Topology::new(&RankTable::uniform(RANKS, RANKS)?), memory, aicpu)?;
    let mut comm = Communicator::create(&cluster, config)?;
    let buffers = [SharedBuffer::new(&cluster, bytes)?, SharedBuffer::new(&cluster, bytes)?];
    let [input, output] = buffers.each_ref().map(|buffer| Place { buffer, offset: 0 });
    let mut launch = || {
        comm.launch_all(&operation, input, output)?;
        // Every rank answers; the first answer is that of rank 0.
        Ok(comm.synchronize()?.first().map(|done| done.status).unwrap_or_default())
    };
    let (first, replay) = (launch()?, launch()?);
    let descriptors = u64::from(first.sqes) + u64::from(first.wqes);
    let direct = if staging == Staging::Direct { "-direct" } else { "" };
    let cut = if piece > 0 { "-cut" } else { "" };
    let name = |what| format!("{what}/{}{direct}{cut}-{RANKS}", algorithm.name());
    let counts = [
        ("expand", first.expand_ns),
        ("submit", first.submit_ns),
        ("replay", replay.expand_ns + replay.submit_ns),
    ];
    Ok(counts.map(|(what, instructions)| Count { name: name(what), descriptors, instructions }))
}
