//! Topology: how any two ranks reach each other.
//!
//! The rule of the field: devices of one server share memory over HCCS, so the SDMA engine can copy between them; all
//! others go through queue pairs, over RoCE in the 1.x forms and over UB in 2.0. In 2.0 a server is an instance of
//! layer 0, and only the pairs that the topology file joins by a `PEER2PEER` edge of that layer count as HCCS here.
//! HCCS never leaves a server: servers of one super pod (1.2) are joined by RoCE as well, which every product of that
//! form can do.
//!
//! Nothing is probed: the answer depends on the rank table alone and is the same on every rank.

use std::collections::BTreeSet;

use core::fmt::{self, Write};

use crc::{CRC_64_XZ, Crc};
use templates::Tables;
use wire::npu::{self, Protocol};
use wire::{ErrorCode, Reduction};

use crate::error::{Error, Result};
use crate::quote::quote;
use crate::rank_table::{Form, RankTable};

#[cfg(test)]
mod tests;

/// One entry of a rank's channel table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The rank at the other end.
    pub peer: u32,
    /// What the channel runs over.
    pub protocol: Protocol,
}

/// Links of all pairs of ranks.
#[derive(Clone, Debug)]
pub struct Topology {
    form: Form,
    servers: u32,
    /// Server and local id of every rank.
    places: Vec<(u32, u32)>,
    /// First rank of every server, and of every super pod.
    starts: [Vec<u32>; 2],
    /// Name of every server.
    names: Vec<String>,
    /// Device id of every rank.
    devices: Vec<u32>,
    direct_links: Option<BTreeSet<(u32, u32)>>,
    digest: u64,
}

impl Topology {
    /// Derives the links from a rank table.
    #[must_use]
    pub fn new(table: &RankTable) -> Self {
        Self {
            form: table.form(),
            servers: table.ranks().last().map_or(0, |rank| rank.server() + 1),
            places: table.ranks().iter().map(|rank| (rank.server(), rank.local_id())).collect(),
            starts: [
                starts(table.ranks().iter().map(|rank| rank.server())),
                starts(table.ranks().iter().map(|rank| rank.super_pod().unwrap_or(0))),
            ],
            names: table.servers().to_vec(),
            devices: table.ranks().iter().map(|rank| rank.device_id()).collect(),
            direct_links: table.direct_links().cloned(),
            digest: digest(table),
        }
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of servers.
    #[must_use]
    pub fn servers(&self) -> u32 {
        self.servers
    }

    /// Returns the topology of some of these ranks, numbered anew in the order given.
    ///
    /// # Errors
    /// `ARGUMENT_VALUE` for no rank, a rank that is none or comes twice, and groups that are torn apart.
    pub(crate) fn subset(&self, ranks: &[u32]) -> Result<Self> {
        let refuse = |what: String| Err(Error::new(ErrorCode::ARGUMENT_VALUE, what));
        if ranks.is_empty() {
            return refuse("a group of no ranks".to_owned());
        }
        let mut seen = BTreeSet::new();
        if let Some(rank) = ranks.iter().find(|rank| **rank >= self.ranks() || !seen.insert(**rank)) {
            return refuse(format!(
                "rank {rank} of a group is none of {} ranks, or comes twice",
                self.ranks()
            ));
        }
        let mut starts = [Vec::new(), Vec::new()];
        for (level, starts) in starts.iter_mut().enumerate() {
            let group = |rank: u32| self.place(rank)[level];
            *starts = self::starts(ranks.iter().map(|&rank| u32::from(group(rank))));
            let groups: BTreeSet<_> = ranks.iter().map(|&rank| group(rank)).collect();
            if groups.len() < starts.len() {
                let what = ["server", "super pod"][level];
                return refuse(format!("ranks of one {what} do not follow each other in a group"));
            }
        }
        let servers: Vec<u32> =
            starts[0].iter().map(|&first| self.places[ranks[first as usize] as usize].0).collect();
        let number = |server: u32| servers.iter().position(|other| *other == server).unwrap_or(0);
        let at = |rank: &u32| *rank as usize;
        // There are no more servers than ranks.
        let place = |rank: &u32| {
            let (server, local) = self.places[at(rank)];
            (u32::try_from(number(server)).unwrap_or(u32::MAX), local)
        };
        let mut bytes = self.digest.to_le_bytes().to_vec();
        bytes.extend(ranks.iter().flat_map(|rank| rank.to_le_bytes()));
        Ok(Self {
            form: self.form,
            servers: u32::try_from(servers.len()).unwrap_or(u32::MAX),
            places: ranks.iter().map(place).collect(),
            starts,
            names: servers.iter().map(|server| self.names[*server as usize].clone()).collect(),
            devices: ranks.iter().map(|rank| self.devices[at(rank)]).collect(),
            direct_links: self.direct_links.clone(),
            digest: Crc::<u64>::new(&CRC_64_XZ).checksum(&bytes),
        })
    }

    /// Returns the first rank of every server and of every super pod; without super pods all are in one.
    #[must_use]
    pub fn groups(&self) -> Tables<'_> {
        let [servers, pods] = &self.starts;
        Tables { servers, pods, ..Tables::default() }
    }

