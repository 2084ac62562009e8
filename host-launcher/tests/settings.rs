//! Settings: values in force with source and reason, and every bad value refused.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use core::time::Duration;

use host_launcher::communicator::Compare;
use host_launcher::rank_table::RankTable;
use host_launcher::settings::{AlgoName, AlgoOp, ExpansionMode, Origin, Row, Settings};
use host_launcher::{Error, Result};
use proptest::prelude::*;
use wire::ErrorCode;

fn read(variables: &[(&str, &str)]) -> Result<Settings> {
    Settings::from_env(variables.iter().map(|&(name, text)| (name.into(), text.into())))
}

fn row(settings: &Settings, name: &str) -> Row {
    settings.report().into_iter().find(|row| row.name == name).unwrap()
}

#[track_caller]
fn assert_refused(name: &str, text: &str, code: ErrorCode, message: &str) {
    let error = read(&[(name, text)]).unwrap_err();
    assert_eq!((error.code(), error.message()), (code, message));
    assert_eq!(error.place(), Some(&*format!("environment variable {name}")));
}

#[test]
fn an_empty_environment_gives_the_defaults() {
    let settings = read(&[("PATH", "/bin"), ("HOME", "/")]).unwrap();
    let effective: Vec<_> = settings.report().into_iter().map(|row| (row.name, row.effective)).collect();
    let expected = [
        ("HCCL_ALGO", "chosen per operation"),
        ("HCCL_BUFFSIZE", "200 MiB"),
        ("HCCL_CONNECT_TIMEOUT", "120 s"),
        ("HCCL_DETERMINISTIC", "true"),
        ("HCCL_DFS_CONFIG", "inconsistent_check:first"),
        ("HCCL_EXEC_TIMEOUT", "1836 s"),
        ("HCCL_OP_EXPANSION_MODE", "AICPU_TS"),
        ("RANK_TABLE_FILE", "-"),
        ("RANK_ID", "-"),
        ("RANK_SIZE", "-"),
        ("DEVICE_ID", "-"),
    ];
    assert_eq!(effective, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert!(settings.report().iter().all(|row| row.origin == Origin::Default && row.reason.is_none()));
    assert_eq!((settings.unused().len(), settings.warnings().len()), (0, 0));
}

#[test]
fn values_at_the_ends_of_their_ranges_are_taken() {
    let settings = read(&[
        ("HCCL_BUFFSIZE", "1"),
        ("HCCL_CONNECT_TIMEOUT", "7200"),
        ("HCCL_EXEC_TIMEOUT", "2147483647"),
        ("RANK_TABLE_FILE", "cluster.json"),
        ("RANK_ID", "65535"),
        ("RANK_SIZE", "65536"),
        ("DEVICE_ID", "64"),
    ])
    .unwrap();
    assert_eq!(*settings.buffer_bytes.value(), 1_048_576);
    assert_eq!(*settings.connect_timeout.value(), Duration::from_secs(7200));
    assert_eq!(*settings.exec_timeout.value(), Duration::from_secs(2_147_483_647));
    assert_eq!(settings.rank_table_file.value().as_deref(), Some("cluster.json".as_ref()));
    assert_eq!(*settings.rank_id.value(), Some(65_535));
    assert_eq!(*settings.rank_size.value(), Some(65_536));
    assert_eq!(*settings.device_id.value(), Some(64));
    assert_eq!(settings.device_id.origin(), Origin::Environment);
}

#[test]
fn a_deprecated_or_overruled_request_is_in_force_with_its_reason() {
    let settings = read(&[("HCCL_OP_EXPANSION_MODE", "AI_CPU"), ("HCCL_DETERMINISTIC", "false")]).unwrap();
    assert_eq!(
        row(&settings, "HCCL_OP_EXPANSION_MODE"),
        Row {
            name: "HCCL_OP_EXPANSION_MODE".to_owned(),
            requested: Some("AI_CPU".to_owned()),
            effective: "AICPU_TS".to_owned(),
            origin: Origin::Environment,
            reason: Some("AI_CPU is the deprecated name of AICPU_TS".to_owned()),
        }
    );
    assert_eq!(settings.determinism.reason(), Some("reductions have a fixed order in every mode"));
    let settings = read(&[("HCCL_OP_EXPANSION_MODE", "AICPU_TS"), ("HCCL_DETERMINISTIC", "strict")]).unwrap();
    assert_eq!((settings.expansion_mode.reason(), settings.determinism.reason()), (None, None));
    let settings = read(&[("HCCL_OP_EXPANSION_MODE", "AICPU_CacheDisable")]).unwrap();
    assert_eq!(*settings.expansion_mode.value(), ExpansionMode::AicpuCacheDisable);
}

/// When launches of all ranks are compared is the field's `inconsistent_check`; its neighbours are checked and do nothing.
#[test]
fn what_is_compared_is_chosen_by_the_fields_variable() {
    for (text, compare) in [("off", Compare::Off), ("first", Compare::First), ("on", Compare::Always)] {
        let text = format!("inconsistent_check:{text}");
        let settings = read(&[("HCCL_DFS_CONFIG", &text)]).unwrap();
        assert_eq!((*settings.compare.value(), settings.compare.origin()), (compare, Origin::Environment));
        assert_eq!(row(&settings, "HCCL_DFS_CONFIG").effective, text);
        assert_eq!(settings.compare.reason(), None);
    }
    let all = "cluster_heartbeat:on,stuck_detection:off,task_exception:on,connection_fault_detection_time:0,\
        task_monitor_interval:7200000,inconsistent_check:on";
    let settings = read(&[("HCCL_DFS_CONFIG", all)]).unwrap();
    assert_eq!(*settings.compare.value(), Compare::Always);
    assert!(settings.compare.reason().unwrap().starts_with("only inconsistent_check can be chosen here"));
    for (text, expected) in [
        ("", "name:value pairs, with commas between them"),
        ("inconsistent_check", "name:value pairs, with commas between them"),
        ("inconsistent_check:always", "inconsistent_check:off, first or on"),
        ("inconsistent_check:on,inconsistent_check:on", "inconsistent_check only once"),
        ("stuck_detection:first", "stuck_detection:on or off"),
        ("heartbeat:on", "inconsistent_check or another name of the field, not \"heartbeat\""),
        (
            "connection_fault_detection_time:19",
            "connection_fault_detection_time:0, or seconds from 20 to 7200 in decimal digits",
        ),
    ] {
        let message = format!("HCCL_DFS_CONFIG is {text:?}; expected {expected}");
        assert_refused("HCCL_DFS_CONFIG", text, ErrorCode::ENV_VALUE, &message);
    }
}

#[test]
fn entry_142_timeouts() {
    let large = "2147483648";
    let arabic = "\u{661}\u{662}\u{663}";
    for text in ["", "0", "-1", "1e9", "1836s", " 60", "60 ", "0x10", large, arabic, "+200"] {
        let exec =
            format!("HCCL_EXEC_TIMEOUT is {text:?}; expected seconds from 1 to 2147483647 in decimal digits");
        assert_refused("HCCL_EXEC_TIMEOUT", text, ErrorCode::ENV_VALUE, &exec);
        let connect =
            format!("HCCL_CONNECT_TIMEOUT is {text:?}; expected seconds from 120 to 7200 in decimal digits");
        assert_refused("HCCL_CONNECT_TIMEOUT", text, ErrorCode::ENV_VALUE, &connect);
    }
    for text in ["119", "7201"] {
        assert_eq!(read(&[("HCCL_CONNECT_TIMEOUT", text)]).unwrap_err().code(), ErrorCode::ENV_VALUE);
    }
}

#[test]
fn entry_143_buffer_size() {
    for text in ["0", "200M", "17592186044416", "131073", ""] {
        let message =
            format!("HCCL_BUFFSIZE is {text:?}; expected a number of MiB from 1 to 131072 in decimal digits");
        assert_refused("HCCL_BUFFSIZE", text, ErrorCode::ENV_VALUE, &message);
    }
}

#[test]
fn entry_144_expansion_mode() {
    for text in ["ai_cpu", "AI_CPU,AI_CPU", "GPU", ""] {
        let message = format!(
            "HCCL_OP_EXPANSION_MODE is {text:?}; expected AICPU_TS, AICPU_CacheDisable or AI_CPU, in this spelling"
        );
        assert_refused("HCCL_OP_EXPANSION_MODE", text, ErrorCode::ENV_VALUE, &message);
    }
    for text in ["HOST", "HOST_TS", "AIV", "CCU_MS", "CCU_SCHED"] {
        assert_eq!(read(&[("HCCL_OP_EXPANSION_MODE", text)]).unwrap_err().code(), ErrorCode::ENV_UNSUPPORTED);
    }
}

#[test]
fn entry_145_retry_parameters() {
    let name = "HCCL_OP_RETRY_PARAMS";
    for text in [
        "MaxCnt:11",
        "MaxCnt:3,MaxCnt:4",
        "MaxCnt=3",
        "MaxCnt:3HoldTime:5",
        "MaxCnt:3,",
        "Max:1",
        "HoldTime:60001",
    ] {
        let error = read(&[(name, text)]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ENV_VALUE, "{text}");
        assert!(error.message().starts_with(&format!("{name} is {text:?}; expected ")), "{error}");
    }
    let settings = read(&[(name, "MaxCnt:1,HoldTime:5000,IntervalTime:1000")]).unwrap();
    assert_eq!(settings.unused()[0].reason, "an operation is not retried: its failure is reported");
}

#[test]
fn entry_146_base_port() {
    for text in ["65521", "1023"] {
        let message =
            format!("HCCL_IF_BASE_PORT is {text:?}; expected a port from 1024 to 65520 in decimal digits");
        assert_refused("HCCL_IF_BASE_PORT", text, ErrorCode::ENV_VALUE, &message);
    }
    assert_eq!(read(&[("HCCL_IF_BASE_PORT", "60000")]).unwrap().unused().len(), 1);
}

#[test]
fn entry_147_an_argument_outranks_the_variable_and_says_so() {
    let mut settings = read(&[("HCCL_EXEC_TIMEOUT", "30")]).unwrap();
    settings.argument("HCCL_EXEC_TIMEOUT", "--exec-timeout", OsStr::new("5")).unwrap();
    let row = row(&settings, "HCCL_EXEC_TIMEOUT");
    assert_eq!((&*row.effective, row.origin.to_string()), ("5 s", "--exec-timeout".to_owned()));
    assert_eq!(row.reason.as_deref(), Some("outranks HCCL_EXEC_TIMEOUT=\"30\" of the environment"));
    let error = settings.argument("HCCL_EXEC_TIMEOUT", "--exec-timeout", OsStr::new("soon")).unwrap_err();
    assert_eq!((error.code(), error.place()), (ErrorCode::ENV_VALUE, Some("argument --exec-timeout")));
    assert_eq!(*settings.exec_timeout.value(), Duration::from_secs(5));
}

#[test]
fn entry_148_a_value_that_is_not_utf_8() {
    let of =
        |name: &str| Settings::from_env([(OsString::from(name), OsStr::from_bytes(b"2\xff").to_owned())]);
    for name in ["HCCL_BUFFSIZE", "HCCL_ALGO", "HCCL_IF_IP"] {
        let error = of(name).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ENV_ENCODING);
        assert_eq!(error.message(), format!("{name} is \"2\u{fffd}\", which is not UTF-8"));
    }
    let path = of("RANK_TABLE_FILE").unwrap().rank_table_file.value().clone().unwrap();
    assert_eq!(path.as_os_str().as_bytes(), b"2\xff");
}

