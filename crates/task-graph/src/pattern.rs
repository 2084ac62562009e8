//! Patterns: which bases a descriptor needs, interned so that a small number says it.
//!
//! All descriptors of a graph that use the same regions in the same lanes share one pattern; a launch prepares one
//! addition vector per pattern, not one relocation per field.

use heapless::Vec;
use wire::ErrorCode;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::graph::QueueIndex;
use crate::{RegionId, Span};

/// Patterns that one graph may use.
pub const PATTERNS: usize = wire::BASES;
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
    /// The record of the start notify of the operation behind this one in a program.
    Next,
}

impl Pattern {
    /// A submission entry without operands.
    pub(crate) const NO_BASE: Self = Self::Sqe { src: None, dst: None };
    const NO_BASE_KEY: u64 = 1 << 44;

    /// Returns a number below 2^48, never 0, different for every pattern.
    #[inline(always)]
    pub(crate) fn key(self) -> u64 {
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
            Self::Next => 6 << 44,
        }
    }

    /// Returns the pattern with this key.
    pub(crate) fn from_key(key: u64) -> Option<Self> {
        let [first, second] = regions(key);
        match key >> 44 {
            1 => Some(Self::Sqe { src: first, dst: second }),
            2 => Some(Self::Wqe { local: first, remote: second }),
            3 => Some(Self::Post { queue: QueueIndex(u16::try_from(key & 0xffff).ok()?) }),
            4 => Some(Self::Start),
            5 => Some(Self::Done),
            6 => Some(Self::Next),
            _ => None,
        }
    }
}

/// The regions in the key of a pattern that may have operands.
#[inline(always)]
fn regions(key: u64) -> [Option<RegionId>; 2] {
    [key >> 20, key].map(|number| (number & 0xf_ffff).checked_sub(1).map(RegionId::from_number))
}

/// A pattern of a graph and how far its descriptors reach into the two regions, bytes: whole words, as a page keeps
/// them, because words stored in pieces and then loaded whole stall the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Interned {
    /// The pattern's [`key`](Pattern::key).
    pub(crate) key: u64,
    /// Largest end of an operand in the source (local) and destination (remote) region.
    pub(crate) extents: [u64; 2],
    /// How lengths and offsets grow with the unit, as [`Slopes::word`]; zero in a graph of one size.
    pub(crate) growth: u64,
}

/// How many units each of a descriptor's lanes grows by when the unit grows by one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slopes {
    pub(crate) src: u16,
    pub(crate) dst: u16,
    pub(crate) len: u16,
}

impl Slopes {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.src) | u64::from(self.dst) << 16 | u64::from(self.len) << 32
    }

    pub(crate) fn from_word(word: u64) -> Self {
        let [a, b, c, d, e, f, ..] = word.to_le_bytes();
        let half = |low, high| u16::from_le_bytes([low, high]);
        Self { src: half(a, b), dst: half(c, d), len: half(e, f) }
    }
}

impl Interned {
    /// Returns the regions of the operands, and whether they are a submission entry's; `None` for a pattern that has none.
    #[inline(always)]
    pub(crate) fn operands(&self) -> Option<([Option<RegionId>; 2], bool)> {
        let kind = self.key >> 44;
        (kind == 1 || kind == 2).then(|| (regions(self.key), kind == 1))
    }

    /// Returns the pattern.
    #[inline]
    pub(crate) fn pattern(&self) -> Pattern {
        // Keys are made by `Pattern::key` alone.
        Pattern::from_key(self.key).unwrap_or(Pattern::NO_BASE)
    }
}

/// Number of [`Pattern::NO_BASE`] in every graph: most descriptors have it, none needs to look it up.
pub(crate) const NO_BASE: u16 = 0;

