//! One operation at a time over buffers with guards, every byte of every rank compared.

use host_launcher::buffer::SharedBuffer;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Communicator, Completed, Config, Operation, Place};
use host_launcher::stream::Stream;
use host_launcher::{Result, oracle, payload};
use wire::DeviceAddr;
use wire::launch::Staging;

/// Bytes on both sides of every buffer that nobody may write.
pub const GUARD: u64 = 64;
/// What guards and outputs are filled with before an operation.
pub const POISON: u8 = oracle::UNTOUCHED;

/// An operation and how its buffers lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The operation.
    pub operation: Operation,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// Elements by which the buffers are moved off their alignment to a line.
    pub shift: u64,
    /// Seed of the payload.
    pub seed: u64,
}

/// A communicator with an input and an output buffer at every rank.
#[derive(Debug)]
pub struct Bench<'c> {
    cluster: &'c Cluster,
    comm: Communicator<'c>,
    input: SharedBuffer,
    output: SharedBuffer,
}

/// Bytes before, at and after the place of a rank's buffer.
struct Image {
    at: DeviceAddr,
    bytes: Vec<u8>,
}

impl<'c> Bench<'c> {
    /// Makes a communicator and buffers of `bytes` bytes.
    ///
    /// # Errors
    /// Those of the launcher.
    pub fn new(cluster: &'c Cluster, config: Config, bytes: u64) -> Result<Self> {
        let comm = Communicator::create(cluster, config)?;
        let buffer = || SharedBuffer::new(cluster, bytes + 4 * GUARD);
        Ok(Self { cluster, comm, input: buffer()?, output: buffer()? })
    }