#[test]
fn entry_149_a_value_of_1_mib_is_refused_in_a_short_message() {
    let text = "9".repeat(1 << 20);
    for name in ["HCCL_BUFFSIZE", "HCCL_ALGO", "HCCL_OP_EXPANSION_MODE", "HCCL_OP_RETRY_PARAMS", "RANK_SIZE"]
    {
        let error = read(&[(name, &text)]).unwrap_err();
        assert!(error.message().contains("\"... (1048576 bytes)"), "{name}");
        assert!(error.to_string().len() < 600, "{name}");
    }
}

#[test]
fn entry_150_unknown_names_draw_a_warning_with_the_nearest() {
    let settings =
        read(&[("AICPU_TS_BUFSIZE", "1"), ("HCCL_EXEC_TIMOUT", "9"), ("HCOMM_QQQQQQQ", ""), ("HCCLX", "")])
            .unwrap();
    let warnings: Vec<_> = settings.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "W1001 ENV_UNKNOWN  no setting is called \"AICPU_TS_BUFSIZE\"; did you mean HCCL_BUFFSIZE?",
            "W1001 ENV_UNKNOWN  no setting is called \"HCCL_EXEC_TIMOUT\"; did you mean HCCL_EXEC_TIMEOUT?",
            "W1001 ENV_UNKNOWN  no setting is called \"HCOMM_QQQQQQQ\"; it has no effect",
        ]
    );
}

