//! Set-up: ranks that come late, addresses and ports that clash. Links are made without sockets, so that a rank that is
//! late is one that has not launched.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::scene::{FAR, Scene, case};
use aicpu_tests::world::{self, Place};
use host_launcher::communicator::Config;
use host_launcher::diagnosis::{OnWarning, Warning};
use host_launcher::rank_table::{RankTable, Source};
use host_launcher::settings::Settings;
use wire::ErrorCode;
use wire::launch::Algorithm;

/// T11, vllm-project/vllm-ascend#486 and others: the first operation fails because one rank is late; which, and how late?
#[test]
fn a_rank_that_is_late_for_the_first_operation_is_named_with_how_late_it_is() {
    let cluster = world::threads(4, Place::TwoServers, 24 << 20);
    let told = Arc::new(Mutex::new(Vec::<Warning>::new()));
    let list = Arc::clone(&told);
    let config = Config {
        timeout: Duration::from_millis(150),
        warn_after: vec![Duration::from_millis(50)],
        on_warning: OnWarning::tell(move |warning| list.lock().unwrap().push(warning.clone())),
        ..Config::default()
    };
    let mut scene = Scene::with(&cluster, config);
    for rank in [0, 1, 3] {
        scene.bench().launch_on(rank, &case(Algorithm::Ring)).unwrap();
    }
    let failure = scene.failure();
    let report = failure.assert(ErrorCode::PEER_NOT_STARTED, 2, 1, Some(2));
    assert!(!report.since.starts_with("0.0"), "{}", report.since);
    assert_eq!(report.culprit_place, "host \"server-1\", device 0");
    let told = told.lock().unwrap();
    let text = told.iter().map(Warning::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(told.len(), 1, "{text}");
    assert!(text.contains("who      rank 2 (host \"server-1\"") && text.contains("since    0."), "{text}");
    scene.recovers();
}

/// A flat table of one server whose devices have these addresses.
fn table(addresses: [&str; 2]) -> String {
    let device = |(id, address): (usize, &&str)| {
        format!(r#"{{"device_id": "{id}", "device_ip": "{address}", "rank_id": "{id}"}}"#)
    };
    let devices: Vec<_> = addresses.iter().enumerate().map(device).collect();
    format!(
        r#"{{"version": "1.0", "status": "completed", "server_count": "1",
            "server_list": [{{"server_id": "node-0", "device": [{}]}}]}}"#,
        devices.join(", ")
    )
}

/// T14, vllm-project/vllm-ascend#1815 and #9447: two devices with one address, found by a link that does not come up.
#[test]
fn two_devices_with_one_address_are_found_before_anything_is_linked() {
    let parse = |text: &str| RankTable::parse(Source { bytes: text.as_bytes(), name: "table.json" }, None);
    parse(&table(["192.168.1.1", "192.168.1.2"])).unwrap();
    let error = parse(&table(["192.168.1.1", "192.168.1.1"])).unwrap_err();
    assert_eq!(error.code(), ErrorCode::RANK_TABLE_ADDRESS_TWICE, "{error}");
    assert!(error.to_string().contains("192.168.1.1") && error.place().is_some(), "{error}");
}

