//! The consuming side of a ring: what a doorbell announces, and which entry comes next.
//!
//! Written from `docs/rings.md` and `wire` alone, without the producer, so that no mistake hides in both. Positions
//! are counts that never go back; the wire carries their low bits only. [`Cursor`] is that arithmetic, generic over
//! the number of bits so that small widths can be tested exhaustively; [`Consumer`] is the protocol, over a
//! [`RingMemory`], so that a model checker can stand in for the memory.
//!
//! Nothing here knows what an entry means.

use wire::{Descriptor, ErrorCode};

/// The memory of one ring and its two words.
pub trait RingMemory {
    /// Loads the doorbell word with acquire order: entries announced by it can be read after.
    fn doorbell(&self) -> u64;

    /// Copies the entry in `slot` (below the depth) out, each byte once.
    fn entry(&self, slot: u64) -> Descriptor;

    /// Stores the head word with release order: entries below it are done with.
    fn publish(&self, head: u64);
}

/// A position in a ring of which the wire carries the low `BITS` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor<const BITS: u32> {
    head: u64,
    tail: u64,
    depth: u64,
}

impl<const BITS: u32> Cursor<BITS> {
    const MASK: u64 = u64::MAX >> (64 - BITS);

    /// Returns a cursor of an empty ring at `start`; `None` unless `depth` is a power of two of which the wire's
    /// bits can tell full from empty.
    #[must_use]
    pub const fn new(start: u64, depth: u64) -> Option<Self> {
        let legal = depth.is_power_of_two() && depth <= Self::MASK;
        if legal { Some(Self { head: start, tail: start, depth }) } else { None }
    }

    /// Takes the low bits of a tail as the newest announcement and returns whether it announces anything new.
    ///
    /// # Errors
    /// `SQ_OVERRUN` when more entries would be outstanding than the ring holds. A tail that goes back looks the same.
    #[inline]
    pub const fn announce(&mut self, word: u64) -> Result<bool, ErrorCode> {
        let news = word.wrapping_sub(self.tail) & Self::MASK;
        if self.outstanding() + news > self.depth {
            return Err(ErrorCode::SQ_OVERRUN);
        }
        self.tail = self.tail.wrapping_add(news);
        Ok(news != 0)
    }

    /// Returns how many announced entries are not yet done.
    #[inline]
    #[must_use]
    pub const fn outstanding(&self) -> u64 {
        self.tail.wrapping_sub(self.head)
    }

    /// Returns how many entries the ring holds.
    #[inline]
    #[must_use]
    pub const fn depth(&self) -> u64 {
        self.depth
    }

    /// Returns the slot of the entry at the head.
    #[inline]
    #[must_use]
    pub const fn slot(&self) -> u64 {
        self.head & (self.depth - 1)
    }

    /// Returns the position of the entry at the head.
    #[inline]
    #[must_use]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// Returns the low bits of the head.
    #[inline]
    #[must_use]
    pub const fn head_word(&self) -> u64 {
        self.head & Self::MASK
    }

    /// Returns the low half of the head, as completions carry it.
    #[inline]
    #[must_use]
    pub const fn head_half(&self) -> u32 {
        // CAST: the low half is what is wanted.
        #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
        let half = self.head as u32;
        half
    }

    /// Returns the low bits of the newest tail.
    #[inline]
    #[must_use]
    pub const fn tail_word(&self) -> u64 {
        self.tail & Self::MASK
    }

    /// Takes back the announcement of everything that is not done.
    const fn forget(&mut self) {
        self.tail = self.head;
    }

    /// Moves the head past one entry.
    #[inline]
    const fn advance(&mut self) {
        self.head = self.head.wrapping_add(1);
    }
}

/// Entries done before the head is published while the queue keeps running.
const PUBLISH_EVERY: u64 = 32;

/// Reads one ring in order.
#[derive(Clone, Debug)]
pub struct Consumer {
    cursor: Cursor<32>,
    published: u64,
}

impl Consumer {
    /// Returns the consumer of an empty ring; `None` for a depth that no ring has.
    #[must_use]
    pub const fn new(start: u64, depth: u32) -> Option<Self> {
        match Cursor::new(start, depth as u64) {
            Some(cursor) => Some(Self { cursor, published: start }),
            None => None,
        }
    }

    /// Returns the position.
    #[must_use]
    pub const fn cursor(&self) -> &Cursor<32> {
        &self.cursor
    }

    /// Returns the position that was published last.
    pub(crate) const fn published(&self) -> u64 {
        self.published
    }

