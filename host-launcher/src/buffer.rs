//! User memory: one buffer of the same size on every rank, registered and known to all.

use device_model::driver::Npu;
use wire::DeviceAddr;
use wire::launch::{Buffer, PeerBuffer};
use wire::npu::Access;
use zerocopy::IntoBytes;

use crate::cluster::Cluster;
use crate::error::{Error, Result};

/// A buffer of `len` bytes on every rank. Registered once; every rank holds the table of all.
#[derive(Debug)]
pub struct SharedBuffer {
    len: u64,
    rows: Vec<PeerBuffer>,
    /// Where the table of all rows lies on each rank.
    tables: Vec<DeviceAddr>,
}

impl SharedBuffer {
    /// Allocates and registers `len` bytes (at least 1) on every rank of a cluster, or on none.
    ///
    /// # Errors
    /// Those of the driver: no memory, no region slot left.
    pub fn new(cluster: &Cluster, len: u64) -> Result<Self> {
        let mut made = Self { len, rows: Vec::new(), tables: Vec::new() };
        match made.fill(cluster) {
            Ok(()) => Ok(made),
            Err(error) => made.free(cluster).and(Err(error)),
        }
    }

    fn fill(&mut self, cluster: &Cluster) -> Result<()> {
        let ranks = cluster.topology().ranks();
        for rank in 0..ranks {
            self.rows.push(allocate(cluster.npu(rank), self.len)?);
        }
        let table = self.rows.as_bytes();
        for rank in 0..ranks {
            let npu = cluster.npu(rank);
            let at = npu.alloc(table.len() as u64, 64).map_err(driver)?;
            self.tables.push(at);
            npu.write(at, table).map_err(driver)?;
        }
        Ok(())
    }

    /// Returns the bytes per rank.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether there is nothing in it; never true.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns where it lies on a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn addr(&self, rank: u32) -> DeviceAddr {
        self.rows[rank as usize].addr
    }

    /// Returns the token of its region on a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn token(&self, rank: u32) -> u32 {
        self.rows[rank as usize].token
    }

    /// Returns the launch arguments' view of bytes `offset .. offset + len` on a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn part(&self, rank: u32, offset: u64, len: u64) -> Buffer {
        let row = self.rows[rank as usize];
        Buffer {
            addr: DeviceAddr(row.addr.0 + offset),
            len,
            token: row.token,
            reserved: 0,
            peers: self.tables[rank as usize],
        }
    }

    /// Returns whether the memory is still registered on a rank as it was when the buffer was made.
    pub(crate) fn is_registered(&self, cluster: &Cluster, rank: u32) -> bool {
        let row = self.rows[rank as usize];
        cluster.npu(rank).registered(row.token) == Some((row.addr, row.len))
    }

    /// Deregisters and frees the memory of all ranks.
    ///
    /// # Errors
    /// Those of the driver, when it has been given back already.
    pub fn free(self, cluster: &Cluster) -> Result<()> {
        for (rank, row) in (0..).zip(self.rows) {
            let npu = cluster.npu(rank);
            npu.deregister(row.token).map_err(driver)?;
            npu.free(row.addr).map_err(driver)?;
        }
        (0..).zip(self.tables).try_for_each(|(rank, table)| cluster.npu(rank).free(table)).map_err(driver)
    }
}

fn allocate(npu: &Npu, len: u64) -> Result<PeerBuffer> {
    let addr = npu.alloc(len, 128).map_err(driver)?;
    // What cannot be registered is of no use; that it cannot be freed either is not what is told.
    let region =
        npu.register(addr, len, Access::all()).inspect_err(|_| drop(npu.free(addr))).map_err(driver)?;
    Ok(PeerBuffer { addr, len, token: region.token, reserved: 0 })
}

/// Turns what the driver refuses into the launcher's error.
pub(crate) fn driver(error: device_model::driver::DriverError) -> Error {
    Error::new(error.code(), error.to_string())
}
