//! Does the verifier find mistakes? Random ones in graphs of every algorithm, judged by what they do to bytes.

use std::collections::HashMap;

use graph_verifier::{Machine, Obligation, Operation as Graph};
use host_launcher::prove::Case;
use wire::launch::{Algorithm, OpKind, Staging};

use crate::harm::Stage;
use crate::mutants::{Mistake, Random, without_labels};
use crate::shapes::{case, chunked, expand, proof};

/// A sound operation to make mistakes in.
pub(crate) struct Subject {
    pub(crate) machine: Machine,
    pub(crate) graph: Graph,
    pub(crate) stage: Stage,
}

impl Subject {
    pub(crate) fn new(case: &Case) -> Self {
        let (machine, mut graph) = expand(case);
        without_labels(&mut graph.ranks);
        proof(&machine, &graph).unwrap_or_else(|refuted| panic!("{case:?}\n{refuted}"));
        let stage = Stage::new(&graph.goal, machine.scratch, case.in_place, &graph.ranks);
        Self { machine, graph, stage }
    }

    /// The graph with a mistake in it; `None` where this one has no place for it.
    pub(crate) fn mutant(&self, mistake: Mistake, random: &mut Random) -> Option<Graph> {
        let mut mutant = self.graph.clone();
        mistake.make(&mut mutant.ranks, self.machine.threads, random).then_some(mutant)
    }

    /// Whether some task of a graph is harm by itself.
    pub(crate) fn is_illegal(&self, graph: &Graph) -> bool {
        let Machine { threads, main_notifies, sub_notifies, .. } = self.machine;
        let illegal = |rank, task| self.stage.is_illegal(rank, threads, [main_notifies, sub_notifies], task);
        (0..).zip(&graph.ranks).any(|(rank, tasks)| tasks.tasks.iter().any(|task| illegal(rank, task)))
    }
}

/// Every algorithm, with folds, tails, chunks, links that cannot reduce, both stagings, in place.
pub(crate) fn subjects() -> Vec<Case> {
    use Algorithm::{HalvingDoubling, MeshOneShot, MeshTwoShot, Nb, Nhr, Pairwise, Ring, Star, Strict, Tree};
    use OpKind::{
        AllGather, AllGatherV, AllReduce, AllToAll, AllToAllV, Barrier, Broadcast, Gather, Reduce,
        ReduceScatter, ReduceScatterV, Scatter, SendReceive,
    };
    let scratch = |op, algorithm, ranks, count| case(op, algorithm, Staging::Scratch, ranks, count);
    let direct = |op, algorithm, ranks, count| case(op, algorithm, Staging::Direct, ranks, count);
    let plain = |case| Case { inline_reduce: false, ..case };
    vec![
        scratch(AllReduce, Ring, 4, 9),
        plain(scratch(AllReduce, Ring, 5, 11)),
        Case { in_place: true, ..direct(AllReduce, Ring, 3, 7) },
        scratch(AllReduce, HalvingDoubling, 4, 9),
        plain(scratch(AllReduce, HalvingDoubling, 6, 9)),
        scratch(AllReduce, Nhr, 5, 11),
        chunked(plain(scratch(AllReduce, Nhr, 3, 7)), 4),
        scratch(AllReduce, MeshOneShot, 3, 5),
        scratch(AllReduce, MeshTwoShot, 3, 7),
        scratch(AllReduce, MeshTwoShot, 4, 9),
        direct(AllReduce, MeshOneShot, 3, 5),
        direct(AllReduce, MeshTwoShot, 4, 70),
        scratch(AllReduce, Strict, 5, 11),
        scratch(AllGather, Nhr, 5, 2),
        direct(AllGather, Ring, 4, 2),
        scratch(AllGatherV, Nb, 4, 3),
        Case { in_place: true, ..scratch(ReduceScatter, Ring, 4, 2) },
        plain(scratch(ReduceScatter, Nhr, 5, 2)),
        scratch(ReduceScatterV, MeshOneShot, 3, 3),
        direct(Broadcast, Tree, 5, 3),
        scratch(Reduce, Ring, 4, 3),
        scratch(Scatter, Nhr, 5, 2),
        direct(Gather, Star, 4, 2),
        direct(AllToAll, Pairwise, 4, 2),
        scratch(AllToAllV, MeshOneShot, 3, 3),
        scratch(SendReceive, Pairwise, 3, 3),
        scratch(Barrier, Nb, 5, 0),
    ]
}

/// What became of the mutants.
#[derive(Debug, Default)]
struct Score {
    made: u32,
    refuted: HashMap<Obligation, u32>,
    survived: u32,
    of_kind: HashMap<Mistake, u32>,
    seen_failing: u32,
}

/// Makes `each` mutants of every kind in every subject. A survivor must be right in `schedules` orders; of those
/// refuted, `confirm` orders are tried.
fn campaign(each: u32, schedules: u64, confirm: u64) -> Score {
    let mut score = Score::default();
    for (number, case) in (0..).zip(subjects()) {
        let subject = Subject::new(&case);
        for (kind, mistake) in (0..).zip(Mistake::ALL) {
            let mut random = Random(number * 1000 + kind);
            for _ in 0..each {
                let seed = random.0;
                let Some(mutant) = subject.mutant(mistake, &mut random) else { continue };
                score.made += 1;
                match proof(&subject.machine, &mutant) {
                    Err(refuted) => {
                        *score.refuted.entry(refuted.obligation).or_default() += 1;
                        *score.of_kind.entry(mistake).or_default() += 1;
                        let fails = confirm > 0
                            && (subject.is_illegal(&mutant)
                                || (1..=confirm)
                                    .any(|seed| subject.stage.run(&mutant.ranks, seed).is_some()));
                        score.seen_failing += u32::from(fails);
                    }
                    Ok(_) => {
                        score.survived += 1;
                        let what = format!("{mistake:?} with seed {seed:#x} in {case:?}");
                        assert!(!subject.is_illegal(&mutant), "{what}");
                        for seed in 1..=schedules {
                            let wrong = subject.stage.run(&mutant.ranks, seed);
                            assert_eq!(wrong, None, "missed: {what}, schedule {seed}");
                        }
                    }
                }
            }
        }
    }
    score
}

#[test]
fn no_harmful_mutant_is_missed() {
    let score = campaign(50, 25, 0);
    assert!(score.made > 10_000, "{score:?}");
    assert_eq!(score.of_kind.len(), Mistake::ALL.len(), "every kind of mistake is found: {score:?}");
    let refuted: u32 = score.refuted.values().sum();
    assert!(refuted * 10 > score.made * 7, "{score:?}");
    for obligation in [
        Obligation::Structure,
        Obligation::Bounds,
        Obligation::Overlap,
        Obligation::Pairing,
        Obligation::Deadlock,
        Obligation::Race,
        Obligation::Undefined,
        Obligation::Result,
        Obligation::Writes,
        Obligation::Order,
        Obligation::Exit,
    ] {
        assert!(score.refuted.contains_key(&obligation), "{obligation} refutes something: {score:?}");
    }
}

/// The same at length, as many as [`asked_for`](crate::asked_for) or 200,000; prints the score.
#[test]
#[ignore = "minutes; run with --release"]
fn as_many_mutants_as_asked_for() {
    let number = crate::asked_for(200_000);
    // Not half of the mistakes find a place in their graph.
    let places = u32::try_from(subjects().len() * Mistake::ALL.len()).expect("few");
    let score = campaign(number.div_ceil(places) * 5 / 2, 100, 20);
    println!("{score:#?}");
    assert!(score.made >= number, "{score:?}");
}
