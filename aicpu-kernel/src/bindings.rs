//! Where the regions of one launch lie.

use hal::SharedMemory;
use task_graph::{Bindings, Bound, RegionId, RegionKind};
use wire::context::RegionEntry;
use wire::launch::{Buffer, Launch, PeerBuffer};
use wire::{DeviceAddr, ErrorCode};
use zerocopy::IntoBytes;

use crate::context::MAX_RANKS;
use crate::kernel::Fault;
use crate::plans::Reach;

/// The peers' user buffers of one launch, copied out of shared memory once.
#[derive(Debug)]
pub(crate) struct PeerTables {
    /// Of input and output.
    tables: [[PeerBuffer; MAX_RANKS]; 2],
    /// Rows that this launch has, of each.
    ranks: [usize; 2],
}

impl PeerTables {
    pub(crate) const fn new() -> Self {
        const NONE: PeerBuffer = PeerBuffer { addr: DeviceAddr(0), len: 0, token: 0, reserved: 0 };
        Self { tables: [[NONE; MAX_RANKS]; 2], ranks: [0; 2] }
    }

    /// Copies the tables that a launch names and checks that the peers' buffers are as long as `reach` says, so that no
    /// chunk can fail after another has been submitted.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when a table lies outside the window, `BINDING_EXTENT` and the rank when a buffer is too
    /// short or wraps the address space.
    pub(crate) fn load<M: SharedMemory>(
        &mut self,
        memory: &M,
        launch: &Launch,
        ranks: usize,
        reach: Reach,
    ) -> Result<(), Fault> {
        let places = [launch.input.peers, launch.output.peers].into_iter().zip(reach.bytes);
        for ((table, loaded), (at, bytes)) in self.tables.iter_mut().zip(&mut self.ranks).zip(places) {
            *loaded = 0;
            if at.0 == 0 {
                continue;
            }
            let rows = table.get_mut(..ranks).ok_or(ErrorCode::CONTEXT_CAPACITY)?;
            memory.read(at, rows.as_mut_bytes())?;
            let is_reached = |rank: usize| reach.only.is_none_or(|only| only as usize == rank); // CAST: u32 fits.
            let short = |(rank, row): (usize, &PeerBuffer)| {
                (row.len < bytes && is_reached(rank)) || row.addr.checked_add(row.len).is_none()
            };
            if let Some(rank) = rows.iter().enumerate().position(short) {
                return Err(Fault { code: ErrorCode::BINDING_EXTENT, detail: rank as u64 });
            }
            *loaded = ranks;
        }
        Ok(())
    }

    /// Returns the rows of inputs and outputs.
    fn rows(&self) -> [&[PeerBuffer]; 2] {
        let [inputs, outputs] = &self.tables;
        [inputs.get(..self.ranks[0]).unwrap_or_default(), outputs.get(..self.ranks[1]).unwrap_or_default()]
    }
}

/// The regions of one launch.
pub(crate) struct LaunchBindings<'a> {
    own: [&'a Buffer; 2],
    /// The peers' inputs and outputs.
    peers: [&'a [PeerBuffer]; 2],
    /// The scratch buffers of all ranks.
    scratch: &'a [RegionEntry],
    rank: u32,
}

impl<'a> LaunchBindings<'a> {
    /// Puts together the user buffers of a launch, those of its peers, and the scratch buffers of all ranks.
    pub(crate) fn new(
        own: [&'a Buffer; 2],
        peers: &'a PeerTables,
        scratch: &'a [RegionEntry],
        rank: u32,
    ) -> Self {
        Self { own, peers: peers.rows(), scratch, rank }
    }
}

impl Bindings for LaunchBindings<'_> {
    fn bound(&self, region: RegionId) -> Option<Bound> {
        let user = usize::from(region.kind() == RegionKind::Output);
        match (region.kind(), region.peer()) {
            (RegionKind::Scratch, peer) => {
                let entry = self.scratch.get(peer.unwrap_or(self.rank) as usize)?; // CAST: u32 fits.
                Some(Bound { addr: DeviceAddr(entry.addr), len: entry.len, token: entry.token })
            }
            (_, None) => {
                let Buffer { addr, len, token, .. } = **self.own.get(user)?;
                Some(Bound { addr, len, token })
            }
            (_, Some(peer)) => {
                let PeerBuffer { addr, len, token, .. } = *self.peers.get(user)?.get(peer as usize)?; // CAST: u32 fits.
                Some(Bound { addr, len, token })
            }
        }
    }
}
