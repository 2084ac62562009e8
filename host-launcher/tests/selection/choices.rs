//! What is chosen, and that choosing fast loses nothing.

use host_launcher::select::machine::Machine;
use host_launcher::select::parts::Part;
use host_launcher::select::profile::Profile;
use host_launcher::select::{Explanation, Question, Selector, class};
use host_launcher::settings::Settings;
use wire::launch::{Algorithm, OpKind, Staging};

use super::topology;

fn explain(profile: &str, world: (u32, u32), question: &Question) -> Explanation {
    let topology = topology(world.0, world.1);
    let profile = Profile::named(profile).unwrap();
    Selector::new(&topology, profile, &Settings::default()).explain(question).unwrap()
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
    for profile in ["atlas-a2", "atlas-a3"] {
        let limit = |world| explain(profile, world, &question).rows[0].time.unwrap().limit().unwrap();
        assert_eq!(limit((1, 8)), Part::HccsBytes, "{profile}");
        assert_eq!(limit((4, 8)), Part::RoceBytes, "{profile}");
    }
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
        let mut selector = Selector::new(&topology, profile, &Settings::default());
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