    /// Returns the numbers of a rank's server and super pod.
    pub(crate) fn place(&self, rank: u32) -> [u16; 2] {
        let number = |starts: &Vec<u32>| starts.partition_point(|&first| first <= rank).saturating_sub(1);
        // There are no more servers than ranks, which contexts count in 16 bits.
        [&self.starts[0], &self.starts[1]].map(|starts| u16::try_from(number(starts)).unwrap_or(u16::MAX))
    }

    /// Returns where a rank is, for messages: server and device. `None` for a rank that is none.
    #[must_use]
    pub fn whereabouts(&self, rank: u32) -> Option<String> {
        let (server, _) = self.places.get(rank as usize)?;
        let (name, device) = (self.names.get(*server as usize)?, self.devices.get(rank as usize)?);
        Some(format!("host {}, device {device}", quote(name)))
    }

    /// Returns what joins ranks `a` and `b`, the same in both directions; `None` for a rank and itself.
    ///
    /// # Panics
    /// If one of them is not below [`Topology::ranks`].
    #[must_use]
    pub fn link(&self, a: u32, b: u32) -> Option<Protocol> {
        let ((server_a, local_a), (server_b, local_b)) = (self.places[a as usize], self.places[b as usize]);
        let pair = (local_a.min(local_b), local_a.max(local_b));
        let direct =
            server_a == server_b && self.direct_links.as_ref().is_none_or(|links| links.contains(&pair));
        match self.form {
            _ if a == b => None,
            _ if direct => Some(Protocol::Hccs),
            Form::V2_0 => Some(Protocol::Ub),
            Form::Uniform | Form::Flat | Form::V1_0 | Form::V1_2 => Some(Protocol::Roce),
        }
    }

    /// Returns the channel table of `rank`: one channel for each other rank, in ascending order of peers.
    ///
    /// # Panics
    /// If `rank` is not below [`Topology::ranks`].
    pub fn channels(&self, rank: u32) -> impl Iterator<Item = Channel> {
        (0..self.ranks()).filter_map(move |peer| Some(Channel { peer, protocol: self.link(rank, peer)? }))
    }

    /// Returns a fingerprint: it differs (but for one chance in 2^64) when ranks, places or links differ.
    ///
    /// CRC-64/XZ over little-endian 32-bit words: 1 for UB or 0 for RoCE between servers; the number of ranks; for each
    /// rank its server, device id, local id and super pod (all ones for none); in form 2.0 the direct links, two local
    /// ids each. Names and addresses have no part in it, nor has the form's way of writing.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the number of pairs joined by each protocol that occurs.
    #[must_use]
    pub fn pairs(&self) -> Vec<(Protocol, u64)> {
        let mut pairs = Vec::new();
        for protocol in [Protocol::Hccs, Protocol::Roce, Protocol::Ub] {
            let above =
                |a| (a + 1..self.ranks()).filter(move |&b| self.link(a, b) == Some(protocol)).count() as u64;
            let count = (0..self.ranks()).map(above).sum();
            if count > 0 {
                pairs.push((protocol, count));
            }
        }
        pairs
    }

