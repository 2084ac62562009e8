//! Form 2.0: every rank lists its network layers; the links of layer 0 are in a topology file.

use std::collections::{HashMap, HashSet};

use core::ops::RangeInclusive;

use wire::ErrorCode;

use super::check::{self, Endpoint, Entry};
use super::json::Node;
use super::topology_file::TopologyFile;
use super::{Address, DEVICE_ID_MAX, Form, RANKS_MAX, RankTable};
use crate::error::Result;
use crate::quote::quote;

/// Most network layers of a rank; they are numbered from 0.
const LAYERS_MAX: u32 = 8;
/// Most addresses of a rank in one layer.
const ADDRESSES_MAX: usize = 24;
/// Most ports of an address or edge.
const PORTS_MAX: usize = 16;
/// Most characters of a network instance's name.
const INSTANCE_MAX: usize = 1024;
/// Most characters of an address.
const ADDRESS_MAX: usize = 256;

/// Network layers that a number may name.
pub(super) const LAYERS: RangeInclusive<u32> = 0..=LAYERS_MAX - 1;

/// A rank's part in one network layer.
struct Level<'d> {
    layer: u32,
    instance: &'d str,
    kind: &'d str,
    node: Node<'d>,
}

/// Parses a 2.0 table against its topology file.
pub(super) fn parse(root: Node<'_>, topology: &TopologyFile) -> Result<RankTable> {
    let mut entries = Vec::new();
    let mut networks = Networks::default();
    for node in root.require("rank_list")?.items()? {
        let levels = levels(node)?;
        let (entry, local_id_node) = entry(node, &levels)?;
        if !topology.peers.contains(&entry.local_id) {
            let message = format!(
                "local_id {} (device_id {}) is not a peer of the topology file",
                entry.local_id, entry.device_id
            );
            return Err(local_id_node.error(ErrorCode::TOPOLOGY_PEER, message));
        }
        for level in &levels {
            networks.add(level, entries.len())?;
        }
        entries.push(entry);
    }
    check::count(root.require("rank_count")?, RANKS_MAX, entries.len(), "ranks in rank_list")?;
    let (ranks, servers) = check::ranks(&entries)?;
    networks.refuse_disconnected(&entries, topology)?;
    Ok(RankTable { form: Form::V2_0, ranks, servers, direct_links: Some(topology.direct_links.clone()) })
}

fn entry<'d>(node: Node<'d>, levels: &[Level<'d>]) -> Result<(Entry<'d>, Node<'d>)> {
    let local_id = node.require("local_id")?;
    let port = node.get("device_port")?.map(|port| port.integer(1..=65_535)).transpose()?;
    node.get("host_port")?.map(|port| port.integer(1..=65_535)).transpose()?;
    let mut endpoints = Vec::new();
    for level in levels {
        endpoints.extend(addresses(level, port)?);
    }
    let entry = Entry {
        node,
        rank_id: node.require("rank_id")?.integer(0..=RANKS_MAX - 1)?,
        server: levels[0].instance,
        device_id: node.require("device_id")?.integer(0..=DEVICE_ID_MAX)?,
        local_id: local_id.integer(0..=DEVICE_ID_MAX)?,
        super_pod: None,
        endpoints,
    };
    Ok((entry, local_id))
}

/// Reads a rank's layers: ascending, layer 0 first and described by the topology file.
fn levels(rank: Node<'_>) -> Result<Vec<Level<'_>>> {
    let list = rank.require("level_list")?;
    let mut levels: Vec<Level<'_>> = Vec::new();
    for node in list.items_up_to(LAYERS_MAX as usize)? {
        let layer_node = node.require_either("net_layer", "level")?;
        let layer = layer_node.integer(LAYERS)?;
        let refuse = |message: String| Err(layer_node.error(ErrorCode::RANK_TABLE_LEVELS, message));
        let kind_node = node.require_either("net_type", "fabric_type")?;
        let kind = kind_node.string()?;
        match levels.last() {
            None if layer != 0 => return refuse(format!("the first layer is {layer}, expected 0")),
            None if kind != "TOPO_FILE_DESC" => {
                let message = format!("layer 0 is of type {}, expected \"TOPO_FILE_DESC\"", quote(kind));
                return Err(kind_node.error(ErrorCode::RANK_TABLE_LEVELS, message));
            }
            Some(last) if last.layer == layer => return refuse(format!("layer {layer} is given twice")),
            Some(last) if last.layer > layer => {
                return refuse(format!("layer {layer} follows layer {}", last.layer));
            }
            _ => {}
        }
        let instance = node.require_either("net_instance_id", "id")?.name(INSTANCE_MAX)?;
        levels.push(Level { layer, instance, kind, node });
    }
    if levels.is_empty() {
        return Err(list.error(ErrorCode::RANK_TABLE_LEVELS, "a rank needs at least layer 0"));
    }
    Ok(levels)
}

/// Reads the addresses of one layer; a die's port belongs to one of them.
fn addresses<'d>(level: &Level<'d>, port: Option<u32>) -> Result<Vec<Endpoint<'d>>> {
    let mut used = HashSet::new();
    let mut endpoints = Vec::new();
    for item in level.node.require("rank_addr_list")?.items_up_to(ADDRESSES_MAX)? {
        let node = item.require("addr")?;
        let address = address(item.require("addr_type")?, node)?;
        for (die_port, node) in ports(item.require("ports")?)? {
            if !used.insert(die_port) {
                let message = format!("port {}/{} is used twice in this layer", die_port.0, die_port.1);
                return Err(node.error(ErrorCode::RANK_TABLE_PORT, message));
            }
        }
        endpoints.push(Endpoint { address, port, node });
    }
    Ok(endpoints)
}

