//! Helper threads: when they may touch the NPUs, and how they wait until they may.
//!
//! A gate is open while a lot of payload is being moved. Only then do helpers visit NPUs; a helper that finds the gate
//! closed spins for a while, then parks. Opening the gate costs a wake only when a helper is parked, so a series of
//! large operations pays it once, and small operations never. After a call that moved a lot, the gate is open from the
//! start of the next: its first transfer may be most of it.

use core::hint;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::visit::{Floor, MUCH, Turn, Work};

/// Bytes moved in one pass from which help is worth its wake.
const OPEN_BYTES: u64 = 256 << 10;
/// Bytes per visit while a thread is alone: it looks up often enough to call for help.
const ALONE_BYTES: u64 = OPEN_BYTES;
/// Bytes per visit while helpers are at work: depth first, an NPU goes on while its data is in the cache.
const TOGETHER_BYTES: u64 = 8 << 20;
/// How long the gate stays open, and a helper awake, without a reason.
const LINGER: Duration = Duration::from_micros(100);
/// Turns of a spinning helper between two looks at the clock.
const LOOK_EVERY: u32 = 64;

/// Turns that the closing thread spins before it offers its core to the helper it waits for.
const SPINS: u32 = 256;

/// Bit of [`Gate::state`] that says open; the rest counts the helpers inside, in steps of [`ONE`].
const OPEN: usize = 1;
const ONE: usize = 2;

#[derive(Debug, Default)]
struct Gate {
    state: AtomicUsize,
    parked: AtomicUsize,
    quit: AtomicBool,
    /// Bytes moved by helpers.
    moved: AtomicU64,
    /// Threads in `run_until`.
    callers: AtomicUsize,
    /// The last call moved a lot.
    expects_much: AtomicBool,
}

/// A helper inside the gate; it leaves when this is dropped, also by a panic.
struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // ORDER: pairs with the acquire load in `Gate::close`.
        self.0.state.fetch_sub(ONE, Ordering::Release);
    }
}

impl Gate {
    /// Enters if open.
    fn enter(&self) -> Option<Inside<'_>> {
        let enter = |state| (state & OPEN != 0).then_some(state + ONE);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter).ok().map(|_| Inside(self))
    }

    fn is_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) & OPEN != 0
    }

    /// Closes, and waits until the last helper has left.
    fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        // ORDER: pairs with the release on leaving: everything helpers did to the NPUs is visible from here on.
        let mut spins = 0_u32;
        while self.state.load(Ordering::Acquire) >= ONE && !self.is_open() {
            spins += 1;
            if spins < SPINS {
                hint::spin_loop();
            } else {
                // The helper may have lost its core to somebody else.
                thread::yield_now();
                spins = 0;
            }
        }
    }
}

/// The helper threads of a machine.
#[derive(Debug)]
pub(super) struct Crew {
    gate: Arc<Gate>,
    helpers: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts the helpers. Fewer threads than asked for, when the system has no more, only means less help.
    pub(super) fn new(floor: &Arc<Floor>, helpers: usize) -> Self {
        let gate = Arc::new(Gate::default());
        let start = |index| {
            let (gate, floor) = (Arc::clone(&gate), Arc::clone(floor));
            let turn = Turn::new(index + 1, helpers + 1, floor.fabric().npus());
            let life = move || help(&gate, &floor, turn);
            thread::Builder::new().name(format!("npu-helper-{index}")).spawn(life).ok()
        };
        let helpers = (0..helpers).map_while(start).collect();
        Self { gate, helpers }
    }

