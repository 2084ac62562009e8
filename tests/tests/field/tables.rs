//! Rank tables that people write: each mistake is named with line, column and a sentence. (`tests/bad` has 76 entries of
//! each kind of file; these are the ones of the threads.)

use host_launcher::Result;
use host_launcher::rank_table::{RankTable, Source};
use wire::ErrorCode as E;

const GOOD: &str = r#"{"version": "1.0", "status": "completed", "server_count": "1",
 "server_list": [{"server_id": "node-0", "device": [
  {"device_id": "0", "device_ip": "192.168.1.1", "rank_id": "0"},
  {"device_id": "1", "device_ip": "192.168.1.2", "rank_id": "1"}]}]}"#;

fn parse(text: &str) -> Result<RankTable> {
    RankTable::parse(Source { bytes: text.as_bytes(), name: "table.json" }, None)
}

/// T52, gpustack/runtime#27, gpustack/gpustack#2821, jd-opensource/xllm#498, NVIDIA/nccl#1726 ("internal error").
#[test]
fn every_mistake_is_named_with_line_and_column() {
    let cases: [(&str, &str, &str, E, &str); 12] = [
        ("a comment", " \"server_list\"", " // two\n \"server_list\"", E::RANK_TABLE_EXTENDED_JSON, "2:2"),
        ("a trailing comma", "]}]}", ",]}]}", E::RANK_TABLE_EXTENDED_JSON, "4:65"),
        ("a byte order mark", "{\"version", "\u{feff}{\"version", E::RANK_TABLE_ENCODING, "1:1"),
        ("a rank twice", "\"rank_id\": \"1\"", "\"rank_id\": \"0\"", E::RANK_TABLE_RANK_IDS, "4:3"),
        ("a gap", "\"rank_id\": \"1\"", "\"rank_id\": \"2\"", E::RANK_TABLE_RANK_IDS, "4:3"),
        ("an address twice", "1.2\"", "1.1\"", E::RANK_TABLE_ADDRESS_TWICE, "4:35"),
        ("no address", "192.168.1.2", "192.168.1", E::RANK_TABLE_ADDRESS, "4:35"),
        ("servers", "server_count\": \"1", "server_count\": \"2", E::RANK_TABLE_COUNT, "1:59"),
        ("a number for a string", "\"1.0\"", "1.0", E::RANK_TABLE_TYPE, "1:13"),
        ("the version of another chip", "\"1.0\"", "\"2.0\"", E::TOPOLOGY_FILE, "1:13"),
        ("an unknown version", "\"1.0\"", "\"9\"", E::RANK_TABLE_VERSION, "1:13"),
        ("cut off", "]}]}", "", E::RANK_TABLE_SYNTAX, "2:52"),
    ];
    for (what, from, to, code, place) in cases {
        let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
        assert_eq!(error.code(), code, "{what}: {error}");
        let at = error.place().expect("a place");
        assert!(at.contains(&format!("table.json:{place}")), "{what} at {place}: {error}");
        let text = error.to_string();
        assert!(text.lines().any(|line| line.trim_start().starts_with("do ")), "{what}: {text}");
        assert!(!text.contains("internal error"), "{text}");
    }
}

/// T52, the other half: what looks odd and is no mistake. Lines end as on Windows, numbers where strings are usual, names
/// in any script, a list of spares, 4096 ranks.
#[test]
fn what_only_looks_odd_is_read() {
    for (what, text) in [
        ("line ends", GOOD.replace('\n', "\r\n")),
        ("numbers", GOOD.replace("\"device_id\": \"1\"", "\"device_id\": 1")),
        ("names", GOOD.replace("node-0", "knoten-ä-节点")),
        ("spares", GOOD.replace("\"status\"", "\"replace_list\": [], \"status\"")),
    ] {
        let table = parse(&text).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(table.ranks().len(), 2, "{what}");
    }
    let server = |server: u32| {
        let device = |device: u32| {
            let rank = 8 * server + device;
            format!(
                r#"{{"device_id": "{device}", "device_ip": "10.{}.{}.{}", "rank_id": "{rank}"}}"#,
                rank >> 12,
                rank >> 6 & 63,
                1 + (rank & 63)
            )
        };
        let devices: Vec<_> = (0..8).map(device).collect();
        format!(r#"{{"server_id": "node-{server}", "device": [{}]}}"#, devices.join(", "))
    };
    let servers: Vec<_> = (0..512).map(server).collect();
    let text = format!(
        r#"{{"version": "1.0", "status": "completed", "server_count": "512", "server_list": [{}]}}"#,
        servers.join(",\n")
    );
    assert_eq!(parse(&text).unwrap().ranks().len(), 4096);
    let twice = text.replacen("\"rank_id\": \"4095\"", "\"rank_id\": \"17\"", 1);
    let error = parse(&twice).unwrap_err();
    assert_eq!(error.code(), E::RANK_TABLE_RANK_IDS, "{error}");
    assert!(
        error.message().contains("17 is given twice") && error.place().unwrap().contains(":512:"),
        "{error}"
    );
}
