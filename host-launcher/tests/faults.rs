//! Faults under seeds and on real threads: nobody is told success with wrong bytes, every call returns, the guilty rank
//! is named, and the cluster goes on.

use core::time::Duration;
use std::process::Command;
use std::time::Instant;

use host_launcher::faults::{Fault, KINDS, cells};
use host_launcher::sim::{
    Blame, FaultPlan, Given, Limits, Played, Scenario, Verdict, at_each_event, many, play,
};
use serde_json::Value;
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind};

fn given(faults: &[&str]) -> Limits {
    let faults = faults.iter().map(|fault| Fault::parse(fault).unwrap()).collect();
    Limits { faults: FaultPlan::Given(faults), ranks: Some(4), ..Limits::default() }
}

fn lives(limits: &Limits, seeds: core::ops::Range<u64>) -> Vec<Played> {
    let played: Vec<Played> = seeds.clone().map(|seed| play(&Scenario::new(seed, limits))).collect();
    for (seed, played) in seeds.zip(&played) {
        assert!(!played.verdict.is_failure(), "{}\n{played:?}", Scenario::new(seed, limits));
    }
    played
}

/// Plays seeds with a fault, all of which must be noticed unless it came too late to happen, with one of the codes and
/// by the right name.
fn noticed(fault: &str, codes: &[ErrorCode]) {
    let played = lives(&given(&[fault]), 0..40);
    let reported = |played: &&Played| matches!(played.verdict, Verdict::Reported(_));
    let count = played.iter().filter(reported).count();
    assert!(count >= 20, "{fault}: noticed in {count} of 40 seeds");
    for Played { verdict, blame, report, .. } in played.iter().filter(reported) {
        let Verdict::Reported(code) = verdict else { unreachable!("filtered") };
        assert!(codes.contains(code), "{fault}: {report}");
        assert_eq!(*blame, Blame::Right, "{fault}: {report}");
    }
}

#[test]
fn each_fault_is_noticed_as_what_it_is() {
    use ErrorCode as E;
    noticed("kill:rank=2@step=0", &[E::HOST_NOTIFY_TIMEOUT, E::KERNEL_SILENT]);
    noticed("fail:rank=1,code=5206@nth=5", &[E::QP_ERROR]);
    noticed("flip-bit:rank=0,bit=77", &[E::DMA_CORRUPT]);
    noticed("cut-link:rank=3@step=0", &[E::LINK_DOWN]);
    noticed("absent:rank=1", &[E::PEER_NOT_STARTED]);
    noticed("mismatch:rank=3,what=dtype", &[E::ARGUMENTS_DIFFER, E::PLAN_STAGING]);
    noticed("mismatch:rank=0,what=count", &[E::ARGUMENTS_DIFFER]);
    noticed("garble:rank=2", &[E::SQE_FIELD, E::DMA_TOKEN]);
    noticed("duplicate-notify:rank=1,us=30", &[E::NOTIFY_LEFT, E::NOTIFY_TWICE]);
}

/// The field waits two minutes for a rank that is not there. So do we where that is asked, and nobody has to.
#[test]
fn t24_a_missing_rank_is_named_at_the_deadline_of_two_virtual_minutes() {
    let deadline = Duration::from_secs(120);
    let began = Instant::now();
    let mut reported = 0;
    for seed in 0..40 {
        let limits = Limits { timeout: deadline, ..given(&["absent:rank=1"]) };
        let played = play(&Scenario::new(seed, &limits));
        if let Verdict::Reported(code) = played.verdict {
            assert_eq!(
                (code, played.blame),
                (ErrorCode::PEER_NOT_STARTED, Blame::Right),
                "{}",
                played.report
            );
            let late = played.course.noticed.checked_sub(deadline);
            assert!(
                late.is_some_and(|late| late < Duration::from_secs(1)),
                "{seed}: {:?}",
                played.course.noticed
            );
            reported += 1;
        }
    }
    assert!(reported >= 20, "{reported}");
    assert!(began.elapsed() < deadline / 4, "forty times two minutes, in {:?}", began.elapsed());
}

#[test]
fn what_only_takes_time_or_nobody_relies_on_is_no_failure() {
    for fault in [
        "pause:rank=1,us=20000@nth=7",
        "slow:rank=2,us=50",
        "suspend:rank=0,us=4",
        "completion:rank=1,what=lost",
        "completion:rank=1,what=twice@nth=2",
        "completion:rank=0,what=old@nth=2",
        "completion:rank=2,what=bogus",
    ] {
        for played in lives(&given(&[fault]), 0..30) {
            assert_eq!(played.verdict, Verdict::Right, "{fault}: {}", played.report);
        }
    }
}

