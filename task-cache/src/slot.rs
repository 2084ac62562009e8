//! Slots: the life of one entry, and the lists they are linked into.

use crate::key::Key;

/// Where an entry is in its life. Only [`Live`](Self::Live) entries hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Never used.
    Empty,
    /// Its graph is being recorded.
    Building,
    /// Its graph was checked, but not published.
    Verified,
    /// Serves launches.
    Live,
    /// No longer serves launches, but a replay still reads it.
    Draining,
    /// Reclaimed; the slot waits to be used again.
    Dead,
}

/// Names an entry, for ever: no two entries of a directory have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotId {
    pub(crate) index: u16,
    pub(crate) generation: u64,
}

impl SlotId {
    /// Returns the number of the slot, below the directory's number of slots.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// Returns the generation: how many entries were begun before this one.
    #[must_use]
    pub const fn generation(self) -> u64 {
        self.generation
    }
}

/// A recording that serves a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<P> {
    /// The entry, to be pinned while it is read.
    pub id: SlotId,
    /// What was published.
    pub payload: P,
}

/// A slot number or none; all bits zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link(u16);

impl Link {
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) fn to(at: usize) -> Self {
        // CAST: there are at most 32,768 slots.
        Self(u16::try_from(at + 1).unwrap_or(0))
    }

    #[inline]
    pub(crate) fn at(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }
}

/// One entry, or the place for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<P> {
    pub(crate) key: Key,
    pub(crate) generation: u64,
    /// When it was last used, in uses of the directory.
    pub(crate) stamp: u64,
    /// Replays that read it.
    pub(crate) pins: u32,
    pub(crate) units: u32,
    pub(crate) state: State,
    /// Of its communicator.
    pub(crate) account: u16,
    /// Towards the more recently used; unused slots: none.
    pub(crate) newer: Link,
    /// Towards the less recently used; dead slots: the next dead one.
    pub(crate) older: Link,
    /// Of live and draining entries.
    pub(crate) payload: Option<P>,
}

impl<P> Slot<P> {
    pub(crate) const EMPTY: Self = Self {
        key: Key::ZERO,
        generation: 0,
        stamp: 0,
        pins: 0,
        units: 0,
        state: State::Empty,
        account: 0,
        newer: Link::NONE,
        older: Link::NONE,
        payload: None,
    };

    /// Returns whether it may give way to another entry.
    pub(crate) fn is_evictable(&self) -> bool {
        self.state == State::Live && self.pins == 0
    }

    /// Returns whether it is being recorded.
    pub(crate) fn is_recording(&self) -> bool {
        matches!(self.state, State::Building | State::Verified)
    }
}

/// A list of slots in the order of their use, linked through the slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    newest: Link,
    oldest: Link,
}

impl List {
    pub(crate) const EMPTY: Self = Self { newest: Link::NONE, oldest: Link::NONE };

    /// Returns whether this slot is the most recently used.
    #[inline]
    pub(crate) fn starts_with(&self, at: usize) -> bool {
        self.newest == Link::to(at)
    }

    /// Puts a slot that is in no list in front.
    pub(crate) fn push<P>(&mut self, slots: &mut [Slot<P>], at: usize) {
        let link = Link::to(at);
        match self.newest.at().and_then(|newest| slots.get_mut(newest)) {
            Some(newest) => newest.newer = link,
            None => self.oldest = link,
        }
        if let Some(slot) = slots.get_mut(at) {
            (slot.newer, slot.older) = (Link::NONE, self.newest);
        }
        self.newest = link;
    }

    /// Takes a slot of this list out.
    pub(crate) fn unlink<P>(&mut self, slots: &mut [Slot<P>], at: usize) {
        let Some((newer, older)) = slots.get(at).map(|slot| (slot.newer, slot.older)) else {
            return;
        };
        match newer.at().and_then(|newer| slots.get_mut(newer)) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match older.at().and_then(|older| slots.get_mut(older)) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Returns the least recently used slot that may give way, with the time of its last use. Passes over those that
    /// are pinned.
    pub(crate) fn victim<P>(&self, slots: &[Slot<P>]) -> Option<(u64, usize)> {
        let mut link = self.oldest;
        while let Some(at) = link.at() {
            let slot = slots.get(at)?;
            if slot.is_evictable() {
                return Some((slot.stamp, at));
            }
            link = slot.newer;
        }
        None
    }
}
