//! Tokens of regions: each names its slot, looks random, and never comes again.
//!
//! What stands above the slot's number is a count, enciphered under a random key of the slot: as hard to foresee as the
//! key, and no list has to be kept of what was given before.

use wire::npu::MAX_REGIONS;

/// Bits of a token that name the slot, and those above.
const SLOT_BITS: u32 = MAX_REGIONS.ilog2();
const BITS: u32 = u32::BITS - SLOT_BITS;
const _: () = assert!(MAX_REGIONS.is_power_of_two() && BITS.is_multiple_of(2));
/// Half of the bits above the slot.
const HALF: u32 = BITS / 2;
const ROUNDS: u64 = 4;

/// The tokens of one slot, one after the other.
#[derive(Debug)]
pub(super) struct Tokens {
    slot: u32,
    key: u64,
    count: u32,
}

impl Tokens {
    /// Begins the tokens of a slot under a random key.
    pub(super) const fn new(slot: u32, key: u64) -> Self {
        Self { slot, key, count: 0 }
    }

    /// Returns whether there is no other token.
    fn is_used_up(&self) -> bool {
        self.count >> BITS != 0
    }

    /// Enciphers a count: a permutation of the numbers of [`BITS`] bits, by a Feistel network.
    fn encipher(&self, count: u32) -> u32 {
        let low = (1 << HALF) - 1;
        let (mut left, mut right) = (count >> HALF, count & low);
        for round in 0..ROUNDS {
            let mixed = (self.key ^ u64::from(right) ^ round << HALF).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            // CAST: fewer than 32 bits are left.
            let mixed = (mixed >> (u64::BITS - HALF)) as u32;
            (left, right) = (right, left ^ mixed);
        }
        left << HALF | right
    }
}

impl Iterator for Tokens {
    type Item = u32;

    /// Returns the next token, `None` when the slot has had all of its 2^22 − 1.
    fn next(&mut self) -> Option<u32> {
        while !self.is_used_up() {
            let high = self.encipher(self.count);
            self.count += 1;
            // A token that is only its slot could be 0, which means none.
            if high != 0 {
                return Some(high << SLOT_BITS | self.slot);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{BITS, MAX_REGIONS, Tokens};

    #[test]
    fn a_slot_has_every_token_once() {
        for (slot, key) in [(0, 0), (5, 0x0123_4567_89ab_cdef), (1023, u64::MAX)] {
            let mut seen = vec![false; 1 << BITS];
            for token in Tokens::new(slot, key) {
                assert_eq!(u64::from(token) % MAX_REGIONS, u64::from(slot));
                let high = usize::try_from(u64::from(token) / MAX_REGIONS).unwrap();
                assert!(high != 0 && !core::mem::replace(&mut seen[high], true), "{token:#x} came twice");
            }
            assert_eq!(seen.iter().filter(|seen| !**seen).count(), 1, "all but 0");
        }
    }

    #[test]
    fn tokens_do_not_follow_each_other() {
        let tokens: Vec<u32> = Tokens::new(3, 77).take(1000).collect();
        let close = tokens.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 1 << 20).count();
        assert!(close < 10, "{close} of 1000 tokens are near the one before");
    }
}
