//! Physical floors, measured in the same run as what they are compared with.
//!
//! A direct collective touches every input byte once and every output byte once, on two threads, in blocks that stay
//! in a cache of their core. From 4 MiB per rank on, where memory is the limit, blocks are long enough for copies that
//! go past the caches.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::thread;
use std::time::Instant;

use wire::DESCRIPTOR_BYTES;
use wire::launch::OpKind;

/// Elements per block: 4 KiB.
const BLOCK: usize = 1024;
/// Bytes per rank from which blocks are longer.
const LARGE: usize = 4 << 20;
/// Elements of a block then: 256 KiB.
const LARGE_BLOCK: usize = 64 * 1024;

/// A collective of fp32, summed where it reduces, done directly on two threads: a handshake at entry, one at exit.
#[derive(Debug)]
pub struct Direct {
    op: OpKind,
    inputs: Vec<Vec<f32>>,
    outputs: Vec<Vec<f32>>,
    /// Elements of a rank's share.
    share: usize,
    /// Where a block is summed, for each thread.
    sums: [Vec<f32>; 2],
}

impl Direct {
    /// Makes the buffers of an all-reduce, all-gather, reduce-scatter or all-to-all over `ranks` ranks. `bytes` are those of the larger
    /// buffer of a rank; there is at least one element for each peer.
    ///
    /// # Panics
    /// For another operation.
    #[must_use]
    pub fn new(op: OpKind, ranks: usize, bytes: usize) -> Self {
        let elements = (bytes / 4).max(1);
        let share = (elements / ranks).max(1);
        let whole = share * ranks;
        let (input, output) = match op {
            OpKind::AllReduce => (elements, elements),
            OpKind::AllGather => (share, whole),
            OpKind::ReduceScatter => (whole, share),
            OpKind::AllToAll => (whole, whole),
            other => panic!("there is no direct {other}"),
        };
        let sum = vec![0.0; if bytes < LARGE { BLOCK } else { LARGE_BLOCK }];
        Self {
            op,
            inputs: (0..ranks).map(|rank| vec![rank as f32 + 1.0; input]).collect(),
            outputs: vec![vec![0.0; output]; ranks],
            share,
            sums: [sum.clone(), sum],
        }
    }

    /// Returns how long the collective takes `iterations` times.
    ///
    /// # Panics
    /// When a thread does.
    pub fn run(&mut self, iterations: u64) -> Duration {
        let Self { op, inputs, outputs, share, sums: [low_sum, high_sum] } = self;
        let (op, share) = (*op, *share);
        if op == OpKind::AllReduce {
            let middle = inputs[0].len().div_ceil(2);
            let halves = outputs.iter_mut().map(|output| output.split_at_mut(middle));
            let (mut low, mut high): (Vec<_>, Vec<_>) = halves.unzip();
            let lower = || reduce(inputs, &mut low, 0, low_sum);
            return on_two_threads(iterations, lower, || reduce(inputs, &mut high, middle, high_sum));
        }
        let middle = outputs.len() / 2;
        let (low, high) = outputs.split_at_mut(middle);
        let lower = || fill(op, inputs, low, 0, share, low_sum);
        on_two_threads(iterations, lower, || fill(op, inputs, high, middle, share, high_sum))
    }

    /// Returns the outputs of all ranks.
    #[must_use]
    pub fn outputs(&self) -> &[Vec<f32>] {
        &self.outputs
    }
}

/// Times `iterations` turns in which one thread does the first thing and another, at the same time, the second.
fn on_two_threads(iterations: u64, mut here: impl FnMut(), mut there: impl FnMut() + Send) -> Duration {
    let (started, finished) = (AtomicU64::new(0), AtomicU64::new(0));
    let reach = |counter: &AtomicU64, count| {
        while counter.load(Ordering::Acquire) < count {
            core::hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for iteration in 1..=iterations {
                reach(&started, iteration);
                there();
                finished.store(iteration, Ordering::Release);
            }
        });
        let start = Instant::now();
        for iteration in 1..=iterations {
            started.store(iteration, Ordering::Release);
            here();
            reach(&finished, iteration);
        }
        start.elapsed()
    })
}

/// Makes the outputs of the ranks from `first` on: a sum of shares, or the shares that belong there.
fn fill(
    op: OpKind,
    inputs: &[Vec<f32>],
    outputs: &mut [Vec<f32>],
    first: usize,
    share: usize,
    sum: &mut [f32],
) {
    if op == OpKind::ReduceScatter {
        for (rank, output) in (first..).zip(outputs) {
            reduce(inputs, &mut [output], rank * share, sum);
        }
        return;
    }
    // What goes to several ranks is still in the cache for the second.
    for (sender, input) in inputs.iter().enumerate() {
        for start in (0..share).step_by(sum.len()) {
            let len = sum.len().min(share - start);
            for (rank, output) in (first..).zip(&mut *outputs) {
                let from = start + if op == OpKind::AllToAll { rank * share } else { 0 };
                output[sender * share + start..][..len].copy_from_slice(&input[from..from + len]);
            }
        }
    }
}

/// Sums the inputs from element `first` on into all outputs, in blocks of the length of `sum`.
fn reduce(inputs: &[Vec<f32>], outputs: &mut [&mut [f32]], first: usize, sum: &mut [f32]) {
    let len = outputs[0].len();
    for start in (0..len).step_by(sum.len()) {
        let count = sum.len().min(len - start);
        let block = first + start..first + start + count;
        sum[..count].copy_from_slice(&inputs[0][block.clone()]);
        for input in &inputs[1..] {
            for (sum, value) in sum[..count].iter_mut().zip(&input[block.clone()]) {
                *sum += value;
            }
        }
        for output in outputs.iter_mut() {
            output[start..start + count].copy_from_slice(&sum[..count]);
        }
    }
}

/// Copying the bytes of descriptors through a ring, as fast as memory allows.
#[derive(Debug)]
pub struct RingCopy {
    source: Vec<u8>,
    ring: Vec<u8>,
    at: usize,
}

impl RingCopy {
    /// Makes a ring of `depth` descriptors through which `count` go a turn.
    #[must_use]
    pub fn new(count: u32, depth: u32) -> Self {
        let bytes = |descriptors: u32| descriptors as usize * DESCRIPTOR_BYTES;
        Self { source: vec![1; bytes(count)], ring: vec![0; bytes(depth)], at: 0 }
    }

    /// Copies once.
    pub fn turn(&mut self) {
        let first = self.source.len().min(self.ring.len() - self.at);
        let (now, later) = black_box(&self.source).split_at(first);
        self.ring[self.at..self.at + first].copy_from_slice(now);
        self.ring[..later.len()].copy_from_slice(later);
        self.at = (self.at + self.source.len()) % self.ring.len();
    }
}
