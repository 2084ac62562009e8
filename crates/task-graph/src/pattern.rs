//! Patterns: which bases a descriptor needs, interned so that a small number says it.
//!
//! All descriptors of a graph that use the same regions in the same lanes share one pattern; a launch prepares one
//! addition vector per pattern, not one relocation per field.

use heapless::Vec;
use wire::ErrorCode;

use crate::graph::QueueIndex;
use crate::{RegionId, Span};

/// Patterns that one graph may use.
pub const PATTERNS: usize = 512;
const SLOTS: usize = 2 * PATTERNS;

/// Which launch-time values a recorded descriptor lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A submission entry with the bases of its operands, where it has any.
    Sqe {
        /// Region of the source lane.
        src: Option<RegionId>,
        /// Region of the destination lane.
        dst: Option<RegionId>,
    },
    /// A work-queue entry with the bases of its operands, where it has any.
    Wqe {
        /// Region of the local lane.
        local: Option<RegionId>,
        /// Region of the remote lane.
        remote: Option<RegionId>,
    },
    /// A post: the position of a queue pair's ring.
    Post {
        /// The queue pair.
        queue: QueueIndex,
    },
    /// The wait for the host's start notify.
    Start,
    /// The record of the host's done notify.
    Done,
}

impl Pattern {
    /// Returns a number below 2^48, never 0, different for every pattern.
    fn key(self) -> u64 {
        let pair = |a: Option<RegionId>, b: Option<RegionId>| {
            let number = |region: Option<RegionId>| region.map_or(0, |region| region.number() + 1);
            number(a) << 20 | number(b)
        };
        match self {
            Self::Sqe { src, dst } => 1 << 44 | pair(src, dst),
            Self::Wqe { local, remote } => 2 << 44 | pair(local, remote),
            Self::Post { queue } => 3 << 44 | u64::from(queue.0),
            Self::Start => 4 << 44,
            Self::Done => 5 << 44,
        }
    }
}

/// A pattern of a graph and how far its descriptors reach into the two regions, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interned {
    pub(crate) pattern: Pattern,
    /// Largest end of an operand in the source (local) and destination (remote) region.
    pub(crate) extents: [u64; 2],
}

/// The patterns of one graph, found by hash.
#[derive(Debug)]
pub(crate) struct PatternTable {
    list: Vec<Interned, PATTERNS>,
    /// Key in the low 48 bits, index in the high 16; 0 is empty.
    slots: [u64; SLOTS],
}

impl PatternTable {
    pub(crate) const fn new() -> Self {
        Self { list: Vec::new(), slots: [0; SLOTS] }
    }

    /// Forgets all patterns, in time proportional to their number.
    pub(crate) fn clear(&mut self) {
        for interned in &self.list {
            let mut slot = Self::home(interned.pattern.key());
            while let Some(entry) = self.slots.get_mut(slot).filter(|entry| **entry != 0) {
                *entry = 0;
                slot = (slot + 1) % SLOTS;
            }
        }
        self.list.clear();
    }

    /// Returns whether no pattern is left in the table.
    #[cfg(test)]
    pub(crate) fn is_clear(&self) -> bool {
        self.list.is_empty() && self.slots.iter().all(|&entry| entry == 0)
    }

    pub(crate) fn list(&self) -> &[Interned] {
        &self.list
    }

    /// Returns the number of `pattern`, noting how far the operands reach.
    #[inline]
    pub(crate) fn intern(&mut self, pattern: Pattern, ends: [u64; 2]) -> Result<u16, ErrorCode> {
        let key = pattern.key();
        let mut slot = Self::home(key);
        // The table is twice as large as the list, so an empty slot always ends the search.
        while let Some(&entry) = self.slots.get(slot) {
            if entry == 0 {
                return self.insert(slot, key, Interned { pattern, extents: ends });
            }
            if entry & ((1 << 48) - 1) == key {
                let index = (entry >> 48) as u16; // CAST: 16 bits are left.
                if let Some(interned) = self.list.get_mut(usize::from(index)) {
                    for (extent, end) in interned.extents.iter_mut().zip(ends) {
                        *extent = (*extent).max(end);
                    }
                }
                return Ok(index);
            }
            slot = (slot + 1) % SLOTS;
        }
        Err(ErrorCode::PATTERNS_FULL)
    }

    #[cold]
    fn insert(&mut self, slot: usize, key: u64, interned: Interned) -> Result<u16, ErrorCode> {
        let index = u16::try_from(self.list.len()).map_err(|_| ErrorCode::PATTERNS_FULL)?;
        self.list.push(interned).map_err(|_| ErrorCode::PATTERNS_FULL)?;
        if let Some(entry) = self.slots.get_mut(slot) {
            *entry = u64::from(index) << 48 | key;
        }
        Ok(index)
    }

    #[inline]
    fn home(key: u64) -> usize {
        // The shift leaves as many bits as the table has slots for.
        usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.ilog2())).unwrap_or(0)
    }
}
const _: () = assert!(SLOTS.is_power_of_two());

/// Returns the end of a span, saturating where it wraps (which no binding then satisfies).
#[inline]
pub(crate) fn end(span: &Span) -> u64 {
    span.offset.saturating_add(span.len)
}
