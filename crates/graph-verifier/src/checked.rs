//! The local part: what a kernel holds against every task before it is recorded or submitted, alone or as a sink.
//!
//! Each task is checked on its own (V1 to V3). The notifies between this rank's own threads must be set, then taken, in
//! the order of emission, each once at a time, none left at the end of a graph: then no thread of this rank waits for
//! another for ever (V4 and V5 as far as one rank can see). No heap; a task costs a few nanoseconds.

use task_graph::{Caps, ChannelNotify, Part, Rank, Task, TaskSink, ThreadId, WriteBatch};
use wire::{ErrorCode, Phase};

use crate::Obligation;
use crate::structure::{Extents, Structure};

/// Notifies of one rank's threads that can be told apart.
const MOST_NOTIFIES: usize = 1024;
const WORDS: usize = MOST_NOTIFIES / 64;

/// Checks the tasks of one graph, in the order of emission.
#[derive(Debug)]
pub struct Local<'a, E> {
    structure: &'a Structure<E>,
    /// Which notifies are set, bit per notify: the main thread's, then those of each sub thread.
    set: [u64; WORDS],
}

impl<'a, E: Extents> Local<'a, E> {
    /// Begins a graph.
    #[must_use]
    pub const fn new(structure: &'a Structure<E>) -> Self {
        Self { structure, set: [0; WORDS] }
    }

    /// Checks the next task.
    ///
    /// # Errors
    /// The first obligation it does not meet.
    #[inline(always)]
    pub fn check(&mut self, thread: ThreadId, task: &Task) -> Result<(), Obligation> {
        self.structure.check(thread, task)?;
        match *task {
            Task::ThreadRecord { thread: waiter, index } => self.flip(waiter, index, true),
            Task::ThreadWait { index } => self.flip(thread, index, false),
            _ => Ok(()),
        }
    }

    /// Checks a step, or the writes of a batch alone: they set and take no notify of a thread.
    fn check_step(
        &self,
        thread: ThreadId,
        from: Option<Rank>,
        batch: &WriteBatch,
        parts: &[Part],
    ) -> Result<(), Obligation> {
        // Setting a notify of a peer needs the same thread and channel as waiting for one.
        for peer in from.into_iter().chain([batch.peer]) {
            self.structure.check(thread, &Task::ChannelWait { peer, notify: ChannelNotify::Ack })?;
        }
        let mut parts = parts.iter().filter(|part| part.len > 0);
        parts.try_for_each(|part| self.structure.check(thread, &batch.task(*part, None)))
    }

    /// Ends the graph.
    ///
    /// # Errors
    /// `VERIFY_PAIRING` when a notify is left set.
    pub fn finish(self) -> Result<(), ErrorCode> {
        if self.set == [0; WORDS] { Ok(()) } else { Err(Obligation::Pairing.code()) }
    }

    /// Sets or takes a notify of a thread, which was in the other state before.
    fn flip(&mut self, thread: ThreadId, index: u16, sets: bool) -> Result<(), Obligation> {
        let Structure { main_notifies, sub_notifies, .. } = *self.structure;
        let number = match usize::from(thread.0).checked_sub(1) {
            None => usize::from(index),
            Some(sub) => usize::from(main_notifies) + sub * usize::from(sub_notifies) + usize::from(index),
        };
        let word = self.set.get_mut(number / 64).ok_or(Obligation::Structure)?;
        let bit = 1 << (number % 64);
        match (*word & bit != 0, sets) {
            (true, true) => return Err(Obligation::Pairing),
            (false, false) => return Err(Obligation::Deadlock),
            _ => *word ^= bit,
        }
        Ok(())
    }
}

/// Checks every task before it goes on to `sink`.
#[derive(Debug)]
pub struct Checked<'a, S, E> {
    local: Local<'a, E>,
    sink: &'a mut S,
}

impl<'a, S: TaskSink, E: Extents> Checked<'a, S, E> {
    /// Begins a graph.
    pub fn new(structure: &'a Structure<E>, sink: &'a mut S) -> Self {
        Self { local: Local::new(structure), sink }
    }

    /// Ends the graph.
    ///
    /// # Errors
    /// `VERIFY_PAIRING` when a notify is left set.
    pub fn finish(self) -> Result<(), ErrorCode> {
        self.local.finish()
    }
}

impl<S: TaskSink, E: Extents> TaskSink for Checked<'_, S, E> {
    #[inline(always)]
    fn caps(&self, peer: Rank) -> Caps {
        self.sink.caps(peer)
    }

    #[inline(always)]
    fn mark(&mut self, phase: Phase, step: u16) {
        self.sink.mark(phase, step);
    }

    #[inline(always)]
    fn task(&mut self, thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        self.local.check(thread, task).map_err(Obligation::code)?;
        self.sink.task(thread, task)
    }

    #[inline(always)]
    fn write_batch(&mut self, thread: ThreadId, batch: &WriteBatch, parts: &[Part]) -> Result<(), ErrorCode> {
        self.local.check_step(thread, None, batch, parts).map_err(Obligation::code)?;
        self.sink.write_batch(thread, batch, parts)
    }

    #[inline(always)]
    fn exchange(
        &mut self,
        thread: ThreadId,
        from: Option<Rank>,
        batch: &WriteBatch,
        parts: &[Part],
    ) -> Result<(), ErrorCode> {
        self.local.check_step(thread, from, batch, parts).map_err(Obligation::code)?;
        self.sink.exchange(thread, from, batch, parts)
    }
}
