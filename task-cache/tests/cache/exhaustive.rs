//! All sequences of eight actions over two communicators against a list of what must be found: no stale hit, nothing
//! lost, nothing released twice.
//!
//! An action that cannot do anything (a launch on a communicator that is not there) ends its branch: what could follow
//! is a shorter sequence that is tried as well.

use task_cache::{Directory, Key, KeyHash, Limits, Refusal, SlotId, Tally};
use wire::ErrorCode;

use crate::support::{key, record};

both_hashes!(all_sequences_of_eight_actions);

const DEPTH: usize = 8;
const LIMITS: Limits = Limits { units: 3, quota_units: 2, quota_slots: 2, evict: true };
/// Needs room now and then.
const OTHER: [u64; 2] = [9, 9];

#[derive(Clone, Copy, Debug)]
enum Action {
    /// Create it, under its old name, or destroy it.
    Life(usize),
    Launch(usize, u64),
    /// A launch whose recording fails.
    Fail(usize),
    /// Another communicator needs room for one more.
    Evict,
    Clear(usize),
    /// The epoch rises.
    Resume(usize),
    /// Begin a replay and leave it in flight, or end it.
    Pin(usize),
}

const ACTIONS: [Action; 12] = [
    Action::Life(0),
    Action::Life(1),
    Action::Launch(0, 0),
    Action::Launch(0, 1),
    Action::Launch(1, 0),
    Action::Fail(0),
    Action::Evict,
    Action::Clear(0),
    Action::Resume(0),
    Action::Resume(1),
    Action::Pin(0),
    Action::Pin(1),
];

/// A published recording that was not released.
#[derive(Clone, Copy, Debug)]
struct Recording {
    key: Key,
    payload: u32,
    live: bool,
    pinned: bool,
}

/// What must be true of the directory.
#[derive(Clone)]
struct Expected {
    /// In the order of their last use.
    recordings: Vec<Recording>,
    published: u32,
}

impl Expected {
    fn find(&self, key: &Key) -> Option<Recording> {
        self.recordings.iter().copied().find(|one| one.live && one.key == *key)
    }

    /// The payload is given back: it must be one that was not yet.
    fn release(&mut self, payload: u32) {
        let at = self
            .recordings
            .iter()
            .position(|one| one.payload == payload)
            .expect("released twice or never published");
        let gone = self.recordings.remove(at);
        assert!(!gone.pinned, "{gone:?} is being replayed");
    }

    /// What these keys recorded serves nobody any more, and is released unless a replay reads it.
    fn take_away(&mut self, leaves: impl Fn(&Key) -> bool) -> Vec<u32> {
        let mut gone = Vec::new();
        self.recordings.retain_mut(|one| {
            let leaves = one.live && leaves(&one.key);
            one.live &= !leaves;
            if leaves && !one.pinned {
                gone.push(one.payload);
            }
            !leaves || one.pinned
        });
        gone.sort_unstable();
        gone
    }

    /// The least recently used that may give way.
    fn victim(&self, of: Option<[u64; 2]>) -> Option<u32> {
        let gives_way = |one: &&Recording| {
            one.live && !one.pinned && of.is_none_or(|instance| one.key.instance() == instance)
        };
        self.recordings.iter().find(gives_way).map(|one| one.payload)
    }
}

#[derive(Clone)]
struct World<H> {
    directory: Directory<u32, 4, H>,
    expected: Expected,
    /// Epoch of each communicator that is there.
    epochs: [Option<u32>; 2],
    /// How often each was created.
    lives: [u64; 2],
    pinned: [Option<(SlotId, u32)>; 2],
    /// Every key launched so far.
    launched: Vec<Key>,
}

impl<H: KeyHash + Clone> World<H> {
    fn new() -> Self {
        let mut directory = Directory::new();
        directory.set_limits(LIMITS);
        let expected = Expected { recordings: Vec::new(), published: 0 };
        Self {
            directory,
            expected,
            epochs: [None; 2],
            lives: [0; 2],
            pinned: [None; 2],
            launched: Vec::new(),
        }
    }

