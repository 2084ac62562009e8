//! A submission ring as its producer sees it.

use hal::Platform;
use wire::npu::{DOORBELL_BATCH, HEADS, TAILS};
use wire::{DESCRIPTOR_BYTES, Descriptor, DeviceAddr, ErrorCode};

use crate::counter::{Count, widen};

/// What has been announced by one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// Entries.
    pub entries: u32,
    /// Doorbells rung.
    pub doorbells: u32,
}

/// The producer's end of one ring of 64-byte entries.
///
/// Works for submission rings and for the rings of queue pairs: the latter are published with
/// [`publish`](Self::publish), because their doorbell is rung by the device when it comes to the post.
#[derive(Clone, Copy, Debug)]
pub struct SubmissionRing {
    base: DeviceAddr,
    depth: u32,
    queue: u16,
    /// Entries written and published.
    tail: u64,
    /// Entries announced by doorbell.
    announced: u64,
    /// Entries the device is known to have consumed.
    head: u64,
}

impl SubmissionRing {
    /// Makes the producer of an empty ring: `depth` entries (a power of two) from `base` on.
    #[must_use]
    pub const fn new(queue: u16, base: DeviceAddr, depth: u32) -> Self {
        Self::starting_at(queue, base, depth, 0)
    }

    /// As [`new`](Self::new), with all positions at `start`: how tests get near the wrap of the 32-bit words.
    #[must_use]
    pub const fn starting_at(queue: u16, base: DeviceAddr, depth: u32, start: u64) -> Self {
        Self { base, depth, queue, tail: start, announced: start, head: start }
    }

    /// Makes the producer of a ring that another producer has used before, from the words in shared memory: what
    /// the device has not consumed yet stays untouched.
    ///
    /// # Errors
    /// `QUEUE_HEAD` when there would be more entries in the ring than it holds.
    pub fn resumed(
        queue: u16,
        base: DeviceAddr,
        depth: u32,
        head: u32,
        tail: u32,
    ) -> Result<Self, ErrorCode> {
        let used = tail.ahead_of(head);
        if used > u64::from(depth) {
            return Err(ErrorCode::QUEUE_HEAD);
        }
        // One turn of the 32-bit words ahead, so that the head is never below zero.
        let tail = 1 << 32 | u64::from(tail);
        Ok(Self { head: tail - used, ..Self::starting_at(queue, base, depth, tail) })
    }

    /// Returns the device's number of this queue.
    #[must_use]
    pub const fn queue(&self) -> u16 {
        self.queue
    }

    /// Returns how many entries have ever been written.
    #[must_use]
    pub const fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns how many entries the device is known to have consumed.
    #[must_use]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// Returns how many entries may be written now, after reading the device's head where there may be too few.
    ///
    /// # Errors
    /// `QUEUE_HEAD` when the head is behind an earlier one or ahead of the tail: the ring's memory is not ours alone.
    #[inline]
    pub fn free<P: Platform>(&mut self, platform: &P, wanted: u32) -> Result<u32, ErrorCode> {
        let mut used = self.tail - self.head;
        if used + u64::from(wanted) > u64::from(self.depth) {
            let word = platform.load(self.word(platform, HEADS)?)?;
            self.head = widen(self.head, self.tail, u32::low(word)).ok_or(ErrorCode::QUEUE_HEAD)?;
            platform.observe();
            used = self.tail - self.head;
        }
        // At most `depth` entries are ever in use, so the difference fits 32 bits.
        Ok(u32::try_from(u64::from(self.depth).saturating_sub(used)).unwrap_or(0))
    }

    /// Writes at most `most` entries through `write`, which gets the longest stretch of free entries that lie
    /// together and returns how many it wrote. Returns the number; nothing is announced.
    ///
    /// # Errors
    /// Those of [`free`](Self::free), and `CONTEXT_ADDRESS` when the ring is not in memory this kernel may touch.
    // UNSAFETY: the entries are memory that the device reads; that they are ours right now is the ring protocol's
    // promise, which the trait cannot see.
    #[expect(unsafe_code, reason = "hands out ring entries that the device does not look at")]
    #[inline]
    pub fn fill<P: Platform>(
        &mut self,
        platform: &mut P,
        most: u32,
        write: impl FnOnce(&mut [Descriptor]) -> usize,
    ) -> Result<u32, ErrorCode> {
        let free = self.free(platform, most)?;
        let index = u32::low(self.tail) & (self.depth - 1);
        let count = most.min(free).min(self.depth - index);
        if count == 0 {
            return Ok(0);
        }
        let offset = u64::from(index) * DESCRIPTOR_BYTES as u64;
        let first = self.base.checked_add(offset).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        // SAFETY:
        // 1. `count` ≤ depth − (tail − head): the device has consumed everything that was in these entries.
        // 2. The device reads no entry at or above the last announced tail (`docs/rings.md` section 2), and these
        //    are announced by `announce` at the earliest, after this borrow has ended.
        // 3. No other producer exists: this struct is the only one for the ring, one per context.
        let entries = unsafe { platform.entries(first, count as usize)? };
        let written = u32::try_from(write(entries)).unwrap_or(count).min(count);
        self.tail += u64::from(written);
        Ok(written)
    }

    /// Announces everything written: one fence, then a doorbell per at most [`DOORBELL_BATCH`] entries, then the
    /// software tail.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when the software tail is not in memory this kernel may touch.
    #[inline]
    pub fn announce<P: Platform>(&mut self, platform: &mut P) -> Result<Announced, ErrorCode> {
        let mut done = Announced::default();
        if self.announced == self.tail {
            return Ok(done);
        }
        platform.publish();
        while self.announced < self.tail {
            let batch = (self.tail - self.announced).min(u64::from(DOORBELL_BATCH));
            self.announced += batch;
            // ORDER: pairs with the device's acquire load of the doorbell; the fence above comes first.
            platform.ring(self.queue, u32::low(self.announced));
            done.entries += u32::low(batch);
            done.doorbells += 1;
        }
        let word = self.word(platform, TAILS)?;
        platform.store(word, u64::from(u32::low(self.tail)))?;
        Ok(done)
    }

    /// Publishes everything written without a doorbell: for the ring of a queue pair, which the device announces to
    /// itself at the post. Returns the number of entries.
    ///
    /// # Errors
    /// As [`announce`](Self::announce).
    pub fn publish<P: Platform>(&mut self, platform: &mut P) -> Result<u32, ErrorCode> {
        let entries = u32::low(self.tail - self.announced);
        if entries > 0 {
            platform.publish();
            self.announced = self.tail;
            let word = self.word(platform, TAILS)?;
            platform.store(word, u64::from(u32::low(self.tail)))?;
        }
        Ok(entries)
    }

    fn word<P: Platform>(&self, platform: &P, table: u64) -> Result<DeviceAddr, ErrorCode> {
        platform.window().checked_add(table + 8 * u64::from(self.queue)).ok_or(ErrorCode::CONTEXT_ADDRESS)
    }
}