/// vllm-project/vllm-ascend#12487: a port that was computed, and became 65536 after days.
#[test]
fn a_port_beyond_the_last_is_refused_where_it_is_written() {
    let text = table(["192.168.1.1", "192.168.1.2"])
        .replace(r#""rank_id": "1"}"#, r#""device_port": "65536", "rank_id": "1"}"#);
    let error = RankTable::parse(Source { bytes: text.as_bytes(), name: "table.json" }, None).unwrap_err();
    assert_eq!(error.code(), ErrorCode::RANK_TABLE_RANGE, "{error}");
    assert!(error.to_string().contains("65536"), "{error}");
}

/// T10, hiascend hcclug_000036: a notify timeout because one setting undercuts another is said before anything runs.
#[test]
fn a_deadline_below_the_time_that_ranks_have_to_come_is_pointed_out() {
    let of = |exec: &str, connect: &str| {
        let variables = [("HCCL_EXEC_TIMEOUT", exec), ("HCCL_CONNECT_TIMEOUT", connect)];
        let settings =
            Settings::from_env(variables.map(|(name, value)| (name.into(), value.into()))).unwrap();
        settings.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(of("600", "600"), [] as [String; 0]);
    let warnings = of("60", "600");
    let expected = "W1002 ENV_TIMEOUTS  HCCL_EXEC_TIMEOUT (60 s) is below HCCL_CONNECT_TIMEOUT (600 s): ";
    assert!(warnings.len() == 1 && warnings[0].starts_with(expected), "{warnings:?}");
}

/// T12, vllm-project/vllm-ascend#1955, #4725 and InternLM/lmdeploy PR#4722: two groups on one device failed, because both
/// wanted one port. No port is opened; two communicators of the same devices, and a group of some of them, are apart.
#[test]
fn two_communicators_on_the_same_devices_meet_in_no_port() {
    let cluster = world::threads(4, Place::OneServer, 24 << 20);
    let group = cluster.subset(&[1, 3]).unwrap();
    let config = |name: &str| Config { name: name.to_owned(), timeout: FAR, ..Config::default() };
    let mut benches = [
        Bench::new(&cluster, config("same name"), 64 << 10).unwrap(),
        Bench::new(&cluster, config("same name"), 64 << 10).unwrap(),
        Bench::new(&group, config("same name"), 64 << 10).unwrap(),
    ];
    for seed in 0..5 {
        for bench in &mut benches {
            bench.run(&Case { seed, ..case(Algorithm::Nhr) }).unwrap();
        }
    }
    benches.into_iter().for_each(|bench| bench.finish().unwrap());
    // What sets ports in the field is reported as without effect, with the reason.
    let ports = [("HCCL_IF_BASE_PORT", "50000"), ("HCCL_NPU_SOCKET_PORT_RANGE", "auto")];
    let settings = Settings::from_env(ports.map(|(name, value)| (name.into(), value.into()))).unwrap();
    assert_eq!(settings.unused().len(), 2);
    assert!(settings.unused().iter().all(|unused| unused.reason.contains("no socket is opened")));
}

/// T15, vllm-project/vllm-ascend#8427 and kvcache-ai/Mooncake#3749: a variable that is missing, misspelt or contradicts
/// another shows minutes later as a failed transfer. It is named before anything runs, with what was expected.
#[test]
fn what_the_environment_says_wrongly_is_named_before_anything_runs() {
    let read = |pairs: &[(&str, &str)]| {
        Settings::from_env(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    };
    let settings = read(&[("HCCL_BUFSIZE", "200")]).unwrap();
    let warnings: Vec<_> = settings.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["W1001 ENV_UNKNOWN  no setting is called \"HCCL_BUFSIZE\"; did you mean HCCL_BUFFSIZE?"]
    );
    let error = read(&[("HCCL_BUFFSIZE", "200MB")]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ENV_VALUE, "{error}");
    assert!(error.message().contains("\"200MB\"") && error.message().contains("MiB from 1"), "{error}");
    let table = RankTable::uniform(4, 4).unwrap();
    let error = read(&[("RANK_SIZE", "8")]).unwrap().check_ranks(&table).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ENV_RANKS);
    assert_eq!(error.message(), "RANK_SIZE is 8, but the rank table has 4 ranks");
    let error = read(&[("RANK_ID", "4")]).unwrap().check_ranks(&table).unwrap_err();
    assert_eq!(error.message(), "RANK_ID is 4, but the rank table has ranks 0 to 3");
    read(&[("RANK_ID", "3"), ("RANK_SIZE", "4")]).unwrap().check_ranks(&table).unwrap();
}
