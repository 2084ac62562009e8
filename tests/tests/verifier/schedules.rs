//! Tiny graphs in every order there is.

use graph_verifier::RankTasks;
use wire::launch::{Algorithm, OpKind, Staging};

use crate::mutants::{Mistake, Random};
use crate::mutation::Subject;
use crate::shapes::{case, proof};

const MOST_STATES: usize = 400_000;

fn subjects() -> Vec<Subject> {
    let tiny =
        |op, algorithm, staging, ranks, count| Subject::new(&case(op, algorithm, staging, ranks, count));
    vec![
        tiny(OpKind::AllReduce, Algorithm::Ring, Staging::Scratch, 2, 2),
        tiny(OpKind::AllReduce, Algorithm::HalvingDoubling, Staging::Direct, 2, 2),
        tiny(OpKind::AllReduce, Algorithm::MeshOneShot, Staging::Direct, 2, 1),
        tiny(OpKind::AllReduce, Algorithm::MeshTwoShot, Staging::Scratch, 2, 2),
        tiny(OpKind::AllGather, Algorithm::Nhr, Staging::Scratch, 2, 1),
    ]
}

#[test]
fn what_is_proved_is_right_in_every_order() {
    for subject in subjects() {
        let states = subject.stage.run_every_way(&subject.graph.ranks, MOST_STATES);
        assert!(states.is_ok_and(|states| states > 100), "{}", subject.graph.name);
    }
    for algorithm in [Algorithm::Ring, Algorithm::Nhr] {
        let subject = Subject::new(&case(OpKind::AllGather, algorithm, Staging::Direct, 3, 1));
        let states = subject.stage.run_every_way(&subject.graph.ranks, MOST_STATES);
        assert!(states.is_ok(), "{}: {states:?}", subject.graph.name);
    }
    if std::env::var_os("AICPU_TS_LARGER_MODELS").is_some() {
        larger();
    }
}

/// The same with a rank or two more, for a release.
fn larger() {
    use Algorithm::{MeshOneShot, MeshTwoShot, Nhr, Ring, Tree};
    use OpKind::{AllGather, AllReduce, Broadcast, ReduceScatter};
    use Staging::{Direct, Scratch};
    for (op, algorithm, staging, ranks, count) in [
        (AllReduce, Ring, Scratch, 3, 3),
        (AllReduce, MeshOneShot, Direct, 3, 1),
        (AllReduce, MeshTwoShot, Scratch, 3, 3),
        (AllReduce, Nhr, Scratch, 3, 3),
        (AllGather, Nhr, Scratch, 3, 1),
        (ReduceScatter, Ring, Scratch, 3, 1),
        (Broadcast, Tree, Scratch, 3, 1),
        (AllReduce, Ring, Scratch, 4, 4),
        (AllReduce, MeshOneShot, Direct, 4, 1),
        (AllGather, Ring, Direct, 4, 1),
        (Broadcast, Tree, Scratch, 4, 1),
    ] {
        let subject = Subject::new(&case(op, algorithm, staging, ranks, count));
        let states = subject.stage.run_every_way(&subject.graph.ranks, 50 * MOST_STATES);
        assert!(states.is_ok(), "{}, {ranks} ranks: {states:?}", subject.graph.name);
    }
}

/// Every mistake of every kind that random places give: what does harm in any order is refuted; and of what is refuted
/// most does harm.
#[test]
fn mistakes_are_refuted_if_any_order_does_harm() {
    let [mut harmful, mut harmless] = [0_u32; 2];
    for subject in subjects() {
        for (seed, mistake) in (1..).zip(Mistake::ALL) {
            let mut random = Random(seed);
            let mut known: Vec<Vec<RankTasks>> = Vec::new();
            for _ in 0..12 {
                let Some(mutant) = subject.mutant(mistake, &mut random) else { continue };
                if known.contains(&mutant.ranks) {
                    continue;
                }
                let harm = subject.is_illegal(&mutant)
                    || subject.stage.run_every_way(&mutant.ranks, MOST_STATES).is_err();
                let refuted = proof(&subject.machine, &mutant);
                assert!(refuted.is_err() || !harm, "{mistake:?} in {}: {:?}", mutant.name, mutant.ranks);
                harmful += u32::from(harm);
                harmless += u32::from(refuted.is_err() && !harm);
                known.push(mutant.ranks);
            }
        }
    }
    assert!(harmful > 300, "{harmful} harmful");
    assert!(harmless * 10 < harmful, "{harmless} refuted without harm in any order, {harmful} with");
}
