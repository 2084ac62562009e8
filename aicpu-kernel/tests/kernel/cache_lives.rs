//! All sequences of eight events, or nine in a release's campaign, in the lives of two communicators on one kernel:
//! created, destroyed, created again under the same name and at the same addresses; buffers deregistered and registered
//! again where they were; suspended and resumed; their graphs evicted. Each launch hits exactly what it may, and writes no token but today's.
//!
//! The kernel is never restarted: every sequence begins with what all those before have left in its cache.

use std::collections::BTreeSet;

use wire::launch::{Buffer, CacheOutcome};
use wire::{LaunchArgs, Sqe};

use crate::rig::{EPOCH, Rig, Setup};

/// Events of a sequence, and how many sequences of so many there are.
const USUAL: (usize, u64) = (8, 185_092);
const LARGER: (usize, u64) = (9, 1_239_720);
/// Pages for graphs that are kept, and how many of them one communicator may have.
const ROOM: u64 = 4;
const QUOTA: u64 = 3;
/// Pages of the graph of the third communicator, which makes others give way.
const LARGE: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Created, or destroyed.
    Life(usize),
    /// Its buffers are deregistered, or registered again.
    Register(usize),
    /// Suspended, or resumed.
    Suspend(usize),
    Launch(usize),
    /// Another communicator records a graph that takes three quarters of the room.
    Evict,
}

const EVENTS: [Event; 9] = [
    Event::Life(0),
    Event::Life(1),
    Event::Register(0),
    Event::Register(1),
    Event::Suspend(0),
    Event::Suspend(1),
    Event::Launch(0),
    Event::Launch(1),
    Event::Evict,
];

/// What is true of a communicator before the first launch of a sequence.
#[derive(Clone, Copy)]
struct State {
    alive: bool,
    suspended: bool,
    registered: bool,
}

impl State {
    const FIRST: Self = Self { alive: false, suspended: false, registered: true };
}

/// Whether an event can happen, and what is true then.
fn follow(mut states: [State; 2], event: Event) -> Option<[State; 2]> {
    let place = |states: &mut [State; 2], of: usize, possible: bool, change: fn(&mut State)| {
        change(&mut states[of]);
        possible.then_some(*states)
    };
    match event {
        Event::Life(of) => place(&mut states, of, true, |state| {
            (state.alive, state.suspended) = (!state.alive, false);
        }),
        Event::Register(of) => place(&mut states, of, true, |state| state.registered = !state.registered),
        Event::Suspend(of) => {
            let alive = states[of].alive;
            place(&mut states, of, alive, |state| state.suspended = !state.suspended)
        }
        // The host refuses the others before they are launched.
        Event::Launch(of) => {
            let State { alive, suspended, registered } = states[of];
            (alive && !suspended && registered).then_some(states)
        }
        Event::Evict => Some(states),
    }
}

/// An entry that the kernel must have: whose, of which epoch, and its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    instance: [u64; 2],
    epoch: u32,
    units: u64,
}

/// A communicator as the host knows it.
#[derive(Clone, Copy)]
struct Comm {
    setup: Setup,
    input: u32,
    output: u32,
}

struct World {
    rig: Rig,
    comms: [Comm; 2],
    other: Setup,
    /// What must be kept, in the order of use.
    entries: Vec<Entry>,
    /// Numbers that are never used twice: instances, tokens, sequences.
    next: u32,
    hits: u64,
    misses: u64,
}

impl World {
    fn new() -> Self {
        let setup = |slot, rank, ranks| Setup { slot, ..Setup::new(rank, ranks) };
        let (setups, other) =
            ([setup(0, 0, 2), setup(1, 1, 2)], Setup { instance: [9, 9], ..setup(2, 0, 16) });
        let pages = aicpu_kernel::LARGEST_GRAPH_PAGES + usize::try_from(ROOM).expect("few");
        let rig = Rig::with_pages(&[setups[0], setups[1], other], 16, pages);
        let comms = setups.map(|setup| Comm { setup, input: 0, output: 0 });
        Self { rig, comms, other, entries: Vec::new(), next: 100, hits: 0, misses: 0 }
    }

    fn number(&mut self) -> u32 {
        self.next += 4;
        self.next
    }

    /// Resources made anew, where the old ones were.
    fn provide(&mut self, of: usize, instance: [u64; 2], epoch: u32) {
        let scratch_token = self.number();
        let setup = &mut self.comms[of].setup;
        (setup.instance, setup.epoch, setup.scratch_token) = (instance, epoch, scratch_token);
        let setup = *setup;
        self.rig.write_context(&setup);
    }

    fn register(&mut self, of: usize) {
        (self.comms[of].input, self.comms[of].output) = (self.number(), self.number());
    }

    fn begin(&mut self) {
        (0..2).for_each(|of| self.register(of));
    }

