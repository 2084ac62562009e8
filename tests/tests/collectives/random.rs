//! Random rank tables, servers of any sizes: results right, and nothing goes over a link that is not there.

use core::time::Duration;

use aicpu_tests::bench::{Bench, Case};
use aicpu_tests::variants::Variant;
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Config, Operation};
use host_launcher::rank_table::{RankTable, Source};
use host_launcher::topology::Topology;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use wire::launch::Algorithm;
use wire::npu::Protocol;
use wire::{DataType, ReduceOp};

/// Most ranks of a table.
const RANKS: usize = 12;
const MOST: u64 = 700;

/// Devices of a server, by number in the order of their ranks.
type Server = Vec<u32>;

/// A variant, and what else is chosen: count, seed, type, reduction, levels, in place.
type Pick = (Index, u64, u64, (Index, Index), [Index; 2], bool);

fn servers() -> impl Strategy<Value = Vec<Server>> {
    let server = Just((0..8_u32).collect::<Vec<_>>()).prop_shuffle();
    let server = (server, 1..=5_usize).prop_map(|(devices, size)| devices[..size].to_vec());
    let few = |servers: &Vec<Server>| servers.iter().map(Vec::len).sum::<usize>() <= RANKS;
    prop::collection::vec(server, 1..=5).prop_filter("few ranks", few)
}

fn picks() -> impl Strategy<Value = Vec<Pick>> {
    let index = any::<Index>;
    let pick = (index(), 0..MOST, any::<u64>(), (index(), index()), [index(), index()], any::<bool>());
    prop::collection::vec(pick, 8)
}

/// A table of version 1.2, servers in pods of at most `pod`, the devices of each in any order.
fn table(servers: &[Server], pod: usize) -> String {
    let mut rank = 0;
    let list: Vec<Value> = servers
        .iter()
        .enumerate()
        .map(|(number, devices)| {
            let mut devices: Vec<(u32, Value)> = devices
                .iter()
                .map(|device| {
                    let value = json!({
                        "device_id": device.to_string(),
                        "super_device_id": (number * 8 + *device as usize).to_string(),
                        "device_ip": format!("10.0.{number}.{device}"),
                        "rank_id": rank.to_string(),
                    });
                    rank += 1;
                    (*device, value)
                })
                .collect();
            devices.sort_by_key(|(device, _)| *device);
            let devices: Vec<Value> = devices.into_iter().map(|(_, value)| value).collect();
            json!({ "server_id": format!("node_{number}"), "device": devices })
        })
        .collect();
    let names: Vec<_> =
        (0..servers.len()).map(|number| json!({ "server_id": format!("node_{number}") })).collect();
    let pods: Vec<Value> = names
        .chunks(pod)
        .enumerate()
        .map(|(number, servers)| json!({ "super_pod_id": number.to_string(), "server_list": servers }))
        .collect();
    json!({
        "status": "completed", "version": "1.2", "server_count": servers.len().to_string(),
        "server_list": list, "super_pod_list": pods,
    })
    .to_string()
}

/// The case that was picked; `None` where it does not exist over these links.
fn case(pick: &Pick, ranks: u32, inline_reduce: bool) -> Option<Case> {
    let (variant, count, seed, (dtype, reduce), levels, in_place) = pick;
    let variants = Variant::all();
    let variant = *variant.get(&variants);
    let types: Vec<DataType> =
        DataType::ALL.iter().copied().filter(|dtype| dtype.can_reduce() || !variant.op.reduces()).collect();
    let reduce = if variant.op.reduces() { *reduce.get(ReduceOp::ALL) } else { ReduceOp::Sum };
    let dtype = *dtype.get(&types);
    // What links do not all add lands in scratch first.
    let inline_reduce = inline_reduce && dtype == DataType::Fp32 && reduce == ReduceOp::Sum;
    let in_place = *in_place && variant.runs(inline_reduce, true);
    if !variant.runs(inline_reduce, in_place) {
        return None;
    }
    let inside = [None, Some(Algorithm::Ring), Some(Algorithm::MeshTwoShot)];
    let across = [None, Some(Algorithm::Nhr), Some(Algorithm::Nb), Some(Algorithm::HalvingDoubling)];
    let levels = match variant.algorithm {
        // Halving-doubling halves, which blocks are not.
        Algorithm::TwoLevel if variant.op == wire::launch::OpKind::AllReduce => {
            [*levels[0].get(&inside), *levels[1].get(&across), None, None]
        }
        _ => [None; 4],
    };
    let operation = Operation { dtype, reduce, levels, ..variant.operation(*count, ranks, *seed) };
    Some(Case { operation, in_place, shift: seed % 4, seed: *seed })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn results_are_right_on_any_rank_table(servers in servers(), pod in 1..=3_usize, picks in picks()) {
        let text = table(&servers, pod);
        let source = Source { bytes: text.as_bytes(), name: "random" };
        let topology = Topology::new(&RankTable::parse(source, None).unwrap());
        let homes: Vec<usize> =
            (0..).zip(&servers).flat_map(|(home, devices)| devices.iter().map(move |_| home)).collect();
        let ranks = topology.ranks();
        prop_assert_eq!(ranks as usize, homes.len());
        for (a, b) in (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            let inside = homes[a as usize] == homes[b as usize];
            let expected = if inside { Protocol::Hccs } else { Protocol::Roce };
            prop_assert_eq!(topology.link(a, b), Some(expected), "{} and {}", a, b);
        }
        let cluster = Cluster::start(topology, 48 << 20, &Aicpu::Thread).unwrap();
        let config =
            Config { buffer_bytes: 128 << 10, timeout: Duration::from_secs(20), ..Config::default() };
        let mut bench = Bench::new(&cluster, config, 2 * 16 * u64::from(ranks) * (MOST + 8)).unwrap();
        for pick in &picks {
            if let Some(case) = case(pick, ranks, servers.len() == 1) {
                // The device refuses an engine that does not reach where a task wants to go.
                bench.run(&case).unwrap_or_else(|error| panic!("{case:?}: {error}"));
            }
        }
        for rank in 0..ranks {
            let counters = cluster.machine().snapshot(rank);
            let moved = |protocol| counters.sent(protocol) + counters.received(protocol);
            let alone = servers[homes[rank as usize]].len() == 1;
            prop_assert!(!alone || moved(Protocol::Hccs) == 0, "rank {} is alone in its server", rank);
            prop_assert!(servers.len() > 1 || moved(Protocol::Roce) == 0, "one server, rank {}", rank);
            prop_assert_eq!(moved(Protocol::Ub), 0);
        }
        bench.finish().unwrap();
    }
}