/// The patterns of one graph besides `NO_BASE`, found by hash; their numbers start at 1.
#[derive(Debug)]
pub(crate) struct PatternTable {
    list: Vec<Interned, { PATTERNS - 1 }>,
    /// Where each stands in the hash table.
    places: Vec<u16, { PATTERNS - 1 }>,
    /// Key in the low 48 bits, index in the high 16; 0 is empty.
    slots: [u64; SLOTS],
    /// Key and number found last: runs of descriptors share a pattern. Key 0 is no pattern's.
    recent: (u64, u16),
}

impl PatternTable {
    pub(crate) const fn new() -> Self {
        Self { list: Vec::new(), places: Vec::new(), slots: [0; SLOTS], recent: (0, NO_BASE) }
    }

    /// Forgets all patterns, in time proportional to their number.
    pub(crate) fn clear(&mut self) {
        for place in &self.places {
            if let Some(entry) = self.slots.get_mut(usize::from(*place)) {
                *entry = 0;
            }
        }
        self.places.clear();
        self.list.clear();
        self.recent = (0, NO_BASE);
    }

    /// Returns whether no pattern is left in the table.
    #[cfg(test)]
    pub(crate) fn is_clear(&self) -> bool {
        self.list.is_empty() && self.slots.iter().all(|&entry| entry == 0)
    }

    /// Returns the patterns in the order of their numbers.
    pub(crate) fn list(&self) -> impl Iterator<Item = &Interned> {
        const FIRST: &Interned = &Interned { key: Pattern::NO_BASE_KEY, extents: [0; 2], growth: 0 };
        core::iter::once(FIRST).chain(&self.list)
    }

    /// Returns how many patterns there are.
    pub(crate) fn count(&self) -> u16 {
        u16::try_from(self.list.len() + 1).unwrap_or(u16::MAX)
    }

    /// Returns the pattern with a number.
    #[cfg(test)]
    pub(crate) fn get(&self, number: u16) -> Option<Pattern> {
        match number {
            NO_BASE => Some(Pattern::NO_BASE),
            _ => self.list.get(usize::from(number).wrapping_sub(1)).map(Interned::pattern),
        }
    }

    /// Returns the number of `pattern`, noting how far the operands reach.
    #[inline(always)]
    pub(crate) fn intern(&mut self, pattern: Pattern, ends: [u64; 2]) -> Result<u16, ErrorCode> {
        let key = pattern.key();
        if key == Pattern::NO_BASE_KEY {
            return Ok(NO_BASE);
        }
        if key != self.recent.0 {
            self.recent = (key, self.find(key)?);
        }
        let number = self.recent.1;
        if let Some(interned) = self.list.get_mut(usize::from(number).wrapping_sub(1)) {
            for (extent, end) in interned.extents.iter_mut().zip(ends) {
                *extent = (*extent).max(end);
            }
        }
        Ok(number)
    }

    /// Returns the number of a pattern, a new one where it has none yet.
    #[inline]
    fn find(&mut self, key: u64) -> Result<u16, ErrorCode> {
        let mut slot = Self::home(key);
        // The table is twice as large as the list, so an empty slot always ends the search.
        while let Some(&entry) = self.slots.get(slot) {
            if entry == 0 {
                return self.insert(slot, key);
            }
            if entry & ((1 << 48) - 1) == key {
                return Ok((entry >> 48) as u16); // CAST: 16 bits are left.
            }
            slot = (slot + 1) % SLOTS;
        }
        Err(ErrorCode::PATTERNS_FULL)
    }

    #[cold]
    fn insert(&mut self, slot: usize, key: u64) -> Result<u16, ErrorCode> {
        const FULL: ErrorCode = ErrorCode::PATTERNS_FULL;
        let index = u16::try_from(self.list.len() + 1).map_err(|_| FULL)?;
        let place = u16::try_from(slot).map_err(|_| FULL)?;
        self.list.push(Interned { key, extents: [0; 2], growth: 0 }).map_err(|_| FULL)?;
        self.places.push(place).map_err(|_| FULL)?;
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
