//! The flight recorder of one NPU's kernel: a bounded ring of events in the window's tables.

use core::sync::atomic::Ordering;

use wire::{TraceEvent, npu};

use crate::Window;

/// Writes an event over the oldest: four stores and the count, nothing else.
#[inline]
pub fn record(window: &Window, event: TraceEvent) {
    let Ok(tail) = window.table_word(npu::TRACE_TAIL) else { return };
    // ORDER: this kernel is the only writer. The count lives in the ring, so that one that starts anew goes on
    // behind what an earlier one has recorded.
    let recorded = tail.load(Ordering::Relaxed);
    let offset = npu::TRACE + recorded % npu::TRACE_DEPTH * size_of::<TraceEvent>() as u64;
    let words: [u64; 4] = zerocopy::transmute!(event);
    // Both lie in the tables, so neither is ever refused.
    if let Ok(slot) = window.table_words::<4>(offset) {
        slot.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        // ORDER: pairs with the reader's acquire load: the events below the tail are complete.
        tail.store(recorded.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use hal::SharedMemory;
    use wire::{TraceEvent, npu};
    use zerocopy::{FromZeros, IntoBytes};

    use super::record;
    use crate::window::tests::window;

    /// The count is in the ring: a kernel that starts anew goes on behind what is there, also where the ring wraps.
    #[test]
    fn events_go_on_behind_what_is_there_and_over_the_oldest() {
        let window = window(1);
        let at = |offset: u64| window.device_addr().checked_add(offset).unwrap();
        for sequence in 0..1026 {
            record(&window, TraceEvent { sequence, first: 7, second: 8, ..TraceEvent::default() });
        }
        assert_eq!(window.load(at(npu::TRACE_TAIL)), Ok(1026));
        for (slot, sequence) in [(0, 1024), (1, 1025), (2, 2), (1022, 1022), (1023, 1023)] {
            let mut event = TraceEvent::new_zeroed();
            window.read(at(npu::TRACE + 32 * slot), event.as_mut_bytes()).unwrap();
            assert_eq!((event.sequence, event.first, event.second), (sequence, 7, 8), "slot {slot}");
        }
        let mut next = [0; 32];
        window.read(at(npu::TRACE + 32 * npu::TRACE_DEPTH), &mut next).unwrap();
        assert_eq!(next, [0; 32], "nothing behind the ring");
    }
}