    /// Returns the communicator.
    pub fn communicator(&mut self) -> &mut Communicator<'c> {
        &mut self.comm
    }

    /// Returns the input buffer.
    #[must_use]
    pub fn input(&self) -> &SharedBuffer {
        &self.input
    }

    /// Gives everything back.
    ///
    /// # Errors
    /// Those of the launcher.
    pub fn finish(self) -> Result<()> {
        self.comm.destroy()?;
        self.input.free(self.cluster)?;
        self.output.free(self.cluster)
    }

    /// Gives the communicator back, and of the buffers what is still there.
    ///
    /// # Errors
    /// Those of [`Communicator::destroy`].
    pub fn abandon(self) -> Result<()> {
        self.comm.destroy()?;
        for buffer in [self.input, self.output] {
            // A test may have taken a registration away.
            drop(buffer.free(self.cluster));
        }
        Ok(())
    }

    /// Runs a case and checks it.
    ///
    /// # Errors
    /// What the launcher reports.
    ///
    /// # Panics
    /// When a byte is not what the oracle says, or was written that should not have been.
    pub fn run(&mut self, case: &Case) -> Result<Vec<Completed>> {
        self.run_with(case, |bench| bench.launch(case))
    }

    /// Runs a case and checks it, launched by `launch` once the buffers are filled.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_with(
        &mut self,
        case: &Case,
        launch: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Vec<Completed>> {
        let inputs = inputs(case, self.comm.size());
        let chunk = self.comm.chunk_elements(&case.operation, case.in_place)?;
        let groups = self.cluster.topology().groups();
        let expected = oracle::outputs(&case.operation, case.in_place, chunk, &inputs, &groups);
        let before: Vec<[Image; 2]> =
            (0..).zip(&inputs).map(|(rank, input)| self.prepare(case, rank, input)).collect();
        launch(self)?;
        let completed = self.comm.synchronize()?;
        for ((rank, before), expected) in (0_u32..).zip(&before).zip(&expected) {
            if let Err(what) = self.check(case, rank, before, expected) {
                panic!("{case:?}, {} ranks, rank {rank}: {what}", self.comm.size());
            }
        }
        Ok(completed)
    }

    /// Launches a case on every rank, without filling anything.
    ///
    /// # Errors
    /// What the launcher reports.
    pub fn launch(&mut self, case: &Case) -> Result<()> {
        (0..self.comm.size()).try_for_each(|rank| self.launch_on(rank, case))
    }

    /// Launches a case on one rank.
    ///
    /// # Errors
    /// What the launcher reports.
    pub fn launch_on(&mut self, rank: u32, case: &Case) -> Result<()> {
        self.launch_in(None, rank, case)
    }

    /// Launches a case on one rank, on a stream.
    ///
    /// # Errors
    /// What the launcher reports.
    pub fn launch_in(&mut self, stream: Option<&Stream>, rank: u32, case: &Case) -> Result<()> {
        let [input, output] = offsets(case, rank);
        let target = if case.in_place { &self.input } else { &self.output };
        let input = Place { buffer: &self.input, offset: input };
        let output = Place { buffer: target, offset: output };
        self.comm.launch_in(stream, rank, &case.operation, input, output)
    }

    /// Flips a bit of a byte of a rank's input buffer, counted from the end of its first guard.
    ///
    /// # Panics
    /// When the buffer is shorter.
    pub fn flip_input(&self, rank: u32, byte: u64) {
        let at = DeviceAddr(self.input.addr(rank).0 + GUARD + byte);
        let mut value = [0];
        self.cluster.npu(rank).read(at, &mut value).expect("the byte is there");
        self.cluster.npu(rank).write(at, &[value[0] ^ 1]).expect("the byte is there");
    }

    /// Poisons the buffers, writes the input, and returns what both hold.
    fn prepare(&self, case: &Case, rank: u32, input: &[u8]) -> [Image; 2] {
        let npu = self.cluster.npu(rank);
        let (from, to) = case.operation.largest_buffers(self.comm.size()).expect("small");
        let len = usize::try_from(GUARD * 3 + from.max(to)).expect("small");
        let mut images = [&self.input, &self.output]
            .map(|buffer| Image { at: buffer.addr(rank), bytes: vec![POISON; len] });
        let at = usize::try_from(offsets(case, rank)[0]).expect("small");
        images[0].bytes[at..at + input.len()].copy_from_slice(input);
        for image in &images {
            npu.write(image.at, &image.bytes).expect("the buffer is there");
        }
        images
    }

    /// Says what is wrong with the buffers of a rank after the operation.
    fn check(
        &self,
        case: &Case,
        rank: u32,
        before: &[Image; 2],
        expected: &[u8],
    ) -> core::result::Result<(), String> {
        let at = usize::try_from(offsets(case, rank)[1]).expect("small");
        let (target, other) = if case.in_place { (0, 1) } else { (1, 0) };
        let mut wanted = before[target].bytes.clone();
        wanted[at..at + expected.len()].copy_from_slice(expected);
        compare(if case.in_place { "buffer" } else { "output" }, &self.read(rank, &before[target]), &wanted)?;
        compare(
            if case.in_place { "spare" } else { "input" },
            &self.read(rank, &before[other]),
            &before[other].bytes,
        )
    }

    fn read(&self, rank: u32, image: &Image) -> Vec<u8> {
        let mut bytes = vec![0; image.bytes.len()];
        self.cluster.npu(rank).read(image.at, &mut bytes).expect("the buffer is there");
        bytes
    }
}

/// Returns every rank's input.
#[must_use]
pub fn inputs(case: &Case, ranks: u32) -> Vec<Vec<u8>> {
    let Operation { dtype, reduce, .. } = case.operation;
    let elements = |rank| case.operation.elements(rank, ranks).expect("small")[0];
    (0..ranks).map(|rank| payload::fill(case.seed, rank, elements(rank), dtype, reduce)).collect()
}

/// Where input and output begin in their buffers: in place, a rank's share lies at its place in the whole. Peers find
/// a buffer that they touch directly only at its start, so that one has no guard before it.
fn offsets(case: &Case, rank: u32) -> [u64; 2] {
    let element = case.operation.dtype.size_bytes();
    let direct = case.operation.staging == Staging::Direct;
    let first = if direct { 0 } else { GUARD + case.shift * element };
    let (input, output) = if case.in_place { case.operation.in_place(rank) } else { (0, 0) };
    [first + input, first + output]
}

/// Says where two images differ first.
///
/// # Errors
/// Name, byte and values of the first difference.
pub fn compare(name: &str, found: &[u8], expected: &[u8]) -> core::result::Result<(), String> {
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None if found.len() == expected.len() => Ok(()),
        None => Err(format!("{name}: {} bytes instead of {}", found.len(), expected.len())),
        Some(at) => Err(format!("{name}, byte {at}: {:#04x} instead of {:#04x}", found[at], expected[at])),
    }
}