    fn instance(&self, of: usize) -> [u64; 2] {
        [of as u64, self.lives[of]]
    }

    /// Does it; returns whether it could.
    fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Life(of) if self.epochs[of].is_none() => {
                self.lives[of] += 1;
                self.epochs[of] = Some(1);
                true
            }
            Action::Life(of) => {
                self.clear(of);
                self.epochs[of] = None;
                true
            }
            Action::Launch(of, count) => self.epochs[of].map(|epoch| self.launch(of, epoch, count)).is_some(),
            Action::Fail(of) => self.epochs[of].map(|epoch| self.fail(of, epoch)).is_some(),
            Action::Evict => self.press(),
            Action::Clear(of) => self.epochs[of].map(|_| self.clear(of)).is_some(),
            Action::Resume(of) => self.epochs[of].map(|epoch| self.resume(of, epoch + 1)).is_some(),
            Action::Pin(of) => self.toggle_pin(of),
        }
    }

    fn launch(&mut self, of: usize, epoch: u32, count: u64) {
        let key = key(self.instance(of), epoch, count);
        let (hit, expected) = (self.directory.lookup(&key), self.expected.find(&key));
        assert_eq!(hit.map(|hit| hit.payload), expected.map(|one| one.payload), "{key:?}");
        if let Some(one) = expected {
            self.expected.recordings.retain(|other| other.payload != one.payload);
            self.expected.recordings.push(one);
            return;
        }
        let payload = self.expected.published;
        let begin = |directory: &mut Directory<u32, 4, H>, key: &Key, released: &mut Vec<u32>| {
            record(directory, key, 1, payload, &mut |gone| released.push(gone))
        };
        if self.begin(&key, begin) {
            self.expected.published += 1;
            self.expected.recordings.push(Recording { key, payload, live: true, pinned: false });
        }
        if !self.launched.contains(&key) {
            self.launched.push(key);
        }
    }

    fn fail(&mut self, of: usize, epoch: u32) {
        let key = key(self.instance(of), epoch, 2);
        let mut begun = None;
        self.begin(&key, |directory, key, released| {
            let id = directory.begin(key, 1, &mut |gone| released.push(gone))?;
            begun = Some(id);
            Ok(id)
        });
        if let Some(id) = begun {
            assert!(self.directory.abandon(id));
            assert_eq!(self.directory.publish(id, u32::MAX), Err(ErrorCode::CACHE_STALE));
        }
    }

    /// Begins an entry of one unit, and what `begin` does then; predicts whether it may and what gives way. Returns
    /// whether it could.
    fn begin(
        &mut self,
        key: &Key,
        begin: impl FnOnce(&mut Directory<u32, 4, H>, &Key, &mut Vec<u32>) -> Result<SlotId, Refusal>,
    ) -> bool {
        let mut released = Vec::new();
        let outcome = begin(&mut self.directory, key, &mut released);
        let instance = key.instance();
        let count = |expected: &Expected, of: &dyn Fn(&Recording) -> bool| {
            expected.recordings.iter().filter(|one| of(one)).count() as u64
        };
        let own = |one: &Recording| one.key.instance() == instance;
        let held = count(&self.expected, &|one| one.pinned && own(one));
        if held >= LIMITS.quota_units || count(&self.expected, &|one| one.pinned) >= LIMITS.units {
            assert_eq!((outcome, released), (Err(Refusal::Full), vec![]));
            return false;
        }
        assert!(outcome.is_ok());
        let mut victims = Vec::new();
        while count(&self.expected, &own) >= LIMITS.quota_units {
            victims.push(self.evict(Some(instance)));
        }
        while count(&self.expected, &|_| true) >= LIMITS.units {
            victims.push(self.evict(None));
        }
        assert_eq!(released, victims);
        true
    }

    fn evict(&mut self, of: Option<[u64; 2]>) -> u32 {
        let victim = self.expected.victim(of).expect("something gives way");
        self.expected.release(victim);
        victim
    }

    /// Another communicator takes what is free and one more, and gives it back.
    fn press(&mut self) -> bool {
        let used = self.expected.recordings.len() as u64;
        let need = LIMITS.units - used + 1;
        if need > LIMITS.quota_units || self.expected.victim(None).is_none() {
            return false;
        }
        let victim = self.evict(None);
        let mut released = Vec::new();
        let need = u32::try_from(need).expect("few");
        let id = self.directory.begin(&key(OTHER, 1, 0), need, &mut |payload| released.push(payload));
        assert_eq!(released, [victim]);
        assert!(self.directory.abandon(id.expect("one gives way")));
        true
    }

    fn clear(&mut self, of: usize) {
        let instance = self.instance(of);
        let mut released = Vec::new();
        self.directory.clear(instance, &mut |payload| released.push(payload));
        released.sort_unstable();
        assert_eq!(released, self.expected.take_away(|key| key.instance() == instance));
    }

    fn resume(&mut self, of: usize, epoch: u32) {
        let instance = self.instance(of);
        let mut released = Vec::new();
        self.directory.clear_epoch_below(instance, epoch, &mut |payload| released.push(payload));
        released.sort_unstable();
        let leaves = |key: &Key| key.instance() == instance && key.epoch() < epoch;
        assert_eq!(released, self.expected.take_away(leaves));
        self.epochs[of] = Some(epoch);
    }

    /// Ends the replay in flight, or begins one of what was launched with count 0.
    fn toggle_pin(&mut self, of: usize) -> bool {
        if let Some((id, payload)) = self.pinned[of].take() {
            let place = self.expected.recordings.iter_mut().find(|one| one.payload == payload);
            let one = place.expect("what is pinned is not released");
            one.pinned = false;
            let drained = !one.live;
            let mut released = Vec::new();
            self.directory.unpin(id, &mut |payload| released.push(payload)).expect("it is pinned");
            assert_eq!(released, if drained { vec![payload] } else { vec![] });
            if drained {
                self.expected.release(payload);
            }
            return true;
        }
        let Some(epoch) = self.epochs[of] else {
            return false;
        };
        let Some(hit) = self.directory.peek(&key(self.instance(of), epoch, 0)) else {
            return false;
        };
        self.directory.pin(hit.id).expect("it is live");
        let place = self.expected.recordings.iter_mut().find(|one| one.payload == hit.payload);
        place.expect("it is expected").pinned = true;
        self.pinned[of] = Some((hit.id, hit.payload));
        true
    }

    /// Exactly what is expected hits, and the sums are right.
    fn check(&self) {
        for key in &self.launched {
            let found = self.directory.peek(key).map(|hit| hit.payload);
            assert_eq!(found, self.expected.find(key).map(|one| one.payload), "{key:?}");
        }
        let entries = self.expected.recordings.len() as u64;
        assert_eq!(self.directory.used(), Tally { units: entries, slots: entries });
    }

    /// Ends everything: nothing may be left.
    fn end(mut self) {
        for of in 0..2 {
            if self.pinned[of].is_some() {
                self.toggle_pin(of);
            }
        }
        let expected = &mut self.expected;
        self.directory.clear_all(&mut |payload| expected.release(payload));
        assert!(expected.recordings.is_empty());
        assert_eq!(self.directory.used(), Tally::default());
    }
}

/// Tries everything that may follow; returns how many sequences there were.
fn follow<H: KeyHash + Clone>(world: &World<H>, depth: usize, path: &mut Vec<Action>) -> u64 {
    if depth == 0 {
        world.clone().end();
        return 1;
    }
    let mut sequences = 0;
    for action in ACTIONS {
        let mut next = world.clone();
        path.push(action);
        if next.act(action) {
            next.check();
            sequences += follow(&next, depth - 1, path);
        }
        path.pop();
    }
    sequences
}

fn all_sequences_of_eight_actions<H: KeyHash + Clone>() {
    let mut path = Vec::new();
    let sequences = follow(&World::<H>::new(), DEPTH, &mut path);
    println!("{sequences} sequences");
    assert!(sequences > 1_000_000, "{sequences}");
}
