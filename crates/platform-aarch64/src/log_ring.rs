//! A ring of bytes from one core to the host: the text log.
//!
//! One producer, one consumer, two counts that never go back. A frame is staged behind the published count and
//! becomes visible as a whole or not at all: where the host is too slow, whole frames are dropped and counted, and
//! the producer never waits.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use wire::{ErrorCode, npu};

use crate::Window;

/// Bytes of the ring.
#[expect(clippy::cast_possible_truncation, reason = "32 KiB")]
const BYTES: usize = npu::LOG_BYTES as usize;

/// The producer's side of the ring.
#[derive(Debug)]
pub struct LogRing {
    written: &'static AtomicU64,
    read: &'static AtomicU64,
    bytes: &'static [AtomicU8],
    staged: u64,
    has_room: bool,
    dropped: u64,
}

impl LogRing {
    /// Takes the log ring of a window, of which there must be one user.
    ///
    /// # Errors
    /// None for a real window: its tables hold the ring.
    pub fn new(window: &Window) -> Result<Self, ErrorCode> {
        let written = window.table_word(npu::LOG)?;
        Ok(Self {
            written,
            read: window.table_word(npu::LOG + 8)?,
            bytes: window.table_bytes(npu::LOG + 16, BYTES)?,
            staged: written.load(Ordering::Relaxed),
            has_room: true,
            dropped: 0,
        })
    }

    /// Adds bytes to the frame in hand.
    pub fn stage(&mut self, bytes: &[u8]) {
        // ORDER: pairs with the host's release store of `read`: what it freed is free to be written.
        let free_until = self.read.load(Ordering::Acquire).wrapping_add(self.bytes.len() as u64);
        let end = self.staged.wrapping_add(bytes.len() as u64);
        self.has_room &= end <= free_until;
        if !self.has_room {
            return;
        }
        for byte in bytes {
            let at = (self.staged % npu::LOG_BYTES) as usize;
            if let Some(cell) = self.bytes.get(at) {
                cell.store(*byte, Ordering::Relaxed);
            }
            self.staged = self.staged.wrapping_add(1);
        }
    }

    /// Ends the frame: publishes it, or drops it where it did not fit.
    pub fn commit(&mut self) {
        if self.has_room {
            // ORDER: pairs with the host's acquire load of `written`: the bytes below it are complete.
            self.written.store(self.staged, Ordering::Release);
        } else {
            self.staged = self.written.load(Ordering::Relaxed);
            self.has_room = true;
            self.dropped += 1;
        }
    }

    /// Returns how many frames were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use wire::npu;

    use super::{BYTES, LogRing};
    use crate::window::tests::window;

    #[test]
    fn frames_appear_whole_and_wrap_around() {
        let window = window(128);
        let mut ring = LogRing::new(&window).unwrap();
        let (written, read) =
            (window.table_word(npu::LOG).unwrap(), window.table_word(npu::LOG + 8).unwrap());
        ring.stage(&[1, 2]);
        ring.stage(&[3]);
        assert_eq!(written.load(Ordering::Acquire), 0, "nothing is visible before the end of the frame");
        ring.commit();
        assert_eq!(written.load(Ordering::Acquire), 3);

        read.store(3, Ordering::Release);
        ring.stage(&[7; BYTES]);
        ring.commit();
        assert_eq!(written.load(Ordering::Acquire), 3 + BYTES as u64, "exactly full");
        let bytes = window.table_bytes(npu::LOG + 16, BYTES).unwrap();
        assert!(bytes.iter().all(|byte| byte.load(Ordering::Relaxed) == 7));
    }

    #[test]
    fn a_frame_that_does_not_fit_is_dropped_as_a_whole() {
        let window = window(128);
        let mut ring = LogRing::new(&window).unwrap();
        let (written, read) =
            (window.table_word(npu::LOG).unwrap(), window.table_word(npu::LOG + 8).unwrap());
        ring.stage(&[7; BYTES - 1]);
        ring.commit();
        ring.stage(&[1]);
        ring.stage(&[2]);
        ring.commit();
        assert_eq!((written.load(Ordering::Acquire), ring.dropped()), (BYTES as u64 - 1, 1));

        read.store(2, Ordering::Release);
        ring.stage(&[1, 2]);
        ring.commit();
        assert_eq!((written.load(Ordering::Acquire), ring.dropped()), (BYTES as u64 + 1, 1));
    }
}