    /// Reads the doorbell and returns whether it announces anything new.
    ///
    /// # Errors
    /// `SQ_OVERRUN` as [`Cursor::announce`].
    #[inline]
    pub fn refresh(&mut self, memory: &impl RingMemory) -> Result<bool, ErrorCode> {
        self.cursor.announce(memory.doorbell() & Cursor::<32>::MASK)
    }

    /// Copies out the entry at the head; `None` when all announced entries are done.
    #[inline]
    pub fn entry(&self, memory: &impl RingMemory) -> Option<Descriptor> {
        (self.cursor.outstanding() != 0).then(|| memory.entry(self.cursor.slot()))
    }

    /// Counts the entry at the head as done.
    #[inline]
    pub fn advance(&mut self, memory: &impl RingMemory) {
        self.cursor.advance();
        if self.cursor.head().wrapping_sub(self.published) >= PUBLISH_EVERY {
            self.publish(memory);
        }
    }

    /// Takes back the announcement of everything that is not done: the doorbell was lost.
    pub(crate) const fn forget(&mut self) {
        self.cursor.forget();
    }

    /// Publishes the head if it moved.
    #[inline]
    pub fn publish(&mut self, memory: &impl RingMemory) {
        if self.published != self.cursor.head() {
            memory.publish(self.cursor.head_word());
            self.published = self.cursor.head();
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::ErrorCode;

    use super::Cursor;

    /// Every head, fill and announcement of every depth that `BITS` bits allow, from starts on both sides of a wrap.
    fn every_announcement<const BITS: u32>() -> usize {
        let modulus = 1_u64 << BITS;
        let mut cases = 0;
        for depth in (0..BITS).map(|shift| 1 << shift) {
            for start in (0..2 * modulus).chain(u64::MAX - modulus..=u64::MAX) {
                for filled in 0..=depth {
                    for word in 0..modulus {
                        let mut cursor = Cursor::<BITS>::new(start, depth).unwrap();
                        let fill = start.wrapping_add(filled) % modulus;
                        assert_eq!(cursor.announce(fill), Ok(filled != 0));
                        assert_eq!(cursor.outstanding(), filled);
                        let legal = (0..=depth - filled).find(|news| (fill + news) % modulus == word);
                        match legal {
                            Some(news) => {
                                assert_eq!(cursor.announce(word), Ok(news != 0));
                                assert_eq!(cursor.outstanding(), filled + news);
                                assert_eq!(cursor.tail_word(), word);
                            }
                            None => {
                                assert_eq!(cursor.announce(word), Err(ErrorCode::SQ_OVERRUN));
                                assert_eq!(
                                    cursor.outstanding(),
                                    filled,
                                    "a refused doorbell changes nothing"
                                );
                            }
                        }
                        cases += 1;
                    }
                }
            }
        }
        cases
    }

    #[test]
    fn every_announcement_at_small_widths_is_right() {
        // Depths 1…2^(b-1) with depth + 1 fills each, 3·2^b + 1 starts, 2^b announcements.
        assert_eq!(every_announcement::<2>(), 5 * 13 * 4);
        assert_eq!(every_announcement::<3>(), 10 * 25 * 8);
        assert_eq!(every_announcement::<5>(), 36 * 97 * 32);
        if std::env::var_os("AICPU_TS_LARGER_MODELS").is_some() {
            assert_eq!(every_announcement::<6>(), 69 * 193 * 64);
            assert_eq!(every_announcement::<7>(), 134 * 385 * 128);
        }
    }

    #[test]
    fn slots_follow_the_position_through_both_wraps() {
        for start in [0, 5, u64::from(u32::MAX) - 2, u64::MAX - 2] {
            let mut cursor = Cursor::<32>::new(start, 4).unwrap();
            for step in 0..9_u64 {
                let position = start.wrapping_add(step);
                assert_eq!(cursor.announce(position.wrapping_add(1) & 0xffff_ffff), Ok(true));
                assert_eq!((cursor.slot(), cursor.head()), (position % 4, position));
                cursor.advance();
                assert_eq!(cursor.outstanding(), 0);
            }
        }
    }

    #[test]
    fn a_depth_that_cannot_tell_full_from_empty_is_none() {
        assert!(Cursor::<3>::new(0, 8).is_none());
        assert!(Cursor::<3>::new(0, 4).is_some());
        assert!(Cursor::<32>::new(0, 0).is_none());
        assert!(Cursor::<32>::new(0, 3).is_none());
    }
}
