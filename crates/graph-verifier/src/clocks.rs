//! Vector clocks: which tasks are ordered before which.
//!
//! Each queue (a thread of a rank) counts its tasks; its clock says how many tasks of every queue are ordered before
//! its next one. A signal carries the clock of the task that set it.

/// A task: queue and position in it, from 1 on. [`Moment::NEVER`] is ordered before everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) queue: u32,
    pub(crate) position: u32,
}

impl Moment {
    pub(crate) const NEVER: Self = Self { queue: 0, position: 0 };

    pub(crate) fn is_never(self) -> bool {
        self.position == 0
    }
}

/// A clock on its way from a record to a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried(u32);

/// The clocks of all queues, and of the signals that are set.
pub(crate) struct Clocks {
    queues: usize,
    /// Rows of `queues` counts: one for each queue, then those carried.
    counts: Vec<u32>,
    free: Vec<u32>,
}

impl Clocks {
    pub(crate) fn new(queues: usize) -> Self {
        Self { queues, counts: vec![0; queues * queues], free: Vec::new() }
    }

    /// Returns whether a task is ordered before the next one of `queue`.
    #[inline(always)]
    pub(crate) fn ordered(&self, earlier: Moment, queue: u32) -> bool {
        earlier.queue == queue
            || earlier.position <= self.counts[queue as usize * self.queues + earlier.queue as usize]
    }

    /// Returns how many tasks of `other` are ordered before the next one of `queue`.
    pub(crate) fn seen(&self, queue: u32, other: u32) -> u32 {
        self.counts[queue as usize * self.queues + other as usize]
    }

    /// Copies the clock of a queue at its task `moment`.
    #[inline]
    pub(crate) fn carry(&mut self, moment: Moment) -> Carried {
        let row = self.free.pop().unwrap_or_else(|| {
            let rows = self.counts.len() / self.queues;
            self.counts.resize(self.counts.len() + self.queues, 0);
            u32::try_from(rows).unwrap_or(u32::MAX)
        });
        let (queue, start) = (moment.queue as usize, row as usize * self.queues);
        self.counts.copy_within(queue * self.queues..(queue + 1) * self.queues, start);
        self.counts[start + queue] = moment.position;
        Carried(row)
    }

    /// Orders everything that a carried clock says before the next task of `queue`; `setter` set the signal.
    #[inline]
    pub(crate) fn join(&mut self, queue: u32, Carried(row): Carried, setter: Moment) {
        self.free.push(row);
        if self.ordered(setter, queue) {
            return;
        }
        let (before, carried) = self.counts.split_at_mut(row as usize * self.queues);
        let own = &mut before[queue as usize * self.queues..][..self.queues];
        for (own, carried) in own.iter_mut().zip(carried) {
            *own = (*own).max(*carried);
        }
    }
}
