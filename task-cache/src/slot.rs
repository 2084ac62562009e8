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

/// The neighbours of a slot. Apart from the slots, so that a use touches little memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    /// Towards the more recently used.
    pub(crate) newer: Link,
    /// Towards the less recently used; of dead slots: the next dead one.
    pub(crate) older: Link,
}

impl Links {
    pub(crate) const NONE: Self = Self { newer: Link::NONE, older: Link::NONE };
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

/// A list of slots in the order of their use.
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
    #[inline]
    pub(crate) fn push(&mut self, links: &mut [Links], at: usize) {
        let link = Link::to(at);
        match self.newest.at().and_then(|newest| links.get_mut(newest)) {
            Some(newest) => newest.newer = link,
            None => self.oldest = link,
        }
        if let Some(own) = links.get_mut(at) {
            *own = Links { newer: Link::NONE, older: self.newest };
        }
        self.newest = link;
    }

    /// Takes a slot of this list out.
    #[inline]
    pub(crate) fn unlink(&mut self, links: &mut [Links], at: usize) {
        let Some(Links { newer, older }) = links.get(at).copied() else {
            return;
        };
        match newer.at().and_then(|newer| links.get_mut(newer)) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match older.at().and_then(|older| links.get_mut(older)) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Returns the least recently used slot that may give way, with the time of its last use. Passes over those that
    /// are pinned.
    pub(crate) fn victim<P>(&self, slots: &[Slot<P>], links: &[Links]) -> Option<(u64, usize)> {
        let mut link = self.oldest;
        while let Some(at) = link.at() {
            let slot = slots.get(at)?;
            if slot.is_evictable() {
                return Some((slot.stamp, at));
            }
            link = links.get(at)?.newer;
        }
        None
    }
}
