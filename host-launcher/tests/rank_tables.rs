//! Sample files of every form load with the values a person reads in them.

use std::fs;
use std::path::{Path, PathBuf};

use host_launcher::Result;
use host_launcher::rank_table::{Address, Form, Rank, RankTable, Source};
use proptest::prelude::*;
use wire::ErrorCode;

fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/rank-tables").join(file)
}

fn load(file: &str) -> RankTable {
    let topology = example("topo_mesh8.json");
    RankTable::read(&example(file), file.starts_with("v2.0").then_some(&*topology)).unwrap()
}

fn parse(text: &str) -> Result<RankTable> {
    RankTable::parse(Source { bytes: text.as_bytes(), name: "table" }, None)
}

fn ips(rank: &Rank) -> Vec<String> {
    rank.addresses().iter().map(Address::to_string).collect()
}

#[test]
fn the_flat_form() {
    let table = load("flat_2x1.json");
    assert_eq!(
        (table.form(), table.servers()),
        (Form::Flat, &["10.0.0.1".to_owned(), "10.0.0.2".to_owned()][..])
    );
    let rank = &table.ranks()[1];
    assert_eq!((rank.server(), rank.device_id(), rank.local_id(), rank.super_pod()), (1, 0, 0, None));
    assert_eq!(ips(rank), ["192.168.2.10"]);
    let table = load("flat_1x8.json");
    assert_eq!((table.ranks().len(), table.servers().len(), table.ranks()[7].device_id()), (8, 1, 7));
}

#[test]
fn the_1_0_form() {
    for (file, ranks, servers) in [
        ("v1.0_1x2.json", 2, 1),
        ("v1.0_1x8.json", 8, 1),
        ("v1.0_2x8.json", 16, 2),
        ("v1.0_4x8.json", 32, 4),
        ("v1.0_uneven_3+5.json", 8, 2),
    ] {
        let table = load(file);
        assert_eq!(
            (table.form(), table.ranks().len(), table.servers().len()),
            (Form::V1_0, ranks, servers),
            "{file}"
        );
    }
    let table = load("v1.0_2x8.json");
    let rank = &table.ranks()[13];
    assert_eq!((&*table.servers()[1], rank.server(), rank.device_id()), ("node_1", 1, 5));
    assert_eq!(ips(rank), ["192.168.2.15"]);
    let servers: Vec<_> = load("v1.0_uneven_3+5.json").ranks().iter().map(Rank::server).collect();
    assert_eq!(servers, [0, 0, 0, 1, 1, 1, 1, 1]);
}

