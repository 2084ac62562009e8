//! Set-up: ranks that come late, addresses and ports that clash. Links are made without sockets, so that a rank that is
//! late is one that has not launched.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use aicpu_tests::scene::{Scene, case};
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
    assert!(report.since.starts_with("0.1") || report.since.starts_with("0.2"), "{}", report.since);
    assert_eq!(report.culprit_place, "host \"server-1\", device 0");
    let told = told.lock().unwrap();
    let text = told.iter().map(Warning::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(told.len(), 1, "{text}");
    assert!(text.contains("who      rank 2 (host \"server-1\"") && text.contains("since    0.05"), "{text}");
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
