//! What is between the NPUs of this process: hints that save polling, signals to be lost, links that are cut.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Signals between the engines of this process.
#[derive(Debug)]
pub(crate) struct Signals {
    /// Per NPU: it got a notify since somebody last looked after it.
    ready: Box<[AtomicBool]>,
    /// Per NPU: 1 + the notify whose next record is to be lost, 0 for none.
    lost: Box<[AtomicU32]>,
    errant: Mutex<Errant>,
}

/// Signals that faults have struck so far, each as NPU and notify.
#[derive(Debug, Default)]
struct Errant {
    /// Came once more, and set a notify that was clear.
    strays: Vec<[u32; 2]>,
    /// Sent, and never came.
    missing: Vec<[u32; 2]>,
}

impl Signals {
    pub(super) fn new(npus: u32) -> Self {
        let ready = (0..npus).map(|_| AtomicBool::new(false)).collect();
        let lost = (0..npus).map(|_| AtomicU32::new(0)).collect();
        Self { ready, lost, errant: Mutex::default() }
    }

    /// Marks an NPU as worth looking after.
    #[inline]
    pub(crate) fn mark(&self, npu: u32) {
        // ORDER: a hint. Whoever takes it still loads the notify or doorbell with acquire order, and a hint that is
        // lost between two threads costs one look at every NPU.
        self.ready[npu as usize].store(true, Ordering::Relaxed);
    }

    /// Takes the mark of the first marked NPU from `from` on upwards, going round.
    #[inline]
    pub(crate) fn take(&self, from: u32) -> Option<u32> {
        let marked = |ready: &AtomicBool| ready.load(Ordering::Relaxed);
        let (low, high) = self.ready.split_at_checked(from as usize)?;
        let above = high.iter().position(marked).map(|found| low.len() + found);
        let npu = above.or_else(|| low.iter().position(marked))?;
        self.ready[npu].store(false, Ordering::Relaxed);
        u32::try_from(npu).ok()
    }

    /// Arranges that the next record of `notify` at `npu` is lost.
    pub(crate) fn lose(&self, npu: u32, notify: u32) {
        self.lost[npu as usize].store(notify.wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns whether this record of `notify` at `npu` is to be lost; each arrangement holds once.
    #[inline]
    pub(crate) fn loses(&self, npu: u32, notify: u32) -> bool {
        let lost = &self.lost[npu as usize];
        let armed = notify.wrapping_add(1);
        let loses = lost.load(Ordering::Relaxed) == armed
            && lost.compare_exchange(armed, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if loses {
            self.note_missing(npu, notify);
        }
        loses
    }

    fn errant(&self) -> MutexGuard<'_, Errant> {
        self.errant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a signal has been sent and will never come.
    #[cold]
    pub(crate) fn note_missing(&self, npu: u32, notify: u32) {
        self.errant().missing.push([npu, notify]);
    }

    /// Notes that a signal that came once more has set a notify that was clear.
    #[cold]
    pub(crate) fn note_stray(&self, npu: u32, notify: u32) {
        self.errant().strays.push([npu, notify]);
    }

    /// Forgets the signals that faults have struck.
    pub(crate) fn forgive(&self) {
        *self.errant() = Errant::default();
    }

    /// Returns whether some notify has had a signal too many and one too few.
    pub(super) fn are_masked(&self) -> bool {
        let errant = self.errant();
        errant.strays.iter().any(|stray| errant.missing.contains(stray))
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
    use super::Signals;

    #[test]
    fn marks_are_taken_upwards_from_where_one_looks_and_once_each() {
        let signals = Signals::new(5);
        let take = |from| {
            [0, 2, 4].into_iter().for_each(|npu| signals.mark(npu));
            [(); 4].map(|()| signals.take(from))
        };
        assert_eq!(take(0), [Some(0), Some(2), Some(4), None]);
        assert_eq!(take(1), [Some(2), Some(4), Some(0), None]);
        assert_eq!(take(4), [Some(4), Some(0), Some(2), None]);
        signals.mark(3);
        assert_eq!(signals.take(6), None, "there is no such NPU to look from");
    }

    #[test]
    fn a_signal_too_many_masks_one_too_few_of_the_same_notify_only() {
        let signals = Signals::new(2);
        signals.lose(1, 7);
        signals.note_stray(1, 7);
        assert!(!signals.are_masked(), "nothing is lost yet");
        assert!(!signals.loses(1, 8) && signals.loses(1, 7) && !signals.loses(1, 7));
        assert!(signals.are_masked());
        signals.forgive();
        assert!(!signals.are_masked());
        let apart = Signals::new(2);
        apart.note_stray(0, 7);
        apart.note_missing(1, 7);
        apart.note_missing(0, 8);
        assert!(!apart.are_masked());
    }
}
