//! Launches racing with destroy and eviction, in every interleaving that loom finds: a directory behind a lock, as
//! whoever shares one between threads has it, and the graphs beside it, written and read without the lock.
//! `RUSTFLAGS="--cfg loom" cargo test -p task-cache --test loom --release`.
//!
//! Each graph lies in a loom cell, so that reading one while its place is written for another is reported as a race.
//! The last test replays without a pin, and must fail.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread::{self, JoinHandle};
use task_cache::{Alias, Determinism, Directory, Facts, Form, Key, Limits, Tally};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp};

const A: [u64; 2] = [10, 1];
const B: [u64; 2] = [11, 1];

fn key([instance, life]: [u64; 2], epoch: u32) -> Key {
    Key::new(&Facts {
        instance: [instance, life],
        epoch,
        op: OpKind::AllReduce,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        algorithm: Algorithm::Ring,
        staging: Staging::Scratch,
        alias: Alias::Disjoint,
        form: Form::Exact(1024),
        rank: 0,
        ranks: 2,
        root: 0,
        levels: [0; 4],
        chunk: 0,
        piece: 0,
        scratch_len: 1 << 20,
        topology: 7,
        context: 8,
        threads: 1,
        determinism: Determinism::On,
        features: 0,
    })
}

/// Two halves that are written one after the other.
type Graph = UnsafeCell<[u64; 2]>;

/// What the lock guards: which graph serves which key, and which places are free.
struct Kept {
    directory: Directory<usize, 4>,
    free: Vec<usize>,
}

impl Kept {
    /// Calls something of the directory that may give places back.
    fn with<R>(&mut self, call: impl FnOnce(&mut Directory<usize, 4>, &mut dyn FnMut(usize)) -> R) -> R {
        let Self { directory, free } = self;
        call(directory, &mut |place| free.push(place))
    }
}

struct Cache {
    kept: Mutex<Kept>,
    graphs: [Graph; 3],
}

/// What became of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Hit,
    Recorded,
    /// It ran, and is not kept.
    Uncached,
}

impl Cache {
    /// A cache for `units` graphs.
    fn new(units: u64) -> Self {
        let mut directory = Directory::new();
        directory.set_limits(Limits { units, quota_units: units, quota_slots: 4, evict: true });
        let graphs = [(); 3].map(|()| Graph::new([0; 2]));
        Self { kept: Mutex::new(Kept { directory, free: vec![0, 1, 2] }), graphs }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("nobody panics inside")
    }

    fn write(&self, place: usize, value: u64) {
        self.graphs[place].with_mut(|graph| put(graph, value));
    }

    fn read(&self, place: usize) -> [u64; 2] {
        self.graphs[place].with(get)
    }

    /// One launch: replays what there is, pinned, or records.
    fn launch(&self, key: &Key, value: u64) -> Outcome {
        let mut kept = self.lock();
        if let Some(hit) = kept.directory.lookup(key) {
            kept.directory.pin(hit.id).expect("it was just found");
            drop(kept);
            assert_eq!(self.read(hit.payload), [value; 2], "torn, or another's");
            self.lock()
                .with(|directory, release| directory.unpin(hit.id, &mut |place| release(place)))
                .expect("pinned");
            return Outcome::Hit;
        }
        let begun = kept.with(|directory, release| directory.begin(key, 1, &mut |place| release(place)));
        let Ok(id) = begun else { return Outcome::Uncached };
        let place = kept.free.pop().expect("as many places as may be used, and one");
        drop(kept);
        self.write(place, value);
        let mut kept = self.lock();
        let published = kept.directory.verify(id).and_then(|()| kept.directory.publish(id, place));
        if published.is_err() {
            assert_eq!(published, Err(ErrorCode::CACHE_STALE), "cleared meanwhile, and only that");
            kept.free.push(place);
            return Outcome::Uncached;
        }
        Outcome::Recorded
    }

    fn destroy(&self, instance: [u64; 2]) {
        self.lock().with(|directory, release| directory.clear(instance, &mut |place| release(place)));
    }

    /// Every place is free or in use, once, and nothing is held.
    fn assert_tidy(&self) {
        let mut kept = self.lock();
        let used = kept.directory.used().slots;
        assert_eq!(kept.free.len() as u64 + used, 3);
        kept.with(|directory, release| directory.clear_all(&mut |place| release(place)));
        kept.free.sort_unstable();
        assert_eq!((&*kept.free, kept.directory.used()), (&[0, 1, 2][..], Tally::default()));
    }
}

// UNSAFETY: loom's cells give raw pointers.
#[expect(unsafe_code, reason = "loom's cells give raw pointers")]
fn put(graph: *mut [u64; 2], value: u64) {
    // SAFETY: 1. The pointer is the cell's. 2. Loom has checked that nobody else has one meanwhile.
    unsafe { *graph = [value; 2] };
}

