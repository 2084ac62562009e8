//! First-fit allocation of ranges of numbers: device addresses, and runs of notifies.

use core::ops::Range;
use std::collections::BTreeMap;

/// Free and taken ranges of one span of numbers. It touches no memory.
#[derive(Debug)]
pub(super) struct Heap {
    /// Free ranges, start to end; never adjacent.
    free: BTreeMap<u64, u64>,
    /// Taken ranges, start to end.
    taken: BTreeMap<u64, u64>,
}

impl Heap {
    pub(super) fn new(all: Range<u64>) -> Self {
        Self { free: BTreeMap::from([(all.start, all.end)]), taken: BTreeMap::new() }
    }

    /// Takes `count` numbers from the lowest place that has them, the first a multiple of `align`.
    pub(super) fn take(&mut self, count: u64, align: u64) -> Option<u64> {
        let place = |(&start, &end): (&u64, &u64)| {
            let first = start.checked_next_multiple_of(align)?;
            let last = first.checked_add(count)?;
            (last <= end).then_some((start, first, last, end))
        };
        let (start, first, last, end) = self.free.iter().find_map(place)?;
        self.free.remove(&start);
        if start < first {
            self.free.insert(start, first);
        }
        if last < end {
            self.free.insert(last, end);
        }
        self.taken.insert(first, last);
        Some(first)
    }

    /// Gives the range that starts at `first` back; `None` when there is none.
    pub(super) fn give_back(&mut self, first: u64) -> Option<()> {
        let mut last = self.taken.remove(&first)?;
        let mut start = first;
        if let Some(end) = self.free.remove(&last) {
            last = end;
        }
        if let Some((&before, &end)) = self.free.range(..first).next_back()
            && end == first
        {
            start = before;
        }
        self.free.insert(start, last);
        Some(())
    }

    /// Returns how many numbers are free.
    pub(super) fn free_total(&self) -> u64 {
        self.free.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Heap;

    #[test]
    fn the_lowest_place_that_fits_is_taken() {
        let mut heap = Heap::new(100..200);
        assert_eq!(heap.take(10, 1), Some(100));
        assert_eq!(heap.take(10, 64), Some(128));
        assert_eq!(heap.take(18, 1), Some(110));
        assert_eq!(heap.take(63, 1), None);
        assert_eq!(heap.take(62, 1), Some(138));
        assert_eq!((heap.free_total(), heap.take(1, 1)), (0, None));
    }

    #[test]
    fn neighbours_given_back_in_any_order_become_one_again() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut heap = Heap::new(0..30);
            let taken = [heap.take(10, 1), heap.take(10, 1), heap.take(10, 1)].map(Option::unwrap);
            for index in order {
                assert_eq!(heap.give_back(taken[index]), Some(()));
                assert_eq!(heap.give_back(taken[index]), None, "twice");
            }
            assert_eq!(heap.take(30, 1), Some(0), "{order:?}");
        }
    }

    #[test]
    fn sums_that_wrap_do_not_fit() {
        let mut heap = Heap::new(u64::MAX - 10..u64::MAX);
        assert_eq!(heap.take(u64::MAX, 1), None);
        assert_eq!(heap.take(1, 1 << 63), None);
        assert_eq!(heap.take(10, 1), Some(u64::MAX - 10));
    }
}