    /// Begins a call of `run_until`.
    #[inline]
    pub(super) fn begin(&self) -> Shift<'_> {
        self.gate.callers.fetch_add(1, Ordering::AcqRel);
        let opened =
            (!self.helpers.is_empty() && self.gate.expects_much.load(Ordering::Relaxed)).then(|| {
                self.open();
                Instant::now()
            });
        Shift { crew: self, opened, bytes: 0, total: 0 }
    }

    /// Returns the turn of a caller.
    #[inline]
    pub(super) fn turn(&self, floor: &Floor) -> Turn {
        Turn::new(0, self.helpers.len() + 1, floor.fabric().npus())
    }

    fn open(&self) {
        self.gate.state.fetch_or(OPEN, Ordering::SeqCst);
        // ORDER: with the helper's store of `parked` and load of `state`, all sequentially consistent: either it sees
        // the gate open, or it is seen here.
        if self.gate.parked.load(Ordering::SeqCst) != 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        for helper in &self.helpers {
            helper.thread().unpark();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.gate.quit.store(true, Ordering::SeqCst);
        self.wake();
        for helper in self.helpers.drain(..) {
            // A helper ends by panic only if an engine or a kernel panicked; the caller has seen that or will.
            drop(helper.join());
        }
    }
}

/// One call of `run_until`: watches the payload and calls for help.
#[derive(Debug)]
pub(super) struct Shift<'a> {
    crew: &'a Crew,
    /// When the gate was last found to be worth keeping open.
    opened: Option<Instant>,
    /// Bytes seen since then.
    bytes: u64,
    /// Bytes seen in all.
    total: u64,
}

impl Shift<'_> {
    /// Returns how many bytes one visit may move.
    #[inline]
    pub(super) const fn budget(&self) -> u64 {
        if self.opened.is_some() { TOGETHER_BYTES } else { ALONE_BYTES }
    }

    /// Opens the gate when the last pass moved a lot, closes it when the last passes did not.
    #[inline]
    pub(super) fn watch(&mut self, work: &Work) {
        if self.crew.helpers.is_empty() {
            return;
        }
        self.total += work.bytes;
        match self.opened {
            None if work.bytes >= OPEN_BYTES => {
                self.crew.open();
                self.opened = Some(Instant::now());
            }
            None => {}
            Some(since) => self.keep_open(work, since),
        }
    }

    fn keep_open(&mut self, work: &Work, since: Instant) {
        let helped = self.crew.gate.moved.swap(0, Ordering::Relaxed);
        self.total += helped;
        self.bytes += work.bytes + helped;
        if self.bytes >= OPEN_BYTES {
            self.bytes = 0;
            self.opened = Some(Instant::now());
            if !self.crew.gate.is_open() {
                // Another caller closed it on leaving.
                self.crew.open();
            }
        } else if since.elapsed() > LINGER {
            self.crew.gate.close();
            self.opened = None;
        }
    }
}

impl Drop for Shift<'_> {
    /// The last caller to leave closes the gate: after it, no thread touches an NPU.
    fn drop(&mut self) {
        let gate = &self.crew.gate;
        if gate.callers.fetch_sub(1, Ordering::AcqRel) == 1 {
            gate.close();
            let total = self.total + gate.moved.swap(0, Ordering::Relaxed);
            gate.expects_much.store(total >= MUCH, Ordering::Relaxed);
        }
    }
}

/// The life of a helper.
fn help(gate: &Gate, floor: &Floor, mut turn: Turn) {
    let mut turns = 0_u32;
    let mut since = Instant::now();
    while !gate.quit.load(Ordering::Relaxed) {
        if let Some(inside) = gate.enter() {
            while gate.is_open() {
                let work = floor.pass(&mut turn, TOGETHER_BYTES);
                if work.bytes != 0 {
                    gate.moved.fetch_add(work.bytes, Ordering::Relaxed);
                } else if !work.progress {
                    hint::spin_loop();
                }
            }
            drop(inside);
            since = Instant::now();
        }
        turns = (turns + 1) % LOOK_EVERY;
        if turns == 0 && since.elapsed() > LINGER {
            park(gate);
            since = Instant::now();
        }
        hint::spin_loop();
    }
}

fn park(gate: &Gate) {
    gate.parked.fetch_add(1, Ordering::SeqCst);
    // ORDER: see `Crew::open`.
    if gate.state.load(Ordering::SeqCst) & OPEN == 0 && !gate.quit.load(Ordering::SeqCst) {
        thread::park();
    }
    gate.parked.fetch_sub(1, Ordering::SeqCst);
}
