//! How entries leave the directory.

use super::Directory;
use crate::hash::KeyHash;
use crate::key::Key;
use crate::room::Tally;
use crate::slot::{Link, Slot, SlotId, State};

impl<P: Copy, const SLOTS: usize, H: KeyHash> Directory<P, SLOTS, H> {
    /// Gives up a recording under way and returns whether there was one. Of a published entry it takes nothing away.
    pub fn abandon(&mut self, id: SlotId) -> bool {
        let recording = self.entry(id).is_ok_and(|slot| slot.is_recording());
        if recording {
            self.stats.abandoned += 1;
            self.retire(id.index(), &mut |_| ());
        }
        recording
    }

    /// Takes away what has this key, a recording under way included, and returns whether there was anything.
    pub fn remove(&mut self, key: &Key, release: &mut impl FnMut(P)) -> bool {
        let found = self.find(key);
        if let Some(at) = found {
            self.stats.cleared += 1;
            self.retire(at, release);
        }
        found.is_some()
    }

    /// Takes away everything of a communicator.
    pub fn clear(&mut self, instance: [u64; 2], release: &mut impl FnMut(P)) {
        self.clear_where(|key| key.instance == instance, release);
    }

    /// Takes away everything of a communicator that is of an epoch before `epoch`.
    pub fn clear_epoch_below(&mut self, instance: [u64; 2], epoch: u32, release: &mut impl FnMut(P)) {
        self.clear_where(|key| key.instance == instance && key.epoch() < epoch, release);
    }

    /// Takes away everything.
    pub fn clear_all(&mut self, release: &mut impl FnMut(P)) {
        self.clear_where(|_| true, release);
    }

    fn clear_where(&mut self, leaves: impl Fn(&Key) -> bool, release: &mut impl FnMut(P)) {
        for at in 0..self.fresh {
            let found = |slot: &&Slot<P>| {
                matches!(slot.state, State::Building | State::Verified | State::Live) && leaves(&slot.key)
            };
            if self.slots.get(at).filter(found).is_some() {
                self.stats.cleared += 1;
                self.retire(at, release);
            }
        }
    }

    pub(super) fn evict(&mut self, at: usize, release: &mut impl FnMut(P)) {
        self.stats.evicted += 1;
        self.retire(at, release);
    }

    /// Takes an entry out of sight: a pinned one drains, any other is reclaimed.
    fn retire(&mut self, at: usize, release: &mut impl FnMut(P)) {
        let Some(slot) = self.slots.get_mut(at) else {
            return;
        };
        let (key, number, live) = (slot.key, slot.account, slot.state == State::Live);
        let pinned = slot.pins > 0;
        slot.state = State::Draining;
        self.index.remove(H::hash(&key), at);
        if live {
            if let Some(account) = self.accounts.get_mut(number) {
                account.live.unlink(&mut self.links, at);
            }
            if !pinned {
                // Reclaiming takes from both what is used and what is held.
                self.hold(at);
            }
        }
        if !pinned {
            self.reclaim(at, release);
        }
    }

    /// Counts an entry among those that are held.
    fn hold(&mut self, at: usize) {
        if let Some((number, tally)) = self.slots.get(at).map(|slot| (slot.account, Tally::entry(slot.units)))
        {
            self.account(number, |usage| usage.held = usage.held + tally);
        }
    }

    /// Gives back what a held entry holds, and its slot.
    pub(super) fn reclaim(&mut self, at: usize, release: &mut impl FnMut(P)) {
        let Some(slot) = self.slots.get_mut(at) else {
            return;
        };
        let (number, tally, payload) = (slot.account, Tally::entry(slot.units), slot.payload.take());
        slot.state = State::Dead;
        if let Some(links) = self.links.get_mut(at) {
            links.older = self.dead;
        }
        self.dead = Link::to(at);
        self.account(number, |usage| {
            usage.used.take(tally);
            usage.held.take(tally);
        });
        if let Some(payload) = payload {
            release(payload);
        }
    }
}
