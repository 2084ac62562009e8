//! Where the regions of one launch lie.

use hal::SharedMemory;
use task_graph::{Bindings, Bound, RegionId, RegionKind};
use wire::context::RegionEntry;
use wire::launch::{Buffer, Launch, PeerBuffer, VectorRow};
use wire::{DeviceAddr, ErrorCode};
use zerocopy::IntoBytes;

use crate::context::MAX_RANKS;
use crate::kernel::Fault;
use crate::plans::Reach;

/// The peers' user buffers of one launch, copied out of shared memory once.
#[derive(Debug)]
pub(crate) struct PeerTables {
    input: [PeerBuffer; MAX_RANKS],
    output: [PeerBuffer; MAX_RANKS],
    /// Rows that this launch has, of each.
    ranks: [usize; 2],
}

impl PeerTables {
    pub(crate) const fn new() -> Self {
        const NONE: PeerBuffer = PeerBuffer { addr: DeviceAddr(0), len: 0, token: 0, reserved: 0 };
        Self { input: [NONE; MAX_RANKS], output: [NONE; MAX_RANKS], ranks: [0; 2] }
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
        let tables = [(&mut self.input, launch.input.peers), (&mut self.output, launch.output.peers)];
        for (((table, at), loaded), bytes) in tables.into_iter().zip(&mut self.ranks).zip(reach.bytes) {
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

    fn row(&self, kind: RegionKind, rank: usize) -> Option<&PeerBuffer> {
        let (table, loaded) = match kind {
            RegionKind::Input => (&self.input, self.ranks[0]),
            RegionKind::Output => (&self.output, self.ranks[1]),
            RegionKind::Scratch => return None,
        };
        table.get(rank).filter(|_| rank < loaded)
    }
}

/// The vector of one launch, copied out of shared memory once.
#[derive(Debug)]
pub(crate) struct LoadedVector {
    rows: [VectorRow; MAX_RANKS],
    len: usize,
}

impl LoadedVector {
    pub(crate) const fn new() -> Self {
        Self { rows: zerocopy::transmute!([0_u8; MAX_RANKS * size_of::<VectorRow>()]), len: 0 }
    }

    /// Copies the rows that a launch names; none where it has no vector.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when they lie outside the window.
    pub(crate) fn load<M: SharedMemory>(
        &mut self,
        memory: &M,
        launch: &Launch,
        ranks: usize,
    ) -> Result<(), Fault> {
        self.len = 0;
        if launch.op.has_vector() {
            let rows = self.rows.get_mut(..ranks).ok_or(ErrorCode::CONTEXT_CAPACITY)?;
            memory.read(launch.vector, rows.as_mut_bytes())?;
            self.len = ranks;
        }
        Ok(())
    }

    /// Returns the rows.
    pub(crate) fn rows(&self) -> &[VectorRow] {
        self.rows.get(..self.len).unwrap_or_default()
    }
}

/// The regions of one launch.
pub(crate) struct LaunchBindings<'a> {
    pub(crate) input: Buffer,
    pub(crate) output: Buffer,
    pub(crate) scratch: &'a [RegionEntry],
    pub(crate) rank: u32,
    pub(crate) peers: &'a PeerTables,
}

impl Bindings for LaunchBindings<'_> {
    fn bound(&self, region: RegionId) -> Option<Bound> {
        let user = |buffer: &Buffer| Bound { addr: buffer.addr, len: buffer.len, token: buffer.token };
        let scratch = |rank: u32| {
            let entry = self.scratch.get(usize::try_from(rank).ok()?)?;
            Some(Bound { addr: DeviceAddr(entry.addr), len: entry.len, token: entry.token })
        };
        match (region.peer(), region.kind()) {
            (None, RegionKind::Input) => Some(user(&self.input)),
            (None, RegionKind::Output) => Some(user(&self.output)),
            (None, RegionKind::Scratch) => scratch(self.rank),
            (Some(peer), RegionKind::Scratch) => scratch(peer),
            (Some(peer), kind) => {
                let row = self.peers.row(kind, usize::try_from(peer).ok()?)?;
                Some(Bound { addr: row.addr, len: row.len, token: row.token })
            }
        }
    }
}
