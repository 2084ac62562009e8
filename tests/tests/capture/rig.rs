//! A communicator, buffers, and what a sequence of operations does to them according to the oracle.

use core::sync::atomic::Ordering;
use core::time::Duration;

use aicpu_tests::bench::{POISON, compare};
use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Communicator, Completed, Config, Operation, Program, Slot};
use host_launcher::{Result, oracle, payload};
use wire::launch::{Algorithm, CacheOutcome, OpKind, Staging};
use wire::npu::LAUNCH_TAIL;
use wire::{DataType, ReduceOp};

/// A communicator's settings: what hangs ends before a test runner would.
pub(crate) fn config() -> Config {
    Config { timeout: Duration::from_secs(20), ..Config::default() }
}

/// An operation on int32, exact in any order.
pub(crate) fn operation(op: OpKind, algorithm: Algorithm, count: u64) -> Operation {
    let (dtype, reduce) = (DataType::Int32, ReduceOp::Sum);
    Operation { op, count, dtype, reduce, algorithm, staging: Staging::Scratch, ..Operation::default() }
}

/// An operation of a sequence, from one slot to another.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) operation: Operation,
    pub(crate) input: Slot,
    pub(crate) output: Slot,
}

/// An operation from the start of one slot to the start of another.
pub(crate) fn step(operation: Operation, input: u32, output: u32) -> Step {
    Step { operation, input: Slot::whole(input), output: Slot::whole(output) }
}

/// All-reduce, all-gather of the result, reduce-scatter of that: each needs the one before.
pub(crate) fn chain(count: u64) -> [Step; 3] {
    [
        step(operation(OpKind::AllReduce, Algorithm::HalvingDoubling, count), 0, 1),
        step(operation(OpKind::AllGather, Algorithm::Nhr, count), 1, 2),
        step(operation(OpKind::ReduceScatter, Algorithm::Ring, count), 2, 3),
    ]
}

/// A communicator and the cluster it is on.
pub(crate) struct Rig<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) comm: Communicator<'c>,
}

impl<'c> Rig<'c> {
    pub(crate) fn new(cluster: &'c Cluster, config: Config) -> Self {
        Self { cluster, comm: Communicator::create(cluster, config).unwrap() }
    }

    pub(crate) fn capture(&mut self, steps: &[Step]) -> Result<Program> {
        let mut capture = self.comm.capture()?;
        for Step { operation, input, output } in steps {
            capture.add(operation, *input, *output)?;
        }
        capture.end()
    }

    pub(crate) fn buffers<const N: usize>(&self, bytes: u64) -> [SharedBuffer; N] {
        core::array::from_fn(|_| SharedBuffer::new(self.cluster, bytes).unwrap())
    }

    /// Writes new payload to the first slot and poison to the others.
    pub(crate) fn fill(&self, seed: u64, slots: &[&SharedBuffer]) {
        for (slot, buffer) in slots.iter().enumerate() {
            let elements = buffer.len() / DataType::Int32.size_bytes();
            for rank in 0..self.comm.size() {
                let bytes = match slot {
                    0 => payload::fill(seed, rank, elements, DataType::Int32, ReduceOp::Sum),
                    _ => vec![POISON; usize::try_from(buffer.len()).unwrap()],
                };
                self.cluster.npu(rank).write(buffer.addr(rank), &bytes).unwrap();
            }
        }
    }

    /// Returns what a buffer holds at every rank.
    pub(crate) fn read(&self, buffer: &SharedBuffer) -> Vec<Vec<u8>> {
        let read = |rank| {
            let mut bytes = vec![0; usize::try_from(buffer.len()).unwrap()];
            self.cluster.npu(rank).read(buffer.addr(rank), &mut bytes).unwrap();
            bytes
        };
        (0..self.comm.size()).map(read).collect()
    }

