//! Counts that wrap on the wire: the only place where a narrow word becomes a position.

/// An unsigned integer that a position or its low part can have. Small widths exist for exhaustive tests.
pub trait Count: Copy + PartialOrd {
    /// Returns the low bits of a position.
    fn low(position: u64) -> Self;
    /// Returns how far `self` is ahead of `from`, modulo the width.
    fn ahead_of(self, from: Self) -> u64;
}

impl Count for u32 {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
    fn low(position: u64) -> Self {
        position as Self
    }

    #[inline]
    fn ahead_of(self, from: Self) -> u64 {
        u64::from(self.wrapping_sub(from))
    }
}

/// Returns the position whose low part is `low`, given that it lies in `last ..= limit`; `None` if it does not.
///
/// `limit − last` must be below the number of values of `T`, or the answer is not unique.
#[inline]
#[must_use]
pub fn widen<T: Count>(last: u64, limit: u64, low: T) -> Option<u64> {
    let position = last.checked_add(low.ahead_of(T::low(last)))?;
    (position <= limit).then_some(position)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{Count, widen};

    /// A counter of `BITS` bits.
    #[derive(Clone, Copy, PartialEq, PartialOrd)]
    struct Narrow<const BITS: u32>(u64);

    impl<const BITS: u32> Count for Narrow<BITS> {
        fn low(position: u64) -> Self {
            Self(position % (1 << BITS))
        }
        fn ahead_of(self, from: Self) -> u64 {
            (self.0 + (1 << BITS) - from.0) % (1 << BITS)
        }
    }

    fn exhaustive<const BITS: u32>() {
        let values = 1_u64 << BITS;
        for last in 0..3 * values {
            for limit in last..last + values {
                for position in last.saturating_sub(values)..last + 2 * values {
                    let found = widen(last, limit, Narrow::<BITS>::low(position));
                    // The one position in range with these low bits, found by looking at all of them.
                    let expected = (last..=limit).find(|candidate| candidate % values == position % values);
                    assert_eq!(found, expected, "last {last} limit {limit} position {position}");
                }
            }
        }
    }

    #[test]
    fn widening_is_right_for_every_value_of_small_widths() {
        exhaustive::<1>();
        exhaustive::<2>();
        exhaustive::<3>();
        exhaustive::<4>();
        if std::env::var_os("AICPU_TS_LARGER_MODELS").is_some() {
            exhaustive::<5>();
            exhaustive::<6>();
        }
    }

    #[test]
    fn widening_crosses_the_32_bit_border() {
        let last = u64::from(u32::MAX) - 1;
        assert_eq!(widen(last, last + 2048, 3_u32), Some(u64::from(u32::MAX) + 4));
        assert_eq!(widen(last, last + 2048, 0xffff_0000_u32), None, "a head may not go back");
        assert_eq!(widen(last, last + 2, 3_u32), None, "a head may not pass the tail");
    }
}
