//! The directory: keys to recordings, with everything that decides which of them stay.
//!
//! An entry goes Empty > Building > Verified > Live > Draining > Dead. Until it is published, nothing finds it but a
//! second recorder of the same key, which is refused; whatever goes wrong before leaves nothing that can hit. What is
//! taken away while a replay reads it drains: it serves nobody any more and is released when the last reader is done.
//!
//! The `release` that many calls take is called once for each published payload that is given back.

mod admit;
mod remove;

use core::marker::PhantomData;

use wire::ErrorCode;

use crate::account::Accounts;
use crate::hash::{Chosen, KeyHash};
use crate::index::Index;
use crate::key::Key;
use crate::reason::Reasons;
use crate::room::{Limits, Tally, Usage};
use crate::slot::{Hit, Link, Links, Slot, SlotId, State};
use crate::stats::Stats;

/// Which recording serves which key: at most `SLOTS` (a power of two up to 32,768) recordings with handles `P`.
///
/// One lookup costs the same whatever is stored and was stored before.
#[derive(Clone, Debug)]
pub struct Directory<P, const SLOTS: usize, H = Chosen> {
    slots: [Slot<P>; SLOTS],
    links: [Links; SLOTS],
    index: Index<SLOTS>,
    accounts: Accounts<SLOTS>,
    total: Usage,
    limits: Limits,
    /// Dead slots, linked by their `older`.
    dead: Link,
    /// Slots from here on are empty.
    fresh: usize,
    /// Time, in uses: stamps and generations are taken from it.
    clock: u64,
    stats: Stats,
    hash: PhantomData<H>,
}

