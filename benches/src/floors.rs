//! Physical floors, measured in the same run as what they are compared with.
//!
//! The direct collective touches every input byte once and every output byte once, on two threads, in blocks that stay
//! in a cache of their core. From 4 MiB per rank on, where memory is the limit, blocks are long enough for copies that
//! go past the caches.

use core::hint::black_box;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::thread;
use std::time::Instant;

use wire::DESCRIPTOR_BYTES;

/// Elements per block: 4 KiB.
const BLOCK: usize = 1024;
/// Bytes per rank from which blocks are longer.
const LARGE: usize = 4 << 20;
/// Elements of a block then: 256 KiB.
const LARGE_BLOCK: usize = 64 * 1024;

/// Times `iterations` direct all-reduces (fp32, sum) of `bytes` bytes over `ranks` buffers on two threads, with a
/// handshake at entry and exit.
///
/// # Panics
/// When a thread does.
#[must_use]
pub fn direct_all_reduce(ranks: usize, bytes: usize, iterations: u64) -> Duration {
    let elements = (bytes / 4).max(1);
    let inputs: Vec<Vec<f32>> = (0..ranks).map(|rank| vec![rank as f32; elements]).collect();
    let mut outputs: Vec<Vec<f32>> = (0..ranks).map(|_| vec![0.0; elements]).collect();
    let (mut block, mut other) = {
        let empty = vec![0.0_f32; if bytes < LARGE { BLOCK } else { LARGE_BLOCK }];
        (empty.clone(), empty)
    };
    let middle = elements.div_ceil(2);
    let (mut low, mut high): (Vec<_>, Vec<_>) =
        outputs.iter_mut().map(|output| output.split_at_mut(middle)).unzip();
    let (started, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let iterations = usize::try_from(iterations).expect("few iterations");
    thread::scope(|scope| {
        scope.spawn(|| {
            for iteration in 1..=iterations {
                while started.load(Ordering::Acquire) < iteration {
                    core::hint::spin_loop();
                }
                reduce(&inputs, &mut high, middle, &mut block);
                finished.store(iteration, Ordering::Release);
            }
        });
        let start = Instant::now();
        for iteration in 1..=iterations {
            started.store(iteration, Ordering::Release);
            reduce(&inputs, &mut low, 0, &mut other);
            while finished.load(Ordering::Acquire) < iteration {
                core::hint::spin_loop();
            }
        }
        start.elapsed()
    })
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
