//! The index: hashes to slot numbers, by open addressing.
//!
//! Twice as many cells as slots, probed one after the other. Removal moves the cells behind it forward instead of
//! leaving a mark, so that a lookup costs the same whatever was stored before. Keys are compared by the caller.

/// One cell: 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// High half of the key's hash; its low bits are the home position.
    hash: u32,
    /// Slot number plus one, 0 when the cell is empty.
    slot: u32,
}

impl Cell {
    const EMPTY: Self = Self { hash: 0, slot: 0 };

    fn slot(self) -> Option<usize> {
        (self.slot as usize).checked_sub(1)
    }
}

/// Twice `SLOTS` cells; `SLOTS` is a power of two.
#[derive(Clone, Debug)]
pub(crate) struct Index<const SLOTS: usize> {
    cells: [[Cell; 2]; SLOTS],
}

impl<const SLOTS: usize> Index<SLOTS> {
    const MASK: usize = 2 * SLOTS - 1;

    pub(crate) const fn new() -> Self {
        Self { cells: [[Cell::EMPTY; 2]; SLOTS] }
    }

    /// Returns the first slot of this hash that `matches`.
    #[inline]
    pub(crate) fn find(&self, hash: u64, matches: impl Fn(usize) -> bool) -> Option<usize> {
        self.position(hash, matches).and_then(|at| self.cell(at).slot())
    }

    /// Adds a slot. There is always an empty cell: there are more cells than slots.
    pub(crate) fn insert(&mut self, hash: u64, slot: usize) {
        let home = Self::home(hash);
        for at in home..=home + Self::MASK {
            if self.cell(at).slot().is_none() {
                // CAST: SLOTS is at most 32,768.
                let number = u32::try_from(slot + 1).unwrap_or(0);
                return self.put(at, Cell { hash: short(hash), slot: number });
            }
        }
    }

    /// Removes a slot, if it is there.
    pub(crate) fn remove(&mut self, hash: u64, slot: usize) {
        let Some(mut hole) = self.position(hash, |found| found == slot) else {
            return;
        };
        let mut at = hole;
        for _ in 0..Self::MASK {
            at += 1;
            let cell = self.cell(at);
            if cell.slot().is_none() {
                break;
            }
            // A cell may move into the hole unless its home lies behind the hole.
            let from_home = at.wrapping_sub(cell.hash as usize) & Self::MASK;
            if from_home >= (at.wrapping_sub(hole) & Self::MASK) {
                self.put(hole, cell);
                hole = at;
            }
        }
        self.put(hole, Cell::EMPTY);
    }

    #[inline]
    fn position(&self, hash: u64, matches: impl Fn(usize) -> bool) -> Option<usize> {
        let home = Self::home(hash);
        for at in home..=home + Self::MASK {
            let cell = self.cell(at);
            let slot = cell.slot()?;
            if cell.hash == short(hash) && matches(slot) {
                return Some(at);
            }
        }
        None
    }

    /// Where the search for a hash begins.
    #[inline]
    fn home(hash: u64) -> usize {
        short(hash) as usize & Self::MASK
    }

    #[inline]
    fn cell(&self, at: usize) -> Cell {
        self.cells.as_flattened().get(at & Self::MASK).copied().unwrap_or(Cell::EMPTY)
    }

    fn put(&mut self, at: usize, cell: Cell) {
        if let Some(place) = self.cells.as_flattened_mut().get_mut(at & Self::MASK) {
            *place = cell;
        }
    }
}

/// The half of a hash that is kept.
#[inline]
fn short(hash: u64) -> u32 {
    // CAST: 32 bits are left.
    (hash >> 32) as u32
}