fn address(kind: Node<'_>, node: Node<'_>) -> Result<Address> {
    let text = node.name(ADDRESS_MAX)?;
    let refuse = |expected: &str| {
        Err(node.error(ErrorCode::RANK_TABLE_ADDRESS, format!("{} is not {expected}", quote(text))))
    };
    match kind.string()? {
        "EID" if text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u128::from_str_radix(text, 16).map(Address::Eid).or_else(|_| refuse("an entity id"))
        }
        "EID" => refuse("an entity id of 32 hexadecimal digits"),
        "IPV4" => check::ip(node)
            .and_then(|ip| if ip.is_ipv4() { Ok(Address::Ip(ip)) } else { refuse("an IPv4 address") }),
        "IPV6" => check::ip(node)
            .and_then(|ip| if ip.is_ipv6() { Ok(Address::Ip(ip)) } else { refuse("an IPv6 address") }),
        other => {
            let message = format!("address type {}, expected \"EID\", \"IPV4\" or \"IPV6\"", quote(other));
            Err(kind.error(ErrorCode::RANK_TABLE_ADDRESS, message))
        }
    }
}

/// Reads a list of `die/port`; `d2h`, the way to the host, names no port of a die and is left out.
pub(super) fn ports(list: Node<'_>) -> Result<Vec<((u8, u8), Node<'_>)>> {
    let decimal = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        if digits { text.parse::<u8>().ok() } else { None }
    };
    let mut ports = Vec::new();
    for node in list.items_up_to(PORTS_MAX)? {
        let text = node.string()?;
        if text == "d2h" {
            continue;
        }
        let port = text.split_once('/').and_then(|(die, port)| Some((decimal(die)?, decimal(port)?)));
        let Some(port) = port else {
            let message = format!("{} is not a port such as \"0/7\"", quote(text));
            return Err(node.error(ErrorCode::RANK_TABLE_PORT, message));
        };
        ports.push((port, node));
    }
    Ok(ports)
}

/// The instances of every layer: their type, and the index of the first rank in each.
#[derive(Default)]
struct Networks<'d> {
    kinds: HashMap<(u32, &'d str), &'d str>,
    /// Above layer 0: pairs of a rank and the first rank in the same instance.
    joined: Vec<(usize, usize)>,
    first: HashMap<(u32, &'d str), usize>,
}

impl<'d> Networks<'d> {
    fn add(&mut self, level: &Level<'d>, rank: usize) -> Result<()> {
        let key = (level.layer, level.instance);
        let kind = *self.kinds.entry(key).or_insert(level.kind);
        if kind != level.kind {
            let message = format!("{} is of type {} in another rank", quote(level.instance), quote(kind));
            return Err(level.node.error(ErrorCode::RANK_TABLE_LEVELS, message));
        }
        if level.layer > 0 {
            self.joined.push((*self.first.entry(key).or_insert(rank), rank));
        }
        Ok(())
    }

    /// Refuses ranks that neither links inside a server nor a common network above it join.
    fn refuse_disconnected(&self, entries: &[Entry<'_>], topology: &TopologyFile) -> Result<()> {
        let mut groups = Groups((0..entries.len()).collect());
        for &(a, b) in &self.joined {
            groups.join(a, b);
        }
        let places: HashMap<_, _> = entries
            .iter()
            .enumerate()
            .map(|(index, entry)| ((entry.server, entry.local_id), index))
            .collect();
        for (&(server, local_id), &index) in &places {
            for &(_, peer) in topology.direct_links.range((local_id, 0)..=(local_id, u32::MAX)) {
                if let Some(&other) = places.get(&(server, peer)) {
                    groups.join(index, other);
                }
            }
        }
        let stray = (1..entries.len()).find(|&index| groups.of(index) != groups.of(0));
        let Some(stray) = stray else { return Ok(()) };
        let (first, stray) = (&entries[0], &entries[stray]);
        let message = format!("no network joins rank {} and rank {}", first.rank_id, stray.rank_id);
        Err(stray.node.error(ErrorCode::TOPOLOGY_DISCONNECTED, message))
    }
}

/// Disjoint sets of ranks; each points towards the smallest of its set.
struct Groups(Vec<usize>);

impl Groups {
    fn of(&mut self, mut index: usize) -> usize {
        while self.0[index] != index {
            self.0[index] = self.0[self.0[index]];
            index = self.0[index];
        }
        index
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of(a), self.of(b));
        self.0[a.max(b)] = a.min(b);
    }
}
