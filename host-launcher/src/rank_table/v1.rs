//! The 1.x forms: flat `rank_list`, 1.0 `server_list`, and 1.2 with super pods.

use std::collections::{HashMap, HashSet};

use wire::ErrorCode;

use super::check::{self, Endpoint, Entry};
use super::json::Node;
use super::{Address, DEVICE_ID_MAX, Form, RANKS_MAX, RankTable};
use crate::error::Result;
use crate::quote::quote;

/// Most characters of a server's or super pod's name.
const NAME_MAX: usize = 1024;

/// Ports of a device or host.
const PORTS: core::ops::RangeInclusive<u32> = 1..=65_535;

/// Parses the flat form: one list of ranks, each naming its server.
pub(super) fn parse_flat(root: Node<'_>) -> Result<RankTable> {
    let list = root.require("rank_list")?;
    let mut entries = Vec::new();
    for node in list.items()? {
        check_host(node)?;
        entries.push(entry(node, node.require("server_id")?.name(NAME_MAX)?, None)?);
    }
    check::count(root.require("rank_count")?, RANKS_MAX, entries.len(), "ranks in rank_list")?;
    finish(list, &entries, Form::Flat)
}

/// Parses forms 1.0 and 1.2: a list of servers with their devices.
pub(super) fn parse_servers(root: Node<'_>, form: Form) -> Result<RankTable> {
    let list = root.require("server_list")?;
    let pods = if form == Form::V1_2 { Some(super_pods(root)?) } else { None };
    let mut servers = HashSet::new();
    let mut super_devices = HashSet::new();
    let mut entries = Vec::new();
    for server in list.items()? {
        let id_node = server.require("server_id")?;
        let id = id_node.name(NAME_MAX)?;
        if !servers.insert(id) {
            let message = format!("server {} is listed twice", quote(id));
            return Err(id_node.error(ErrorCode::RANK_TABLE_SERVER, message));
        }
        check_host(server)?;
        let pod = pods.as_ref().map(|pods| pods.pod_of(id, id_node)).transpose()?;
        for device in server.require("device")?.items()? {
            if let Some(pod) = pod {
                check_super_device(device, pod, &mut super_devices)?;
            }
            entries.push(entry(device, id, pod)?);
        }
    }
    if let Some(declared) = root.get("server_count")? {
        check::count(declared, RANKS_MAX, servers.len(), "servers in server_list")?;
    }
    if let Some(pods) = pods {
        pods.refuse_unknown(&servers)?;
    }
    finish(list, &entries, form)
}

fn finish(list: Node<'_>, entries: &[Entry<'_>], form: Form) -> Result<RankTable> {
    if !(1..=RANKS_MAX).contains(&u32::try_from(entries.len()).unwrap_or(u32::MAX)) {
        let message = format!("the table has {} ranks; 1 to {RANKS_MAX} are possible", entries.len());
        return Err(list.error(ErrorCode::RANK_TABLE_COUNT, message));
    }
    let (ranks, servers) = check::ranks(entries)?;
    Ok(RankTable { form, ranks, servers, direct_links: None })
}

fn entry<'d>(node: Node<'d>, server: &'d str, super_pod: Option<&'d str>) -> Result<Entry<'d>> {
    let device_id = node.require("device_id")?.integer(0..=DEVICE_ID_MAX)?;
    let port = optional_port(node, "device_port")?;
    let mut endpoints = Vec::new();
    if let Some(address) = node.get("device_ip")?
        && !address.string()?.is_empty()
    {
        endpoints.push(Endpoint { address: Address::Ip(check::ip(address)?), port, node: address });
    }
    Ok(Entry {
        node,
        rank_id: node.require("rank_id")?.integer(0..=RANKS_MAX - 1)?,
        server,
        device_id,
        local_id: device_id,
        super_pod,
        endpoints,
    })
}

/// Checks the optional keys about the host, which nothing here uses.
fn check_host(node: Node<'_>) -> Result<()> {
    if let Some(address) = node.get("host_ip")?
        && !address.string()?.is_empty()
    {
        check::ip(address)?;
    }
    optional_port(node, "host_port").map(drop)
}

fn optional_port(node: Node<'_>, key: &str) -> Result<Option<u32>> {
    node.get(key)?.map(|port| port.integer(PORTS)).transpose()
}

/// Checks what form 1.2 adds to a device: its number in the super pod and its backup interface.
fn check_super_device<'d>(device: Node<'d>, pod: &'d str, seen: &mut HashSet<(&'d str, u32)>) -> Result<()> {
    let node = device.require("super_device_id")?;
    if !seen.insert((pod, node.integer(0..=u32::MAX)?)) {
        let message = format!("another device of super pod {} has the same super_device_id", quote(pod));
        return Err(node.error(ErrorCode::RANK_TABLE_DEVICE, message));
    }
    if let Some(address) = device.get("backup_device_ip")?
        && !address.string()?.is_empty()
    {
        check::ip(address)?;
    }
    optional_port(device, "host_port")?;
    optional_port(device, "backup_device_port").map(drop)
}

/// Which super pod each server is in.
struct SuperPods<'d>(HashMap<&'d str, (&'d str, Node<'d>)>);

fn super_pods(root: Node<'_>) -> Result<SuperPods<'_>> {
    let mut pods = SuperPods(HashMap::new());
    let mut ids = HashSet::new();
    for pod in root.require("super_pod_list")?.items()? {
        let id_node = pod.require("super_pod_id")?;
        let id = id_node.name(NAME_MAX)?;
        if !ids.insert(id) {
            let message = format!("super pod {} is listed twice", quote(id));
            return Err(id_node.error(ErrorCode::RANK_TABLE_SERVER, message));
        }
        for server in pod.require("server_list")?.items()? {
            let node = server.require("server_id")?;
            let server = node.name(NAME_MAX)?;
            if pods.0.insert(server, (id, node)).is_some() {
                let message = format!("server {} is in a super pod already", quote(server));
                return Err(node.error(ErrorCode::RANK_TABLE_SERVER, message));
            }
        }
    }
    Ok(pods)
}

impl<'d> SuperPods<'d> {
    fn pod_of(&self, server: &str, node: Node<'_>) -> Result<&'d str> {
        self.0.get(server).map(|&(pod, _)| pod).ok_or_else(|| {
            let message = format!("server {} is in no super pod", quote(server));
            node.error(ErrorCode::RANK_TABLE_SERVER, message)
        })
    }

    fn refuse_unknown(&self, servers: &HashSet<&str>) -> Result<()> {
        let unknown =
            self.0.iter().filter(|(server, _)| !servers.contains(*server)).min_by_key(|(server, _)| **server);
        let Some((server, (pod, node))) = unknown else { return Ok(()) };
        let message = format!(
            "super pod {} names server {}, which server_list does not have",
            quote(pod),
            quote(server)
        );
        Err(node.error(ErrorCode::RANK_TABLE_SERVER, message))
    }
}
