//! The completion ring as its consumer sees it, and the shadow of what was asked to complete.

use hal::Platform;
use heapless::Vec;
use wire::npu::{COMPLETIONS, CQ_DEPTH, CQ_HEAD};
use wire::{Cqe, ErrorCode};
use zerocopy::{FromZeros, IntoBytes};

/// Completions that may be expected at once: one per launch in flight.
const EXPECTED: usize = 64;

/// Consumes completions and matches them against what was submitted.
///
/// What the ring says is never used to decide what was asked for: an entry that matches no expectation is counted
/// and dropped, an error entry is returned.
#[derive(Debug)]
pub struct Completions {
    head: u64,
    expected: Vec<u64, EXPECTED>,
    strangers: u64,
}

impl Default for Completions {
    fn default() -> Self {
        Self::new()
    }
}

impl Completions {
    /// Makes the consumer of an empty ring.
    #[must_use]
    pub const fn new() -> Self {
        Self::starting_at(0)
    }

    /// Makes the consumer of a ring of which `head` entries have been consumed before ([`CQ_HEAD`] says how many).
    #[must_use]
    pub const fn starting_at(head: u64) -> Self {
        Self { head, expected: Vec::new(), strangers: 0 }
    }

    /// Notes that the descriptor with this task id will report its completion.
    ///
    /// # Errors
    /// `QUEUE_FULL` when more completions are outstanding than can be remembered.
    pub fn expect(&mut self, task: u64) -> Result<(), ErrorCode> {
        self.expected.push(task).map_err(|_| ErrorCode::QUEUE_FULL)
    }

    /// Returns how many completions are outstanding.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.expected.len()
    }

    /// Returns how many entries matched nothing that was submitted: duplicates, or memory overwritten.
    #[must_use]
    pub const fn strangers(&self) -> u64 {
        self.strangers
    }

    /// Takes at most one new entry off the ring. `Ok(None)` when there is none; the code is that of the entry.
    ///
    /// # Errors
    /// `CONTEXT_ADDRESS` when the ring is not in memory this kernel may touch.
    pub fn poll<P: Platform>(&mut self, platform: &mut P) -> Result<Option<Cqe>, ErrorCode> {
        let index = self.head & (CQ_DEPTH - 1);
        let at = platform.window().checked_add(COMPLETIONS + index * size_of::<Cqe>() as u64);
        let at = at.ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        // The last word of an entry holds its phase and is written last.
        let last = at.checked_add(24).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        let phase = platform.load(last)?.to_le_bytes().last().copied();
        let expected = u8::from((self.head / CQ_DEPTH).is_multiple_of(2));
        if phase != Some(expected) {
            return Ok(None);
        }
        // ORDER: the phase has been seen by an acquire load; the rest of the entry is complete.
        platform.observe();
        let mut cqe = Cqe::new_zeroed();
        platform.read(at, cqe.as_mut_bytes())?;
        self.head += 1;
        let word = platform.window().checked_add(CQ_HEAD).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        platform.store(word, self.head)?;
        match self.expected.iter().position(|&task| task == cqe.task) {
            Some(_) if cqe.code.is_ok() => self.expected.retain(|&task| task != cqe.task),
            None if cqe.code.is_ok() => self.strangers += 1,
            _ => {}
        }
        Ok(Some(cqe))
    }

    /// Forgets every expectation: the communicator is gone.
    pub fn clear(&mut self) {
        self.expected.clear();
    }
}
