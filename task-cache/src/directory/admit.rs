//! How recordings are let in, and what gives way to them.

use wire::ErrorCode;

use super::{Directory, id_of};
use crate::hash::KeyHash;
use crate::key::Key;
use crate::room::{Refusal, Tally, Usage};
use crate::slot::{Slot, SlotId, State};

impl<P: Copy, const SLOTS: usize, H: KeyHash> Directory<P, SLOTS, H> {
    /// Begins a recording of `units` (more or less: see [`reserve`](Self::reserve)). Entries that were not used for
    /// longest give way: of the same communicator where its quota is the limit, else of all.
    ///
    /// # Errors
    /// The refusal, which is counted; nothing has given way then.
    pub fn begin(&mut self, key: &Key, units: u32, release: &mut impl FnMut(P)) -> Result<SlotId, Refusal> {
        let outcome = self.claim(key, units, release);
        if let Err(refusal) = outcome {
            self.stats.refuse(refusal);
        }
        outcome
    }

    /// Changes the units of a recording under way to what it really takes.
    ///
    /// # Errors
    /// `CACHE_STALE` when it is no longer there, `CACHE_STATE` when it is published, the code of a refusal (counted)
    /// when there is no room: the recording is as it was then and should be abandoned.
    pub fn reserve(&mut self, id: SlotId, units: u32, release: &mut impl FnMut(P)) -> Result<(), ErrorCode> {
        let slot = self.entry(id)?;
        if !slot.is_recording() {
            return Err(ErrorCode::CACHE_STATE);
        }
        let (key, before) = (slot.key, slot.units);
        let more = Tally { units: units.saturating_sub(before).into(), slots: 0 };
        let whole = Tally::entry(units);
        if let Err(refusal) = self.make_room(key.instance, more, whole, release) {
            self.stats.refuse(refusal);
            return Err(refusal.code());
        }
        let slot = self.entry(id)?;
        slot.units = units;
        let account = slot.account;
        let less = Tally { units: before.saturating_sub(units).into(), slots: 0 };
        self.account(account, |usage| {
            for tally in [&mut usage.used, &mut usage.held] {
                *tally = *tally + more;
                tally.take(less);
            }
        });
        Ok(())
    }

    fn claim(&mut self, key: &Key, units: u32, release: &mut impl FnMut(P)) -> Result<SlotId, Refusal> {
        match self.state_of(key) {
            Some(State::Live) => return Err(Refusal::Present),
            Some(_) => return Err(Refusal::Busy),
            None => {}
        }
        let tally = Tally::entry(units);
        self.make_room(key.instance, tally, tally, release)?;
        // There is a slot, and with it an account: there are as many of both.
        let number = self.accounts.open(key.instance).ok_or(Refusal::Full)?;
        let at = self.take_slot().ok_or(Refusal::Full)?;
        self.clock += 1;
        let slot = self.slots.get_mut(at).ok_or(Refusal::Full)?;
        *slot = Slot {
            key: *key,
            generation: self.clock,
            units,
            state: State::Building,
            account: number,
            ..Slot::EMPTY
        };
        let id = id_of(at, slot);
        self.index.insert(H::hash(key), at);
        self.account(number, |usage| {
            (usage.used, usage.held) = (usage.used + tally, usage.held + tally);
        });
        Ok(id)
    }

    /// Makes room for `more` of a communicator's entry that is `whole` then. Nothing gives way unless that suffices.
    fn make_room(
        &mut self,
        instance: [u64; 2],
        more: Tally,
        whole: Tally,
        release: &mut impl FnMut(P),
    ) -> Result<(), Refusal> {
        let capacity = Tally { units: self.limits.units, slots: SLOTS as u64 };
        let quota = self.limits.quota();
        if !whole.within(capacity) {
            return Err(Refusal::TooLarge);
        }
        if !whole.within(quota) {
            return Err(Refusal::OverQuota);
        }
        let own = self.accounts.usage(instance);
        let kept = |usage: &Usage| if self.limits.evict { usage.held } else { usage.used };
        if !(kept(&own) + more).within(quota) || !(kept(&self.total) + more).within(capacity) {
            return Err(Refusal::Full);
        }
        while !(self.accounts.usage(instance).used + more).within(quota) {
            let victim = self.accounts.victim_of(instance, &self.slots, &self.links).ok_or(Refusal::Full)?;
            self.evict(victim, release);
        }
        while !(self.total.used + more).within(capacity) {
            let victim = self.accounts.victim(&self.slots, &self.links).ok_or(Refusal::Full)?;
            self.evict(victim, release);
        }
        Ok(())
    }

    /// A slot that holds nothing: one used before rather than a fresh one.
    fn take_slot(&mut self) -> Option<usize> {
        if let Some(at) = self.dead.at() {
            self.dead = self.links.get(at)?.older;
            return Some(at);
        }
        let at = self.fresh;
        self.fresh += usize::from(at < SLOTS);
        (at < SLOTS).then_some(at)
    }
}
