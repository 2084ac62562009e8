//! The command as a shell sees it: exit status, standard output, standard error. Entry 152 of the bad-input list.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use host_launcher::traffic::Traffic;
use serde_json::Value;

/// The command, with nothing of the caller's environment.
fn command(args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aicpu-ts"));
    command.args(args).env_clear().stdin(Stdio::null());
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// Exit status, standard output, standard error.
fn outcome(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

fn run(line: &str) -> (i32, String, String) {
    outcome(&mut command(&words(line)))
}

/// Asserts that arguments are refused as wrong usage, with a message that says `expected` and nothing on standard
/// output.
fn assert_usage(args: &[impl AsRef<OsStr>], expected: &str) {
    let shown: Vec<_> = args.iter().map(AsRef::as_ref).collect();
    let (status, stdout, stderr) = outcome(&mut command(args));
    assert_eq!((status, stdout.as_str()), (2, ""), "{shown:?}: {stderr}");
    assert!(stderr.contains(expected), "{shown:?}: {expected:?} is not in {stderr}");
    assert!(!stderr.contains("panicked") && stderr.lines().count() < 30, "{shown:?}: {stderr}");
}

#[test]
fn no_arguments_show_what_there_is() {
    assert_usage(&[] as &[&str], "Usage: aicpu-ts");
}

#[test]
fn near_misses_are_named() {
    assert_usage(&["topoo"], "'topo'");
    assert_usage(&["veryfy"], "unrecognized subcommand 'veryfy'");
    assert_usage(&words("run all-redcue --ranks 2"), "all-reduce, all-gather, reduce-scatter");
    assert_usage(&words("run all-reduce --rank 2"), "'--ranks'");
    assert_usage(&words("run all-reduce --ranks 2 --frobnicate"), "unexpected argument '--frobnicate'");
    assert_usage(&words("run all-reduce --ranks 2 --dtype float"), "fp32");
    assert_usage(&words("run all-reduce --ranks 2 --op avg"), "sum, prod, max, min");
    assert_usage(&words("run all-reduce --ranks 2 --algo trees"), "ring, halving-doubling, nhr");
    assert_usage(&words("run all-reduce --ranks 2 --aicpu gpu"), "thread, qemu");
}

#[test]
fn a_flag_needs_its_value_and_another_flag_is_none() {
    assert_usage(&words("run all-reduce --ranks"), "a value is required for '--ranks <N>'");
    assert_usage(&words("run all-reduce --ranks --json"), "a value is required for '--ranks <N>'");
    assert_usage(&words("run --ranks 2"), "<OP>");
    assert_usage(&words("run all-reduce"), "--ranks");
}

#[test]
fn numbers_are_whole_and_inside_their_range() {
    for ranks in ["0", "-1", "65537", "3.5", "1_000", "", " 4", "4 ", "+", "٤", "4294967298", "0x4", "1e3"] {
        assert_usage(
            &["run", "all-reduce", "--ranks", ranks],
            &format!("invalid value '{ranks}' for '--ranks <N>'"),
        );
    }
    for bytes in ["4GiB", "4gib", "4 GiB", "-4", "1_000", "1.5M", "99999999999G", "M"] {
        assert_usage(&["run", "all-reduce", "--ranks", "2", "--bytes", bytes], "'");
    }
    for count in ["-1", "1.0", "18446744073709551616"] {
        assert_usage(&["run", "all-reduce", "--ranks", "2", "--count", count], "'");
    }
    for steps in ["0", "-1"] {
        assert_usage(&["run", "all-reduce", "--ranks", "2", "--steps", steps], "'");
    }
    assert_usage(&words("run all-reduce --ranks 2 --timeout 0"), "invalid value '0' for '--timeout <MS>'");
    assert_usage(&words("run all-reduce --ranks 2 --devices-per-server 66"), "66 is not in 1..=65");
    assert_usage(
        &words("run all-reduce --ranks 2 --bytes 7"),
        "E1302 ARGUMENT_VALUE\n  what     --bytes 7 is no multiple of the 4 bytes of fp32",
    );
}

#[test]
fn seeds_are_decimal_or_hexadecimal() {
    for seed in ["0", "0x5eed", "18446744073709551615"] {
        assert_eq!(run(&format!("run all-reduce --ranks 2 --bytes 64 --seed {seed}")).0, 0, "{seed}");
    }
    for seed in ["18446744073709551616", "0x10000000000000000", "-1", "5eed"] {
        assert_usage(&["run", "all-reduce", "--ranks", "2", "--seed", seed], &format!("'{seed}'"));
    }
}

#[test]
fn flags_are_given_once_and_exclude_each_other() {
    assert_usage(&words("run all-reduce --ranks 2 --ranks 2"), "cannot be used multiple times");
    assert_usage(&words("run all-reduce --ranks 2 --rank-table x.json"), "cannot be used with");
    assert_usage(&words("run all-reduce --ranks 2 --count 4 --bytes 16"), "cannot be used with");
    assert_usage(&words("run all-reduce --ranks 2 --topology x.json"), "cannot be used with");
    assert_usage(&words("run all-reduce --topology x.json"), "--rank-table");
}

#[test]
fn help_and_version_go_to_standard_output() {
    for line in ["--help", "run --help", "help topo", "run all-reduce --help", "--version"] {
        let (status, stdout, stderr) = run(line);
        assert_eq!((status, stderr.as_str()), (0, ""), "{line}");
        assert!(stdout.contains("aicpu-ts"), "{line}: {stdout}");
    }
    assert_usage(&words("run all-reduce --frobnicate --help"), "'--frobnicate'");
}

#[test]
fn arguments_need_not_be_utf_8() {
    let bad = OsStr::from_bytes(b"a\xff\xfe");
    for args in [
        vec![bad],
        vec![OsStr::new("run"), bad, OsStr::new("--ranks"), OsStr::new("2")],
        vec![OsStr::new("run"), OsStr::new("all-reduce"), OsStr::new("--ranks"), bad],
    ] {
        let output = command(&args).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}");
    }
    let (status, stdout, stderr) =
        outcome(&mut command(&[OsStr::new("topo"), OsStr::new("--rank-table"), bad]));
    assert_eq!((status, stdout.as_str()), (1, ""));
    assert!(stderr.starts_with(r#"E1201 RANK_TABLE_READ  "a\xFF\xFE""#), "{stderr}");
}

#[test]
fn a_failure_is_status_1_with_its_code_on_standard_error() {
    let (status, stdout, stderr) = run("run all-reduce --rank-table no/such/file.json");
    assert_eq!((status, stdout.as_str()), (1, ""));
    assert!(stderr.starts_with("E1201 RANK_TABLE_READ  \"no/such/file.json\"\n  what "), "{stderr}");
    let (status, _, stderr) = run("run all-reduce --ranks 2 --dtype fp8e4m3 --bytes 64");
    assert!(status == 1 && stderr.starts_with("E1108 LAUNCH_REDUCE\n"), "{status}: {stderr}");
    let (status, _, stderr) = run("run all-gather --ranks 2 --algo mesh-two-shot --bytes 64");
    assert!(status == 1 && stderr.starts_with("E3105 PLAN_OP\n"), "{status}: {stderr}");
    let (status, _, stderr) =
        run("run all-reduce --ranks 2 --aicpu qemu --image no/such/image.elf --bytes 64");
    assert!(status == 1 && stderr.contains("no/such/image.elf"), "{status}: {stderr}");
    let (status, _, stderr) = run("run all-reduce --ranks 129 --bytes 64");
    assert!(status == 1 && stderr.starts_with("E2008 CONTEXT_CAPACITY\n"), "{status}: {stderr}");
    let (status, stdout, stderr) = outcome(command(&["env"]).env("HCCL_EXEC_TIMEOUT", "soon"));
    assert!(status == 1 && stdout.is_empty() && stderr.starts_with("E1001 ENV_VALUE"), "{status}: {stderr}");
}

#[test]
fn algorithms_come_from_files() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/algorithms/all-reduce-hierarchical-2x4.xml");
    let line =
        format!("run all-reduce --ranks 8 --devices-per-server 4 --count 1001 --steps 2 --algo-file {file}");
    let (status, stdout, stderr) = run(&format!("{line} --json"));
    assert_eq!(status, 0, "{stderr}");
    let summary = object(&stdout);
    assert_eq!(summary["algorithm"], "file");
    assert_eq!(summary["verified"], true);
    assert_eq!(summary["cache_hits"], 8);
    assert_eq!(summary["why"], "\"hierarchical all-reduce\", asked for by --algo-file");
    assert_usage(&words(&format!("{line} --algo ring")), "cannot be used with");
    let (status, _, stderr) = run("run all-reduce --ranks 8 --algo-file no/such/file.xml");
    assert!(status == 1 && stderr.starts_with("E1241 ALGORITHM_READ  \"no/such/file.xml\""), "{stderr}");
    let (status, _, stderr) = run(&line.replace("all-reduce --", "all-gather --"));
    assert!(status == 1 && stderr.starts_with("E1253 ALGORITHM_MISMATCH\n"), "{stderr}");
    let (status, _, stderr) = run(&line.replace("--ranks 8", "--ranks 7"));
    assert!(status == 1 && stderr.starts_with("E1253 ALGORITHM_MISMATCH\n"), "{stderr}");
}

/// The only line of an output, as an object.
fn object(stdout: &str) -> Value {
    assert!(stdout.ends_with('\n') && stdout.lines().count() == 1, "{stdout}");
    let value: Value = serde_json::from_str(stdout).unwrap();
    assert!(value.is_object());
    value
}

/// Asserts that a failure has all the fields there are, known or not.
fn assert_fields(failure: &Value) {
    for field in ["code", "name", "culprit_rank", "step", "task", "peer", "cause", "remedy", "effect"] {
        assert!(failure.get(field).is_some(), "no {field} in {failure}");
    }
}

/// A deadline that the emulated kernels cannot keep: the device waits for them before every chunk, of which there
/// are several, and a wait is when a deadline is looked at.
#[test]
fn a_failed_operation_names_its_rank() {
    let Some(image) = std::env::var_os("AICPU_IMAGE_ELF") else {
        eprintln!("skipped: AICPU_IMAGE_ELF names no image; run `cargo xtask test`");
        return;
    };
    let mut args = words(
        "run all-reduce --ranks 8 --bytes 4M --algo ring --staging scratch --aicpu qemu --timeout 1 --json --image",
    );
    args.push(image);
    let (status, stdout, stderr) = outcome(command(&args).env("HCCL_BUFFSIZE", "1"));
    let failure = object(&stdout);
    assert_eq!((status, &failure["code"]), (1, &6101.into()), "{stderr}");
    assert!(failure["culprit_rank"].as_u64().unwrap() < 8);
    assert_fields(&failure);
    assert!(stderr.starts_with("E6101 HOST_NOTIFY_TIMEOUT  comm \"run\""), "{stderr}");
}

/// A run that fails leaves dumps, and they say what the run said.
#[test]
fn dumps_of_a_failed_run_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let dumps = folder.path().join("dumps");
    let mut args = words("run all-reduce --ranks 8 --bytes 16M --timeout 1 --json --dump");
    args.push(dumps.clone().into());
    let (status, stdout, stderr) = outcome(&mut command(&args));
    let failure = object(&stdout);
    assert_eq!((status, &failure["code"]), (1, &6101.into()), "{stderr}");
    assert_fields(&failure);
    assert!(
        stderr.contains("set by --timeout") && stderr.contains("  more     dumps of all ranks in "),
        "{stderr}"
    );

    let (status, stdout, stderr) =
        outcome(&mut command(&["--json".as_ref(), "diagnose".as_ref(), dumps.as_os_str()]));
    assert_eq!((status, stderr.as_str()), (0, ""));
    let findings = object(&stdout);
    for field in ["code", "culprit_rank", "rank", "step", "task", "peer", "cause", "since", "operation"] {
        assert_eq!(findings["root"][field], failure[field], "{field}");
    }
    assert_eq!(
        (findings["missing"].as_array().unwrap().len(), findings["ranks"].as_array().unwrap().len()),
        (0, 8)
    );

    let (status, stdout, _) = outcome(&mut command(&["diagnose".as_ref(), dumps.as_os_str()]));
    assert_eq!(status, 0);
    assert!(
        stdout.starts_with("E6101 HOST_NOTIFY_TIMEOUT  comm \"run\"") && stdout.contains("launch taken"),
        "{stdout}"
    );
    let (status, stdout, stderr) = run("diagnose no/such/folder");
    assert_eq!((status, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.starts_with("E1601 DUMP_READ"), "{stderr}");
}

#[test]
fn json_failures_have_the_same_fields_whoever_reports_them() {
    let expected = [
        // Found in a file, in the arguments, and in what they ask for together.
        ("topo --rank-table no/such/file.json --json", 1201, "No such file"),
        ("--json run all-reduce --ranks 2 --dtype int128 --bytes 64", 1108, "cannot be reduced"),
        (
            "run reduce-scatter --ranks 2 --algo ring --staging direct --bytes 64 --json",
            3106,
            "reduce-scatter fp32 × 16 sum by ring (direct): this algorithm cannot work without scratch",
        ),
    ];
    for (line, code, cause) in expected {
        let (status, stdout, stderr) = run(line);
        let failure = object(&stdout);
        assert_eq!((status, &failure["code"]), (1, &code.into()), "{line}");
        assert!(failure["culprit_rank"].is_null(), "{line}: {failure}");
        assert_fields(&failure);
        assert!(failure["effect"].is_string() && failure["remedy"].is_string());
        assert!(failure["cause"].as_str().unwrap().contains(cause), "{line}: {failure}");
        assert!(stderr.starts_with(&format!("E{code} ")), "{line}: {stderr}");
    }
}

#[test]
fn json_results_have_the_documented_fields() {
    let (status, stdout, stderr) =
        run("run all-reduce --ranks 4 --devices-per-server 2 --algo ring --bytes 4K --json");
    assert_eq!((status, stderr.as_str()), (0, ""));
    let result = object(&stdout);
    for (field, expected) in [
        ("op", Value::from("all-reduce")),
        ("algorithm", "ring".into()),
        ("ranks", 4.into()),
        ("bytes", 4096.into()),
        ("dtype", "fp32".into()),
        ("verified", true.into()),
        ("steps", 6.into()),
        ("host_ops", 3.into()),
        ("launches", 1.into()),
        ("doorbells", 4.into()),
    ] {
        assert_eq!(result[field], expected, "{field}");
    }
    assert!(result["descriptors"].as_u64().unwrap() > 100);
    assert!(result["measured_us"].as_f64().unwrap() > 0.0);
    // Each of four ranks sends six quarters, two ranks of them to the other server.
    let links = &result["bytes_per_link"];
    assert_eq!((&links["hccs"], &links["roce"], &links["ub"]), (&12288.into(), &12288.into(), &0.into()));
}

/// Two ranks, ten steps of three operations: one launch a step and rank, and only the first of them expands.
#[test]
fn a_captured_run_replays_one_program() {
    let line = "run all-gather --ranks 2 --bytes 4K --steps 10 --rotate-buffers 3 --capture 3 --json";
    let (status, stdout, stderr) = run(line);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let result = object(&stdout);
    let number = |name: &str| result[name].as_u64().unwrap();
    assert_eq!((number("captured"), number("launches"), number("host_ops")), (3, 1, 3));
    assert_eq!((number("cache_hits"), number("cache_misses"), number("chunks")), (18, 2, 3));
    assert_eq!(result["verified"], true);
    let plain = object(&run("run all-gather --ranks 2 --bytes 4K --json").1);
    assert_eq!(plain["captured"], 0);
    assert_eq!(number("descriptors"), 3 * plain["descriptors"].as_u64().unwrap());
    assert_usage(&words("run all-reduce --ranks 2 --capture 2 --in-place"), "cannot be used with");
    assert_usage(&words("run all-reduce --ranks 2 --capture 129"), "1..=128");
}

/// Communicators over the same ranks, whose operations are under way at the same time: on streams of their own none waits
/// for another, on one stream each for the one before it.
#[test]
fn communicators_take_turns_on_streams() {
    let line = "run all-reduce --ranks 4 --devices-per-server 2 --count 1003 --steps 3 --json";
    let number = |result: &Value, name: &str| result[name].as_u64().unwrap();
    let one = object(&run(line).1);
    assert_eq!((number(&one, "launches"), number(&one, "streams"), number(&one, "held")), (1, 0, 0));
    for (options, launches, streams, held) in [
        ("--streams 3", 3, 3, 0),
        ("--comms 3", 3, 0, 0),
        ("--comms 3 --streams 1", 3, 1, 2 * 4),
        ("--comms 5 --streams 2 --in-place", 5, 2, 3 * 4),
        ("--comms 1 --streams 2", 1, 1, 0),
        ("--comms 2 --streams 1 --capture 2 --rotate-buffers 2", 2, 1, 4),
        ("--streams 2 --sizes 3", 2, 2, 0),
    ] {
        let (status, stdout, stderr) = run(&format!("{line} {options}"));
        assert_eq!((status, stderr.as_str()), (0, ""), "{options}");
        let result = object(&stdout);
        let found = ["launches", "streams", "held"].map(|name| number(&result, name));
        assert_eq!(found, [launches, streams, held], "{options}");
        assert_eq!(result["verified"], true, "{options}");
        assert_eq!(number(&result, "channels"), launches * number(&one, "channels"), "{options}");
        let calls = number(&result, "cache_hits") + number(&result, "cache_misses");
        assert_eq!(calls, 3 * 4 * launches, "{options}");
        // What is counted for an operation is the same whatever is beside it.
        if options.starts_with("--comms 3") || options == "--streams 3" {
            assert_eq!(number(&result, "descriptors"), number(&one, "descriptors"), "{options}");
            assert_eq!(result["bytes_per_link"], one["bytes_per_link"], "{options}");
        }
    }
    let (_, stdout, _) = run("run all-reduce --ranks 2 --bytes 64 --comms 2 --streams 1");
    let said = "2 communicators on 1 stream(s); 2 launches of a step waited for their turn";
    assert!(stdout.contains(said), "{stdout}");
    assert_usage(&words("run all-reduce --ranks 2 --streams 0"), "1..=16");
    assert_usage(&words("run all-reduce --ranks 2 --streams 2 --fault kill:rank=0"), "cannot be used with");
}

/// Every operation by the name users type, out of place and in place: verified, or refused where input and output are
/// different places by their meaning.
#[test]
fn every_operation_runs_by_its_name() {
    let in_place = [
        "all-reduce",
        "reduce --root 4",
        "reduce-scatter",
        "reduce-scatter-v",
        "all-gather",
        "all-gather-v",
        "broadcast --root 3",
        "scatter --root 2",
        "gather --root 1",
        "all-to-all",
        "barrier",
    ];
    let apart = ["all-to-all-v", "all-to-all-vc", "send", "recv", "send-recv", "batch-send-recv"];
    let name = |text: &&'static str| text.split(' ').next().unwrap();
    let mut known: Vec<_> = in_place.iter().chain(&apart).map(name).collect();
    let mut offered: Vec<_> = Traffic::all().into_iter().map(|(name, _)| name).collect();
    known.sort_unstable();
    offered.sort_unstable();
    assert_eq!(known, offered);
    // Servers of three and two, so that links of both kinds are used; the second step hits.
    let options = "--ranks 5 --devices-per-server 3 --count 1003 --steps 2 --seed 7 --json";
    let verified = |line: &str| {
        let (status, stdout, stderr) = run(line);
        assert_eq!((status, stderr.as_str()), (0, ""), "{line}");
        let result = object(&stdout);
        assert_eq!((&result["verified"], &result["ranks"]), (&true.into(), &5.into()), "{line}: {result}");
        assert_eq!(
            (&result["cache_hits"], &result["cache_misses"]),
            (&5.into(), &5.into()),
            "{line}: {result}"
        );
        assert!(result["descriptors"].as_u64() > Some(0), "{line}: {result}");
    };
    for operation in in_place {
        verified(&format!("run {operation} {options}"));
        verified(&format!("run {operation} {options} --in-place"));
    }
    for operation in apart {
        verified(&format!("run {operation} {options}"));
        let (status, _, stderr) = run(&format!("run {operation} {options} --in-place"));
        assert!(status == 1 && stderr.starts_with("E1114 LAUNCH_OVERLAP"), "{operation}: {status}: {stderr}");
    }
}

/// A serving load: a thousand steps, a thousand sizes, and the cache's counters. Each class of sizes is recorded for one
/// size, then once for all.
#[test]
fn a_thousand_sizes_hit() {
    let line = "run all-reduce --ranks 2 --algo ring --count 3000 --steps 1000 --sizes 1000 --rotate-buffers 2 --json";
    let (status, stdout, stderr) = run(line);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let result = object(&stdout);
    let number = |name: &str| result[name].as_u64().unwrap();
    assert_eq!((number("sizes"), number("count"), number("repetitions")), (1000, 3000, 1000));
    assert_eq!(number("cache_hits") + number("cache_misses"), 2 * 1000);
    assert!(number("cache_hits") >= 2 * 990, "{result}");
    assert_eq!((number("cache_bypassed"), &result["verified"]), (0, &true.into()));
    assert!(0 < number("expand_ns") && number("expand_ns") <= number("expand_p95_ns"), "{result}");
    assert!(0 < number("replay_ns") && number("replay_ns") <= number("replay_p95_ns"), "{result}");
    // The field's cache has one graph for each size.
    let field = object(&run(&line.replace("--json", "--cache hccl --json")).1);
    assert_eq!((&field["cache_hits"], &field["cache_bypassed"]), (&0.into(), &2000.into()));
    let (status, _, stderr) = run(&line.replace("--count 3000", "--count 999"));
    assert!(status == 2 && stderr.contains("1000 sizes of at most 999 elements"), "{status}: {stderr}");
    assert_usage(&words("run all-reduce --ranks 2 --sizes 3 --capture 2"), "cannot be used with");
    assert_usage(
        &words("run all-gather-v --ranks 2 --sizes 3"),
        "3 sizes: all-gather-v has counts of its own for each rank",
    );
}

/// What would take hours and gigabytes is refused at once.
#[test]
fn more_ranks_than_can_be_shown_are_refused() {
    for (line, code, what) in [
        ("topo --ranks 65536", "E1301 RANKS_RANGE", "a matrix of 65536 ranks; at most 4096"),
        ("explain all-reduce --ranks 65536", "E1301 RANKS_RANGE", "a model of 65536 ranks; at most 1024"),
        ("explain all-reduce --ranks 1025 --cache", "E1301 RANKS_RANGE", "a model of 1025 ranks"),
        ("run all-reduce --ranks 65536", "E1301 RANKS_RANGE", "a model of 65536 ranks"),
        ("run all-reduce --ranks 1024", "E2008 CONTEXT_CAPACITY", "1024 ranks; kernels are built for 128"),
    ] {
        let (status, stdout, stderr) = run(line);
        assert!(status != 0 && stdout.is_empty() && stderr.starts_with(code), "{line}: {status} {stderr}");
        assert!(stderr.contains(what), "{line}: {stderr}");
    }
}

/// What does not reduce names no reduction.
#[test]
fn only_reductions_have_one() {
    let options = "--ranks 2 --count 10";
    for (operation, reduce, words) in [
        ("broadcast", Value::Null, "(40 bytes) on 2 ranks"),
        ("reduce", "sum".into(), "(40 bytes) sum on 2 ranks"),
    ] {
        for command in ["run", "verify", "explain"] {
            let (status, stdout, stderr) = run(&format!("{command} {operation} {options} --json"));
            assert_eq!((status, stderr.as_str()), (0, ""), "{command} {operation}");
            assert_eq!(
                object(stdout.split_inclusive('\n').next().unwrap())["reduce"],
                reduce,
                "{command} {operation}"
            );
        }
        let (_, text, _) = run(&format!("run {operation} {options}"));
        assert!(text.contains(words), "{text}");
    }
}

/// A level's own choice is a dash, also the first; algorithms without levels say so.
#[test]
fn levels_are_those_of_compositions() {
    let line = "all-reduce --ranks 4 --devices-per-server 2 --count 100";
    for (levels, named) in [("-,nb", "two-level[-, nb] "), ("mesh,-", "two-level[mesh-two-shot] ")] {
        let options = format!("{line} --algo two-level --levels {levels}");
        let (status, stdout, stderr) = run(&format!("run {options} --json"));
        assert_eq!((status, stderr.as_str()), (0, ""), "{levels}");
        let result = object(&stdout);
        assert_eq!((&result["verified"], &result["algorithm"]), (&true.into(), &"two-level".into()));
        let (_, text, _) = run(&format!("explain {options}"));
        assert!(text.contains(named), "{text}");
    }
    let (status, _, stderr) = run(&format!("run {line} --algo nhr --levels mesh,nb"));
    assert!(status == 1 && stderr.starts_with("E3105 PLAN_OP"), "{stderr}");
    assert!(stderr.contains("--levels beside --algo nhr, which has none; these have: two-level"), "{stderr}");
}

/// More than the machine has is refused with both figures, before anything is filled.
#[test]
fn more_memory_than_there_is_is_refused() {
    for line in [
        "run all-reduce --ranks 2 --bytes 1048576G",
        "run all-to-all --ranks 64 --bytes 1024G --comms 4",
        "run all-gather-v --ranks 8 --bytes 4096G --rotate-buffers 3 --json",
    ] {
        let (status, _, stderr) = run(line);
        assert!(status == 1 && stderr.contains("E5301 DEVICE_MEMORY"), "{line}: {status}: {stderr}");
        assert!(stderr.contains("MiB are available here"), "{line}: {stderr}");
    }
}

#[test]
fn results_for_people_go_to_standard_output_alone() {
    let (status, stdout, stderr) = run("run all-gather --ranks 3 --bytes 64 --dtype int128 --steps 3");
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert!(stdout.contains("every byte of every rank, 3 of 3 steps"), "{stdout}");
    let (status, stdout, stderr) = run("topo --ranks 3 --json");
    assert_eq!((status, stderr.as_str(), object(&stdout)["pairs"]["HCCS"].as_u64()), (0, "", Some(3)));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for line in ["topo --ranks 500", "env", "run all-reduce --ranks 2 --bytes 64 --json", "--help"] {
        let mut child = command(&words(line)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{line}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command(&["topo", "--ranks", "4"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.starts_with("aicpu-ts: standard output: "), "{stderr}");
}

#[test]
fn the_working_directory_is_not_written_to() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o555)).unwrap();
    let words = words("run all-reduce --ranks 2 --bytes 64");
    let (status, _, stderr) = outcome(command(&words).current_dir(directory.path()));
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn explain_shows_candidates_reasons_bound_and_choice() {
    let (status, stdout, stderr) = run("explain all-reduce --ranks 8 --bytes 1M");
    assert_eq!((status, stderr.as_str()), (0, ""));
    for expected in [
        "all-reduce fp32 × 262144 (1048576 bytes) sum on 8 ranks of 1 server(s), modelled on software-npu",
        "modelled on atlas-a2",
        "chosen       mesh-two-shot (direct): ",
        "lower bound  5.61 µs = 0.93 latency + 4.68 bandwidth",
        "rejected     strict (scratch): only where HCCL_DETERMINISTIC is strict",
        "rejected     pairwise: does not carry out all-reduce",
    ] {
        assert!(stdout.contains(expected), "{expected:?} is not in {stdout}");
    }
}

#[test]
fn explain_agrees_with_run_and_its_parts_add_up() {
    let arguments = "all-reduce --ranks 4 --devices-per-server 2 --bytes 64K --json";
    let json = |line: String| -> Value {
        let (status, stdout, stderr) = run(&line);
        assert_eq!((status, stderr.as_str()), (0, ""), "{line}");
        serde_json::from_str(&stdout).unwrap()
    };
    let explained = json(format!("explain {arguments}"));
    let summary = json(format!("run {arguments}"));
    assert_eq!(explained["chosen"]["algorithm"], summary["algorithm"]);
    assert_eq!(explained["chosen"]["staging"], summary["staging"]);
    let profiles = explained["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), 2);
    for profile in profiles {
        let bound = profile["lower_bound_us"].as_f64().unwrap();
        let candidates = profile["candidates"].as_array().unwrap();
        assert!(candidates.len() > 10 && !profile["rejected"].as_array().unwrap().is_empty());
        // Behind the chosen one, the fastest comes first.
        let mut last = 0.0;
        for (index, candidate) in candidates.iter().enumerate() {
            let part = |name: &str| candidate[name].as_f64().unwrap();
            let total = part("modelled_us");
            let sum = part("latency_us") + part("bandwidth_us") + part("reduce_us");
            assert!((total - sum).abs() < 1e-6 && total >= bound && total >= last, "{candidate}");
            let parts: f64 =
                candidate["parts_us"].as_object().unwrap().values().map(|part| part.as_f64().unwrap()).sum();
            assert!((total - parts).abs() < 1e-6, "{candidate}");
            last = if index == 0 { 0.0 } else { total };
        }
        assert_eq!(profile["chosen"]["algorithm"], candidates[0]["algorithm"]);
    }
}

#[test]
fn explain_says_why_launches_hit_and_miss() {
    let line = "explain all-reduce --ranks 8 --algo ring --bytes 8M --json --cache --then --bytes 4M --then --bytes 2M \
                --then --bytes 1M --then --dtype fp16 --then all-gather";
    let (status, stdout, _) = run(line);
    let value: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, value["policy"].as_str()), (0, Some("ours")));
    let launches = value["launches"].as_array().unwrap();
    let outcomes: Vec<_> = launches.iter().map(|launch| launch["outcome"].as_str().unwrap()).collect();
    // The second size of a class records the graph for all sizes, the third is served by it.
    assert_eq!(outcomes, ["miss", "miss", "hit", "hit", "miss", "miss"]);
    let fields = |launch: usize| -> Vec<&str> {
        let differences = launches[launch]["nearest_differs_in"].as_array().unwrap();
        differences.iter().map(|difference| difference["field"].as_str().unwrap()).collect()
    };
    assert_eq!(launches[0]["nearest_differs_in"], Value::Null);
    assert_eq!(fields(1), ["form", "count or class"]);
    assert!(fields(4).contains(&"data type"), "{:?}", fields(4));
    assert!(fields(5).contains(&"operation"), "{:?}", fields(5));
}

#[test]
fn explain_lists_every_condition_of_a_bypass() {
    let (status, stdout, _) =
        run("explain all-reduce --ranks 8 --dtype int64 --op prod --in-place --cache --policy hccl");
    assert_eq!(status, 0);
    for expected in [
        "bypassed: 64-bit elements are reduced by the processor while expanding",
        "bypassed: products are reduced by the processor while expanding",
        "bypassed: input and output are the same memory",
        "bypassed: a channel uses another protocol than UB-CTP and UBoE",
    ] {
        assert!(stdout.contains(expected), "{expected:?} is not in {stdout}");
    }
    assert_usage(&words("explain all-reduce --ranks 8 --policy hccl"), "--cache");
    assert_usage(&words("explain all-reduce --ranks 8 --cache --then --frobnicate"), "--frobnicate");
    assert_usage(&words("explain all-reduce --ranks 8 --profile no-such"), "no profile");
}
