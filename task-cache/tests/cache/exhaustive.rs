//! All sequences of eight actions, or nine in a release's campaign, over two communicators against a list of what must
//! be found: no stale hit, nothing lost, nothing released twice.
//!
//! An action that cannot do anything (a launch on a communicator that is not there) ends its branch: what could follow
//! is a shorter sequence that is tried as well.

use task_cache::{Directory, Key, KeyHash, Limits, Refusal, SlotId, State, Tally};
use wire::ErrorCode;

use crate::support::{key, record};

both_hashes!(all_sequences_of_actions);

/// Actions of a sequence, and how many sequences of so many there are.
const USUAL: (usize, u64) = (8, 9_417_764);
const LARGER: (usize, u64) = (9, 104_464_999);
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
    /// Begin a recording and leave it under way, or publish it.
    Record(usize),
    /// Another communicator needs room for one more.
    Evict,
    Clear(usize),
    /// The epoch rises.
    Resume(usize),
    /// Begin a replay and leave it in flight, or end it.
    Pin(usize),
}

const ACTIONS: [Action; 15] = [
    Action::Life(0),
    Action::Life(1),
    Action::Launch(0, 0),
    Action::Launch(0, 1),
    Action::Launch(1, 0),
    Action::Fail(0),
    Action::Record(0),
    Action::Record(1),
    Action::Evict,
    Action::Clear(0),
    Action::Clear(1),
    Action::Resume(0),
    Action::Resume(1),
    Action::Pin(0),
    Action::Pin(1),
];

/// A recording that is under way, or published and not released.
#[derive(Clone, Copy, Debug)]
struct Recording {
    key: Key,
    payload: u32,
    state: State,
    pinned: bool,
}

impl Recording {
    fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Whether it does not give way.
    fn is_held(&self) -> bool {
        self.pinned || self.state == State::Building
    }
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
        self.recordings.iter().copied().find(|one| one.is_live() && one.key == *key)
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
            let leaves = one.state != State::Draining && leaves(&one.key);
            if leaves && one.is_live() && !one.pinned {
                gone.push(one.payload);
            }
            if leaves && one.pinned {
                one.state = State::Draining;
            }
            !leaves || one.pinned
        });
        gone.sort_unstable();
        gone
    }

    /// The least recently used that may give way.
    fn victim(&self, of: Option<[u64; 2]>) -> Option<u32> {
        let gives_way = |one: &&Recording| {
            one.is_live() && !one.pinned && of.is_none_or(|instance| one.key.instance() == instance)
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
    /// Recordings under way.
    open: [Option<(SlotId, Key)>; 2],
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
            open: [None; 2],
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
            Action::Record(of) => self.toggle_record(of),
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
            self.expected.recordings.push(Recording { key, payload, state: State::Live, pinned: false });
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

    /// Publishes the recording under way, or begins one.
    fn toggle_record(&mut self, of: usize) -> bool {
        if let Some((id, key)) = self.open[of].take() {
            let open = |one: &Recording| one.state == State::Building && one.key == key;
            let Some(at) = self.expected.recordings.iter().position(open) else {
                // It was cleared meanwhile.
                assert_eq!(self.directory.verify(id), Err(ErrorCode::CACHE_STALE));
                assert_eq!(self.directory.publish(id, u32::MAX), Err(ErrorCode::CACHE_STALE));
                return true;
            };
            let payload = self.expected.published;
            self.expected.published += 1;
            self.directory.verify(id).expect("it is being built");
            self.directory.publish(id, payload).expect("it is verified");
            self.expected.recordings.remove(at);
            self.expected.recordings.push(Recording { key, payload, state: State::Live, pinned: false });
            return true;
        }
        let Some(epoch) = self.epochs[of] else {
            return false;
        };
        let key = key(self.instance(of), epoch, 3);
        if self.expected.find(&key).is_some() {
            let mut nothing = |_| panic!("nothing gives way");
            assert_eq!(self.directory.begin(&key, 1, &mut nothing), Err(Refusal::Present));
            return false;
        }
        let mut begun = None;
        self.begin(&key, |directory, key, released| {
            let id = directory.begin(key, 1, &mut |gone| released.push(gone))?;
            begun = Some(id);
            Ok(id)
        });
        if let Some(id) = begun {
            self.open[of] = Some((id, key));
            self.expected.recordings.push(Recording {
                key,
                payload: u32::MAX,
                state: State::Building,
                pinned: false,
            });
            self.launched.push(key);
        }
        begun.is_some()
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
        let held = count(&self.expected, &|one| one.is_held() && own(one));
        if held >= LIMITS.quota_units || count(&self.expected, &Recording::is_held) >= LIMITS.units {
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
            let drained = !one.is_live();
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
        expected.recordings.retain(|one| one.state != State::Building);
        self.directory.clear_all(&mut |payload| expected.release(payload));
        assert!(expected.recordings.is_empty());
        assert_eq!(self.directory.used(), Tally::default());
        for (id, _) in self.open.into_iter().flatten() {
            assert_eq!(self.directory.verify(id), Err(ErrorCode::CACHE_STALE));
        }
    }
}

/// The sequence being tried; printed when it fails.
struct Path(Vec<Action>);

impl Drop for Path {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:?}", self.0);
        }
    }
}

/// Tries everything that may follow; returns how many sequences there were.
fn follow<H: KeyHash + Clone>(world: &World<H>, depth: usize, path: &mut Path) -> u64 {
    if depth == 0 {
        world.clone().end();
        return 1;
    }
    let mut sequences = 0;
    for action in ACTIONS {
        let mut next = world.clone();
        path.0.push(action);
        if next.act(action) {
            next.check();
            sequences += follow(&next, depth - 1, path);
        }
        path.0.pop();
    }
    sequences
}

fn all_sequences_of_actions<H: KeyHash + Clone>() {
    let mut path = Path(Vec::new());
    let larger = std::env::var_os("AICPU_TS_LARGER_MODELS").is_some();
    let (depth, expected) = if larger { LARGER } else { USUAL };
    let sequences = follow(&World::<H>::new(), depth, &mut path);
    assert_eq!(sequences, expected, "none was left out");
}
