//! The multiply-rotate digest: the one way to make a number of many words that only has to differ where they differ.
//!
//! Cheaper than a CRC and no protection against malice: what must not be mistaken is compared in full.

/// 2^64 divided by the golden ratio, the usual multiplier of multiplicative hashing; odd, so multiplying loses nothing.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where a digest starts that has nothing better to start from: the offset basis of FNV-1a.
pub const START: u64 = 0xcbf2_9ce4_8422_2325;

/// Adds a word to a digest: each enters by a bijection, so two that differ in one word differ.
#[must_use]
#[inline]
pub const fn with(digest: u64, word: u64) -> u64 {
    (digest ^ word).wrapping_mul(MULTIPLIER).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checksums of launches and digests of scripts are on the wire: these numbers may not change.
    #[test]
    fn values_are_those_of_the_wire() {
        assert_eq!(with(START, 0), 0x3c70_99c1_3f17_7259);
        assert_eq!([1, 2, 3].into_iter().fold(START, with), 0x833d_0b61_5d02_7bfb);
    }

    #[test]
    fn a_word_enters_by_a_bijection() {
        for bit in 0..64 {
            assert_ne!(with(START, 0), with(START, 1 << bit), "{bit}");
            assert_ne!(with(0, START), with(1 << bit, START), "{bit}");
        }
    }
}