#[test]
fn a_slow_rank_is_called_slow_and_never_dead() {
    let limits = Limits { timeout: Duration::from_millis(2), ..given(&["slow:rank=2,us=900"]) };
    let played = lives(&limits, 0..60);
    let late = played.iter().filter(|played| played.verdict != Verdict::Right).count();
    assert!(late >= 30, "{late} of 60 were late");
    for played in played {
        assert_ne!(played.blame, Blame::FalseDeath, "{}", played.report);
    }
}

#[test]
fn a_bit_flipped_behind_every_check_shows_only_in_the_bytes() {
    let played = lives(&given(&["flip-bit:rank=1,bit=3,silent=1@nth=2"]), 0..60);
    let shown = played.iter().filter(|played| played.verdict == Verdict::Undetectable).count();
    assert!(shown >= 20, "{shown} of 60");
    assert!(played.iter().all(|played| !matches!(played.verdict, Verdict::Reported(_))));
}

#[test]
fn an_abort_is_seen_by_every_wait_within_a_tenth_of_a_second() {
    let played = lives(&given(&["abort:rank=0,us=1"]), 0..40);
    let aborted: Vec<&Played> =
        played.iter().filter(|played| played.verdict == Verdict::Reported(ErrorCode::COMM_ABORTED)).collect();
    assert!(aborted.len() >= 30, "{}", aborted.len());
    assert!(aborted.iter().all(|played| played.course.noticed <= Duration::from_millis(101)));
    // Also where everybody waits for somebody who is gone.
    let stuck = lives(&given(&["absent:rank=1", "abort:rank=0,us=500"]), 0..20);
    for played in stuck {
        assert_eq!(played.verdict, Verdict::Reported(ErrorCode::COMM_ABORTED), "{}", played.report);
        assert!(played.course.noticed <= Duration::from_millis(101));
    }
}

/// A rank is killed at each of its tasks in turn, until the operation has no such task: all of them are noticed.
#[test]
fn a_rank_killed_at_any_of_its_tasks_is_named() {
    let mut killed = 0;
    for seed in [1, 2, 3, 4, 6, 8, 9, 11] {
        for nth in 1..400 {
            let fault = format!("kill:rank=1@operation=1,nth={nth}");
            let limits = Limits { operations: Some(1), count: Some(24), ..given(&[&fault]) };
            let played = lives(&limits, seed..seed + 1).remove(0);
            if played.verdict == Verdict::Right {
                break;
            }
            assert_eq!(played.blame, Blame::Right, "seed {seed} {fault}\n{}", played.report);
            killed += 1;
        }
    }
    assert!(killed > 150, "{killed}");
}

#[test]
fn one_fault_a_seed_ends_as_it_must() {
    let limits = Limits { faults: FaultPlan::Seeded(1), ..Limits::default() };
    let totals = many(0..700, &limits, 2, None, &|_| {});
    assert_eq!((totals.seeds, totals.failures), (700, 0), "{:?}", totals.first_failures);
    assert_eq!(totals.false_deaths, 0, "{:?}", totals.first_misblamed);
    assert!(totals.blamed > 250 && totals.right > 200, "{totals:?}");
    assert!(totals.slowest_notice_s < 2.0, "{totals:?}");
    assert!(KINDS.iter().all(|kind| totals.faults.contains_key(kind.name)), "{:?}", totals.faults);
    let wrong = totals.blamed - totals.blamed_right;
    assert!(wrong * 100 <= totals.blamed, "{:?}", totals.first_misblamed);
}

/// One rank launches nothing, the other is asked for nothing, which it does: no task, no signal, nothing to compare.
#[test]
fn a_rank_that_is_missed_by_nobody() {
    let faults = ["absent:rank=0", "mismatch:rank=1,what=count"];
    let ends = |seed: u64, faults: &[&str]| {
        let limits = Limits { ranks: Some(2), operations: Some(2), count: Some(1), ..given(faults) };
        lives(&limits, seed..seed + 1).remove(0)
    };
    for seed in [59423, 71038] {
        assert_eq!(ends(seed, &faults).verdict, Verdict::Undetectable, "{seed}");
        // Asked for the right thing, it waits.
        let alone = ends(seed, &faults[..1]);
        assert_eq!(alone.verdict, Verdict::Reported(ErrorCode::PEER_NOT_STARTED), "{seed}");
        assert_eq!(alone.blame, Blame::Right, "{seed}");
    }
}

