//! The queues of an NPU as its device knows them.
//!
//! The host takes queue slots lowest free first and bumps a slot's generation each time; so the slots ever taken are
//! a prefix of the table, and a slot has changed hands exactly when its generation has.

use core::sync::atomic::Ordering;

use wire::npu::{self, QueueKind, QueueSlot};
use wire::{DESCRIPTOR_BYTES, Descriptor, DeviceAddr, Sqe};
use zerocopy::transmute;

use super::execute::Place;
use crate::fault::FalseHead;
use crate::memory::{Line, Window};
use crate::queue::{Consumer, RingMemory};

/// Why a queue does not go on although it has an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Its entry waits for a notify.
    Notify(u32),
    /// Its entry wants a completion and the completion ring is full.
    Completion,
    /// Its entry is a transfer, or has let one run, that is on its way.
    Transfer,
}

/// One ring that exists.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) id: u16,
    pub(super) ring: u64,
    pub(super) generation: u32,
    pub(super) consumer: Consumer,
    /// Why the entry at the head could not be executed.
    pub(super) held: Option<Hold>,
    /// The entry at the head, copied out, while it is looked at or held.
    pub(super) entry: Sqe,
    /// Bytes of the entry's transfer that have been moved, while it is on its way.
    pub(super) moved: u64,
    /// A queue pair in its error state, or a thread whose task stopped the NPU.
    pub(super) is_broken: bool,
    /// What is wrong with the head that is published.
    pub(super) misled: Option<FalseHead>,
}

impl Queue {
    /// Returns what the consumer reads.
    #[inline]
    pub(super) fn memory<'a>(&self, window: &'a Window) -> Ring<'a> {
        let entries = window.lines(self.ring, self.consumer.cursor().depth());
        Ring { window, entries, id: self.id, is_mute: self.misled.is_some() }
    }

    /// Returns where the entry at the head stands.
    #[inline]
    pub(super) const fn place(&self) -> Place {
        Place { queue: self.id, position: self.consumer.cursor().head_half() }
    }

    /// Copies the entry at the head out, once however often it is held; returns whether there is one.
    #[inline]
    pub(super) fn load(&mut self, memory: &Ring<'_>) -> bool {
        if self.held.is_none() {
            let Some(entry) = self.consumer.entry(memory) else { return false };
            self.entry = entry.into();
        }
        true
    }

    /// Forgets that the entry at the head, and those behind it, were announced: the doorbell that did so never came.
    #[cold]
    pub(super) fn forget(&mut self, memory: &Ring<'_>) {
        let lost = self.consumer.cursor().tail_word();
        self.consumer.forget();
        memory.take_back(lost, self.consumer.cursor().tail_word());
    }

    /// Makes a bit of the entry at the head another.
    #[cold]
    pub(super) fn garble(&mut self, bit: u32) {
        let mut entry = Descriptor::from(self.entry);
        let lanes = u32::try_from(entry.lanes.len()).unwrap_or(1);
        if let Some(lane) = entry.lanes.get_mut((bit / 64 % lanes) as usize) {
            *lane ^= 1 << (bit % 64);
        }
        self.entry = entry.into();
    }

    /// Publishes the head if it moved, or what is wrong with it.
    #[inline]
    pub(super) fn publish(&mut self, memory: &Ring<'_>) {
        match self.misled {
            None => self.consumer.publish(memory),
            Some(wrong) => self.mislead(memory, wrong),
        }
    }

    #[cold]
    fn mislead(&mut self, memory: &Ring<'_>, wrong: FalseHead) {
        let head = match wrong {
            FalseHead::Frozen => return,
            FalseHead::Beyond => self.consumer.cursor().head_word() ^ 1 << 31,
            FalseHead::Back => self.consumer.published().wrapping_sub(1) & u64::from(u32::MAX),
        };
        self.misled = None;
        Ring { is_mute: false, ..*memory }.publish(head);
    }

    /// Publishes the head as it is, and does so from now on.
    pub(super) fn correct(&mut self, window: &Window) {
        self.misled = None;
        if self.is_current(window) {
            self.memory(window).publish(self.consumer.cursor().head_word());
        }
    }

    /// Counts the entry at the head as done.
    #[inline]
    pub(super) fn advance(&mut self, memory: &Ring<'_>) {
        self.held = None;
        self.consumer.advance(memory);
    }

    /// Returns whether the slot still holds this queue.
    #[inline]
    pub(super) fn is_current(&self, window: &Window) -> bool {
        generation(window, self.id) == self.generation
    }

    /// Returns whether running this queue could make progress, from one load.
    #[inline]
    pub(super) fn may_run(&self, window: &Window, completions_have_room: impl Fn() -> bool) -> bool {
        match self.held {
            Some(Hold::Notify(notify)) => {
                // ORDER: a hint; the wait itself loads again with acquire order.
                window.notifies()[notify as usize].load(Ordering::Relaxed) != 0
            }
            Some(Hold::Completion) => completions_have_room(),
            Some(Hold::Transfer) => true,
            None => {
                let cursor = self.consumer.cursor();
                // ORDER: a hint; the consumer loads the doorbell again with acquire order.
                let doorbell = window.doorbells()[usize::from(self.id)].load(Ordering::Relaxed);
                cursor.outstanding() != 0 || doorbell != cursor.tail_word()
            }
        }
    }
}

