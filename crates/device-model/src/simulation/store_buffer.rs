//! The stores of one AI CPU that other parties do not see yet.
//!
//! An aarch64 core makes its stores visible in any order, except where it was told otherwise: nothing passes a fence,
//! a release store passes nothing before it, and two stores to one place keep their order. A doorbell is a store like
//! any other. So a producer that forgets its fence shows a device a doorbell before the entries, as silicon would; an
//! x86 host never does that by itself.

use core::sync::atomic::Ordering;
use std::collections::VecDeque;

use fastrand::Rng;
use wire::Descriptor;

use crate::memory::Window;

/// Stores from the oldest on among which the next to become visible is chosen.
const REACH: usize = 32;

/// What a store carries.
#[derive(Clone, Debug)]
enum Content {
    Word(u64),
    Entry(Descriptor),
    Bytes(Box<[u8]>),
}

#[derive(Clone, Debug)]
enum Step {
    /// Nothing behind it may be visible before everything ahead of it.
    Fence,
    Store {
        offset: u64,
        content: Content,
        is_release: bool,
    },
}

/// Stores under way, oldest first.
#[derive(Debug, Default)]
pub(crate) struct StoreBuffer {
    steps: VecDeque<Step>,
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Self::Word(_) => 8,
            Self::Entry(_) => 64,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    fn show(&self, window: &Window, offset: u64) {
        match self {
            // ORDER: the order of stores is this module's; what the device pairs with is the word itself.
            Self::Word(value) => window.word(offset).store(*value, Ordering::Release),
            Self::Entry(entry) => window.store_words(offset, entry.lanes, 0),
            Self::Bytes(bytes) => window.write(offset, bytes),
        }
    }

    /// Copies the part that lies in `into`, whose first byte is at `start`; the content's first is at `offset`.
    fn overlay(&self, offset: u64, start: u64, into: &mut [u8]) {
        let copy = |bytes: &[u8], into: &mut [u8]| {
            for (place, byte) in (offset..).zip(bytes) {
                let index = place.checked_sub(start).and_then(|index| usize::try_from(index).ok());
                if let Some(slot) = index.and_then(|index| into.get_mut(index)) {
                    *slot = *byte;
                }
            }
        };
        match self {
            Self::Word(value) => copy(&value.to_ne_bytes(), into),
            Self::Entry(entry) => copy(zerocopy::IntoBytes::as_bytes(entry), into),
            Self::Bytes(bytes) => copy(bytes, into),
        }
    }
}

const fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

impl StoreBuffer {
    pub(crate) fn fence(&mut self) {
        if !self.steps.is_empty() {
            self.steps.push_back(Step::Fence);
        }
    }

    pub(crate) fn word(&mut self, offset: u64, value: u64, is_release: bool) {
        self.steps.push_back(Step::Store { offset, content: Content::Word(value), is_release });
    }

    pub(crate) fn entry(&mut self, offset: u64, entry: Descriptor) {
        self.steps.push_back(Step::Store { offset, content: Content::Entry(entry), is_release: false });
    }

    pub(crate) fn bytes(&mut self, offset: u64, bytes: &[u8]) {
        let content = Content::Bytes(bytes.into());
        self.steps.push_back(Step::Store { offset, content, is_release: false });
    }

    /// Returns whether every store is visible.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Lays what is under way over what the core has read at `start`: a core sees its own stores.
    pub(crate) fn forward(&self, start: u64, into: &mut [u8]) {
        for step in &self.steps {
            if let Step::Store { offset, content, .. } = step
                && overlap((*offset, content.len()), (start, into.len() as u64))
            {
                content.overlay(*offset, start, into);
            }
        }
    }

    /// Makes one store visible, any of those that may be next; returns its offset.
    pub(crate) fn drain(&mut self, window: &Window, dice: &mut Rng) -> Option<u64> {
        while matches!(self.steps.front(), Some(Step::Fence)) {
            self.steps.pop_front();
        }
        let may_be_next = |index: usize| {
            let Some(Step::Store { offset, content, is_release }) = self.steps.get(index) else {
                return false;
            };
            let place = (*offset, content.len());
            let passes = self.steps.iter().take(index).all(|before| match before {
                Step::Store { offset, content, .. } => !overlap((*offset, content.len()), place),
                Step::Fence => false,
            });
            index == 0 || (!is_release && passes)
        };
        let count =
            self.steps.iter().take(REACH).take_while(|step| matches!(step, Step::Store { .. })).count();
        let index = if count == 0 { return None } else { dice.usize(..count) };
        let index = if may_be_next(index) { index } else { 0 };
        match self.steps.remove(index) {
            Some(Step::Store { offset, content, .. }) => {
                content.show(window, offset);
                Some(offset)
            }
            _ => None,
        }
    }

    /// Forgets everything: the core is gone.
    pub(crate) fn clear(&mut self) {
        self.steps.clear();
    }
}