#[test]
fn long_names_are_not_compared_letter_by_letter() {
    // It would take minutes.
    let settings = read(&[(&*format!("HCCL_{}", "BUFFSIZE".repeat(100_000)), "1")]).unwrap();
    assert!(settings.warnings()[0].to_string().ends_with("it has no effect"));
}

#[test]
fn variables_without_effect_are_listed_with_the_reason() {
    let settings = read(&[("HCOMM_TA_TIMEOUT", "1"), ("HCCL_SOCKET_IFNAME", "=eth0")]).unwrap();
    let listed: Vec<_> = settings.unused().iter().map(|unused| (&*unused.name, &*unused.requested)).collect();
    assert_eq!(listed, [("HCCL_SOCKET_IFNAME", "=eth0"), ("HCOMM_TA_TIMEOUT", "1")]);
    assert_eq!(settings.unused()[0].reason, "ranks meet in shared memory: no socket is opened");
}

#[test]
fn an_algorithm_for_all_operations() {
    let settings = read(&[("HCCL_ALGO", "level0:NA;level1:H-D_R")]).unwrap();
    let algo = settings.algo.value().as_ref().unwrap();
    for op in [AlgoOp::AllReduce, AlgoOp::AllToAll] {
        let levels = algo.levels(op).unwrap();
        assert_eq!(levels.get(0), Some(AlgoName::Na));
        assert_eq!(levels.get(1), Some(AlgoName::HalvingDoubling));
        assert_eq!((levels.get(2), levels.get(9)), (None, None));
    }
    assert_eq!(row(&settings, "HCCL_ALGO").effective, "level0:NA;level1:H-D_R");
}