/// The memory of one ring.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a> {
    window: &'a Window,
    entries: &'a [Line],
    id: u16,
    /// Whether the head is published by nobody but [`Queue::publish`].
    is_mute: bool,
}

impl Ring<'_> {
    /// Puts the doorbell back to what it was before the one that was lost; one that came later stays.
    fn take_back(&self, lost: u64, before: u64) {
        let word = &self.window.doorbells()[usize::from(self.id)];
        // ORDER: nothing is published by this; what was announced before is known already.
        let _ = word.compare_exchange(lost, before, Ordering::AcqRel, Ordering::Relaxed);
    }
}

impl RingMemory for Ring<'_> {
    #[inline]
    fn doorbell(&self) -> u64 {
        // ORDER: pairs with the producer's release store of the doorbell: entries were written before it.
        self.window.doorbells()[usize::from(self.id)].load(Ordering::Acquire)
    }

    #[inline]
    fn entry(&self, slot: u64) -> Descriptor {
        // CAST: below the depth, which is a number of bytes of a mapping.
        #[expect(clippy::cast_possible_truncation, reason = "below the depth")]
        let slot = slot as usize;
        Descriptor { lanes: self.entries[slot].each_ref().map(|lane| lane.load(Ordering::Relaxed)) }
    }

    #[inline]
    fn publish(&self, head: u64) {
        if self.is_mute {
            return;
        }
        // ORDER: pairs with the producer's acquire load of the head: our reads of the entries come before it.
        self.window.heads()[usize::from(self.id)].store(head, Ordering::Release);
    }
}

/// All queues of an NPU.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Generation last seen of each slot ever taken.
    generations: Vec<u32>,
    /// Threads, by ascending slot.
    pub(super) threads: Vec<Queue>,
    /// Queue pairs, by ascending slot.
    pub(super) pairs: Vec<Queue>,
}

impl Queues {
    /// Looks for slots taken since the last look, and returns whether there are any.
    #[inline]
    pub(super) fn extend(&mut self, window: &Window, first: u64) -> bool {
        let known = self.generations.len();
        while let Ok(id) = u16::try_from(self.generations.len())
            && u64::from(id) < npu::MAX_QUEUES
            && generation(window, id) != 0
        {
            self.generations.push(0);
            self.update(window, id, first);
        }
        self.generations.len() != known
    }

    /// Looks at every slot again and returns whether any has changed hands.
    pub(super) fn refresh(&mut self, window: &Window, first: u64) -> bool {
        let mut changed = self.extend(window, first);
        for id in (0..self.generations.len()).filter_map(|id| u16::try_from(id).ok()) {
            if generation(window, id) != self.generations[usize::from(id)] {
                self.update(window, id, first);
                changed = true;
            }
        }
        changed
    }

    /// Forgets the threads whose tasks stopped the NPU, until their slots change hands.
    pub(super) fn drop_broken_threads(&mut self) {
        self.threads.retain(|queue| !queue.is_broken);
    }

    fn update(&mut self, window: &Window, id: u16, first: u64) {
        self.threads.retain(|queue| queue.id != id);
        self.pairs.retain(|queue| queue.id != id);
        // ORDER: pairs with the driver's release store of the last word of a slot.
        self.generations[usize::from(id)] = generation(window, id);
        let slot: QueueSlot =
            transmute!(window.queues()[usize::from(id)].each_ref().map(|word| word.load(Ordering::Relaxed)));
        let kind =
            [QueueKind::Thread, QueueKind::QueuePair].into_iter().find(|kind| *kind as u8 == slot.kind);
        let Some((kind, queue)) = kind.zip(open(window, id, &slot, first)) else { return };
        let list = if kind == QueueKind::Thread { &mut self.threads } else { &mut self.pairs };
        let place = list.partition_point(|other| other.id < id);
        list.insert(place, queue);
    }
}

/// Returns the queue in a slot; `None` where the slot is free or describes no ring of this window.
fn open(window: &Window, id: u16, slot: &QueueSlot, first: u64) -> Option<Queue> {
    let consumer = Consumer::new(first, slot.depth)?;
    let ring = window.offset(DeviceAddr(slot.ring), u64::from(slot.depth) * DESCRIPTOR_BYTES as u64)?;
    let generation = slot.generation;
    let queue = Queue {
        id,
        ring,
        generation,
        consumer,
        held: None,
        entry: Sqe::default(),
        moved: 0,
        is_broken: false,
        misled: None,
    };
    ring.is_multiple_of(DESCRIPTOR_BYTES as u64).then_some(queue)
}

/// Returns the generation of a slot.
#[inline]
fn generation(window: &Window, id: u16) -> u32 {
    const { assert!(core::mem::offset_of!(QueueSlot, generation) == 16) };
    // CAST: the low half of the word.
    #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
    let generation = window.queues()[usize::from(id)][2].load(Ordering::Acquire) as u32;
    generation
}
