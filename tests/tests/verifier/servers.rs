//! Compositions over servers of every shape are proved: over links that reduce inside, and queue pairs across.

use aicpu_tests::world::{Place, topology};
use host_launcher::communicator::Operation;
use host_launcher::prove::Case;
use wire::launch::{Algorithm, OpKind, Staging};

use crate::shapes::{case, chunked, proof};

const COMPOSITIONS: [Algorithm; 6] = [
    Algorithm::TwoLevel,
    Algorithm::ThreeLevel,
    Algorithm::Pipeline,
    Algorithm::Ahc,
    Algorithm::MultiRing,
    Algorithm::MeshChunk,
];

/// Ranks, and ranks of a server; the last server may be smaller.
const SERVERS: [(u32, u32); 9] = [(2, 1), (3, 2), (4, 2), (6, 2), (7, 3), (8, 4), (8, 5), (9, 3), (12, 4)];

/// Proves everything that has a plan; returns how many graphs that were.
fn sweep(servers: &[(u32, u32)], vary: impl Fn(Case) -> Case) -> u32 {
    let mut proved = 0;
    for &(ranks, size) in servers {
        let topology = topology(ranks, Place::Servers(size));
        for &op in OpKind::ALL {
            for algorithm in COMPOSITIONS {
                for (staging, count) in
                    Staging::ALL.iter().flat_map(|&staging| [(staging, 1), (staging, 1000)])
                {
                    if !templates::exists(op, algorithm) {
                        continue;
                    }
                    let case = vary(case(op, algorithm, staging, ranks, count));
                    let Ok(graph) = case.graph(&topology) else { continue };
                    if let Err(refuted) = proof(&case.machine(&topology), &graph) {
                        panic!("{case:?}\n{refuted}");
                    }
                    proved += 1;
                }
            }
        }
    }
    proved
}

#[test]
fn compositions_over_servers_of_every_shape() {
    assert!(sweep(&SERVERS, |case| Case { inline_reduce: false, ..case }) > 400);
}

#[test]
fn compositions_with_few_threads_and_many_chunks() {
    let few = |case| Case { threads: 2, inline_reduce: false, ..case };
    assert!(sweep(&SERVERS[..7], few) > 250);
    assert!(sweep(&SERVERS[..7], |case| chunked(few(case), 101)) > 250);
}

#[test]
fn any_algorithms_on_two_levels() {
    use Algorithm::{HalvingDoubling, MeshTwoShot, Nb, Nhr, Ring};
    let mut proved = 0;
    for inner in [Ring, Nhr, Nb, HalvingDoubling, MeshTwoShot] {
        for outer in [Ring, Nhr, Nb, HalvingDoubling, MeshTwoShot] {
            for algorithm in [Algorithm::TwoLevel, Algorithm::Ahc] {
                let vary = |case: Case| {
                    let levels = [Some(inner), Some(outer), None, None];
                    let exists = case.operation.algorithm == algorithm;
                    let operation = Operation { levels, ..case.operation };
                    // The others have other levels, and no plan.
                    let levels = if exists { levels } else { [Some(Algorithm::Star); 4] };
                    Case { operation: Operation { levels, ..operation }, inline_reduce: false, ..case }
                };
                proved += sweep(&[(9, 3), (8, 5)], vary);
            }
        }
    }
    assert!(proved > 400, "{proved}");
}
