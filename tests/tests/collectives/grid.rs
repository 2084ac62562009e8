//! The grid.

use core::time::Duration;
use std::collections::{HashMap, HashSet};

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::world::{self, Place};
use host_launcher::communicator::{Config, Operation};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::sdma;
use wire::{DataType, ReduceOp};

/// Type and reduction combinations that each cell of the grid runs.
const PAIRS_PER_CELL: usize = 12;
/// Bytes of the largest buffer: 1000 elements of 16 bytes from each of 16 ranks.
const LARGEST: u64 = 16 * 16 * 1000;

/// Operation, algorithm, staging.
type Variant = (OpKind, Algorithm, Staging);

/// All variants that exist.
fn variants() -> Vec<Variant> {
    let mut list = Vec::new();
    for &staging in Staging::ALL {
        list.extend(Algorithm::ALL.iter().map(|&algorithm| (OpKind::AllReduce, algorithm, staging)));
        list.extend(
            [Algorithm::Ring, Algorithm::Nhr].map(|algorithm| (OpKind::AllGather, algorithm, staging)),
        );
    }
    // A reduce-scatter has no buffer of its own in which it could collect what others send.
    list.extend(
        [Algorithm::Ring, Algorithm::Nhr].map(|algo| (OpKind::ReduceScatter, algo, Staging::Scratch)),
    );
    list
}

/// Counts with an edge, and the chunk that goes with each: 0 for as long as the scratch buffer allows.
fn counts(ranks: u32) -> [(u64, u64); 7] {
    let ranks = u64::from(ranks);
    let chunk = 2 * ranks + 1;
    [(0, 0), (1, 0), (ranks - 1, 0), (ranks, 0), (ranks + 1, 0), (1000, 0), (3 * chunk + 2, chunk)]
}

/// The pairs of type and reduction that a variant can run.
fn pairs(op: OpKind, algorithm: Algorithm, staging: Staging, place: Place) -> Vec<(DataType, ReduceOp)> {
    if op == OpKind::AllGather {
        return DataType::ALL.iter().map(|&dtype| (dtype, ReduceOp::Sum)).collect();
    }
    let mesh = matches!(algorithm, Algorithm::MeshOneShot | Algorithm::MeshTwoShot);
    // The direct mesh adds on the way, so it exists only where every link can.
    let on_the_way = mesh && staging == Staging::Direct;
    let can = |dtype: DataType, op: ReduceOp| {
        !on_the_way
            || place != Place::TwoServers
                && sdma::REDUCE_TYPES >> dtype as u32 & 1 == 1
                && sdma::REDUCE_OPS >> op as u32 & 1 == 1
    };
    let types = DataType::ALL.iter().filter(|dtype| dtype.can_reduce());
    types
        .flat_map(|&dtype| ReduceOp::ALL.iter().map(move |&op| (dtype, op)))
        .filter(|&(t, op)| can(t, op))
        .collect()
}

/// What has been run so far, over several worlds.
#[derive(Default)]
struct Coverage {
    cases: usize,
    /// Where the rotation of each variant stands, and what it has met.
    met: HashMap<Variant, (usize, HashSet<(DataType, ReduceOp)>)>,
    in_place: HashSet<Variant>,
    skipped: HashSet<Variant>,
}

impl Coverage {
    /// Runs the grid on one number of ranks.
    fn run(&mut self, ranks: u32, place: Place) {
        let cluster = world::threads(ranks, place, 48 << 20);
        let config = Config { buffer_bytes: 64 << 10, timeout: Duration::from_secs(20), ..Config::default() };
        let mut bench = Bench::new(&cluster, config, LARGEST).unwrap();
        for (op, algorithm, staging) in variants() {
            let pairs = pairs(op, algorithm, staging, place);
            let mesh = matches!(algorithm, Algorithm::MeshOneShot | Algorithm::MeshTwoShot);
            if pairs.is_empty() {
                self.skipped.insert((op, algorithm, staging));
                continue;
            }
            for (count, chunk) in counts(ranks) {
                let entry = self.met.entry((op, algorithm, staging)).or_default();
                for _ in 0..PAIRS_PER_CELL {
                    let turn = entry.0;
                    entry.0 += 1;
                    let (dtype, reduce) = pairs[turn % pairs.len()];
                    entry.1.insert((dtype, reduce));
                    let piece = if turn.is_multiple_of(3) { 128 } else { 0 };
                    let operation = Operation { op, count, dtype, reduce, algorithm, staging, chunk, piece };
                    // The turns of one pair are out of place and in place by turns.
                    let lap = turn / pairs.len() + turn % pairs.len();
                    let in_place = lap % 2 == 1 && !(mesh && staging == Staging::Direct);
                    let case = Case { operation, in_place, shift: turn as u64 % 4, seed: self.cases as u64 };
                    if in_place {
                        self.in_place.insert((op, algorithm, staging));
                    }
                    bench
                        .run(&case)
                        .unwrap_or_else(|error| panic!("{ranks} ranks, {place:?}, {case:?}: {error}"));
                    self.cases += 1;
                }
            }
        }
        bench.finish().unwrap();
    }

    /// Asserts that every variant has met every pair of type and reduction that it can run.
    fn assert_complete(&self, place: Place, cases: usize) {
        for (op, algorithm, staging) in variants() {
            let expected: HashSet<_> = pairs(op, algorithm, staging, place).into_iter().collect();
            let met = self.met.get(&(op, algorithm, staging)).map(|(_, met)| met.clone()).unwrap_or_default();
            assert_eq!(met, expected, "{op} {algorithm} {staging} {place:?}");
        }
        assert_eq!(self.cases, cases);
    }
}

const RANKS: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16];

#[test]
fn every_case_in_one_server_is_what_the_oracle_says() {
    let mut coverage = Coverage::default();
    RANKS.iter().for_each(|&ranks| coverage.run(ranks, Place::OneServer));
    coverage.assert_complete(Place::OneServer, 13_440);
    assert!(coverage.skipped.is_empty());
    // All but the two direct meshes, which need a buffer beside the input.
    assert_eq!(coverage.in_place.len(), 14);
}

#[test]
fn every_case_across_roce_is_what_the_oracle_says() {
    let mut coverage = Coverage::default();
    RANKS.iter().filter(|&&ranks| ranks > 1).for_each(|&ranks| coverage.run(ranks, Place::TwoServers));
    coverage.assert_complete(Place::TwoServers, 10_584);
    // RoCE adds nothing on the way.
    assert_eq!(coverage.skipped.len(), 2);
}

#[test]
fn every_case_across_ub_is_what_the_oracle_says() {
    let mut coverage = Coverage::default();
    [2, 5, 8, 16].iter().for_each(|&ranks| coverage.run(ranks, Place::UnifiedBus));
    coverage.assert_complete(Place::UnifiedBus, 5376);
    assert!(coverage.skipped.is_empty());
}