#[test]
fn the_1_2_form_has_super_pods() {
    let table = load("v1.2_2pods_2x4.json");
    assert_eq!((table.form(), table.ranks().len(), table.servers().len()), (Form::V1_2, 16, 4));
    let pods: Vec<_> = table.ranks().iter().map(|rank| rank.super_pod().unwrap()).collect();
    assert_eq!(pods, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(ips(&table.ranks()[12]), ["192.168.4.6"]);
    let table = load("v1.2_1pod_4x16.json");
    assert_eq!((table.ranks().len(), table.ranks()[63].server(), table.ranks()[63].device_id()), (64, 3, 15));
    assert!(table.ranks().iter().all(|rank| rank.super_pod() == Some(0)));
}

#[test]
fn the_2_0_form_lists_addresses_by_layer() {
    let table = load("v2.0_2x8.json");
    assert_eq!(
        (table.form(), table.servers()),
        (Form::V2_0, &["az0-rack0".to_owned(), "az0-rack1".to_owned()][..])
    );
    let rank = &table.ranks()[9];
    assert_eq!((rank.server(), rank.device_id(), rank.local_id()), (1, 1, 1));
    assert_eq!(ips(rank).first().unwrap(), "223.0.1.19");
    assert_eq!(ips(rank).last().unwrap(), "223.1.1.11");
    assert_eq!(rank.addresses().len(), 8);
    assert_eq!(load("v2.0_1x8.json").ranks()[0].addresses().len(), 7);
}

#[test]
fn harmless_variations_of_1_0_are_accepted() {
    let plain = fs::read_to_string(example("v1.0_1x2.json")).unwrap();
    let accept = |text: String| assert_eq!(parse(&text).unwrap().ranks().len(), 2, "{text}");
    accept(plain.replace('\n', "\r\n"));
    accept(plain.replace("\"192.168.1.10\"", "\"\""));
    accept(plain.replace("\"server_count\": \"1\",", ""));
    accept(plain.replace("\"server_count\": \"1\"", "\"server_count\": 1"));
    accept(plain.replace("\"rank_id\": \"1\"", "\"rank_id\": 1"));
    accept(plain.replace("\"host_ip\"", "\"comment\": {\"any\": [null]}, \"host_ip\""));
    let table = parse(&plain.replace("node_0", "узел-节点")).unwrap();
    assert_eq!(table.servers(), ["узел-节点"]);
    let table = parse(&plain.replace("192.168.1.10", "2001:db8::1")).unwrap();
    assert_eq!(ips(&table.ranks()[0]), ["2001:db8::1"]);
}

#[test]
fn harmless_variations_of_2_0_are_accepted() {
    let plain = fs::read_to_string(example("v2.0_2x8.json")).unwrap();
    let topology = fs::read(example("topo_mesh8.json")).unwrap();
    let parse = |text: &str| {
        let topology = Source { bytes: &topology, name: "topology" };
        RankTable::parse(Source { bytes: text.as_bytes(), name: "table" }, Some(topology))
    };
    let expected = parse(&plain).unwrap();
    for text in [
        plain.replace("\"rank_count\": 16", "\"rank_count\": \"16\""),
        plain
            .replace("net_layer", "level")
            .replace("net_instance_id", "id")
            .replace("net_type", "fabric_type"),
        plain.replacen('{', "{\"replace_count\": 1, \"replace_list\": [{\"rank_id\": 16}],", 1),
    ] {
        assert_eq!(parse(&text).unwrap(), expected);
    }
    let table = parse(&plain.replace("\"0/0\"", "\"d2h\"")).unwrap();
    assert_eq!(table, expected);
    let eid = "000102030405060708090a0b0c0d0e0f";
    let text = plain.replacen("IPV4", "EID", 1).replacen("223.0.0.10", eid, 1);
    assert_eq!(ips(&parse(&text).unwrap().ranks()[0])[0], eid);
}

#[test]
fn ranks_may_be_listed_in_any_order_and_4096_of_them_load() {
    let device = |rank: u32| {
        format!(
            r#"{{"device_id": "{}", "device_ip": "10.0.{}.{}", "rank_id": "{rank}"}}"#,
            rank % 8,
            rank / 250,
            rank % 250 + 1
        )
    };
    let server = |server: u32| {
        let devices: Vec<_> = (server * 8..server * 8 + 8).rev().map(device).collect();
        format!(r#"{{"server_id": "s{server}", "device": [{}]}}"#, devices.join(","))
    };
    let servers: Vec<_> = (0..512).rev().map(server).collect();
    let table = parse(&format!(r#"{{"version": "1.0", "server_list": [{}]}}"#, servers.join(","))).unwrap();
    assert_eq!((table.ranks().len(), table.servers()[511].as_str()), (4096, "s511"));
    assert_eq!(
        (table.ranks()[4095].device_id(), ips(&table.ranks()[4095])),
        (7, vec!["10.0.16.96".to_owned()])
    );
}

#[test]
fn uniform_tables_need_no_file() {
    let table = RankTable::uniform(11, 8).unwrap();
    assert_eq!((table.form(), table.servers().len(), table.ranks().len()), (Form::Uniform, 2, 11));
    assert_eq!((table.ranks()[10].server(), table.ranks()[10].device_id()), (1, 2));
    let refused = |ranks, devices| RankTable::uniform(ranks, devices).unwrap_err().code();
    for (ranks, devices) in [(0, 8), (65_537, 8), (8, 0), (8, 66)] {
        assert_eq!(refused(ranks, devices), ErrorCode::RANKS_RANGE);
    }
}

proptest! {
    #[test]
    fn damaged_files_load_or_are_refused_with_a_code(
        file in prop::sample::select(&["flat_2x1.json", "v1.0_1x2.json", "v1.2_2pods_2x4.json", "v2.0_1x8.json"][..]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&b"\"{}[]:,0195-.eE/*tn \n\0\xc3"[..])), 1..6),
    ) {
        let mut bytes = fs::read(example(file)).unwrap();
        for (index, byte) in damage {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let topology = fs::read(example("topo_mesh8.json")).unwrap();
        let topology = file.starts_with("v2").then_some(Source { bytes: &topology, name: "topology" });
        match RankTable::parse(Source { bytes: &bytes, name: "damaged" }, topology) {
            Ok(table) => prop_assert!(!table.ranks().is_empty()),
            Err(error) => {
                prop_assert!((1205..=1234).contains(&error.code().0), "{}", error);
                prop_assert!(error.place().unwrap().starts_with("damaged:"), "{}", error);
            }
        }
    }
}