#[expect(unsafe_code, reason = "loom's cells give raw pointers")]
fn get(graph: *const [u64; 2]) -> [u64; 2] {
    // SAFETY: 1. The pointer is the cell's. 2. Loom has checked that nobody writes meanwhile.
    unsafe { *graph }
}

fn spawn(cache: &Arc<Cache>, work: impl FnOnce(&Cache) -> Outcome + 'static) -> JoinHandle<Outcome> {
    let cache = Arc::clone(cache);
    thread::spawn(move || work(&cache))
}

/// Runs every interleaving; `scene` returns what became of the launches. Returns each set of outcomes that came up.
fn outcomes(scene: impl Fn() -> Vec<Outcome> + Sync + Send + 'static) -> Vec<Vec<Outcome>> {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = std::sync::Arc::clone(&seen);
    loom::model(move || {
        let outcome = scene();
        let mut seen = note.lock().expect("one thread");
        if !seen.contains(&outcome) {
            seen.push(outcome);
        }
    });
    seen.lock().expect("one thread").clone()
}

use Outcome::{Hit, Recorded, Uncached};

/// The communicator goes while its graph is replayed; another takes the place at once.
#[test]
fn a_replay_races_with_destroy() {
    let seen = outcomes(|| {
        let cache = Arc::new(Cache::new(1));
        assert_eq!(cache.launch(&key(A, 1), 1), Recorded);
        let replay = spawn(&cache, |cache| cache.launch(&key(A, 1), 1));
        cache.destroy(A);
        let next = cache.launch(&key(B, 1), 2);
        let replayed = replay.join().expect("it does not panic");
        cache.assert_tidy();
        vec![replayed, next]
    });
    // It was first, or it drained while the other had no room, or it came too late and was recorded again.
    for expected in [[Hit, Recorded], [Hit, Uncached], [Recorded, Recorded]] {
        assert!(seen.contains(&expected.to_vec()), "{expected:?} never came up: {seen:?}");
    }
}

/// Another communicator wants the only place while the graph in it is replayed.
#[test]
fn a_replay_races_with_eviction() {
    let seen = outcomes(|| {
        let cache = Arc::new(Cache::new(1));
        assert_eq!(cache.launch(&key(A, 1), 1), Recorded);
        let replay = spawn(&cache, |cache| cache.launch(&key(A, 1), 1));
        let next = cache.launch(&key(B, 1), 2);
        let replayed = replay.join().expect("it does not panic");
        cache.assert_tidy();
        vec![replayed, next]
    });
    for expected in [[Hit, Recorded], [Hit, Uncached], [Uncached, Recorded]] {
        assert!(seen.contains(&expected.to_vec()), "{expected:?} never came up: {seen:?}");
    }
}

/// The communicator goes while its graph is recorded: what was begun before never hits.
#[test]
fn a_recording_races_with_destroy() {
    let seen = outcomes(|| {
        let cache = Arc::new(Cache::new(2));
        let recording = spawn(&cache, |cache| cache.launch(&key(A, 1), 1));
        cache.destroy(A);
        let recorded = recording.join().expect("it does not panic");
        let again = cache.launch(&key(A, 1), 1);
        cache.assert_tidy();
        vec![recorded, again]
    });
    // Destroyed after, amid, and before.
    for expected in [[Recorded, Recorded], [Uncached, Recorded], [Recorded, Hit]] {
        assert!(seen.contains(&expected.to_vec()), "{expected:?} never came up: {seen:?}");
    }
}

/// Two launches of one key and a communicator that goes, comes again and launches.
#[test]
fn two_launches_race_with_a_new_life() {
    let seen = outcomes(|| {
        let cache = Arc::new(Cache::new(2));
        let launches = [(); 2].map(|()| spawn(&cache, |cache| cache.launch(&key(A, 1), 1)));
        cache.destroy(A);
        let next = cache.launch(&key([A[0], 2], 1), 2);
        let mut all: Vec<_> = launches.map(|launch| launch.join().expect("it does not panic")).into();
        cache.assert_tidy();
        all.push(next);
        assert_ne!(next, Hit, "of another life");
        all
    });
    assert!(seen.len() > 3, "{seen:?}");
}

/// What the pin is for: without it, a place is written for another while it is read.
#[test]
#[should_panic(expected = "Causality violation")]
fn without_a_pin_the_place_is_reused_under_the_reader() {
    outcomes(|| {
        let cache = Arc::new(Cache::new(1));
        assert_eq!(cache.launch(&key(A, 1), 1), Recorded);
        let replay = spawn(&cache, |cache| {
            let hit = cache.lock().directory.lookup(&key(A, 1));
            hit.map_or(Uncached, |hit| {
                cache.read(hit.payload);
                Hit
            })
        });
        cache.destroy(A);
        for place in 0..3 {
            if cache.lock().free.contains(&place) {
                cache.write(place, 2);
            }
        }
        vec![replay.join().expect("it does not panic")]
    });
}
