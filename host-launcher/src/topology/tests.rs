//! Golden matrices, properties of random tables, digest.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use wire::npu::Protocol;

use super::Topology;
use crate::rank_table::{RankTable, Source};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

fn example(table: &str) -> Topology {
    let topology = repository("examples/rank-tables/topo_mesh8.json");
    let topology = table.starts_with("v2.0").then_some(topology.as_path());
    Topology::new(&RankTable::read(&repository("examples/rank-tables").join(table), topology).unwrap())
}

fn assert_golden(topology: &Topology, file: &str) {
    let golden = fs::read_to_string(repository("tests/golden/topo").join(file)).unwrap();
    assert_eq!(topology.matrix(), golden, "{file}");
}

#[test]
fn matrices_of_8_16_and_32_ranks_match_the_checked_files() {
    assert_golden(&example("v1.0_1x8.json"), "v1.0_1x8.txt");
    assert_golden(&example("v1.0_2x8.json"), "v1.0_2x8.txt");
    assert_golden(&example("v1.0_4x8.json"), "v1.0_4x8.txt");
    assert_golden(&example("v2.0_2x8.json"), "v2.0_2x8.txt");
}

#[test]
fn the_flat_table_of_two_servers_has_one_roce_pair() {
    assert_eq!(example("flat_2x1.json").pairs(), [(Protocol::Roce, 1)]);
}

#[test]
fn super_pods_do_not_extend_hccs_beyond_a_server() {
    assert_eq!(example("v1.2_2pods_2x4.json").pairs(), [(Protocol::Hccs, 24), (Protocol::Roce, 96)]);
    assert_eq!(example("v1.2_1pod_4x16.json").pairs(), [(Protocol::Hccs, 480), (Protocol::Roce, 1536)]);
}

#[test]
fn without_a_direct_edge_ranks_of_one_server_use_ub() {
    let mesh = fs::read_to_string(repository("examples/rank-tables/topo_mesh8.json")).unwrap();
    let mut mesh: serde_json::Value = serde_json::from_str(&mesh).unwrap();
    let edges = mesh["edge_list"].as_array_mut().unwrap();
    edges.retain(|edge| edge["local_a"] != 0 || edge["local_b"] != 5);
    mesh["edge_count"] = 35.into();
    let table = fs::read(repository("examples/rank-tables/v2.0_1x8.json")).unwrap();
    let table = RankTable::parse(
        Source { bytes: &table, name: "table" },
        Some(Source { bytes: mesh.to_string().as_bytes(), name: "mesh" }),
    );
    let topology = Topology::new(&table.unwrap());
    assert_eq!((topology.link(0, 5), topology.link(5, 0)), (Some(Protocol::Ub), Some(Protocol::Ub)));
    assert_eq!(topology.pairs(), [(Protocol::Hccs, 27), (Protocol::Ub, 1)]);
}

#[test]
fn the_digest_depends_on_links_and_not_on_how_the_table_is_written() {
    let uniform = |ranks, devices| Topology::new(&RankTable::uniform(ranks, devices).unwrap()).digest();
    assert_eq!(example("v1.0_1x8.json").digest(), example("flat_1x8.json").digest());
    assert_eq!(example("v1.0_2x8.json").digest(), uniform(16, 8));
    assert_ne!(uniform(16, 8), uniform(16, 4));
    assert_ne!(uniform(16, 8), uniform(15, 8));
    assert_ne!(example("v2.0_1x8.json").digest(), uniform(8, 8));
    assert_eq!(uniform(8, 8), 0xf905_3af6_381d_2c49);
}

/// A 1.0 table with servers of the given numbers of devices, devices and servers listed in reverse.
fn table_of(servers: &[u32]) -> RankTable {
    let mut next = 0;
    let mut list: Vec<_> = (0_u32..)
        .zip(servers)
        .map(|(server, &devices)| {
            let mut device: Vec<_> = (0..devices)
                .map(|device| {
                    let rank = next + device;
                    let ip = format!("10.{server}.0.{}", device + 1);
                    serde_json::json!({"device_id": device.to_string(), "device_ip": ip, "rank_id": rank.to_string()})
                })
                .collect();
            device.reverse();
            next += devices;
            serde_json::json!({"server_id": format!("node{server}"), "device": device})
        })
        .collect();
    list.reverse();
    let table = serde_json::json!({"version": "1.0", "status": "completed", "server_list": list}).to_string();
    RankTable::parse(Source { bytes: table.as_bytes(), name: "random" }, None).unwrap()
}

proptest! {
    #[test]
    fn no_hccs_channel_crosses_servers_and_each_pair_has_one_channel(
        servers in prop::collection::vec(1_u32..=9, 1..=9),
    ) {
        let table = table_of(&servers);
        let topology = Topology::new(&table);
        prop_assert_eq!(topology.ranks(), servers.iter().sum::<u32>());
        for rank in 0..topology.ranks() {
            let server = table.ranks()[rank as usize].server();
            let channels: Vec<_> = topology.channels(rank).collect();
            let peers: Vec<_> = channels.iter().map(|channel| channel.peer).collect();
            let expected: Vec<_> = (0..topology.ranks()).filter(|&peer| peer != rank).collect();
            prop_assert_eq!(peers, expected);
            for channel in channels {
                let same = table.ranks()[channel.peer as usize].server() == server;
                prop_assert_eq!(channel.protocol, if same { Protocol::Hccs } else { Protocol::Roce });
                prop_assert_eq!(topology.link(channel.peer, rank), Some(channel.protocol));
            }
        }
    }
}
