//! One collective through launcher, kernels, rings and device model, timed:
//! `collective <operation> <ranks> <bytes> <seconds> [<algorithm> <staging>]`, or `floor` in the place of an algorithm.
//!
//! The counterpart of `mpi/collectives.c`: blocks of repetitions of about 3 ms, the median of the blocks in
//! nanoseconds for one repetition, and the number of repetitions behind it.

use core::time::Duration;
use std::time::Instant;

use aicpu_benches::collective::{OPERATIONS, Point};
use aicpu_benches::floors::Direct;
use wire::launch::{Algorithm, Staging};

const BLOCK: Duration = Duration::from_millis(3);
const LEAST_BLOCKS: usize = 7;
const MOST_BLOCKS: usize = 4096;
const MOST_REPETITIONS: u64 = 20_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (&[op, ranks, bytes, seconds], demand) = words.split_first_chunk().expect("four arguments");
    let named = OPERATIONS.into_iter().find(|known| known.to_string() == op);
    let point = Point {
        op: named.expect("an operation that is compared"),
        ranks: ranks.parse().expect("a number of ranks"),
        bytes: bytes.parse().expect("a number of bytes"),
    };
    let budget = Duration::from_secs_f64(seconds.parse().expect("seconds"));
    let (median, repetitions) = match demand {
        [] => point.prepared(None, |once| timed(budget, once)),
        ["floor"] => {
            let bytes = usize::try_from(point.bytes).expect("fits");
            let mut direct = Direct::new(point.op, point.ranks as usize, bytes);
            measured(budget, |repetitions| direct.run(repetitions))
        }
        [algorithm, staging] => {
            let algorithms = Algorithm::ALL.iter().copied();
            let algorithm = algorithms.into_iter().find(|known| known.name() == *algorithm);
            let staging = if *staging == "direct" { Staging::Direct } else { Staging::Scratch };
            let demand = (algorithm.expect("an algorithm"), staging);
            point.prepared(Some(demand), |once| timed(budget, once))
        }
        _ => panic!("an algorithm and a staging"),
    };
    println!("{median:.1} {repetitions}");
}

fn timed(budget: Duration, once: &mut dyn FnMut()) -> (f64, u64) {
    measured(budget, |repetitions| {
        let start = Instant::now();
        (0..repetitions).for_each(|_| once());
        start.elapsed()
    })
}

/// Returns the median of blocks, nanoseconds for one repetition, and the number of repetitions.
fn measured(budget: Duration, mut run: impl FnMut(u64) -> Duration) -> (f64, u64) {
    let mut fastest = f64::INFINITY;
    let (mut repetitions, start) = (1, Instant::now());
    for _ in 0..12 {
        let taken = run(repetitions);
        fastest = fastest.min(taken.as_secs_f64() / repetitions as f64);
        if taken < BLOCK / 3 && repetitions < MOST_REPETITIONS / 4 {
            repetitions *= 4;
        }
        if start.elapsed() > budget / 4 {
            break;
        }
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
    let repetitions = ((BLOCK.as_secs_f64() / fastest) as u64).clamp(1, MOST_REPETITIONS);
    let (mut blocks, start) = (Vec::new(), Instant::now());
    while blocks.len() < MOST_BLOCKS && (blocks.len() < LEAST_BLOCKS || start.elapsed() < budget) {
        blocks.push(run(repetitions).as_secs_f64() * 1e9 / repetitions as f64);
    }
    blocks.sort_by(f64::total_cmp);
    (blocks[blocks.len() / 2], repetitions * blocks.len() as u64)
}