#[test]
fn an_algorithm_for_each_operation() {
    let text = "allreduce=level0:fullmesh;level1:ring/allgather=level1:NHR_V1;level2:pairwise";
    let settings = read(&[("HCCL_ALGO", text)]).unwrap();
    let algo = settings.algo.value().as_ref().unwrap();
    assert_eq!(algo.levels(AlgoOp::AllReduce).unwrap().get(1), Some(AlgoName::Ring));
    assert_eq!(algo.levels(AlgoOp::AllGather).unwrap().get(0), None);
    assert_eq!(algo.levels(AlgoOp::AllGather).unwrap().get(2), Some(AlgoName::Pairwise));
    assert_eq!(algo.levels(AlgoOp::Broadcast), None);
    assert_eq!(algo.to_string(), text);
}

#[test]
fn a_bad_algorithm_is_refused_at_its_column() {
    let algorithms = "one of NA, ring, fullmesh, H-D_R, NHR, NHR_V1, NB, AHC, pipeline, pairwise";
    for (text, expected) in [
        ("", "a level, \":\" and an algorithm at column 1".to_owned()),
        ("ring", "a level, \":\" and an algorithm at column 1".to_owned()),
        ("level0:NA;", "a level, \":\" and an algorithm at column 11".to_owned()),
        ("level0:NA;level3:ring", "level0, level1 or level2 at column 11".to_owned()),
        ("level0:NA;level0:NA", "level0 only once at column 11".to_owned()),
        ("level0:NA;level1:Ring", format!("{algorithms} at column 18")),
        ("level1:NHR:NB", format!("{algorithms} at column 8")),
        ("allreduce=", "a level, \":\" and an algorithm at column 11".to_owned()),
        ("allreduce=level1:ring/", "an operation, \"=\" and its levels at column 23".to_owned()),
        ("allreduce=level1:ring/allreduce=level1:NB", "allreduce only once at column 23".to_owned()),
        (
            "all_reduce=level1:ring",
            "one of allreduce, allgather, reducescatter, broadcast, reduce, scatter, alltoall at column 1"
                .to_owned(),
        ),
    ] {
        let message = format!("HCCL_ALGO is {text:?}; expected {expected}");
        assert_refused("HCCL_ALGO", text, ErrorCode::ENV_ALGO, &message);
    }
}

#[test]
fn ranks_of_the_environment_must_agree_with_the_rank_table() {
    let table = RankTable::uniform(16, 8).unwrap();
    let check = |variables: &[(&str, &str)]| read(variables).unwrap().check_ranks(&table);
    let refused = |variables: &[(&str, &str)], message: &str| {
        let error: Error = check(variables).unwrap_err();
        assert_eq!((error.code(), error.message()), (ErrorCode::ENV_RANKS, message));
    };
    check(&[("RANK_SIZE", "16"), ("RANK_ID", "9"), ("DEVICE_ID", "1")]).unwrap();
    check(&[("DEVICE_ID", "5")]).unwrap();
    refused(&[("RANK_SIZE", "8")], "RANK_SIZE is 8, but the rank table has 16 ranks");
    refused(&[("RANK_ID", "16")], "RANK_ID is 16, but the rank table has ranks 0 to 15");
    refused(
        &[("RANK_ID", "9"), ("DEVICE_ID", "0")],
        "DEVICE_ID is 0, but the rank table puts rank 9 on device 1",
    );
    assert_eq!(read(&[("RANK_SIZE", "65537")]).unwrap_err().code(), ErrorCode::ENV_VALUE);
    assert_eq!(read(&[("RANK_TABLE_FILE", "")]).unwrap_err().code(), ErrorCode::ENV_VALUE);
}

proptest! {
    #[test]
    fn any_text_is_taken_or_refused_with_a_code(
        name in prop::sample::select(&["HCCL_ALGO", "HCCL_BUFFSIZE", "HCCL_OP_RETRY_PARAMS", "RANK_ID", "HCCL_é"][..]),
        text in "(level[0-3]|[:;=/,]|NHR|allreduce|MaxCnt|[0-9]|é|.){0,12}",
    ) {
        if let Err(error) = read(&[(name, &text)]) {
            prop_assert!((1001..=1004).contains(&error.code().0), "{}", error);
        }
    }
}
