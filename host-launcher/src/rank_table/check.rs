//! Checks that concern several ranks, the same for every form.

use std::collections::{HashMap, HashSet};

use core::hash::Hash;
use core::net::IpAddr;

use wire::ErrorCode;

use super::json::Node;
use super::{Address, Rank};
use crate::error::Result;
use crate::quote::quote;

/// An address, the port of the device if the table gives one, and where both stand.
pub(super) struct Endpoint<'d> {
    pub(super) address: Address,
    pub(super) port: Option<u32>,
    pub(super) node: Node<'d>,
}

/// One rank as its form describes it, each value checked for itself.
pub(super) struct Entry<'d> {
    pub(super) node: Node<'d>,
    pub(super) rank_id: u32,
    pub(super) server: &'d str,
    pub(super) device_id: u32,
    pub(super) local_id: u32,
    pub(super) super_pod: Option<&'d str>,
    pub(super) endpoints: Vec<Endpoint<'d>>,
}

/// Refuses `declared` unless it is the number of entries found.
pub(super) fn count(declared: Node<'_>, range_max: u32, found: usize, what: &str) -> Result<()> {
    let count = declared.integer(1..=range_max)?;
    if usize::try_from(count) == Ok(found) {
        return Ok(());
    }
    Err(declared.error(ErrorCode::RANK_TABLE_COUNT, format!("says {count}, but there are {found} {what}")))
}

/// Returns the ranks in order of their ids and the servers' names in order of their first rank.
///
/// `entries` is not empty.
pub(super) fn ranks(entries: &[Entry<'_>]) -> Result<(Vec<Rank>, Vec<String>)> {
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|entry| entry.rank_id);
    rank_ids(&entries)?;
    let servers = consecutive(&entries, "server", |entry| Some(entry.server))?;
    let pods = consecutive(&entries, "super pod", |entry| entry.super_pod)?;
    unique(&entries, "device_id", |entry| (entry.server, entry.device_id))?;
    unique(&entries, "local_id", |entry| (entry.server, entry.local_id))?;
    endpoints(&entries, servers.len())?;
    let ranks = entries
        .iter()
        .map(|entry| Rank {
            server: servers[entry.server],
            device_id: entry.device_id,
            local_id: entry.local_id,
            super_pod: entry.super_pod.map(|pod| pods[pod]),
            addresses: entry.endpoints.iter().map(|endpoint| endpoint.address).collect(),
        })
        .collect();
    let mut names: Vec<_> = servers.into_iter().collect();
    names.sort_by_key(|&(_, index)| index);
    Ok((ranks, names.into_iter().map(|(name, _)| name.to_owned()).collect()))
}

fn rank_ids(entries: &[&Entry<'_>]) -> Result<()> {
    let ids = (0_u32..).zip(entries);
    for (expected, entry) in ids {
        if entry.rank_id != expected {
            let fault = if entry.rank_id < expected { entry.rank_id } else { expected };
            let fault =
                format!("{fault} is {}", if entry.rank_id < expected { "given twice" } else { "missing" });
            let message =
                format!("the ids of {} ranks must be 0 to {}: {fault}", entries.len(), entries.len() - 1);
            return Err(entry.node.error(ErrorCode::RANK_TABLE_RANK_IDS, message));
        }
    }
    Ok(())
}

/// Numbers the groups in order of their first rank; each must be left for good when the next begins.
fn consecutive<'d>(
    entries: &[&Entry<'d>],
    what: &str,
    group: impl Fn(&Entry<'d>) -> Option<&'d str>,
) -> Result<HashMap<&'d str, u32>> {
    let mut indices = HashMap::new();
    let mut current = None;
    let mut next = 0;
    for entry in entries {
        let name = group(entry);
        if let Some(name) = name
            && current != Some(name)
        {
            if indices.insert(name, next).is_some() {
                let message = format!(
                    "rank {} returns to {what} {} after rank {} was elsewhere",
                    entry.rank_id,
                    quote(name),
                    entry.rank_id - 1
                );
                return Err(entry.node.error(ErrorCode::RANK_TABLE_ORDER, message));
            }
            next += 1;
        }
        current = name;
    }
    Ok(indices)
}

fn unique<'d, K: Eq + Hash>(entries: &[&Entry<'d>], what: &str, key: impl Fn(&Entry<'d>) -> K) -> Result<()> {
    let mut seen = HashSet::new();
    for entry in entries {
        if !seen.insert(key(entry)) {
            let message = format!("another rank on server {} has the same {what}", quote(entry.server));
            return Err(entry.node.error(ErrorCode::RANK_TABLE_DEVICE, message));
        }
    }
    Ok(())
}

fn endpoints(entries: &[&Entry<'_>], servers: usize) -> Result<()> {
    let mut owners = HashMap::new();
    for entry in entries {
        if servers > 1 && entry.endpoints.is_empty() {
            let message =
                format!("rank {} has no address, but ranks on other servers must reach it", entry.rank_id);
            return Err(entry.node.error(ErrorCode::RANK_TABLE_ADDRESS, message));
        }
        for endpoint in &entry.endpoints {
            if let Some(owner) = owners.insert((endpoint.address, endpoint.port), entry.rank_id) {
                let message = format!("{} has the same address and port in rank {owner}", endpoint.address);
                return Err(endpoint.node.error(ErrorCode::RANK_TABLE_ADDRESS_TWICE, message));
            }
        }
    }
    Ok(())
}

/// Parses an IP address that one device can have.
pub(super) fn ip(node: Node<'_>) -> Result<IpAddr> {
    let text = node.string()?;
    let refuse = |why: &str| Err(node.error(ErrorCode::RANK_TABLE_ADDRESS, format!("{} {why}", quote(text))));
    match text.parse::<IpAddr>() {
        Err(_) => refuse("is not an IP address"),
        Ok(ip) if ip.is_unspecified() => refuse("stands for any address and names none"),
        Ok(ip) if ip.is_multicast() => refuse("is a multicast address"),
        Ok(IpAddr::V4(ip)) if ip.is_broadcast() => refuse("is the broadcast address"),
        Ok(ip) => Ok(ip),
    }
}
