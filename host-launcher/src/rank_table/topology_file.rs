//! The topology file of form 2.0: which local ids of a server have a link.
//!
//! An edge stands for both directions. A file lists each edge once, or each in both directions; a file that lists
//! both directions of some edges only is refused, since one is then missing.

use std::collections::{BTreeSet, HashSet};

use wire::ErrorCode;

use super::json::{Document, Node};
use super::v2::{LAYERS, ports};
use super::{DEVICE_ID_MAX, Source, check};
use crate::error::Result;
use crate::quote::quote;

/// What is used of a topology file.
pub(super) struct TopologyFile {
    pub(super) peers: BTreeSet<u32>,
    /// Pairs (smaller first) that a PEER2PEER edge of layer 0 joins.
    pub(super) direct_links: BTreeSet<(u32, u32)>,
}

/// One end of an edge: peer and its ports.
type End = (u32, Vec<(u8, u8)>);

/// Parses and checks a topology file.
pub(super) fn parse(source: Source<'_>) -> Result<TopologyFile> {
    let document = Document::parse(source.bytes, source.name)?;
    let root = document.root();
    let version = root.require("version")?;
    if version.string()? != "2.0" {
        let message = format!("topology version {}, expected \"2.0\"", quote(version.string()?));
        return Err(version.error(ErrorCode::RANK_TABLE_VERSION, message));
    }
    let peers = peers(root)?;
    let list = root.require("edge_list")?.items()?;
    let count = list.len();
    let mut edges = Vec::new();
    for node in list {
        if let Some((a, b, layer)) = edge(node, &peers)? {
            edges.push((node, layer, a, b));
        }
    }
    if let Some(declared) = root.get("edge_count")? {
        check::count(declared, u32::MAX, count, "edges in edge_list")?;
    }
    refuse_half_mirrored(&edges)?;
    let layer_0 = edges.iter().filter(|(_, layer, ..)| *layer == 0);
    let direct_links = layer_0.map(|(_, _, (a, _), (b, _))| (*a.min(b), *a.max(b))).collect();
    Ok(TopologyFile { peers, direct_links })
}

fn peers(root: Node<'_>) -> Result<BTreeSet<u32>> {
    let mut peers = BTreeSet::new();
    let list = root.require("peer_list")?.items()?;
    let count = list.len();
    for peer in list {
        let node = peer.require("local_id")?;
        let id = node.integer(0..=DEVICE_ID_MAX)?;
        if !peers.insert(id) {
            return Err(node.error(ErrorCode::RANK_TABLE_DEVICE, format!("peer {id} is listed twice")));
        }
    }
    if let Some(declared) = root.get("peer_count")? {
        check::count(declared, DEVICE_ID_MAX + 1, count, "peers in peer_list")?;
    }
    Ok(peers)
}

/// Reads an edge; `None` for one that leads from a peer into a network.
fn edge(node: Node<'_>, peers: &BTreeSet<u32>) -> Result<Option<(End, End, u32)>> {
    let layer = node.require("net_layer")?.integer(LAYERS)?;
    let link_type = node.require("link_type")?;
    let a = end(node, "local_a", "local_a_ports", peers)?;
    match link_type.string()? {
        "PEER2NET" => Ok(None),
        "PEER2PEER" => {
            let b = end(node, "local_b", "local_b_ports", peers)?;
            if a.0 == b.0 {
                let message = format!("an edge from peer {} to itself", a.0);
                return Err(node.error(ErrorCode::TOPOLOGY_EDGE, message));
            }
            Ok(Some((a, b, layer)))
        }
        other => {
            let message = format!("link type {}, expected \"PEER2PEER\" or \"PEER2NET\"", quote(other));
            Err(link_type.error(ErrorCode::TOPOLOGY_EDGE, message))
        }
    }
}

fn end(edge: Node<'_>, peer_key: &str, ports_key: &str, peers: &BTreeSet<u32>) -> Result<End> {
    let node = edge.require(peer_key)?;
    let peer = node.integer(0..=DEVICE_ID_MAX)?;
    if !peers.contains(&peer) {
        return Err(node.error(ErrorCode::TOPOLOGY_EDGE, format!("peer {peer} is not in peer_list")));
    }
    let ports = match edge.get(ports_key)? {
        Some(list) => ports(list)?.into_iter().map(|(port, _)| port).collect(),
        None => Vec::new(),
    };
    Ok((peer, ports))
}

fn refuse_half_mirrored(edges: &[(Node<'_>, u32, End, End)]) -> Result<()> {
    let known: HashSet<_> = edges.iter().map(|(_, layer, a, b)| (layer, a, b)).collect();
    let single: Vec<_> = edges.iter().filter(|(_, layer, a, b)| !known.contains(&(layer, b, a))).collect();
    match single.first() {
        Some((node, _, a, b)) if single.len() < edges.len() => {
            let message =
                format!("the edge {} to {} lacks its other direction, which other edges have", a.0, b.0);
            Err(node.error(ErrorCode::TOPOLOGY_EDGE, message))
        }
        _ => Ok(()),
    }
}