    /// Returns what every link reduces while moving: types and reductions, bit per number.
    #[must_use]
    pub fn link_reductions(&self) -> (u32, u32) {
        let all =
            (npu::sdma::REDUCE_TYPES | npu::ub::REDUCE_TYPES, npu::sdma::REDUCE_OPS | npu::ub::REDUCE_OPS);
        self.pairs().into_iter().fold(all, |(types, ops), (protocol, _)| match protocol {
            Protocol::Hccs => (types & npu::sdma::REDUCE_TYPES, ops & npu::sdma::REDUCE_OPS),
            Protocol::Roce => (types & npu::roce::REDUCE_TYPES, ops & npu::roce::REDUCE_OPS),
            Protocol::Ub => (types & npu::ub::REDUCE_TYPES, ops & npu::ub::REDUCE_OPS),
        })
    }

    /// Returns whether every link reduces these elements while moving them.
    #[must_use]
    pub fn reduces_inline(&self, reduction: Reduction) -> bool {
        let (types, ops) = self.link_reductions();
        types >> reduction.dtype as u32 & 1 == 1 && ops >> reduction.op as u32 & 1 == 1
    }

    /// Returns the table that `aicpu-ts topo` prints: a letter for every pair of ranks, and what the letters mean.
    #[must_use]
    pub fn matrix(&self) -> String {
        let width = self.ranks().saturating_sub(1).to_string().len();
        let mut text = format!(
            "ranks {}  servers {}  rank table {}  digest {:016x}\n\nrank  server ",
            self.ranks(),
            self.servers,
            self.form,
            self.digest
        );
        for b in 0..self.ranks() {
            append(&mut text, format_args!(" {b:>width$}"));
        }
        for a in 0..self.ranks() {
            append(&mut text, format_args!("\n{a:>4}  {:>6} ", self.places[a as usize].0));
            for b in 0..self.ranks() {
                append(&mut text, format_args!(" {:>width$}", self.link(a, b).map_or('.', letter)));
            }
        }
        text.push_str("\n\n. itself");
        for (protocol, count) in self.pairs() {
            let pairs = if count == 1 { "pair" } else { "pairs" };
            append(&mut text, format_args!("  {} {} ({count} {pairs})", letter(protocol), protocol.name()));
        }
        text.push('\n');
        text
    }
}

/// Returns the indices at which a sequence of group numbers begins a new group.
fn starts(groups: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut last = None;
    (0..).zip(groups).filter(|&(_, group)| last.replace(group) != Some(group)).map(|(rank, _)| rank).collect()
}

fn letter(protocol: Protocol) -> char {
    match protocol {
        Protocol::Hccs => 'H',
        Protocol::Roce => 'R',
        Protocol::Ub => 'U',
    }
}

fn append(text: &mut String, piece: fmt::Arguments<'_>) {
    text.write_fmt(piece).expect("a String takes any text");
}

fn digest(table: &RankTable) -> u64 {
    let crc = Crc::<u64>::new(&CRC_64_XZ);
    let mut digest = crc.digest();
    let mut word = |value: u32| digest.update(&value.to_le_bytes());
    word(u32::from(table.form() == Form::V2_0));
    word(u32::try_from(table.ranks().len()).unwrap_or(u32::MAX));
    for rank in table.ranks() {
        word(rank.server());
        word(rank.device_id());
        word(rank.local_id());
        word(rank.super_pod().unwrap_or(u32::MAX));
    }
    for &(a, b) in table.direct_links().into_iter().flatten() {
        word(a);
        word(b);
    }
    digest.finalize()
}
