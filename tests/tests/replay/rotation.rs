//! Steps over buffers that rotate: each step has the next pair, and every byte of every pair is checked.

use aicpu_tests::bench::{POISON, compare};
use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Communicator, Completed, Config, Operation, Place};
use host_launcher::{oracle, payload};
use wire::launch::{Algorithm, CacheOutcome, OpKind, Staging};
use wire::{DataType, ReduceOp};

pub(crate) const BYPASSED: u8 = CacheOutcome::Bypassed as u8;
pub(crate) const HIT: u8 = CacheOutcome::Hit as u8;
pub(crate) const MISS: u8 = CacheOutcome::Miss as u8;

/// An all-reduce of fp32 sums by ring in scratch.
pub(crate) fn ring(count: u64) -> Operation {
    Operation {
        op: OpKind::AllReduce,
        count,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        algorithm: Algorithm::Ring,
        staging: Staging::Scratch,
        ..Operation::default()
    }
}

/// One operation on all ranks, on one of the pairs.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) operation: Operation,
    pub(crate) in_place: bool,
    pub(crate) pair: usize,
    pub(crate) seed: u64,
}

/// What a buffer holds, by rank.
type Held = Vec<Vec<u8>>;

/// A communicator with pairs of input and output buffers at every rank.
pub(crate) struct Rotation<'c> {
    cluster: &'c Cluster,
    comm: Communicator<'c>,
    pairs: Vec<[SharedBuffer; 2]>,
    /// What each pair must hold.
    held: Vec<[Held; 2]>,
}

impl<'c> Rotation<'c> {
    pub(crate) fn new(cluster: &'c Cluster, config: Config, bytes: u64, pairs: usize) -> Self {
        let comm = Communicator::create(cluster, config).unwrap();
        let buffer = || SharedBuffer::new(cluster, bytes).unwrap();
        let pairs: Vec<_> = (0..pairs).map(|_| [buffer(), buffer()]).collect();
        let poison = || vec![vec![POISON; usize::try_from(bytes).unwrap()]; comm.size() as usize];
        let held = pairs.iter().map(|_| [poison(), poison()]).collect();
        let rotation = Self { cluster, comm, pairs, held };
        for pair in 0..rotation.pairs.len() {
            rotation.write(pair);
        }
        rotation
    }

    pub(crate) fn buffer(&self, pair: usize, which: usize) -> &SharedBuffer {
        &self.pairs[pair][which]
    }

    pub(crate) fn finish(self) {
        self.comm.destroy().unwrap();
        for buffer in self.pairs.into_iter().flatten() {
            buffer.free(self.cluster).unwrap();
        }
    }

    /// Runs a step, checks every byte of every pair, and returns the kernels' answers in the order of the ranks.
    pub(crate) fn run(&mut self, step: &Step) -> Vec<Completed> {
        let Step { operation, in_place, pair, seed } = step.clone();
        let Operation { dtype, reduce, .. } = operation;
        let ranks = self.comm.size();
        let elements = |rank| operation.elements(rank, ranks).unwrap()[0];
        let fill = |rank| payload::fill(seed, rank, elements(rank), dtype, reduce);
        let inputs: Held = (0..ranks).map(fill).collect();
        let chunk = self.comm.chunk_elements(&operation, in_place).unwrap();
        let expected = oracle::expected_among(&operation, chunk, &inputs, &self.cluster.topology().groups());
        for held in self.held[pair].iter_mut().flatten() {
            held.fill(POISON);
        }
        let target = usize::from(!in_place);
        let put = |held: &mut Vec<u8>, at: u64, bytes: &[u8]| {
            let at = usize::try_from(at).unwrap();
            held[at..at + bytes.len()].copy_from_slice(bytes);
        };
        for (rank, input) in (0..).zip(&inputs) {
            put(&mut self.held[pair][0][rank as usize], offsets(step, rank)[0], input);
        }
        self.write(pair);
        for rank in 0..ranks {
            let [from, to] = offsets(step, rank);
            let place = |which: usize, offset| Place { buffer: &self.pairs[pair][which], offset };
            self.comm.launch(rank, &operation, place(0, from), place(target, to)).unwrap();
        }
        let completed = self.comm.synchronize().unwrap();
        for (rank, output) in (0..).zip(&expected) {
            put(&mut self.held[pair][target][rank as usize], offsets(step, rank)[1], output);
        }
        self.check(step);
        completed
    }

    /// Runs a step and returns what the caches did for it, in the order of the ranks.
    pub(crate) fn outcomes(&mut self, step: &Step) -> Vec<u8> {
        self.run(step).iter().map(|done| done.status.cache).collect()
    }

    /// What an output holds on a rank, read from the device.
    pub(crate) fn output(&self, pair: usize, rank: u32) -> Vec<u8> {
        self.read(pair, 1, rank)
    }

    /// What the buffer of a pair that gets the results holds on a rank, read from the device.
    pub(crate) fn results(&self, pair: usize, in_place: bool, rank: u32) -> Vec<u8> {
        self.read(pair, usize::from(!in_place), rank)
    }

    fn write(&self, pair: usize) {
        for (buffer, held) in self.pairs[pair].iter().zip(&self.held[pair]) {
            for (rank, held) in (0..).zip(held) {
                self.cluster.npu(rank).write(buffer.addr(rank), held).unwrap();
            }
        }
    }

    fn read(&self, pair: usize, which: usize, rank: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.held[pair][which][rank as usize].len()];
        self.cluster.npu(rank).read(self.pairs[pair][which].addr(rank), &mut bytes).unwrap();
        bytes
    }

    fn check(&self, step: &Step) {
        for (pair, held) in self.held.iter().enumerate() {
            for (which, held) in held.iter().enumerate() {
                for (rank, held) in (0..).zip(held) {
                    let name = ["input", "output"][which];
                    if let Err(what) = compare(name, &self.read(pair, which, rank), held) {
                        panic!("{step:?}: pair {pair}, rank {rank}, {what}");
                    }
                }
            }
        }
    }
}

/// Where input and output begin: in place, the share of a rank lies at its place in the whole.
fn offsets(step: &Step, rank: u32) -> [u64; 2] {
    let (input, output) = if step.in_place { step.operation.in_place(rank) } else { (0, 0) };
    [input, output]
}
