//! Rank tables: which rank runs on which device of which server.
//!
//! Five forms are read: the flat `rank_list`, 1.0 (`server_list`), 1.2 (1.0 with super pods), and 2.0 with its
//! topology file. All end in one checked, immutable [`RankTable`]. What public files vary without harm is accepted:
//! numbers as strings, `level`/`id`/`fabric_type` for `net_layer`/`net_instance_id`/`net_type`, empty `device_ip`,
//! missing `server_count` or `status`, other keys (so the spare ranks of a 2.0 `replace_list` are not used).
//!
//! Nothing is repaired: every refusal has a code of 12xx and names file, line, column and JSON path.
//! What the ranks can do for each other is [`crate::topology`].

mod check;
pub(crate) mod file;
mod json;
mod topology_file;
mod v1;
mod v2;

use std::collections::BTreeSet;
use std::path::Path;

use core::fmt;
use core::net::IpAddr;
use core::ops::RangeInclusive;

use wire::ErrorCode;

use crate::error::{Error, Result, quote_path};

/// Most ranks of a communicator.
pub const RANKS_MAX: u32 = 65_536;

/// Largest device id and local id on a server.
pub const DEVICE_ID_MAX: u32 = 64;

/// Where a table came from; it decides which links join servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Made by [`RankTable::uniform`], without a file.
    Uniform,
    /// Version 1.0 with `rank_list`.
    Flat,
    /// Version 1.0 with `server_list`.
    V1_0,
    /// Version 1.2: 1.0 with super pods.
    V1_2,
    /// Version 2.0 with a topology file.
    V2_0,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Flat => "flat",
            Self::V1_0 => "1.0",
            Self::V1_2 => "1.2",
            Self::V2_0 => "2.0",
        })
    }
}

/// Address of a device's network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
    /// A UB entity id.
    Eid(u128),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Eid(eid) => write!(f, "{eid:032x}"),
        }
    }
}

/// Where one rank runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    server: u32,
    device_id: u32,
    local_id: u32,
    super_pod: Option<u32>,
    addresses: Vec<Address>,
}

impl Rank {
    /// Returns the server as index into [`RankTable::servers`]; in form 2.0 a server is an instance of layer 0.
    #[must_use]
    pub fn server(&self) -> u32 {
        self.server
    }

    /// Returns the device's number on its server, 0 to [`DEVICE_ID_MAX`].
    #[must_use]
    pub fn device_id(&self) -> u32 {
        self.device_id
    }

    /// Returns the device's number in the topology file; in the 1.x forms the device id.
    #[must_use]
    pub fn local_id(&self) -> u32 {
        self.local_id
    }

    /// Returns the super pod as index in order of first rank; only form 1.2 has any.
    #[must_use]
    pub fn super_pod(&self) -> Option<u32> {
        self.super_pod
    }

    /// Returns the device's addresses in file order; at least one if the table has several servers and a file.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }
}

/// Bytes of a file and the name that messages call it by.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Content.
    pub bytes: &'a [u8],
    /// Name, printed as it is.
    pub name: &'a str,
}

/// A checked rank table: at least one rank, ids without gaps, each server's ranks consecutive, no device twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTable {
    form: Form,
    ranks: Vec<Rank>,
    servers: Vec<String>,
    /// Form 2.0: pairs of local ids (smaller first) with a direct link inside a server. Otherwise every pair has one.
    direct_links: Option<BTreeSet<(u32, u32)>>,
}

impl RankTable {
    /// Reads a rank table, and the topology file that a 2.0 table needs. Never blocks on a pipe or device.
    ///
    /// # Errors
    /// 1201 to 1204 for the files themselves, otherwise as [`RankTable::parse`].
    pub fn read(path: &Path, topology: Option<&Path>) -> Result<Self> {
        let (bytes, name) = (file::read(path)?, quote_path(path));
        let topology = match topology {
            Some(path) => Some((file::read(path)?, quote_path(path))),
            None => None,
        };
        let topology = topology.as_ref().map(|(bytes, name)| Source { bytes, name });
        Self::parse(Source { bytes: &bytes, name: &name }, topology)
    }

    /// Parses and checks a rank table; the topology source goes with form 2.0 and only with it.
    ///
    /// # Errors
    /// 1205 to 1234, each with file name, line, column and JSON path.
    pub fn parse(table: Source<'_>, topology: Option<Source<'_>>) -> Result<Self> {
        let document = json::Document::parse(table.bytes, table.name)?;
        let root = document.root();
        let version = root.require("version")?;
        if let Some(status) = root.get("status")?
            && status.string()? != "completed"
        {
            let message = format!("status is {:?}, expected \"completed\"", status.string()?);
            return Err(status.error(ErrorCode::RANK_TABLE_STATUS, message));
        }
        match (version.string()?, topology) {
            ("2.0", Some(topology)) => v2::parse(root, &topology_file::parse(topology)?),
            ("2.0", None) => {
                Err(version.error(ErrorCode::TOPOLOGY_FILE, "a 2.0 table needs a topology file"))
            }
            ("1.0" | "1.2", Some(_)) => {
                Err(version.error(ErrorCode::TOPOLOGY_FILE, "a 1.x table takes no topology file"))
            }
            ("1.0", None) if root.get("rank_list")?.is_some() => v1::parse_flat(root),
            ("1.0", None) => v1::parse_servers(root, Form::V1_0),
            ("1.2", None) => v1::parse_servers(root, Form::V1_2),
            (other, _) => {
                let message = format!("version {} is not known", crate::quote::quote(other));
                Err(version.error(ErrorCode::RANK_TABLE_VERSION, message))
            }
        }
    }

    /// Makes a table of `ranks` ranks on servers of `devices_per_server` devices; the last server may have fewer.
    ///
    /// # Errors
    /// `RANKS_RANGE` unless `ranks` is 1 to [`RANKS_MAX`] and `devices_per_server` 1 to [`DEVICE_ID_MAX`] + 1.
    pub fn uniform(ranks: u32, devices_per_server: u32) -> Result<Self> {
        in_range("ranks", ranks, 1..=RANKS_MAX)?;
        in_range("devices per server", devices_per_server, 1..=DEVICE_ID_MAX + 1)?;
        let rank = |id| Rank {
            server: id / devices_per_server,
            device_id: id % devices_per_server,
            local_id: id % devices_per_server,
            super_pod: None,
            addresses: Vec::new(),
        };
        Ok(Self {
            form: Form::Uniform,
            ranks: (0..ranks).map(rank).collect(),
            servers: (0..ranks.div_ceil(devices_per_server))
                .map(|server| format!("server-{server}"))
                .collect(),
            direct_links: None,
        })
    }

    /// Returns which form was read.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Returns the ranks; the index is the rank id.
    #[must_use]
    pub fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    /// Returns the servers' names in order of their first rank.
    #[must_use]
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// Returns the pairs of local ids (smaller first) that a direct link joins inside a server of form 2.0; `None`
    /// in the other forms, where one joins every pair.
    pub(crate) fn direct_links(&self) -> Option<&BTreeSet<(u32, u32)>> {
        self.direct_links.as_ref()
    }
}

fn in_range(what: &str, value: u32, range: RangeInclusive<u32>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let message = format!("{value} {what}; {} to {} are possible", range.start(), range.end());
    Err(Error::new(ErrorCode::RANKS_RANGE, message))
}
