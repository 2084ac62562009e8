//! Random sequences of every call, against a list that does the same the slow way.

use core::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::{Strategy, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use task_cache::{Directory, Key, KeyHash, Limits, Refusal, SlotId, State, Tally};
use wire::ErrorCode;

use crate::support::{key, open};

both_hashes!(random_sequences_do_as_a_list_does);

const SLOTS: usize = 8;

#[derive(Clone, Debug)]
enum Call {
    Lookup(Key),
    Begin(Key, u32),
    Reserve(usize, u32),
    Verify(usize),
    Publish(usize),
    Abandon(usize),
    Pin(usize),
    Unpin(usize),
    Remove(Key),
    Clear(u64),
    ClearEpochBelow(u64, u32),
    ClearAll,
    SetLimits(Limits),
}

/// Numbers of calls that take an id are taken modulo the ids there were.
fn call() -> impl Strategy<Value = Call> {
    let keys = || {
        (0..3_u64, 1..3_u32, 0..4_u64).prop_map(|(instance, epoch, count)| key([instance, 0], epoch, count))
    };
    let ids = || 0..1000_usize;
    let limits =
        (0..24_u64, 0..16_u64, 0..8_u64, 0..8_u32).prop_map(|(units, quota_units, quota_slots, evict)| {
            Limits { units, quota_units, quota_slots, evict: evict > 0 }
        });
    prop_oneof![
        8 => keys().prop_map(Call::Lookup),
        8 => (keys(), 0..6_u32).prop_map(|(key, units)| Call::Begin(key, units)),
        2 => (ids(), 0..8_u32).prop_map(|(id, units)| Call::Reserve(id, units)),
        8 => ids().prop_map(Call::Verify),
        8 => ids().prop_map(Call::Publish),
        1 => ids().prop_map(Call::Abandon),
        3 => ids().prop_map(Call::Pin),
        3 => ids().prop_map(Call::Unpin),
        1 => keys().prop_map(Call::Remove),
        1 => (0..3_u64).prop_map(Call::Clear),
        1 => (0..3_u64, 1..4_u32).prop_map(|(instance, epoch)| Call::ClearEpochBelow(instance, epoch)),
        1 => (0..1_u8).prop_map(|_| Call::ClearAll),
        1 => limits.prop_map(Call::SetLimits),
    ]
}

#[derive(Clone, Debug)]
struct Entry {
    id: SlotId,
    key: Key,
    units: u64,
    state: State,
    pins: u32,
    payload: Option<u32>,
}

impl Entry {
    fn is_recording(&self) -> bool {
        matches!(self.state, State::Building | State::Verified)
    }

    fn gives_way(&self) -> bool {
        self.state == State::Live && self.pins == 0
    }
}

/// The list: least recently used first.
struct Model {
    entries: Vec<Entry>,
    limits: Limits,
    released: Vec<u32>,
}

impl Model {
    fn serving(&self, key: &Key) -> Option<usize> {
        self.entries.iter().position(|entry| entry.state == State::Live && entry.key == *key)
    }

    fn by_id(&mut self, id: SlotId) -> Result<&mut Entry, ErrorCode> {
        self.entries.iter_mut().find(|entry| entry.id == id).ok_or(ErrorCode::CACHE_STALE)
    }

    fn sum(&self, of: impl Fn(&Entry) -> bool) -> Tally {
        let mut sum = Tally::default();
        for entry in self.entries.iter().filter(|entry| of(entry)) {
            sum.units += entry.units;
            sum.slots += 1;
        }
        sum
    }

    fn leave(&mut self, at: usize) {
        if self.entries[at].pins > 0 {
            self.entries[at].state = State::Draining;
        } else {
            self.released.extend(self.entries.remove(at).payload);
        }
    }

    fn clear(&mut self, leaves: impl Fn(&Key) -> bool) {
        for at in (0..self.entries.len()).rev() {
            if self.entries[at].state != State::Draining && leaves(&self.entries[at].key) {
                self.leave(at);
            }
        }
    }

    /// Room for `more` of an entry that is `units` then.
    fn room(&mut self, instance: [u64; 2], more: Tally, units: u64) -> Result<(), Refusal> {
        let limits = self.limits;
        if units > limits.units {
            return Err(Refusal::TooLarge);
        }
        if units > limits.quota_units || limits.quota_slots == 0 {
            return Err(Refusal::OverQuota);
        }
        let fits =
            |sum: Tally, units, slots| sum.units + more.units <= units && sum.slots + more.slots <= slots;
        let own = move |entry: &Entry| entry.key.instance() == instance;
        let fits_own = |sum| fits(sum, limits.quota_units, limits.quota_slots);
        let fits_all = |sum| fits(sum, limits.units, SLOTS as u64);
        let stays = |entry: &Entry| !limits.evict || !entry.gives_way();
        if !fits_own(self.sum(|entry| own(entry) && stays(entry))) || !fits_all(self.sum(stays)) {
            return Err(Refusal::Full);
        }
        while !fits_own(self.sum(own)) {
            let at = self.entries.iter().position(|entry| own(entry) && entry.gives_way());
            self.leave(at.expect("one gives way"));
        }
        while !fits_all(self.sum(|_| true)) {
            let at = self.entries.iter().position(Entry::gives_way);
            self.leave(at.expect("one gives way"));
        }
        Ok(())
    }
}

struct Pair<H> {
    directory: Directory<u32, SLOTS, H>,
    model: Model,
    ids: Vec<SlotId>,
    published: u32,
    released: Vec<u32>,
}

impl<H: KeyHash> Pair<H> {
    fn new() -> Self {
        let mut directory = Directory::new();
        directory.set_limits(open(12));
        let model = Model { entries: Vec::new(), limits: open(12), released: Vec::new() };
        Self { directory, model, ids: Vec::new(), published: 0, released: Vec::new() }
    }

    /// Both do it and agree.
    fn run(&mut self, call: &Call) {
        let (directory, model) = (&mut self.directory, &mut self.model);
        let mut released = Vec::new();
        let mut release = |payload| released.push(payload);
        let pick = |number: usize| self.ids.get(number % self.ids.len().max(1)).copied();
        match *call {
            Call::Lookup(key) => {
                let expected = model.serving(&key).map(|at| model.entries.remove(at));
                let hit = directory.lookup(&key);
                assert_eq!(hit.map(|hit| hit.id), expected.as_ref().map(|entry| entry.id));
                assert_eq!(hit.map(|hit| hit.payload), expected.as_ref().and_then(|entry| entry.payload));
                // The one entry that serves it is found again, whatever else was remembered is not.
                for &id in &self.ids {
                    assert_eq!(directory.again(id, &key), hit.is_some_and(|hit| hit.id == id));
                }
                model.entries.extend(expected);
            }
            Call::Begin(key, units) => {
                let outcome = directory.begin(&key, units, &mut release);
                let known =
                    model.entries.iter().find(|entry| entry.key == key && entry.state != State::Draining);
                let expected = match known.map(|entry| entry.state) {
                    Some(State::Live) => Err(Refusal::Present),
                    Some(_) => Err(Refusal::Busy),
                    None => model.room(key.instance(), Tally { units: units.into(), slots: 1 }, units.into()),
                };
                assert_eq!(outcome.map(|_| ()), expected);
                if let Ok(id) = outcome {
                    let (units, state) = (units.into(), State::Building);
                    model.entries.push(Entry { id, key, units, state, pins: 0, payload: None });
                    self.ids.push(id);
                }
            }
            Call::Reserve(number, units) => {
                let Some(id) = pick(number) else { return };
                let whole = u64::from(units);
                let expected = model.by_id(id).map(|entry| entry.clone()).and_then(|entry| {
                    if !entry.is_recording() {
                        return Err(ErrorCode::CACHE_STATE);
                    }
                    let more = Tally { units: whole.saturating_sub(entry.units), slots: 0 };
                    model.room(entry.key.instance(), more, whole)?;
                    model.by_id(id).expect("it does not give way").units = whole;
                    Ok(())
                });
                assert_eq!(directory.reserve(id, units, &mut release), expected);
            }
            Call::Verify(number) => {
                let Some(id) = pick(number) else { return };
                let expected = model.by_id(id).and_then(|entry| match entry.state {
                    State::Building => {
                        entry.state = State::Verified;
                        Ok(())
                    }
                    _ => Err(ErrorCode::CACHE_STATE),
                });
                assert_eq!(directory.verify(id), expected);
            }
            Call::Publish(number) => {
                let Some(id) = pick(number) else { return };
                let payload = self.published;
                let expected = model.by_id(id).and_then(|entry| match entry.state {
                    State::Verified => {
                        (entry.state, entry.payload) = (State::Live, Some(payload));
                        Ok(())
                    }
                    _ => Err(ErrorCode::CACHE_STATE),
                });
                if expected.is_ok() {
                    self.published += 1;
                    let at = model.entries.iter().position(|entry| entry.id == id).expect("just found");
                    let entry = model.entries.remove(at);
                    model.entries.push(entry);
                }
                assert_eq!(directory.publish(id, payload), expected);
            }
            Call::Abandon(number) => {
                let Some(id) = pick(number) else { return };
                let at = model.entries.iter().position(|entry| entry.id == id && entry.is_recording());
                at.into_iter().for_each(|at| model.leave(at));
                assert_eq!(directory.abandon(id), at.is_some());
            }
            Call::Pin(number) => {
                let Some(id) = pick(number) else { return };
                let expected = model.by_id(id).and_then(|entry| match entry.state {
                    State::Live => {
                        entry.pins += 1;
                        Ok(())
                    }
                    _ => Err(ErrorCode::CACHE_STATE),
                });
                assert_eq!(directory.pin(id).map(drop), expected);
            }
            Call::Unpin(number) => {
                let Some(id) = pick(number) else { return };
                let expected = model.by_id(id).and_then(|entry| match entry.pins {
                    0 => Err(ErrorCode::CACHE_STATE),
                    _ => {
                        entry.pins -= 1;
                        Ok(())
                    }
                });
                let drained =
                    |entry: &Entry| entry.id == id && entry.pins == 0 && entry.state == State::Draining;
                let at = model.entries.iter().position(drained);
                at.into_iter().for_each(|at| model.leave(at));
                assert_eq!(directory.unpin(id, &mut release), expected);
            }
            Call::Remove(key) => {
                let found = |entry: &Entry| entry.key == key && entry.state != State::Draining;
                let at = model.entries.iter().position(found);
                at.into_iter().for_each(|at| model.leave(at));
                assert_eq!(directory.remove(&key, &mut release), at.is_some());
            }
            Call::Clear(instance) => {
                directory.clear([instance, 0], &mut release);
                model.clear(|key| key.instance() == [instance, 0]);
            }
            Call::ClearEpochBelow(instance, epoch) => {
                directory.clear_epoch_below([instance, 0], epoch, &mut release);
                model.clear(|key| key.instance() == [instance, 0] && key.epoch() < epoch);
            }
            Call::ClearAll => {
                directory.clear_all(&mut release);
                model.clear(|_| true);
            }
            Call::SetLimits(limits) => {
                directory.set_limits(limits);
                model.limits = limits;
            }
        }
        self.released.append(&mut released);
    }

    fn check(&mut self) {
        self.released.sort_unstable();
        self.model.released.sort_unstable();
        assert_eq!(self.released, self.model.released, "each payload given back once, when it was due");
        assert_eq!(self.directory.used(), self.model.sum(|_| true));
        for instance in 0..3 {
            let instance = [instance, 0];
            assert_eq!(
                self.directory.used_by(instance),
                self.model.sum(|entry| entry.key.instance() == instance)
            );
        }
        for id in &self.ids {
            let state = self.model.by_id(*id).map_or(State::Dead, |entry| entry.state);
            assert_eq!(self.directory.state(*id), state);
        }
        let stats = self.directory.stats();
        assert_eq!(stats.inserted, u64::from(self.published));
    }

    /// Ends everything: every payload that was published comes back, once.
    fn end(mut self) {
        self.run(&Call::ClearAll);
        for number in 0..self.ids.len() {
            while self.model.by_id(self.ids[number]).is_ok_and(|entry| entry.pins > 0) {
                self.run(&Call::Unpin(number));
            }
        }
        self.check();
        assert_eq!(self.released, (0..self.published).collect::<Vec<_>>());
        assert_eq!(self.directory.used(), Tally::default());
    }
}

fn random_sequences_do_as_a_list_does<H: KeyHash>() {
    let seen = Cell::new([0; 4]);
    let mut runner = TestRunner::new(Config { cases: 1000, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&vec(call(), 1..200), |calls| {
        let mut pair = Pair::<H>::new();
        for call in &calls {
            pair.run(call);
            pair.check();
        }
        let stats = pair.directory.stats();
        let [hits, evicted, full, inserted] = seen.get();
        seen.set([
            hits + stats.hits,
            evicted + stats.evicted,
            full + stats.full(),
            inserted + stats.inserted,
        ]);
        pair.end();
        Ok(())
    });
    outcome.expect("they agree");
    assert!(seen.get().iter().all(|count| *count > 100), "all of it happened: {seen:?}");
}
