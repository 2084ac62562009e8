//! The grid.

use core::time::Duration;
use std::collections::{HashMap, HashSet};

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::variants::Variant;
use aicpu_tests::world::{self, Place};
use host_launcher::communicator::{Config, Operation};
use wire::npu::sdma;
use wire::{DataType, ReduceOp};

/// Type and reduction combinations that each cell of the grid runs.
const PAIRS_PER_CELL: usize = 4;
/// Bytes of the largest buffer: 1000 elements of 16 bytes from each of 16 ranks, and gaps between them.
const LARGEST: u64 = 2 * 16 * 16 * 1000;

/// Counts with an edge, and the chunk that goes with each: 0 for as long as the scratch buffer allows.
fn counts(ranks: u32) -> [(u64, u64); 7] {
    let ranks = u64::from(ranks);
    let chunk = 2 * ranks + 1;
    [(0, 0), (1, 0), (ranks - 1, 0), (ranks, 0), (ranks + 1, 0), (1000, 0), (3 * chunk + 2, chunk)]
}

/// The pairs of type and reduction that a variant can run.
fn pairs(variant: Variant, place: Place) -> Vec<(DataType, ReduceOp)> {
    if !variant.op.reduces() {
        return DataType::ALL.iter().map(|&dtype| (dtype, ReduceOp::Sum)).collect();
    }
    // What adds on the way exists only where every link can.
    let can = |dtype: DataType, op: ReduceOp| {
        !variant.adds_on_the_way()
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
        let cluster = world::threads(ranks, place, 96 << 20);
        let config = Config { buffer_bytes: 64 << 10, timeout: Duration::from_secs(20), ..Config::default() };
        let mut bench = Bench::new(&cluster, config, LARGEST).unwrap();
        for variant in Variant::all() {
            let pairs = pairs(variant, place);
            if pairs.is_empty() {
                self.skipped.insert(variant);
                continue;
            }
            for (count, chunk) in counts(ranks) {
                let entry = self.met.entry(variant).or_default();
                for _ in 0..PAIRS_PER_CELL {
                    let turn = entry.0;
                    entry.0 += 1;
                    let (dtype, reduce) = pairs[turn % pairs.len()];
                    entry.1.insert((dtype, reduce));
                    let piece = if turn.is_multiple_of(3) { 128 } else { 0 };
                    let operation = variant.operation(count, ranks, turn as u64);
                    let operation = Operation { dtype, reduce, chunk, piece, ..operation };
                    // The turns of one pair are out of place and in place by turns.
                    let lap = turn / pairs.len() + turn % pairs.len();
                    let in_place = lap % 2 == 1 && variant.runs(place != Place::TwoServers, true);
                    let case = Case { operation, in_place, shift: turn as u64 % 4, seed: self.cases as u64 };
                    if in_place {
                        self.in_place.insert(variant);
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

    /// Asserts that every variant has met every pair of type and reduction that it can run, on `worlds` numbers of ranks.
    fn assert_complete(&self, place: Place, worlds: usize) {
        for variant in Variant::all() {
            let expected: HashSet<_> = pairs(variant, place).into_iter().collect();
            let met = self.met.get(&variant).map(|(_, met)| met.clone()).unwrap_or_default();
            assert_eq!(met, expected, "{variant:?} {place:?}");
        }
        let run = Variant::all().len() - self.skipped.len();
        assert_eq!(self.cases, run * counts(2).len() * PAIRS_PER_CELL * worlds);
    }
}

const RANKS: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16];

#[test]
fn every_case_in_one_server_is_what_the_oracle_says() {
    let mut coverage = Coverage::default();
    RANKS.iter().for_each(|&ranks| coverage.run(ranks, Place::OneServer));
    coverage.assert_complete(Place::OneServer, RANKS.len());
    assert!(coverage.skipped.is_empty());
    assert_eq!(
        coverage.in_place.len(),
        Variant::all().iter().filter(|variant| variant.runs(true, true)).count()
    );
}

#[test]
fn every_case_across_roce_is_what_the_oracle_says() {
    let mut coverage = Coverage::default();
    RANKS.iter().filter(|&&ranks| ranks > 1).for_each(|&ranks| coverage.run(ranks, Place::TwoServers));
    coverage.assert_complete(Place::TwoServers, RANKS.len() - 1);
    // RoCE adds nothing on the way.
    assert!(coverage.skipped.iter().all(|variant| variant.adds_on_the_way()));
    assert!(coverage.skipped.len() >= 5);
}

#[test]
fn every_case_across_ub_is_what_the_oracle_says() {
    let mut coverage = Coverage::default();
    // Of three ranks, one is alone on its server: its links add what the others' do not.
    [2, 3, 5, 8, 16].iter().for_each(|&ranks| coverage.run(ranks, Place::UnifiedBus));
    coverage.assert_complete(Place::UnifiedBus, 5);
    assert!(coverage.skipped.is_empty());
}
