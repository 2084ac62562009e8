//! The completion ring, device side, and the record of the first error.

use core::sync::atomic::Ordering;

use wire::{Cqe, npu};
use zerocopy::transmute;

use crate::fault::FalseCompletion;
use crate::memory::Window;

/// Writes completions of one NPU.
#[derive(Debug, Default)]
pub(super) struct Completions {
    /// Completions written so far.
    tail: u64,
}

impl Completions {
    /// Returns whether one more completion can be written without overwriting one that nobody has read.
    #[inline]
    pub(super) fn has_room(&self, window: &Window) -> bool {
        // ORDER: pairs with the reader's release store: its reads of a slot precede our next write to it.
        let read = window.word(npu::CQ_HEAD).load(Ordering::Acquire);
        // A head beyond the tail wraps to a large distance and counts as full: nothing is overwritten.
        self.tail.wrapping_sub(read) < npu::CQ_DEPTH
    }

    /// Writes a completion, and what is wrong with it, as far as there is room.
    #[cold]
    pub(super) fn write_wrong(&mut self, window: &Window, cqe: Cqe, wrong: FalseCompletion) {
        let stranger = match wrong {
            FalseCompletion::Lost => return,
            FalseCompletion::Twice => cqe,
            FalseCompletion::Old => Cqe { task: cqe.task.wrapping_sub(1 << 32), ..cqe },
            FalseCompletion::Bogus => Cqe { task: !cqe.task, queue: !cqe.queue, ..cqe },
        };
        self.write(window, stranger);
        if self.has_room(window) {
            self.write(window, cqe);
        }
    }

    /// Writes a completion; its phase byte, in the last word, becomes visible after everything else.
    ///
    /// The caller has found [`Completions::has_room`].
    pub(super) fn write(&mut self, window: &Window, mut cqe: Cqe) {
        let pass = self.tail / npu::CQ_DEPTH;
        cqe.phase = u8::from(pass.is_multiple_of(2));
        let slot = self.tail % npu::CQ_DEPTH;
        // ORDER: pairs with the reader's acquire load of the phase.
        window.store_words::<4>(npu::COMPLETIONS + slot * size_of::<Cqe>() as u64, transmute!(cqe), 3);
        self.tail += 1;
    }
}

/// Publishes the first error of an NPU.
pub(super) fn publish_error(window: &Window, cqe: Cqe) {
    window.store_words::<4>(npu::DEVICE_ERROR, transmute!(cqe), 3);
    // ORDER: pairs with the acquire load of whoever reads the error: flag first, record after.
    window.word(npu::DEVICE_ERROR_FLAG).store(1, Ordering::Release);
}

/// Takes the error back, when the NPU is reset.
pub(super) fn clear_error(window: &Window) {
    window.word(npu::DEVICE_ERROR_FLAG).store(0, Ordering::Release);
}
