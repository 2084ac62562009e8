//! Regions and spans: what a task operand is.

use core::fmt;

use wire::npu::TRANSFER_GRANULE;

/// A rank of the communicator.
pub type Rank = u32;

/// Which buffer of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum RegionKind {
    /// The user's input.
    Input = 0,
    /// The user's output.
    Output = 1,
    /// The communicator's scratch buffer.
    Scratch = 2,
}

impl RegionKind {
    const ALL: [Self; 3] = [Self::Input, Self::Output, Self::Scratch];

    /// Returns the name users read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Scratch => "scratch",
        }
    }
}

/// A buffer that a launch binds to memory: one of this rank's own, or one of a peer's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(u32);

impl RegionId {
    /// This rank's input.
    pub const INPUT: Self = Self::own(RegionKind::Input);
    /// This rank's output.
    pub const OUTPUT: Self = Self::own(RegionKind::Output);
    /// This rank's scratch buffer.
    pub const SCRATCH: Self = Self::own(RegionKind::Scratch);

    /// Returns a buffer of this rank.
    #[must_use]
    pub const fn own(kind: RegionKind) -> Self {
        Self(kind as u32)
    }

    /// Returns a buffer of another rank.
    #[inline]
    #[must_use]
    pub const fn of_peer(peer: Rank, kind: RegionKind) -> Self {
        Self((peer + 1) << 2 | kind as u32)
    }

    /// Returns whether it is a buffer of this rank.
    #[inline]
    #[must_use]
    pub const fn is_own(self) -> bool {
        self.0 >> 2 == 0
    }

    /// Returns whether it is a buffer of that peer.
    #[inline]
    #[must_use]
    pub const fn is_of(self, peer: Rank) -> bool {
        self.0 >> 2 == peer.wrapping_add(1) && !self.is_own()
    }

    /// Returns the number of its kind, and 4 more for a buffer of a peer: below 8.
    #[inline]
    #[must_use]
    pub const fn class(self) -> usize {
        (self.0 & 3) as usize + if self.is_own() { 0 } else { 4 }
    }

    /// Returns whose buffer it is: `None` for this rank's own.
    #[inline]
    #[must_use]
    pub fn peer(self) -> Option<Rank> {
        (self.0 >> 2).checked_sub(1)
    }

    /// Returns which buffer it is.
    #[inline]
    #[must_use]
    pub fn kind(self) -> RegionKind {
        match self.0 & 3 {
            0 => RegionKind::Input,
            1 => RegionKind::Output,
            _ => RegionKind::Scratch,
        }
    }

    /// Returns the region with this number, which is a region's.
    #[inline(always)]
    pub(crate) const fn from_number(number: u64) -> Self {
        Self((number & 0x7_ffff) as u32) // CAST: 19 bits are left.
    }

    /// Returns a number below 2^19 that is different for every region.
    pub(crate) const fn number(self) -> u64 {
        self.0 as u64
    }
}

/// Prints `output` or `peer 3 scratch`.
impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(peer) = self.peer() {
            write!(f, "peer {peer} ")?;
        }
        f.write_str(self.kind().name())
    }
}

impl fmt::Debug for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Some bytes of a region.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The region.
    pub region: RegionId,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Span {
    /// Returns the part of `len` bytes at `skip` bytes from the start.
    #[inline]
    #[must_use]
    pub(crate) const fn part(self, skip: u64, len: u64) -> Self {
        Self { region: self.region, offset: self.offset + skip, len }
    }

    /// Takes at most `most` bytes off the front, a whole number of granules: the longest piece that an engine moves in
    /// one.
    #[inline]
    #[must_use]
    pub fn split_off(&mut self, most: u64) -> Self {
        let len = whole_granules(most).min(self.len);
        let front = self.part(0, len);
        *self = self.part(len, self.len - len);
        front
    }
}

/// Returns the longest piece of whole granules that is not above an engine's limit, which is never below one.
#[inline]
const fn whole_granules(most: u64) -> u64 {
    let whole = most - most % TRANSFER_GRANULE;
    if whole == 0 { TRANSFER_GRANULE } else { whole }
}

/// Prints `output[128..256]`, bytes.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}..{}]", self.region, self.offset, self.offset.saturating_add(self.len))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const _: () = assert!(RegionKind::ALL.len() == 3);
