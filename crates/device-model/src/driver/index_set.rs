//! The numbers below a limit, of which some are taken; the lowest free one is next.

use std::collections::BTreeSet;

/// Free numbers of one table.
#[derive(Debug)]
pub(super) struct IndexSet {
    /// Numbers that have been given back; all others that are free lie at `fresh` and above.
    returned: BTreeSet<u32>,
    fresh: u32,
    limit: u32,
}

impl IndexSet {
    /// Returns the set of all numbers below `limit`, all free.
    ///
    /// # Panics
    /// When the limit, a table size of `wire::npu`, does not fit 32 bits.
    pub(super) fn new(limit: u64) -> Self {
        let limit = u32::try_from(limit).expect("table sizes are small");
        Self { returned: BTreeSet::new(), fresh: 0, limit }
    }

    /// Takes the lowest free number.
    pub(super) fn take(&mut self) -> Option<u32> {
        if let Some(number) = self.returned.pop_first() {
            return Some(number);
        }
        let number = self.fresh;
        (number < self.limit).then(|| self.fresh += 1)?;
        Some(number)
    }

    /// Gives a number back; `None` when it was not taken.
    pub(super) fn give_back(&mut self, number: u32) -> Option<()> {
        (number < self.fresh && self.returned.insert(number)).then_some(())
    }

    /// Returns how many numbers are taken.
    pub(super) fn taken(&self) -> u64 {
        u64::from(self.fresh) - self.returned.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::IndexSet;

    #[test]
    fn the_lowest_free_number_is_next() {
        let mut set = IndexSet::new(3);
        assert_eq!([set.take(), set.take(), set.take(), set.take()], [Some(0), Some(1), Some(2), None]);
        assert_eq!((set.give_back(1), set.give_back(0), set.give_back(0)), (Some(()), Some(()), None));
        assert_eq!(set.taken(), 1);
        assert_eq!((set.give_back(3), set.take()), (None, Some(0)));
        assert_eq!((set.take(), set.take(), set.taken()), (Some(1), None, 3));
    }
}
