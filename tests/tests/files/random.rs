//! Random algorithms: chunks that travel any way, land in places that are used again and again, and are reduced in any
//! tree. Each rank does its steps one after the other, on the thread block of the peer, so that nothing races.

use std::collections::BTreeMap;

use aicpu_tests::world::{self, Place};
use algorithm_file::Buffer::{Input, Output, Scratch};
use algorithm_file::{AlgorithmFile, BlockBuilder, Buffer, Builder, StepRef};
use wire::launch::OpKind;

use crate::bytes::run;

type Chunk = (Buffer, u32);

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn rank(&mut self, ranks: u32) -> u32 {
        u32::try_from(self.below(ranks as usize)).expect("below a u32")
    }
}

/// An algorithm whose ranks do one step at a time.
struct Maker {
    builder: Builder,
    /// The last step of each rank's block for each peer; its own for what it does alone.
    blocks: BTreeMap<(u32, u32), StepRef>,
    /// The peer of each rank's last step.
    last: BTreeMap<u32, u32>,
}

impl Maker {
    fn new(op: OpKind, ranks: u32, chunks: u32) -> Self {
        let builder = Builder::new("random", op, ranks, chunks).places(true, true);
        Self { builder, blocks: BTreeMap::new(), last: BTreeMap::new() }
    }

    /// Does something on the block of `rank` for `peer`, after everything that `rank` has done.
    fn step(&mut self, rank: u32, peer: u32, what: impl FnOnce(&mut BlockBuilder<'_>)) {
        let before =
            self.last.get(&rank).filter(|&&last| last != peer).map(|&last| self.blocks[&(rank, last)]);
        let mut block = match self.blocks.get(&(rank, peer)) {
            Some(&step) => self.builder.resume(rank, step),
            None => self.builder.block(rank),
        };
        if peer != rank {
            block.to(peer).from(peer);
        }
        if let Some(before) = before {
            block.after(before);
        }
        what(&mut block);
        block.awaited();
        self.blocks.insert((rank, peer), block.last());
        self.last.insert(rank, peer);
    }

    /// Moves a chunk from one rank to another, or within one.
    fn carry(&mut self, (from, src): (u32, Chunk), (to, dst): (u32, Chunk)) {
        if from == to {
            self.step(from, from, |block| _ = block.copy(src, dst));
        } else {
            self.step(from, to, |block| _ = block.send(src));
            self.step(to, from, |block| _ = block.receive(dst));
        }
    }
}

/// Blocks of two chunks that wander through three places of scratch, often overwritten, until all outputs are there.
fn gather(random: &mut Random, ranks: u32) -> Builder {
    let mut maker = Maker::new(OpKind::AllGather, ranks, 2 * ranks);
    let own = |rank: u32| [0, 1].map(|chunk| ((Input, chunk), 2 * rank + chunk));
    let mut known: Vec<BTreeMap<(u8, u32), (Chunk, u32)>> = (0..ranks)
        .map(|rank| own(rank).into_iter().map(|(place, value)| ((0, place.1), (place, value))).collect())
        .collect();
    for _ in 0..12 * ranks {
        let (from, to) = (random.rank(ranks), random.rank(ranks));
        let list: Vec<_> = known[from as usize].values().copied().collect();
        let (src, value) = list[random.below(list.len())];
        let home = random.below(3) == 0;
        let dst = if home { (Output, value) } else { (Scratch, random.rank(3)) };
        if src == dst && from == to {
            continue;
        }
        maker.carry((from, src), (to, dst));
        known[to as usize].insert((dst.0 as u8, dst.1), (dst, value));
    }
    for to in 0..ranks {
        for value in (0..2 * ranks).filter(|&value| !known[to as usize].contains_key(&(1, value))) {
            maker.carry((value / 2, (Input, value % 2)), (to, (Output, value)));
        }
    }
    maker.builder
}

/// Three chunks, each reduced in a tree of its own and spread along another.
fn reduce(random: &mut Random, ranks: u32) -> Builder {
    let mut maker = Maker::new(OpKind::AllReduce, ranks, 3);
    for chunk in 0..3 {
        let mut partial: Vec<(u32, Chunk)> = (0..ranks).map(|rank| (rank, (Input, chunk))).collect();
        while partial.len() > 1 {
            let (from, src) = partial.swap_remove(random.below(partial.len()));
            let index = random.below(partial.len());
            let (to, held) = partial[index];
            let into = if random.below(2) == 0 { (Output, chunk) } else { (Scratch, chunk % 2) };
            maker.step(from, to, |block| _ = block.send(src));
            if random.below(2) == 0 {
                maker.step(to, from, |block| _ = block.receive_reduce_copy(held, into));
            } else {
                // By hand: land, copy, reduce.
                maker.step(to, from, |block| _ = block.receive((Scratch, 2)));
                if held != into {
                    maker.step(to, to, |block| _ = block.copy(held, into));
                }
                maker.step(to, to, |block| _ = block.reduce((Scratch, 2), into));
            }
            partial[index].1 = into;
        }
        let (root, result) = partial[0];
        if result != (Output, chunk) {
            maker.carry((root, result), (root, (Output, chunk)));
        }
        let mut done = vec![root];
        while done.len() < ranks as usize {
            let (from, to) = (done[random.below(done.len())], random.rank(ranks));
            if !done.contains(&to) {
                maker.carry((from, (Output, chunk)), (to, (Output, chunk)));
                done.push(to);
            }
        }
    }
    maker.builder
}

#[test]
fn random_algorithms_are_right() {
    for (ranks, place) in
        [(2, Place::OneServer), (3, Place::TwoServers), (5, Place::OneServer), (5, Place::TwoServers)]
    {
        let cluster = world::threads(ranks, place, 48 << 20);
        for seed in 1..=25 {
            for make in [gather, reduce] {
                let algorithm = make(&mut Random(seed), ranks).finish();
                let file =
                    AlgorithmFile::new(algorithm).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
                run(&cluster, file, &[100]);
            }
        }
    }
}