    /// Returns what every slot must hold at every rank after the steps.
    pub(crate) fn expected(&self, steps: &[Step], slots: &[&SharedBuffer]) -> Vec<Vec<Vec<u8>>> {
        let mut images: Vec<_> = slots.iter().map(|buffer| self.read(buffer)).collect();
        let at = |slot: Slot, rank: usize| {
            usize::try_from(slot.offset).unwrap() + usize::try_from(slot.stride).unwrap() * rank
        };
        for Step { operation, input, output } in steps {
            let part = |(rank, image): (usize, &Vec<u8>)| {
                let number = u32::try_from(rank).unwrap();
                let (from, _) = operation.buffer_bytes(number, self.comm.size()).unwrap();
                image[at(*input, rank)..at(*input, rank) + usize::try_from(from).unwrap()].to_vec()
            };
            let inputs: Vec<_> = images[input.index as usize].iter().enumerate().map(part).collect();
            let chunk = self.comm.chunk_elements(operation, input.index == output.index).unwrap();
            let results =
                oracle::expected_among(operation, chunk, &inputs, &self.cluster.topology().groups());
            for (rank, (image, result)) in images[output.index as usize].iter_mut().zip(&results).enumerate()
            {
                image[at(*output, rank)..at(*output, rank) + result.len()].copy_from_slice(result);
            }
        }
        images
    }

    /// Compares every byte of every slot at every rank.
    pub(crate) fn check(&self, expected: &[Vec<Vec<u8>>], slots: &[&SharedBuffer], what: &str) {
        for (slot, (buffer, images)) in slots.iter().zip(expected).enumerate() {
            for (rank, (found, image)) in self.read(buffer).iter().zip(images).enumerate() {
                compare("slot", found, image)
                    .unwrap_or_else(|error| panic!("{what}, slot {slot}, rank {rank}: {error}"));
            }
        }
    }

    /// Fills, replays, waits, and checks every byte; one launch per rank.
    pub(crate) fn replay(
        &mut self,
        seed: u64,
        program: &Program,
        steps: &[Step],
        slots: &[&SharedBuffer],
    ) -> Vec<Completed> {
        self.fill(seed, slots);
        let expected = self.expected(steps, slots);
        let before = self.launches();
        self.comm.replay(program, slots).unwrap();
        let completed = self.comm.synchronize().unwrap_or_else(|error| panic!("replay {seed}: {error}"));
        let after = self.launches();
        assert!(before.iter().zip(&after).all(|(before, after)| after - before == 1), "one launch per rank");
        assert_eq!(completed.len(), after.len(), "one answer per rank");
        self.check(&expected, slots, &format!("replay {seed}"));
        completed
    }

    /// Launches that each rank has ever been posted.
    fn launches(&self) -> Vec<u64> {
        // ORDER: only this thread posts.
        let tail = |rank| self.cluster.npu(rank).window().word(LAUNCH_TAIL).load(Ordering::Relaxed);
        (0..self.comm.size()).map(tail).collect()
    }

    pub(crate) fn finish(self, buffers: impl IntoIterator<Item = SharedBuffer>) {
        self.comm.destroy().unwrap();
        buffers.into_iter().for_each(|buffer| buffer.free(self.cluster).unwrap());
    }
}

/// Three sets of buffers of 1 KiB elements per rank take turns, each slot at its own pace.
pub(crate) fn rotate(cluster: &Cluster, steps: &[Step], slots: usize, replays: u64, bytes: u64) {
    let free = cluster.npu(0).free_bytes();
    let mut rig = Rig::new(cluster, config());
    let sets: Vec<Vec<SharedBuffer>> =
        (0..3).map(|_| (0..slots).map(|_| SharedBuffer::new(cluster, bytes).unwrap()).collect()).collect();
    let program = rig.capture(steps).unwrap();
    for replay in 0..replays {
        let set = |slot: usize| (usize::try_from(replay).unwrap() * (slot + 1)) % sets.len();
        let bound: Vec<_> = (0..slots).map(|slot| &sets[set(slot)][slot]).collect();
        let completed = rig.replay(replay, &program, steps, &bound);
        if replay > 0 && steps.iter().all(|step| step.operation.chunk == 0) {
            let hit = CacheOutcome::Hit as u8;
            assert!(
                completed.iter().all(|answer| answer.status.cache == hit),
                "replay {replay}: {completed:?}"
            );
        }
    }
    rig.comm.free_program(&program).unwrap();
    rig.finish(sets.into_iter().flatten());
    assert_eq!(cluster.npu(0).free_bytes(), free, "everything is given back");
}
