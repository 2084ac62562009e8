//! Page tables of an identity-mapped address space: blocks where they fit, 4 KiB pages where they must.
//!
//! Addresses are 39 bits wide, so a walk starts at level 1: entries of 1 GiB, 2 MiB and 4 KiB. Tables come from a
//! fixed pool inside the structure; nothing is allocated. Later mappings replace earlier ones, which is how code and
//! guard pages are cut out of memory mapped in one piece. This module only computes: `el1` switches translation on.
//! Formats: Arm ARM D8.3.

use core::ops::Range;

const ENTRIES: usize = 512;
const LEVELS: [u64; 3] = [1 << 30, 2 << 20, 1 << 12];
const VALID: u64 = 1;
/// Level 1 and 2: a table instead of a block. Level 3: a page.
const TABLE_OR_PAGE: u64 = 1 << 1;
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 3 << 8;
const ACCESSED: u64 = 1 << 10;
const NEVER_EXECUTE: u64 = 1 << 53 | 1 << 54;
const NEVER_EXECUTE_USER: u64 = 1 << 54;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

const DEVICE: u64 = 0 << 2;
const NORMAL: u64 = 1 << 2;

/// What a mapping allows. Memory is cacheable and shared by all cores; nothing is both writable and executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: an access faults.
    Guard,
    /// Device registers, not cached.
    Device,
    /// Memory to read and write.
    ReadWrite,
    /// Memory to read.
    ReadOnly,
    /// Memory to read and execute.
    Code,
}

impl Access {
    /// The kinds of memory that the entries refer to, one byte each, as `MAIR_EL1` wants them: device nGnRE, normal
    /// write-back.
    pub const MEMORY_ATTRIBUTES: u64 = 0xff_04;

    fn bits(self) -> u64 {
        let memory = VALID | ACCESSED | NORMAL | INNER_SHAREABLE;
        match self {
            Self::Guard => 0,
            Self::Device => VALID | ACCESSED | DEVICE | NEVER_EXECUTE,
            Self::ReadWrite => memory | NEVER_EXECUTE,
            Self::ReadOnly => memory | READ_ONLY | NEVER_EXECUTE,
            Self::Code => memory | READ_ONLY | NEVER_EXECUTE_USER,
        }
    }
}

/// Why a range cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The range is not made of whole pages, is turned around, or leaves the 39-bit address space.
    Range,
    /// The pool of tables is used up.
    Full,
}

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Table([u64; ENTRIES]);

const EMPTY: Table = Table([0; ENTRIES]);

/// An address space with room for `N` tables below its root.
///
/// Must stay where it is once it is in use, and must lie in identity-mapped memory.
#[repr(C)]
pub struct PageTables<const N: usize> {
    root: Table,
    pool: [Table; N],
    used: usize,
}

impl<const N: usize> PageTables<N> {
    /// Makes an address space in which every access faults.
    #[must_use]
    pub const fn new() -> Self {
        Self { root: EMPTY, pool: [EMPTY; N], used: 0 }
    }

    /// Returns the address of the root table.
    #[must_use]
    pub fn root(&self) -> u64 {
        address(&self.root)
    }

    /// Maps `range` onto itself with `access`, in place of what was mapped there.
    ///
    /// # Errors
    /// [`MapError::Range`] for a range that cannot be mapped, [`MapError::Full`] when the pool is too small.
    pub fn map(&mut self, range: Range<u64>, access: Access) -> Result<(), MapError> {
        let [_, _, page] = LEVELS;
        let is_whole = range.start.is_multiple_of(page) && range.end.is_multiple_of(page);
        if !is_whole || range.start > range.end || range.end > 1 << 39 {
            return Err(MapError::Range);
        }
        let mut at = range.start;
        while at < range.end {
            at += self.map_one(at, range.end, access)?;
        }
        Ok(())
    }

    /// Maps the largest piece that starts at `at` and ends before `end`; returns its size.
    fn map_one(&mut self, at: u64, end: u64, access: Access) -> Result<u64, MapError> {
        let mut table = None;
        for (level, size) in LEVELS.into_iter().enumerate() {
            let is_page = level + 1 == LEVELS.len();
            let entry = *self.entry(table, at, size);
            let is_table = !is_page && entry & TABLE_OR_PAGE != 0;
            if at.is_multiple_of(size) && size <= end - at && !is_table {
                let page = if is_page && access != Access::Guard { TABLE_OR_PAGE } else { 0 };
                let bits = access.bits();
                *self.entry(table, at, size) = if bits == 0 { 0 } else { at | bits | page };
                return Ok(size);
            }
            table = Some(if is_table { self.pool_index(entry) } else { self.split(table, at, level)? });
        }
        Err(MapError::Range)
    }

    /// Replaces the entry for `at` by a table that says the same in smaller pieces; returns the table's index.
    fn split(&mut self, table: Option<usize>, at: u64, level: usize) -> Result<usize, MapError> {
        let size = LEVELS.get(level).copied().unwrap_or(0);
        let below = LEVELS.get(level + 1).copied().ok_or(MapError::Range)?;
        let old = *self.entry(table, at, size);
        let index = self.used;
        let fresh = self.pool.get_mut(index).ok_or(MapError::Full)?;
        let page = if level + 2 == LEVELS.len() { TABLE_OR_PAGE } else { 0 };
        if old & VALID != 0 {
            for (entry, index) in fresh.0.iter_mut().zip(0..) {
                *entry = (old | page) + index * below;
            }
        }
        let link = address(fresh) | VALID | TABLE_OR_PAGE;
        self.used += 1;
        *self.entry(table, at, size) = link;
        Ok(index)
    }

    fn entry(&mut self, table: Option<usize>, at: u64, size: u64) -> &mut u64 {
        let table = match table.and_then(|index| self.pool.get_mut(index)) {
            Some(table) => table,
            None => &mut self.root,
        };
        #[expect(clippy::cast_possible_truncation, reason = "below 512")]
        let index = (at / size % ENTRIES as u64) as usize;
        // PANIC: reduced modulo the length of the table.
        &mut table.0[index]
    }

    fn pool_index(&self, link: u64) -> usize {
        let target = link & ADDRESS;
        self.pool.iter().position(|table| address(table) == target).unwrap_or(0)
    }
}

impl<const N: usize> Default for PageTables<N> {
    fn default() -> Self {
        Self::new()
    }
}

fn address(table: &Table) -> u64 {
    core::ptr::from_ref(table).addr() as u64
}

#[cfg(test)]
mod tests;