impl<P: Copy, const SLOTS: usize, H: KeyHash> Default for Directory<P, SLOTS, H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Copy, const SLOTS: usize, H: KeyHash> Directory<P, SLOTS, H> {
    /// Returns an empty directory that may hold nothing: see [`set_limits`](Self::set_limits), and
    /// [`defaults`](crate::defaults) for limits. All its bits are zero where those of an empty `Option<P>` are.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(SLOTS.is_power_of_two() && SLOTS <= 1 << 15, "a power of two up to 32,768") };
        Self {
            slots: [const { Slot::EMPTY }; SLOTS],
            links: [Links::NONE; SLOTS],
            index: Index::new(),
            accounts: Accounts::new(),
            total: Usage::NONE,
            limits: Limits::NONE,
            dead: Link::NONE,
            fresh: 0,
            clock: 0,
            stats: Stats::ZERO,
            hash: PhantomData,
        }
    }

    /// Sets the limits. Entries beyond them give way when the next one is begun.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns the limits.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns what all entries use, recordings under way and draining ones included.
    #[must_use]
    pub const fn used(&self) -> Tally {
        self.total.used
    }

    /// Returns what the entries of one communicator use.
    #[must_use]
    pub fn used_by(&self, instance: [u64; 2]) -> Tally {
        self.accounts.usage(instance).used
    }

    /// Returns the recording that serves a key, if there is one. It becomes the most recently used.
    #[inline]
    pub fn lookup(&mut self, key: &Key) -> Option<Hit<P>> {
        let found = self.find(key).and_then(|at| Some((at, self.hit(at)?)));
        if let Some((at, hit)) = found {
            self.touch(at);
            self.stats.hits += 1;
            return Some(hit);
        }
        self.stats.misses += 1;
        None
    }

    /// Like [`lookup`](Self::lookup) for a key that was found in this entry before: returns whether the entry still serves
    /// it. Nothing is hashed. `false` counts nothing; the key may be in another entry.
    #[inline]
    pub fn again(&mut self, id: SlotId, key: &Key) -> bool {
        let serves = |slot: &Slot<P>| slot.generation == id.generation && slot.state == State::Live;
        let found = self.slots.get(id.index()).is_some_and(|slot| serves(slot) && slot.key == *key);
        if found {
            self.touch(id.index());
            self.stats.hits += 1;
        }
        found
    }

    /// Like [`lookup`](Self::lookup), but counts nothing and leaves the order of use.
    #[must_use]
    pub fn peek(&self, key: &Key) -> Option<Hit<P>> {
        self.hit(self.find(key)?)
    }

    /// Returns what is recorded in the entries that serve launches.
    pub fn payloads(&self) -> impl Iterator<Item = P> {
        let live = self.slots.iter().filter(|slot| slot.state == State::Live);
        live.filter_map(|slot| slot.payload)
    }

    /// Counts an operation that is not looked up, for reasons that are not none.
    pub fn bypass(&mut self, reasons: Reasons) {
        self.stats.bypass(reasons);
    }

    /// Marks a recording as checked.
    ///
    /// # Errors
    /// `CACHE_STALE` when it is no longer there (cleared meanwhile), `CACHE_STATE` when it is not being built.
    pub fn verify(&mut self, id: SlotId) -> Result<(), ErrorCode> {
        let slot = self.entry(id)?;
        if slot.state != State::Building {
            return Err(ErrorCode::CACHE_STATE);
        }
        slot.state = State::Verified;
        Ok(())
    }

    /// Lets a verified recording serve its key.
    ///
    /// # Errors
    /// As [`verify`](Self::verify). The payload then stays the caller's: `release` will not be called for it.
    pub fn publish(&mut self, id: SlotId, payload: P) -> Result<(), ErrorCode> {
        self.clock += 1;
        let stamp = self.clock;
        let slot = self.entry(id)?;
        if slot.state != State::Verified {
            return Err(ErrorCode::CACHE_STATE);
        }
        (slot.state, slot.payload, slot.stamp) = (State::Live, Some(payload), stamp);
        let (account, tally) = (slot.account, Tally::entry(slot.units));
        self.account(account, |usage| usage.held.take(tally));
        if let Some(account) = self.accounts.get_mut(account) {
            account.live.push(&mut self.links, id.index());
        }
        self.stats.inserted += 1;
        Ok(())
    }

    /// Holds an entry for a replay, and returns what is recorded: it will not give way, and if it is taken away it drains.
    ///
    /// # Errors
    /// `CACHE_STALE` when it is no longer there, `CACHE_STATE` when it does not serve launches.
    pub fn pin(&mut self, id: SlotId) -> Result<P, ErrorCode> {
        let slot = self.entry(id)?;
        let pins = slot.pins.checked_add(1).filter(|_| slot.state == State::Live);
        let (Some(pins), Some(payload)) = (pins, slot.payload) else { return Err(ErrorCode::CACHE_STATE) };
        slot.pins = pins;
        if pins == 1 {
            let (account, tally) = (slot.account, Tally::entry(slot.units));
            self.account(account, |usage| usage.held = usage.held + tally);
        }
        Ok(payload)
    }

    /// Ends a pin. The last one of a draining entry releases it.
    ///
    /// # Errors
    /// `CACHE_STALE` when it is no longer there, `CACHE_STATE` when it is not pinned.
    pub fn unpin(&mut self, id: SlotId, release: &mut impl FnMut(P)) -> Result<(), ErrorCode> {
        let slot = self.entry(id)?;
        slot.pins = slot.pins.checked_sub(1).ok_or(ErrorCode::CACHE_STATE)?;
        let (last, state) = (slot.pins == 0, slot.state);
        let (account, tally) = (slot.account, Tally::entry(slot.units));
        if last && state == State::Draining {
            self.reclaim(id.index(), release);
        } else if last {
            self.account(account, |usage| usage.held.take(tally));
        }
        Ok(())
    }

    /// Returns the state of an entry; `Dead` for one that is no longer there.
    #[must_use]
    pub fn state(&self, id: SlotId) -> State {
        let slot = self.slots.get(id.index()).filter(|slot| slot.generation == id.generation);
        slot.map_or(State::Dead, |slot| slot.state)
    }

    /// Returns the recording of a key that is under way, if there is one.
    #[must_use]
    pub fn recording(&self, key: &Key) -> Option<SlotId> {
        let at = self.find(key)?;
        let slot = self.slots.get(at).filter(|slot| slot.is_recording())?;
        Some(id_of(at, slot))
    }

    /// The state of the entry that has a key: building, verified or live.
    pub(crate) fn state_of(&self, key: &Key) -> Option<State> {
        self.slots.get(self.find(key)?).map(|slot| slot.state)
    }

    /// Keys and stamps of the entries that serve launches.
    pub(crate) fn live(&self) -> impl Iterator<Item = (Key, u64)> {
        let live = self.slots.iter().filter(|slot| slot.state == State::Live);
        live.map(|slot| (slot.key, slot.stamp))
    }

    #[inline]
    fn find(&self, key: &Key) -> Option<usize> {
        self.index.find(H::hash(key), |at| self.slots.get(at).is_some_and(|slot| slot.key == *key))
    }

    #[inline]
    fn hit(&self, at: usize) -> Option<Hit<P>> {
        let slot = self.slots.get(at).filter(|slot| slot.state == State::Live)?;
        Some(Hit { id: id_of(at, slot), payload: slot.payload? })
    }

    #[inline]
    fn touch(&mut self, at: usize) {
        self.clock += 1;
        let Some(slot) = self.slots.get_mut(at) else {
            return;
        };
        slot.stamp = self.clock;
        let Some(account) = self.accounts.get_mut(slot.account) else {
            return;
        };
        if !account.live.starts_with(at) {
            account.live.unlink(&mut self.links, at);
            account.live.push(&mut self.links, at);
        }
    }

    fn entry(&mut self, id: SlotId) -> Result<&mut Slot<P>, ErrorCode> {
        let there = |slot: &&mut Slot<P>| {
            slot.generation == id.generation && !matches!(slot.state, State::Empty | State::Dead)
        };
        self.slots.get_mut(id.index()).filter(there).ok_or(ErrorCode::CACHE_STALE)
    }

    /// Changes what a communicator uses, and the total with it.
    fn account(&mut self, number: u16, change: impl Fn(&mut Usage)) {
        change(&mut self.total);
        if let Some(account) = self.accounts.get_mut(number) {
            change(&mut account.usage);
        }
    }
}

#[inline]
fn id_of<P>(at: usize, slot: &Slot<P>) -> SlotId {
    // CAST: there are at most 32,768 slots.
    SlotId { index: u16::try_from(at).unwrap_or(u16::MAX), generation: slot.generation }
}
