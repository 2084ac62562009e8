//! What is chosen, and that choosing fast loses nothing.

use std::path::Path;
use std::sync::Arc;

use host_launcher::algorithm_file;
use host_launcher::select::machine::Machine;
use host_launcher::select::parts::Part;
use host_launcher::select::profile::Profile;
use host_launcher::select::{Explanation, Question, Row, Selector, class};
use host_launcher::settings::Settings;
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind, Staging};

use super::topology;

fn explain(profile: &str, world: (u32, u32), question: &Question) -> Explanation {
    let topology = topology(world.0, world.1);
    let profile = Profile::named(profile).unwrap();
    Selector::new(&topology, profile, &Settings::default()).unwrap().explain(question).unwrap()
}

#[test]
fn classes_are_within_a_sixteenth_of_an_octave() {
    assert!((0..32).all(|count| class(count) == count));
    let mut last = 0;
    for power in 5..40 {
        for count in [1 << power, (1 << power) + 1, (3 << power) / 2, (2 << power) - 1] {
            let middle = class(count);
            assert!(middle.abs_diff(count) <= count / 32 + 1, "{count}: {middle}");
            assert!(middle >= last, "{count}");
            assert_eq!(class(middle), middle);
            last = middle;
        }
    }
}

#[test]
fn eight_and_thirty_two_cards_are_limited_by_different_stages() {
    let question = Question { count: 16 << 20, ..Question::default() };
    let limit = |world| explain("atlas-a2", world, &question).rows[0].time.unwrap().limit().unwrap();
    assert_eq!([limit((1, 8)), limit((4, 8))], [Part::HccsBytes, Part::RoceBytes]);
}

#[test]
fn one_server_works_directly_with_the_fewest_tasks_or_bytes() {
    for (bytes, expected) in
        [(64_u64, Algorithm::Tree), (1 << 20, Algorithm::MeshTwoShot), (64 << 20, Algorithm::MeshTwoShot)]
    {
        let question = Question { count: bytes / 4, ..Question::default() };
        let choice = explain("software-npu", (1, 8), &question).choice().unwrap();
        assert_eq!((choice.algorithm, choice.staging), (expected, Staging::Direct), "{bytes} bytes");
    }
}