    fn act(&mut self, event: Event, now: [State; 2]) {
        match event {
            Event::Life(of) if now[of].alive => {
                let life = u64::from(self.number());
                self.provide(of, [of as u64, life], EPOCH);
            }
            Event::Register(of) if now[of].registered => self.register(of),
            Event::Suspend(of) if !now[of].suspended => {
                let Setup { instance, epoch, .. } = self.comms[of].setup;
                self.provide(of, instance, epoch + 1);
            }
            Event::Life(_) | Event::Register(_) | Event::Suspend(_) => {}
            Event::Launch(of) => self.launch(of),
            Event::Evict => self.evict(),
        }
    }

    fn launch(&mut self, of: usize) {
        let Comm { setup, input, output } = self.comms[of];
        let args = setup.launch(8);
        let sequence = self.number();
        let args = LaunchArgs {
            sequence,
            input: Buffer { token: input, ..args.input },
            output: Buffer { token: output, ..args.output },
            ..args
        };
        let outcome = self.expect(Entry { instance: setup.instance, epoch: setup.epoch, units: 1 });
        let status = self.rig.run(args);
        assert_eq!((status.code, status.cache), (0, outcome as u8));
        let sqes = self.rig.consume(&setup, 0);
        let written: BTreeSet<u32> = sqes
            .iter()
            .flat_map(|sqe: &Sqe| [sqe.src_token, sqe.dst_token])
            .filter(|token| *token != 0)
            .collect();
        let today = [input, output, setup.scratch_token, setup.scratch_token + 1];
        assert_eq!(written, BTreeSet::from(today), "{sqes:?}");
        assert!(sqes.len() == 12 && sqes.iter().all(|sqe| sqe.task >> 32 == u64::from(sequence)), "{sqes:?}");
    }

    fn evict(&mut self) {
        let piece = u64::from(self.number());
        let args = LaunchArgs { piece: 128 * piece, ..self.other.launch(64) };
        // Never the same twice: the piece bound is of no matter in scratch, and part of the key.
        let outcome = self.expect(Entry { instance: self.other.instance, epoch: self.next, units: LARGE });
        assert_eq!(outcome, CacheOutcome::Miss);
        assert_eq!(self.rig.run(args).cache, CacheOutcome::Miss as u8);
        self.rig.consume(&self.other, 0);
    }

    /// Says what a launch with this entry must do, and what is kept then.
    fn expect(&mut self, wanted: Entry) -> CacheOutcome {
        // A context of a later epoch takes the graphs of the earlier ones away.
        if wanted.instance != self.other.instance {
            self.entries.retain(|entry| entry.instance != wanted.instance || entry.epoch >= wanted.epoch);
        }
        let at = self.entries.iter().position(|entry| *entry == wanted);
        let outcome = if let Some(at) = at {
            self.entries.remove(at);
            self.hits += 1;
            CacheOutcome::Hit
        } else {
            let used = |entries: &[Entry], of: Option<[u64; 2]>| {
                let own = entries.iter().filter(|entry| of.is_none_or(|of| entry.instance == of));
                own.map(|entry| entry.units).sum::<u64>()
            };
            while used(&self.entries, Some(wanted.instance)) + wanted.units > QUOTA {
                let own = self.entries.iter().position(|entry| entry.instance == wanted.instance);
                self.entries.remove(own.expect("its own"));
            }
            while used(&self.entries, None) + wanted.units > ROOM {
                self.entries.remove(0);
            }
            self.misses += 1;
            CacheOutcome::Miss
        };
        self.entries.push(wanted);
        outcome
    }
}

/// Calls `each` with every sequence of so many possible events that ends with a launch. A shorter one is the beginning of some.
fn sequences(states: [State; 2], depth: usize, path: &mut Vec<Event>, each: &mut impl FnMut(&[Event])) {
    if path.len() == depth {
        if matches!(path.last(), Some(Event::Launch(_))) {
            each(path);
        }
        return;
    }
    for event in EVENTS {
        if let Some(next) = follow(states, event) {
            path.push(event);
            sequences(next, depth, path, each);
            path.pop();
        }
    }
}

#[test]
fn no_stale_hit_in_any_sequence_of_events() {
    let mut world = World::new();
    let mut count = 0;
    let larger = std::env::var_os("AICPU_TS_LARGER_MODELS").is_some();
    let (depth, expected) = if larger { LARGER } else { USUAL };
    sequences([State::FIRST; 2], depth, &mut Vec::new(), &mut |path| {
        count += 1;
        let mut states = [State::FIRST; 2];
        world.begin();
        for &event in path {
            states = follow(states, event).expect("it was possible before");
            world.act(event, states);
        }
        let kept = world.rig.kernel.cache_use();
        let expected: u64 = world.entries.iter().map(|entry| entry.units).sum();
        assert_eq!((kept.kept.units, kept.kept.slots), (expected, world.entries.len() as u64), "{path:?}");
    });
    assert_eq!(count, expected, "none was left out");
    assert!(world.hits > 10_000 && world.misses > 10_000, "{} {}", world.hits, world.misses);
}
