//! The tasks of one rank while they are collected: on lanes, with what orders them across lanes.
//!
//! Tasks come in an order in which they could all be carried out one by one. Within a lane that order is kept; across
//! lanes a task waits for an earlier one only where both use a place and one of them writes it, and only where its lane
//! does not know already that the earlier one is done.

use std::collections::HashMap;

use wire::script::{Action, Instruction, JOIN_NOTIFIES, Place, ScriptEntry};

/// A task: lane, and number within it from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    lane: usize,
    number: u32,
}

#[derive(Clone, Debug)]
struct Task {
    lane: usize,
    step: u16,
    action: Action,
    waits: Vec<u16>,
    signals: Vec<(usize, u16)>,
    /// Tasks of every lane that are done once this one is.
    done: Vec<u32>,
}

/// Who uses a place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Use {
    writer: Option<Position>,
    readers: Vec<Position>,
    /// Peers that it is being sent to, as far as is known here.
    pub(crate) sending: Vec<u32>,
}

/// The tasks of one rank.
#[derive(Debug)]
pub(crate) struct Program {
    tasks: Vec<Task>,
    /// Tasks of each lane, by their place in `tasks`.
    lanes: Vec<Vec<usize>>,
    /// Tasks of every lane that each lane knows to be done.
    known: Vec<Vec<u32>>,
    /// Notifies of each lane that are taken.
    notifies: Vec<u16>,
    /// Those that may be used again once the task of their lane with this number is done, which has waited for them.
    waited: Vec<Vec<(u16, u32)>>,
    uses: HashMap<Place, Use>,
}

impl Program {
    pub(crate) fn new(lanes: usize) -> Self {
        let subs = u16::try_from(lanes - 1).unwrap_or(u16::MAX);
        let notifies = (0..lanes).map(|lane| if lane == 0 { JOIN_NOTIFIES * subs } else { JOIN_NOTIFIES });
        Self {
            tasks: Vec::new(),
            lanes: vec![Vec::new(); lanes],
            known: vec![vec![0; lanes]; lanes],
            notifies: notifies.collect(),
            waited: vec![Vec::new(); lanes],
            uses: HashMap::new(),
        }
    }

    /// Appends a task that reads and writes these places.
    pub(crate) fn push(
        &mut self,
        lane: usize,
        step: u16,
        action: Action,
        reads: &[Place],
        writes: &[Place],
    ) -> Position {
        let mut after = Vec::new();
        for place in reads {
            after.extend(self.uses.get(place).and_then(|used| used.writer));
        }
        for used in writes.iter().filter_map(|place| self.uses.get(place)) {
            after.extend(used.writer.iter().chain(&used.readers));
        }
        let waits = self.order(lane, after);
        let number = u32::try_from(self.lanes[lane].len() + 1).unwrap_or(u32::MAX);
        let position = Position { lane, number };
        self.known[lane][lane] = number;
        self.waited[lane].extend(waits.iter().map(|&notify| (notify, number)));
        self.lanes[lane].push(self.tasks.len());
        let done = self.known[lane].clone();
        self.tasks.push(Task { lane, step, action, waits, signals: Vec::new(), done });
        for place in reads {
            self.read_at(*place, position);
        }
        for place in writes {
            let used = self.uses.entry(*place).or_default();
            (used.writer, used.readers) = (Some(position), Vec::new());
        }
        position
    }

    /// Notes that a place has been read once the task at `position` is done.
    pub(crate) fn read_at(&mut self, place: Place, position: Position) {
        let readers = &mut self.uses.entry(place).or_default().readers;
        readers.retain(|reader| reader.lane != position.lane);
        readers.push(position);
    }

    pub(crate) fn uses(&mut self, place: Place) -> &mut Use {
        self.uses.entry(place).or_default()
    }

    /// Lets the next task of a lane come after others; returns the notifies it waits for.
    fn order(&mut self, lane: usize, mut after: Vec<Position>) -> Vec<u16> {
        // The latest first: it often knows the others.
        after.sort_by_key(|position| core::cmp::Reverse(self.index(*position)));
        let mut waits = Vec::new();
        for position in after {
            if self.known[lane][position.lane] >= position.number {
                continue;
            }
            let index = self.index(position);
            // Who sets a notify again must know that it has been taken.
            let taken = self.tasks[index].done[lane];
            let again = self.waited[lane].iter().position(|&(_, number)| number <= taken);
            let notify = match again {
                Some(at) => self.waited[lane].swap_remove(at).0,
                None => {
                    self.notifies[lane] = self.notifies[lane].saturating_add(1);
                    self.notifies[lane] - 1
                }
            };
            let task = &mut self.tasks[index];
            task.signals.push((lane, notify));
            for (own, theirs) in self.known[lane].iter_mut().zip(&task.done) {
                *own = (*own).max(*theirs);
            }
            waits.push(notify);
        }
        waits
    }

    fn index(&self, position: Position) -> usize {
        self.lanes[position.lane][position.number as usize - 1]
    }

    /// Returns the notifies of the main lane, and the most of any other.
    pub(crate) fn notifies(&self) -> (u16, u16) {
        let (main, subs) = self.notifies.split_first().map_or((0, &[][..]), |(main, subs)| (*main, subs));
        (main, subs.iter().copied().max().unwrap_or(JOIN_NOTIFIES))
    }

    pub(crate) fn threads(&self) -> u16 {
        u16::try_from(self.lanes.len()).unwrap_or(u16::MAX)
    }

    /// Returns everything as entries.
    pub(crate) fn entries(&self) -> Vec<ScriptEntry> {
        let mut entries = Vec::new();
        for Task { lane, step, action, waits, signals, .. } in &self.tasks {
            let number = |lane: usize| u16::try_from(lane).unwrap_or(u16::MAX);
            let waits = waits.iter().map(|&notify| Action::Wait { notify });
            let signals = signals.iter().map(|&(to, notify)| Action::Signal { thread: number(to), notify });
            let thread = u8::try_from(*lane).unwrap_or(u8::MAX);
            let all = waits.chain([*action]).chain(signals);
            entries.extend(all.map(|action| Instruction { thread, step: *step, action }.entry()));
        }
        entries
    }
}
