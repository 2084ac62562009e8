//! The clock equals the naive simulation to the femtosecond, for every candidate of every operation.

use host_launcher::select::machine::Machine;
use host_launcher::select::profile::{Profile, Sharing};
use host_launcher::select::{Candidate, Question, clock, operation};
use wire::DataType;
use wire::launch::{Algorithm, OpKind, Staging};

use super::{naive, profile, topology};

/// Every candidate of an operation that can be planned, compared; returns how many there were.
fn compare(profile: &Profile, (servers, devices): (u32, u32), question: &Question) -> u32 {
    let topology = topology(servers, devices);
    let machine = Machine::new(&topology, profile, 1 << 20);
    let mut compared = 0;
    for &algorithm in Algorithm::ALL {
        for &staging in Staging::ALL {
            let candidate = Candidate { algorithm, levels: [None; 4], staging };
            let operation = operation(question, topology.ranks(), candidate);
            let Ok(chunks) = machine.tasks(&operation, question.in_place) else { continue };
            for chunk in chunks {
                let expected = naive::time(profile, &chunk.tasks);
                let got = clock::run(machine.costs(), chunk.tasks).map(|parts| parts.total());
                assert_eq!(got, expected, "{operation} on {servers} × {devices}, {}", profile.name);
                assert!(expected.is_some(), "{operation} on {servers} × {devices} ends");
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn every_candidate_on_every_machine() {
    let crowded = profile(|profile| {
        profile.name = "everything at once".to_owned();
        profile.engine.workers.value = 3.0;
        profile.engine.task_ns.value = 70.0;
        profile.engine.least_task_ns.value = 400.0;
        profile.engine.notify_ns.value = 30.0;
        profile.links.roce.task_ns.value = 110.0;
        profile.links.roce.shared_by = Sharing::Port;
    });
    let plain = profile(|_| {});
    let built_in = Profile::names().into_iter().map(|name| Profile::named(name).unwrap());
    let profiles: Vec<Profile> = built_in.chain([crowded, plain]).collect();
    let mut compared = 0;
    for profile in &profiles {
        for world in [(1, 1), (1, 4), (1, 5), (2, 2), (3, 2)] {
            for &op in OpKind::ALL {
                for (count, in_place) in [(0, false), (3, false), (1000, true), (1000, false)] {
                    let root = if op.is_rooted() { world.0 * world.1 - 1 } else { 0 };
                    let question = Question { op, count, root, in_place, ..Question::default() };
                    compared += compare(profile, world, &question);
                }
            }
        }
    }
    assert!(compared > 5 * 5 * 13 * 4, "only {compared}");
}

#[test]
fn types_that_only_the_processor_reduces() {
    let question = Question { count: 999, dtype: DataType::Int64, ..Question::default() };
    assert!(compare(&Profile::default(), (2, 2), &question) > 3);
}