#[test]
fn no_candidate_beats_the_bound() {
    for profile in Profile::names() {
        for world in [(1, 2), (1, 8), (2, 4), (4, 1)] {
            for &op in OpKind::ALL {
                for count in [1, 1000, 1 << 20] {
                    let question = Question { op, count, ..Question::default() };
                    let explanation = explain(profile, world, &question);
                    for row in &explanation.rows {
                        let Some(time) = row.time else { continue };
                        assert!(
                            time.total() >= explanation.bound.total(),
                            "{op} × {count} by {} on {world:?}, {profile}: {} < {:?}",
                            row.candidate,
                            time.total(),
                            explanation.bound
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_size_is_modelled_once_and_its_neighbours_share_the_choice() {
    let topology = topology(2, 4);
    for profile in Profile::names() {
        let profile = Profile::named(profile).unwrap();
        let mut selector = Selector::new(&topology, profile, &Settings::default()).unwrap();
        for op in [OpKind::AllReduce, OpKind::AllGather, OpKind::Broadcast] {
            for power in 0..22 {
                for count in [1 << power, (1 << power) + (1 << power) / 50, (1_u64 << power) * 7 / 5] {
                    let question = Question { op, count, ..Question::default() };
                    let choice = selector.choose(&question).unwrap();
                    let chosen = selector.time(&question, choice.candidate()).unwrap().total();
                    let rows = selector.explain(&question).unwrap().rows;
                    let possible = rows.iter().filter(|row| row.rejected.is_none());
                    let best = possible.filter_map(|row| Some(row.time?.total())).min().unwrap();
                    let regret = chosen as f64 / best as f64;
                    assert!(regret <= 1.05, "{op} × {count}: {choice:?} has {regret}");
                }
            }
        }
    }
}

/// A file is modelled by its own tasks, as everything else is.
#[test]
fn an_algorithm_from_a_file_is_a_candidate_among_others() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/algorithms/all-gather-mesh-8.xml");
    let file = Arc::new(algorithm_file::read(Path::new(path)).unwrap());
    let topology = topology(1, 8);
    let profile = Profile::named("atlas-a2").unwrap();
    let settings = Settings::default();
    let offering =
        || Selector::new(&topology, profile.clone(), &settings).unwrap().offering(Some(Arc::clone(&file)));
    let question = Question { op: OpKind::AllGather, count: 1 << 20, ..Question::default() };
    let explanation = offering().explain(&question).unwrap();
    let rows = || explanation.rows.iter();
    let own = rows().find(|row| row.candidate.algorithm == Algorithm::File).unwrap();
    assert_eq!((own.rejected.as_deref(), own.candidate.staging), (None, Staging::Scratch));
    let time = |row: &Row| row.time.unwrap().total();
    // The last to end has waited for whole blocks over links, seven at most; for one in the built-in mesh.
    let mesh = |row: &&Row| {
        row.candidate.algorithm == Algorithm::MeshOneShot && row.candidate.staging == Staging::Scratch
    };
    let built_in = rows().find(mesh).unwrap();
    let [own_bytes, block] = [own, built_in].map(|row| row.time.unwrap().of(Part::HccsBytes));
    assert!(own_bytes % block == 0 && (1..=7).contains(&(own_bytes / block)), "{own_bytes} of {block}");
    // Where only its staging is left, it is compared with what remains.
    let fastest = rows().filter(|row| row.rejected.is_none()).map(time).min().unwrap();
    assert!(time(own) >= fastest);
    // Asked for by name, it is chosen; so it is by a selector that has nothing faster.
    let asked = Question { algorithm: Some(Algorithm::File), ..question };
    let choice = offering().choose(&asked).unwrap();
    assert_eq!((choice.algorithm, choice.staging), (Algorithm::File, Staging::Scratch));
    assert!(choice.why.starts_with("asked for by --algo-file, "), "{}", choice.why);
    // For another operation, or other ranks, it is none.
    let other = Question { op: OpKind::AllReduce, ..question };
    let explanation = offering().explain(&other).unwrap();
    let row = explanation.rows.iter().find(|row| row.candidate.algorithm == Algorithm::File).unwrap();
    assert!(row.rejected.as_ref().unwrap().contains("all-gather"), "{:?}", row.rejected);
    let refused = offering().choose(&Question { algorithm: Some(Algorithm::File), ..other }).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ALGORITHM_MISMATCH);
}

#[test]
fn rejected_candidates_say_why() {
    let question = Question { op: OpKind::ReduceScatter, count: 100, in_place: true, ..Question::default() };
    let explanation = explain("atlas-a2", (2, 2), &question);
    let why = |algorithm, staging| {
        let row = explanation
            .rows
            .iter()
            .find(|row| row.candidate.algorithm == algorithm && row.candidate.staging == staging);
        row.unwrap().rejected.clone()
    };
    assert_eq!(
        why(Algorithm::MeshOneShot, Staging::Direct).as_deref(),
        Some("cannot work directly where input and output are the same memory")
    );
    assert_eq!(
        why(Algorithm::Strict, Staging::Scratch).as_deref(),
        Some("only where HCCL_DETERMINISTIC is strict")
    );
    assert_eq!(why(Algorithm::Ring, Staging::Scratch), None);
    assert!(explanation.missing.contains(&Algorithm::Tree));
    assert!(explanation.rows.len() + 2 * explanation.missing.len() >= 2 * (Algorithm::ALL.len() - 1));
}

#[test]
fn the_link_that_ranks_share_is_worth_less_to_each() {
    // Pairwise exchanges between servers run one after the other; meshes share the port.
    let topology = topology(2, 4);
    let machine = Machine::new(&topology, &Profile::named("atlas-a2").unwrap(), 1 << 30);
    assert_eq!(machine.topology().ranks(), 8);
    let question = Question { op: OpKind::AllToAll, count: 1 << 20, ..Question::default() };
    let explanation = explain("atlas-a2", (2, 4), &question);
    let best = explanation.rows[0].time.unwrap();
    // Four blocks of 4 MiB leave each port at 25 GB/s.
    let port = 4 * (4 << 20) * 40_000;
    assert!(best.of(Part::RoceBytes) >= port, "{best:?}");
}
