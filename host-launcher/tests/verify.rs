//! `aicpu-ts verify` as a shell sees it, and proofs through the library.

use std::process::{Command, Stdio};

use graph_verifier::Obligation;
use host_launcher::communicator::Operation;
use host_launcher::prove::{self, Case};
use host_launcher::rank_table::RankTable;
use host_launcher::topology::Topology;
use serde_json::Value;
use task_graph::Task;
use wire::ReduceOp;
use wire::launch::Algorithm;

/// Exit status, standard output, standard error.
fn run(line: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aicpu-ts"));
    command.args(line.split_whitespace()).env_clear().stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

fn objects(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

#[test]
fn json_has_the_documented_fields() {
    let (status, stdout, stderr) = run("verify all-reduce --ranks 8 --algo ring --staging scratch --json");
    assert_eq!((status, stderr.as_str()), (0, ""));
    let [line] = &objects(&stdout)[..] else { panic!("{stdout}") };
    for (field, expected) in [
        ("op", Value::from("all-reduce")),
        ("algorithm", "ring".into()),
        ("staging", "scratch".into()),
        ("ranks", 8.into()),
        ("count", (1 << 18).into()),
        ("dtype", "fp32".into()),
        ("reduce", "sum".into()),
        ("in_place", false.into()),
        ("proved", true.into()),
        ("retry", true.into()),
        ("unused_bytes", 0.into()),
        ("counterexample", Value::Null),
        // 7 + 7 steps of ACK, wait, write with DATA, wait; and a copy in and out.
        ("tasks", (8 * (14 * 4 + 2)).into()),
    ] {
        assert_eq!(line[field], expected, "{field}");
    }
    let obligations: Vec<_> = line["obligations"].as_array().unwrap().iter().collect();
    assert_eq!(obligations.len(), 13, "with all-gather and reduce-scatter behind it");
    assert_eq!((obligations[5], obligations[10]), (&"V6 race freedom".into(), &"V11 exit safety".into()));
    assert!(line["us"].as_f64().unwrap() > 0.0);
}

#[test]
fn all_algorithms_are_a_line_each() {
    let (status, stdout, _) = run("verify all-reduce --ranks 5 --count 1003 --all-algos --json");
    let lines = objects(&stdout);
    assert_eq!(
        (status, lines.len()),
        (0, 28),
        "thirteen in scratch and directly, star and strict in scratch: {stdout}"
    );
    assert!(lines.iter().all(|line| line["proved"] == true));
    let (status, stdout, _) =
        run("verify reduce-scatter --ranks 5 --count 40 --all-algos --in-place --chunk 7");
    assert_eq!(status, 0);
    assert!(stdout.contains("by ring (scratch)") && stdout.contains("by nhr (scratch)"), "{stdout}");
    assert!(!stdout.contains("direct"), "{stdout}");
}

#[test]
fn what_cannot_be_proved_is_refused_before() {
    for (line, status, expected) in [
        ("verify all-reduce", 2, "--ranks"),
        ("verify all-reduce --ranks 4 --algo bush", 2, "ring, halving-doubling"),
        ("verify all-reduce --ranks 4 --algo ring --all-algos", 2, "cannot be used with"),
        ("verify all-reduce --ranks 4 --bytes 7", 2, "no multiple"),
        ("verify all-reduce --ranks 1100 --algo ring", 2, "at most 1024 with 16384"),
        ("verify all-reduce --ranks 4 --dtype int128", 1, "E1108"),
        ("verify all-gather --ranks 4 --algo halving-doubling", 1, "E3105"),
        ("verify all-reduce --ranks 4 --count 18446744073709551615", 1, "E1109"),
    ] {
        let (code, stdout, stderr) = run(line);
        assert_eq!((code, stdout.as_str()), (status, ""), "{line}: {stderr}");
        assert!(stderr.contains(expected), "{line}: {stderr}");
    }
}

#[test]
fn a_verdict_on_a_wrong_graph_has_code_and_place() {
    let operation = Operation {
        count: 64,
        reduce: ReduceOp::Max,
        algorithm: Algorithm::MeshTwoShot,
        ..Operation::default()
    };
    let topology = Topology::new(&RankTable::uniform(4, 4).expect("four devices"));
    let case = Case::new(operation, &topology, false, 1 << 20);
    let mut graph = case.graph(&topology).expect("has a plan");
    let reduces = |task: &Task| matches!(task, Task::LocalReduce { .. });
    let at = graph.ranks[2].tasks.iter().position(|labelled| reduces(&labelled.task));
    graph.ranks[2].tasks.remove(at.expect("reduces"));
    let verdict = prove::verdict(&case.machine(&topology), &graph, &[]);
    let refuted = verdict.proof.expect_err("a contribution is missing");
    assert_eq!(refuted.obligation, Obligation::Result);
    assert_eq!(refuted.code().to_string(), "E3118 VERIFY_RESULT");
    // Slice 2 of four, 16 elements of 4 bytes each, without one contribution, at whoever looks first.
    assert_eq!(refuted.bytes.as_ref().map(|bytes| bytes.range.clone()), Some(128..192), "{refuted}");
    assert_eq!(verdict.obligations.len(), 12);
}

#[test]
fn algorithm_files_are_proved() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/algorithms");
    for (op, servers, file) in [
        ("all-reduce", 8, "all-reduce-ring-8.xml"),
        ("all-gather", 8, "all-gather-mesh-8.xml"),
        ("all-reduce", 4, "all-reduce-hierarchical-2x4.xml"),
    ] {
        let line = format!(
            "verify {op} --ranks 8 --devices-per-server {servers} --count 1003 --json --algo-file {examples}/{file}"
        );
        let (status, stdout, stderr) = run(&line);
        assert_eq!(status, 0, "{file}: {stdout}{stderr}");
        let [line] = &objects(&stdout)[..] else { panic!("{stdout}") };
        assert_eq!((&line["proved"], &line["algorithm"]), (&true.into(), &"file".into()));
    }
    let line = format!("verify all-gather --ranks 8 --algo-file {examples}/all-reduce-ring-8.xml");
    let (status, _, stderr) = run(&line);
    assert!(status == 1 && stderr.contains("E1253"), "{stderr}");
}