/// Lives that once ended in wrong bytes told as success, and in memory that stayed taken.
#[test]
fn seeds_that_failed_once_do_not_again() {
    let doubled = ["duplicate-notify:rank=1,us=16@nth=24"];
    let exhausted = ["exhaust:rank=5,nth=13"];
    // Stores of a dead NPU that nobody would ever have seen.
    let dead = ["mismatch:rank=0,what=count", "kill:rank=0"];
    let lives_of: [(u64, u32, u64, &[&str]); 3] =
        [(5395, 2, 3, &doubled), (3813, 6, 1, &exhausted), (51576, 2, 3, &dead)];
    for (seed, ranks, count, faults) in lives_of {
        let limits = Limits { ranks: Some(ranks), operations: Some(1), count: Some(count), ..given(faults) };
        lives(&limits, seed..seed + 1);
    }
}

/// A notify is one bit. Where one signal too many ended a wait early, only the bit that is left over says so, unless the
/// signal that would have left it is lost.
#[test]
fn a_signal_too_many_hides_one_too_few_and_neither_hides_alone() {
    let doubled = ["duplicate-notify:rank=1,us=1", "duplicate-notify:rank=1,us=8192"];
    let (late, lost) = ("lose-doorbell:rank=1@nth=6", "drop-notify:rank=1@nth=2");
    let ends = |faults: &[&str]| {
        let limits = Limits { ranks: Some(3), operations: Some(1), count: Some(1), ..given(faults) };
        let played = lives(&limits, 17331..17332).remove(0);
        (played.verdict, played.blame)
    };
    let reported = |code| (Verdict::Reported(code), Blame::Right);
    assert_eq!(ends(&[doubled[0], late, doubled[1]]), reported(ErrorCode::NOTIFY_LEFT));
    assert_eq!(ends(&[late, lost]), reported(ErrorCode::NOTIFY_TIMEOUT));
    assert_eq!(ends(&[doubled[0], late, doubled[1], lost]).0, Verdict::Undetectable);
}

#[test]
fn several_faults_a_seed_end_as_they_must() {
    let limits = Limits { faults: FaultPlan::Seeded(12), ..Limits::default() };
    let totals = many(0..300, &limits, 2, None, &|_| {});
    assert_eq!((totals.seeds, totals.failures), (300, 0), "{:?}", totals.first_failures);
}

/// What a kernel does not believe it refuses, and what it has to wait for in vain ends at the deadline: where rings are long
/// enough for all there is, nobody looks and everything is right.
#[test]
fn a_head_that_is_wrong_is_refused_or_does_no_harm() {
    use ErrorCode as E;
    let codes: [(&str, &[E]); 3] = [
        ("frozen", &[E::HOST_NOTIFY_TIMEOUT, E::NOTIFY_TIMEOUT, E::QUEUE_FULL]),
        ("beyond", &[E::QUEUE_HEAD]),
        ("back", &[E::QUEUE_HEAD, E::HOST_NOTIFY_TIMEOUT, E::NOTIFY_TIMEOUT]),
    ];
    for (what, codes) in codes {
        let (mut right, mut reported) = (0, 0);
        for nth in [1, 3, 9] {
            for played in lives(&given(&[&format!("head:rank=1,what={what}@nth={nth}")]), 0..40) {
                match played.verdict {
                    Verdict::Right => right += 1,
                    Verdict::Reported(code) => {
                        assert!(codes.contains(&code), "{what}: {}", played.report);
                        assert_eq!(played.blame, Blame::Right, "{what}: {}", played.report);
                        reported += 1;
                    }
                    _ => panic!("{what}: {played:?}"),
                }
            }
        }
        assert!(right > 20 && reported > 5, "{what}: {right} right, {reported} reported");
    }
}

/// A bit of a ring entry that a neighbour has overwritten, each of the 512: refused, explained at the deadline, without
/// consequence, or as undetectable as any bit that flips behind all check codes; and the cluster goes on.
#[test]
fn a_garbled_entry_ends_in_a_report_or_in_bytes_that_only_a_comparison_shows() {
    let mut reported = 0;
    for bit in 0..512 {
        let fault = format!("garble:rank=1,bit={bit}@nth=3");
        for played in lives(&given(&[&fault]), bit..bit + 1) {
            reported += u32::from(matches!(played.verdict, Verdict::Reported(_)));
        }
    }
    assert!(reported > 200, "{reported}");
}

/// Runs the command and returns its exit status, its JSON lines, and what it says on standard error.
fn command(args: &[&str]) -> (i32, Vec<Value>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_aicpu-ts")).args(args).env_clear().output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code().unwrap(), lines, String::from_utf8(output.stderr).unwrap())
}

