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

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::key::Key;

    const SLOTS: usize = 256;

    /// Hashes of the tags 0, 1, 2, ….
    fn hash(number: u64) -> u64 {
        Key::of_tag([1, 2], 3, [number, 0], 8).hash()
    }

    /// Cells that are looked at until the slot of a hash is found.
    fn looks(index: &Index<SLOTS>, hash: u64, slot: usize) -> usize {
        let home = Index::<SLOTS>::home(hash);
        let at = index.position(hash, |found| found == slot).expect("it is there");
        1 + (at.wrapping_sub(home) & Index::<SLOTS>::MASK)
    }

    /// The most and the mean of all slots, the mean in hundredths.
    fn cost(index: &Index<SLOTS>, hashes: &[u64]) -> (usize, usize) {
        let all: Vec<_> = hashes.iter().enumerate().map(|(slot, hash)| looks(index, *hash, slot)).collect();
        (all.iter().copied().max().unwrap_or(0), 100 * all.iter().sum::<usize>() / all.len())
    }

    /// Half full, one look in two finds its slot at home and the others next to it: 1.5 looks on average by Knuth's
    /// formula for linear probing, (1 + 1 / (1 − ½)) / 2; empty, one.
    #[test]
    fn a_lookup_costs_the_same_whatever_is_stored_and_was_stored_before() {
        let mut index = Index::<SLOTS>::new();
        let mut hashes = Vec::new();
        for slot in 0..SLOTS {
            hashes.push(hash(slot as u64));
            index.insert(hashes[slot], slot);
            let (most, mean) = cost(&index, &hashes);
            assert!(most <= 16 && mean <= 160, "{slot}: {most} {mean}");
        }
        // Every slot is taken over a thousand times; nothing piles up.
        let (mut worst, mut means) = (0, Vec::new());
        for number in 256..256 * 1000 {
            let slot = usize::try_from(number * 167 % 256).expect("below 256");
            index.remove(hashes[slot], slot);
            hashes[slot] = hash(number);
            index.insert(hashes[slot], slot);
            if number % 997 == 0 {
                let (most, mean) = cost(&index, &hashes);
                worst = worst.max(most);
                means.push(mean);
            }
        }
        let mean = means.iter().sum::<usize>() / means.len();
        assert!(worst <= 40 && (140..=160).contains(&mean), "{worst} {mean}");
        // And it is as empty afterwards as it was at first.
        (0..SLOTS).for_each(|slot| index.remove(hashes[slot], slot));
        assert!(index.cells.as_flattened().iter().all(|cell| cell.slot().is_none()));
    }
}
