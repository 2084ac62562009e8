//! What is between the NPUs of this process: hints that save polling, signals to be lost, links that are cut.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::Window;

/// An NPU as its peers reach it.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) window: Window,
    /// It got a notify since somebody last looked after it.
    ready: AtomicBool,
    /// 1 + the notify whose next record is to be lost, 0 for none.
    lost: AtomicU32,
}

impl Seat {
    pub(super) const fn new(window: Window) -> Self {
        Self { window, ready: AtomicBool::new(false), lost: AtomicU32::new(0) }
    }

    /// Marks this NPU as worth looking after.
    #[inline]
    pub(crate) fn mark(&self) {
        // ORDER: a hint. Whoever takes it still loads the notify or doorbell with acquire order, and a hint that is
        // lost between two threads costs one look at every NPU.
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Arranges that the next record of `notify` here is lost.
    pub(crate) fn lose(&self, notify: u32) {
        self.lost.store(notify.wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns whether this record of `notify` is to be lost; each arrangement holds once.
    #[inline]
    pub(crate) fn loses(&self, notify: u32) -> bool {
        let armed = notify.wrapping_add(1);
        self.lost.load(Ordering::Relaxed) == armed
            && self.lost.compare_exchange(armed, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Takes the mark of the first marked NPU from `from` on upwards, going round.
#[inline]
pub(super) fn take_mark(seats: &[Seat], from: u32) -> Option<u32> {
    let marked = |seat: &Seat| seat.ready.load(Ordering::Relaxed);
    let (low, high) = seats.split_at_checked(from as usize)?;
    let above = high.iter().position(marked).map(|found| low.len() + found);
    let npu = above.or_else(|| low.iter().position(marked))?;
    seats[npu].ready.store(false, Ordering::Relaxed);
    u32::try_from(npu).ok()
}

/// Signals that faults have struck so far, each as NPU and notify.
#[derive(Debug, Default)]
pub(crate) struct Errant {
    struck: Mutex<Struck>,
}

#[derive(Debug, Default)]
struct Struck {
    /// Came once more, and set a notify that was clear.
    strays: Vec<[u32; 2]>,
    /// Sent, and never came.
    missing: Vec<[u32; 2]>,
}

impl Errant {
    fn struck(&self) -> MutexGuard<'_, Struck> {
        self.struck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a signal has been sent and will never come.
    #[cold]
    pub(crate) fn note_missing(&self, npu: u32, notify: u32) {
        self.struck().missing.push([npu, notify]);
    }

    /// Notes that a signal that came once more has set a notify that was clear.
    #[cold]
    pub(crate) fn note_stray(&self, npu: u32, notify: u32) {
        self.struck().strays.push([npu, notify]);
    }

    /// Forgets the signals that faults have struck.
    pub(crate) fn forgive(&self) {
        *self.struck() = Struck::default();
    }

    /// Returns whether some notify has had a signal too many and one too few.
    pub(super) fn are_masked(&self) -> bool {
        let struck = self.struck();
        struck.strays.iter().any(|stray| struck.missing.contains(stray))
    }
}

/// Links between NPUs that are cut.
#[derive(Debug, Default)]
pub(crate) struct Links {
    any: AtomicBool,
    cut: Mutex<Vec<[u32; 2]>>,
}

impl Links {
    fn list(&self) -> MutexGuard<'_, Vec<[u32; 2]>> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the link between two NPUs.
    pub(crate) fn cut(&self, a: u32, b: u32) {
        self.list().push([a.min(b), a.max(b)]);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Returns whether the link between two NPUs is cut.
    #[inline]
    pub(crate) fn is_cut(&self, a: u32, b: u32) -> bool {
        // ORDER: a cut has no place in the order of anything else.
        self.any.load(Ordering::Relaxed) && self.list().contains(&[a.min(b), a.max(b)])
    }

    /// Mends all links of an NPU.
    pub(crate) fn mend(&self, npu: u32) {
        let mut cut = self.list();
        cut.retain(|ends| !ends.contains(&npu));
        self.any.store(!cut.is_empty(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use wire::npu::HEAP;

    use super::Errant;
    use crate::fabric::{Fabric, FabricConfig};

    #[test]
    fn marks_are_taken_upwards_from_where_one_looks_and_once_each() {
        let fabric = Fabric::create(&FabricConfig::new(5, HEAP + 0x1_0000)).unwrap();
        let take = |from| {
            [0, 2, 4].into_iter().for_each(|npu| fabric.mark(npu));
            [(); 4].map(|()| fabric.take_mark(from))
        };
        assert_eq!(take(0), [Some(0), Some(2), Some(4), None]);
        assert_eq!(take(1), [Some(2), Some(4), Some(0), None]);
        assert_eq!(take(4), [Some(4), Some(0), Some(2), None]);
        fabric.mark(3);
        assert_eq!(fabric.take_mark(6), None, "there is no such NPU to look from");
    }

    #[test]
    fn a_signal_is_lost_once() {
        let fabric = Fabric::create(&FabricConfig::new(2, HEAP + 0x1_0000)).unwrap();
        let seat = fabric.seat(1).unwrap();
        seat.lose(7);
        assert!(!seat.loses(8) && seat.loses(7) && !seat.loses(7));
    }

    #[test]
    fn a_signal_too_many_masks_one_too_few_of_the_same_notify_only() {
        let errant = Errant::default();
        errant.note_stray(1, 7);
        assert!(!errant.are_masked(), "nothing is lost yet");
        errant.note_missing(1, 7);
        assert!(errant.are_masked());
        errant.forgive();
        assert!(!errant.are_masked());
        errant.note_stray(0, 7);
        errant.note_missing(1, 7);
        errant.note_missing(0, 8);
        assert!(!errant.are_masked());
    }
}