const RUN: [&str; 8] = ["run", "all-reduce", "--ranks", "4", "--algo", "ring", "--timeout", "300"];

#[test]
fn a_run_with_a_fault_says_who_where_and_why_and_goes_on() {
    let (status, lines, text) = command(&[&RUN[..], &["--json", "--fault", "kill:rank=2@step=1"]].concat());
    let line = &lines[0];
    assert_eq!((status, lines.len()), (1, 1), "{text}");
    assert_eq!((&line["culprit_rank"], &line["step"]), (&2.into(), &1.into()), "{line}");
    for field in ["code", "task", "peer"] {
        assert!(line[field].is_u64(), "{field}: {line}");
    }
    for field in ["cause", "effect"] {
        assert!(line[field].as_str().is_some_and(|text| text.len() > 10), "{field}: {line}");
    }
    assert_eq!((&line["recovered"], &line["retry"]["possible"]), (&true.into(), &true.into()));
}

#[test]
fn what_a_run_survives_is_no_failure() {
    for fault in
        ["pause:rank=1,us=2000@step=1", "slow:rank=0,us=20", "suspend", "lose-doorbell:rank=0@operation=9"]
    {
        let (status, lines, text) =
            command(&[&RUN[..], &["--json", "--steps", "2", "--fault", fault]].concat());
        assert_eq!((status, &lines[0]["verified"]), (0, &true.into()), "{fault}: {text}");
    }
}

/// Ranks that were asked for different things, and compare it never or always: the first shows in the bytes alone.
#[test]
fn a_run_compares_launches_as_the_environment_says() {
    for (check, code) in [("off", 8001), ("first", 6301), ("on", 6301)] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_aicpu-ts"));
        run.args(RUN).args(["--json", "--fault", "mismatch:rank=1,what=reduce"]).env_clear();
        let output = run.env("HCCL_DFS_CONFIG", format!("inconsistent_check:{check}")).output().unwrap();
        let line: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &line["code"]), (Some(1), &code.into()), "{check}: {line}");
    }
}

#[test]
fn a_fault_that_cannot_be_put_in_is_wrong_usage() {
    let (status, _, text) = command(&[&RUN[..], &["--fault", "kill:rank=4"]].concat());
    assert!(status == 2 && text.contains("there are 4 ranks"), "{status} {text}");
    let (status, _, text) = command(&[&RUN[..], &["--fault", "kill:rank=1@event=7"]].concat());
    assert!(status == 2 && text.contains("only a simulation has events"), "{status} {text}");
    let (status, _, text) = command(&[&RUN[..], &["--fault", "kil"]].concat());
    assert!(status == 2 && text.contains("there are kill, pause"), "{status} {text}");
}

#[test]
fn faults_are_listed_and_a_seed_repeats() {
    let (status, lines, _) = command(&["faults", "--json"]);
    assert_eq!((status, lines.len()), (0, KINDS.len()));
    let sim = ["sim", "--json", "--seed", "77", "--faults", "3"];
    let ((first, one, _), (second, two, _)) = (command(&sim), command(&sim));
    assert_eq!((first, second, &one), (0, 0, &two));
    let again: Vec<&str> = one[0]["command"].as_str().unwrap().split(' ').skip(1).chain(["--json"]).collect();
    let (_, three, _) = command(&again);
    assert_eq!(three[0]["digest"], one[0]["digest"], "the command printed is the same life");
    let (status, lines, _) = command(&["sim", "--json", "--seeds", "20", "--faults", "1", "--jobs", "1"]);
    let line = &lines[0];
    assert_eq!((status, &line["seeds"], &line["failures"]), (0, &20.into(), &0.into()));
    for field in ["hangs", "silent_corruptions", "seeds_per_second"] {
        assert!(line[field].is_number(), "{field}");
    }
    let struck = line["cells"].as_object().unwrap();
    assert_eq!(struck.len(), cells().count());
    let hits: u64 = struck.values().filter_map(Value::as_u64).sum();
    assert!((5..=20).contains(&hits), "{hits}");
}

/// What is fixed of the operations, of the schedule and of the event is in the command that is printed.
#[test]
fn a_life_struck_at_an_event_repeats() {
    let fixed = ["--op", "reduce-scatter", "--algo", "nhr", "--life", "5", "--fault", "kill:rank=0@event=40"];
    let sim = [&["sim", "--json", "--seed", "9"][..], &fixed].concat();
    let ((_, one, text), (_, two, _)) = (command(&sim), command(&sim));
    assert_eq!(one, two);
    assert_eq!(one[0]["verdict"], "reported", "{text}");
    let printed = one[0]["command"].as_str().unwrap();
    let again: Vec<&str> = printed.split(' ').skip(1).chain(["--json"]).collect();
    assert_eq!(command(&again).1[0]["digest"], one[0]["digest"], "{printed}");
}

