//! Algorithms written in Rust: what a file says, as calls.
//!
//! This interface is stable: what it builds is checked as a file is, and runs on kernels that were built before it.

use wire::launch::OpKind;

use crate::{Algorithm, Buffer, Gpu, Kind, Place, Step, ThreadBlock};

/// An algorithm that is being written. Buffers have as many chunks as the operation says; scratch grows as it is used.
#[derive(Clone, Debug)]
pub struct Builder {
    algorithm: Algorithm,
}

/// A thread block that is being written: its steps are carried out one after the other.
#[derive(Debug)]
pub struct BlockBuilder<'a> {
    gpu: &'a mut Gpu,
    block: usize,
}

/// A step that another may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRef {
    block: usize,
    step: usize,
}

impl Builder {
    /// Begins an algorithm of `op` on `ranks` ranks that cuts the whole operation into `chunks` chunks. It works out of
    /// place until [`places`](Self::places) says more.
    #[must_use]
    pub fn new(name: &str, op: OpKind, ranks: u32, chunks: u32) -> Self {
        let (in_place, out_of_place) = (false, true);
        let gpus = vec![Gpu::default(); ranks as usize];
        let mut algorithm = Algorithm { name: name.to_owned(), op, chunks, in_place, out_of_place, gpus };
        let [input, output] = algorithm.extents();
        algorithm.gpus.iter_mut().for_each(|gpu| gpu.chunks = [input, output, 0]);
        Self { algorithm }
    }

    /// Says whether it works in place, and out of place.
    #[must_use]
    pub fn places(mut self, in_place: bool, out_of_place: bool) -> Self {
        (self.algorithm.in_place, self.algorithm.out_of_place) = (in_place, out_of_place);
        self
    }

    /// Begins a thread block of a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn block(&mut self, rank: u32) -> BlockBuilder<'_> {
        let gpu = &mut self.algorithm.gpus[rank as usize];
        gpu.blocks.push(ThreadBlock::default());
        BlockBuilder { block: gpu.blocks.len() - 1, gpu }
    }

    /// Goes on with the thread block of a rank that has a step.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn resume(&mut self, rank: u32, step: StepRef) -> BlockBuilder<'_> {
        BlockBuilder { block: step.block, gpu: &mut self.algorithm.gpus[rank as usize] }
    }

    /// Returns the algorithm, of which nothing has been checked.
    #[must_use]
    pub fn finish(self) -> Algorithm {
        self.algorithm
    }
}

/// A chunk, as builders take it.
type Chunk = (Buffer, u32);

impl BlockBuilder<'_> {
    fn thread(&mut self) -> &mut ThreadBlock {
        &mut self.gpu.blocks[self.block]
    }

    /// Sends go to this rank.
    pub fn to(&mut self, peer: u32) -> &mut Self {
        self.thread().send = Some(peer);
        self
    }

    /// Receives come from this rank.
    pub fn from(&mut self, peer: u32) -> &mut Self {
        self.thread().receive = Some(peer);
        self
    }

    /// Sends and receives go over this channel of the pair; 0 where nothing is said.
    pub fn channel(&mut self, channel: u32) -> &mut Self {
        self.thread().channel = channel;
        self
    }

    /// Sends a chunk.
    pub fn send(&mut self, src: Chunk) -> &mut Self {
        self.step(Kind::Send, src, src)
    }

    /// Receives a chunk.
    pub fn receive(&mut self, dst: Chunk) -> &mut Self {
        self.step(Kind::Receive, dst, dst)
    }

    /// Receives a chunk and sends it on.
    pub fn receive_copy_send(&mut self, dst: Chunk) -> &mut Self {
        self.step(Kind::ReceiveCopySend, dst, dst)
    }

    /// Receives a chunk and reduces it with `src`, into `dst`.
    pub fn receive_reduce_copy(&mut self, src: Chunk, dst: Chunk) -> &mut Self {
        self.step(Kind::ReceiveReduceCopy, src, dst)
    }

    /// Receives a chunk, reduces it with `src`, and sends the result.
    pub fn receive_reduce_send(&mut self, src: Chunk) -> &mut Self {
        self.step(Kind::ReceiveReduceSend, src, src)
    }

    /// Receives a chunk, reduces it with `src` into `dst`, and sends the result.
    pub fn receive_reduce_copy_send(&mut self, src: Chunk, dst: Chunk) -> &mut Self {
        self.step(Kind::ReceiveReduceCopySend, src, dst)
    }

    /// Copies a chunk.
    pub fn copy(&mut self, src: Chunk, dst: Chunk) -> &mut Self {
        self.step(Kind::Copy, src, dst)
    }

    /// Reduces a chunk into another.
    pub fn reduce(&mut self, src: Chunk, dst: Chunk) -> &mut Self {
        self.step(Kind::Reduce, src, dst)
    }

    /// Lets what follows come after a step of another thread block of this rank, which [is awaited](Self::awaited).
    pub fn after(&mut self, other: StepRef) -> &mut Self {
        let nothing = (Buffer::Input, 0);
        self.step(Kind::Nop, nothing, nothing);
        if let Some(step) = self.thread().steps.last_mut() {
            (step.after, step.count) = (Some((other.block, other.step)), 0);
        }
        self
    }

    /// Lets the last step work on `count` chunks, one behind the other.
    pub fn times(&mut self, count: u32) -> &mut Self {
        if let Some(step) = self.thread().steps.last_mut() {
            step.count = count;
            let places = [(step.kind.reads(), step.src), (step.kind.writes(), step.dst)];
            places.into_iter().filter(|(used, _)| *used).for_each(|(_, place)| self.grow(place, count));
        }
        self
    }

    /// Lets steps of other thread blocks depend on the last step.
    pub fn awaited(&mut self) -> &mut Self {
        if let Some(step) = self.thread().steps.last_mut() {
            step.awaited = true;
        }
        self
    }

    /// Returns the last step, for others to depend on.
    #[must_use]
    pub fn last(&self) -> StepRef {
        StepRef { block: self.block, step: self.gpu.blocks[self.block].steps.len().saturating_sub(1) }
    }

    fn step(&mut self, kind: Kind, src: Chunk, dst: Chunk) -> &mut Self {
        let place = |(buffer, chunk)| Place { buffer, chunk };
        let (src, dst) = (place(src), place(dst));
        self.grow(src, 1);
        self.grow(dst, 1);
        self.thread().steps.push(Step { kind, src, dst, count: 1, after: None, awaited: false, at: 0 });
        self
    }

    fn grow(&mut self, place: Place, count: u32) {
        if place.buffer == Buffer::Scratch {
            self.gpu.chunks[2] = self.gpu.chunks[2].max(place.chunk.saturating_add(count));
        }
    }
}