/// On threads a phase is where the rings and counters of the NPU say.
#[test]
fn a_run_is_struck_in_a_phase() {
    let dead = |phase: &str| {
        let fault = format!("kill:rank=2@phase={phase}");
        let (status, lines, text) =
            command(&[&RUN[..], &["--json", "--steps", "2", "--fault", &fault]].concat());
        assert_eq!(status, 1, "{phase}: {text}");
        assert_eq!(lines[0]["culprit_rank"], 2, "{phase}: {}", lines[0]);
        assert_eq!(lines[0]["recovered"], true, "{phase}: {}", lines[0]);
    };
    // When all is executed, it is the next operation that finds the NPU dead.
    ["before-doorbell", "in-flight", "completing", "teardown"].into_iter().for_each(dead);
    for phase in ["in-flight", "completing", "teardown"] {
        let fault = format!("suspend@phase={phase}");
        let (status, lines, text) =
            command(&[&RUN[..], &["--json", "--steps", "2", "--fault", &fault]].concat());
        assert_eq!((status, &lines[0]["verified"]), (0, &true.into()), "{phase}: {text}");
    }
}

/// A life for each fault in each operation and each of its phases: almost all strike it there, and none where that is said
/// to be impossible.
#[test]
fn faults_strike_where_they_are_told_to() {
    let all: Vec<_> = cells().collect();
    let mut missed = Vec::new();
    for cell in &all {
        let fault = format!("{}@phase={}", cell.kind, cell.phase.name());
        let op = OpKind::ALL.iter().copied().find(|op| op.name() == cell.op);
        let limits = Limits { given: Given { op, ..Given::default() }, ..given(&[&fault]) };
        let played = lives(&limits, 3..4);
        let struck = played.iter().flat_map(|played| &played.course.cells);
        assert!(struck.clone().all(|struck| all.contains(struck)), "{cell}: {struck:?}");
        if !struck.clone().any(|struck| struck == cell) {
            missed.push(cell.to_string());
        }
        for Played { blame, report, .. } in &played {
            assert!(matches!(blame, Blame::Right | Blame::None), "{cell}: {report}");
        }
    }
    assert!(
        all.len() > 500 && missed.len() * 20 < all.len(),
        "{} of {}: {missed:?}",
        missed.len(),
        all.len()
    );
}

/// What strikes after an operation is found by the next one, or by nobody.
#[test]
fn a_kill_after_the_last_operation_leaves_nothing_taken_and_before_the_next_is_named() {
    let limits = Limits { operations: Some(1), ..given(&["kill:rank=1@phase=teardown"]) };
    let [mut right, mut named] = [0; 2];
    for seed in 0..40 {
        let scenario = Scenario::new(seed, &limits);
        let played = play(&scenario);
        if scenario.parts[0].times == 1 {
            assert_eq!(played.verdict, Verdict::Right, "{seed}: {}", played.report);
            right += 1;
        } else {
            assert!(matches!(played.verdict, Verdict::Reported(_)), "{seed}: {:?}", played.verdict);
            assert_eq!(played.blame, Blame::Right, "{seed}: {}", played.report);
            named += 1;
        }
    }
    assert!(right > 5 && named > 10, "{right} right, {named} named");
}

/// A rank is killed behind every event of an operation: each time another thing of its kernel and its NPU is half done.
#[test]
fn a_rank_killed_behind_any_event_is_named() {
    let given_ring = Given { op: Some(OpKind::AllReduce), algorithm: Some(Algorithm::Ring), life: Some(1) };
    let limits = Limits { operations: Some(1), count: Some(5), given: given_ring, ..given(&["kill:rank=2"]) };
    let totals = at_each_event(0..1, &limits, 2);
    assert_eq!(totals.failures, 0, "{:?}", totals.first_failures);
    assert_eq!(totals.blamed, totals.blamed_right, "{:?}", totals.first_misblamed);
    assert!(totals.seeds > 300 && totals.blamed > 200, "{} events, {} named", totals.seeds, totals.blamed);
    assert_eq!(totals.faults["kill"], totals.seeds);
    for (phase, least) in [("before-doorbell", 100), ("in-flight", 100), ("completing", 1)] {
        assert!(totals.cells[&format!("kill/all-reduce/{phase}")] >= least, "{phase}: {:?}", totals.cells);
    }
}
