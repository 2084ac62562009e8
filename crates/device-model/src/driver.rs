//! The host's handle on one NPU: memory, regions, queues, channels, notifies, the launch mailbox.
//!
//! An [`Npu`] gives out what a window has and takes it back. Who has what is kept here, in the host's own memory;
//! the tables in the window are written, never read back. A window has one handle, in one process.
//!
//! Releasing is the caller's duty, and so is its order: a queue, a region or a channel is released when no task that
//! names it can run any more (no [`Machine`](crate::machine::Machine) is running it, or the queues of all such tasks
//! have been [retired](Npu::retire_queue)). Nothing here waits.

mod error;
mod heap;
mod index_set;
mod leftover;
mod tables;
mod tokens;

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::npu::{self, Status};
use wire::{Cqe, DeviceAddr, LaunchArgs, TraceEvent};
use zerocopy::{FromZeros, IntoBytes, transmute};

use crate::fabric::Fabric;
use crate::memory::Window;
pub use error::DriverError;
use heap::Heap;
use index_set::IndexSet;
pub use leftover::{Leftover, Process};
pub use tables::{Channel, Link, QueueId, Region};
use tokens::Tokens;

/// Byte that fresh memory is filled with, so that reading what nobody wrote shows.
pub const POISON: u8 = 0xa5;

/// Number of a posted launch, for asking what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchTicket(u64);

impl LaunchTicket {
    /// Returns how many launches were posted on its NPU before it.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Host-side handle on one NPU. All methods take `&self`; calls are serialized inside.
#[derive(Debug)]
pub struct Npu {
    fabric: Fabric,
    npu: u32,
    window: Window,
    books: Mutex<Books>,
    /// Launches posted. Apart, since it is needed for every operation, and only for a moment.
    launches: spin::Mutex<u64>,
}

/// Who has what.
#[derive(Debug)]
struct Books {
    heap: Heap,
    regions: IndexSet,
    tokens: HashMap<u32, u32>,
    /// The tokens of each slot that was ever taken.
    fresh_tokens: HashMap<u32, Tokens>,
    queues: IndexSet,
    rings: HashMap<QueueId, DeviceAddr>,
    channels: IndexSet,
    pairs: HashMap<u16, QueueId>,
    notifies: Heap,
    host_notifies: IndexSet,
    /// How many more requests for memory are met before one is refused.
    exhausted_after: Option<u64>,
}

/// How much of an NPU is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of device memory not taken.
    pub free_bytes: u64,
    /// Registered regions.
    pub regions: u64,
    /// Queues of threads and queue pairs.
    pub queues: u64,
    /// Channels.
    pub channels: u64,
    /// Notifies of the device not taken.
    pub free_notifies: u64,
    /// Notifies that the host can wait for.
    pub host_notifies: u64,
}

impl Npu {
    /// Returns the handle on an NPU of a fabric.
    ///
    /// # Panics
    /// When the fabric has no such NPU.
    #[must_use]
    pub fn new(fabric: &Fabric, npu: u32) -> Self {
        let window = fabric.window(npu).clone();
        let books = Books {
            heap: Heap::new(window.base().0 + npu::HEAP..window.base().0 + window.bytes()),
            regions: IndexSet::new(npu::MAX_REGIONS),
            tokens: HashMap::new(),
            fresh_tokens: HashMap::new(),
            queues: IndexSet::new(npu::MAX_QUEUES),
            rings: HashMap::new(),
            channels: IndexSet::new(npu::MAX_CHANNELS),
            pairs: HashMap::new(),
            notifies: Heap::new(0..npu::MAX_NOTIFIES),
            host_notifies: IndexSet::new(npu::HOST_NOTIFIES),
            exhausted_after: None,
        };
        let launches = window.word(npu::LAUNCH_TAIL).load(Ordering::Acquire);
        let (books, launches) = (Mutex::new(books), spin::Mutex::new(launches));
        Self { fabric: fabric.clone(), npu, window, books, launches }
    }

    /// Returns the index of the NPU in its fabric.
    #[inline]
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.npu
    }

    /// Returns the fabric.
    #[inline]
    #[must_use]
    pub const fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Returns the window, for the words that this type has no method for.
    #[inline]
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Each method completes its bookkeeping or changes nothing, so a panic elsewhere leaves it usable.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` bytes of device memory, aligned to `align` (at least a cache line), filled with [`POISON`].
    ///
    /// # Errors
    /// [`DriverError::Argument`] when `bytes` is 0 or `align` is no power of two, [`DriverError::MemoryFull`].
    pub fn alloc(&self, bytes: u64, align: u64) -> Result<DeviceAddr, DriverError> {
        self.alloc_with(bytes, align, &mut self.books())
    }

    fn alloc_with(&self, bytes: u64, align: u64, books: &mut Books) -> Result<DeviceAddr, DriverError> {
        if bytes == 0 || !align.is_power_of_two() {
            return Err(DriverError::Argument(
                "an allocation has no bytes, or an alignment that is no power of two",
            ));
        }
        let full = DriverError::MemoryFull { npu: self.npu, bytes };
        match &mut books.exhausted_after {
            Some(0) => {
                books.exhausted_after = None;
                return Err(full);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let Some(rounded) = bytes.checked_next_multiple_of(64) else { return Err(full) };
        let addr = books.heap.take(rounded, align.max(64)).map(DeviceAddr).ok_or(full)?;
        let offset = self.offset(addr, rounded)?;
        self.window().fill(offset, rounded, POISON);
        Ok(addr)
    }

    /// Arranges that the `nth` request for memory from now on, counted from 1, is refused; `None` takes it back.
    pub fn exhaust_at(&self, nth: Option<u64>) {
        self.books().exhausted_after = nth.map(|nth| nth.saturating_sub(1));
    }

    /// Returns how much of this NPU is taken.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let books = self.books();
        Usage {
            free_bytes: books.heap.free_total(),
            regions: books.regions.taken(),
            queues: books.queues.taken(),
            channels: books.channels.taken(),
            free_notifies: books.notifies.free_total(),
            host_notifies: books.host_notifies.taken(),
        }
    }

    /// Gives memory back.
    ///
    /// # Errors
    /// [`DriverError::Handle`] when no allocation starts there.
    pub fn free(&self, addr: DeviceAddr) -> Result<(), DriverError> {
        self.books().heap.give_back(addr.0).ok_or(DriverError::Handle { what: "allocation", number: addr.0 })
    }

    /// Returns the bytes of device memory not taken.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.books().heap.free_total()
    }

    /// Copies bytes from device memory.
    ///
    /// # Errors
    /// [`DriverError::Range`] when they are not all in this NPU's window.
    pub fn read(&self, from: DeviceAddr, into: &mut [u8]) -> Result<(), DriverError> {
        let offset = self.offset(from, into.len() as u64)?;
        self.window().read(offset, into);
        Ok(())
    }

    /// Copies bytes to device memory.
    ///
    /// # Errors
    /// As [`Npu::read`].
    pub fn write(&self, to: DeviceAddr, bytes: &[u8]) -> Result<(), DriverError> {
        let offset = self.offset(to, bytes.len() as u64)?;
        self.window().write(offset, bytes);
        Ok(())
    }

    fn offset(&self, addr: DeviceAddr, len: u64) -> Result<u64, DriverError> {
        self.window().offset(addr, len).ok_or(DriverError::Range { npu: self.npu, addr, len })
    }

    /// Takes `count` consecutive notifies, all clear.
    ///
    /// # Errors
    /// [`DriverError::Argument`] when `count` is 0, [`DriverError::NotifiesFull`].
    pub fn alloc_notifies(&self, count: u32) -> Result<Range<u32>, DriverError> {
        if count == 0 {
            return Err(DriverError::Argument("a run of notifies is empty"));
        }
        let taken = self.books().notifies.take(u64::from(count), 1);
        let first = taken.and_then(|first| u32::try_from(first).ok());
        let first = first.ok_or(DriverError::NotifiesFull { npu: self.npu, count })?;
        for notify in first..first + count {
            self.window().half(npu::NOTIFIES + 4 * u64::from(notify)).store(0, Ordering::Release);
        }
        Ok(first..first + count)
    }

    /// Gives a run of notifies back, by its first.
    ///
    /// # Errors
    /// [`DriverError::Handle`] when no run starts there.
    pub fn free_notifies(&self, first: u32) -> Result<(), DriverError> {
        let given = self.books().notifies.give_back(u64::from(first));
        given.ok_or(DriverError::Handle { what: "run of notifies", number: u64::from(first) })
    }

    /// Records a notify of this NPU, as the host does for start notifies, and returns whether it was clear.
    ///
    /// # Panics
    /// When there is no such notify.
    pub fn set_notify(&self, notify: u32) -> bool {
        assert!(u64::from(notify) < npu::MAX_NOTIFIES, "notify {notify} does not exist");
        // ORDER: pairs with the device's acquire load: what the host wrote before is seen by the task that waited.
        // One notify has one recorder, so looking and setting need not be one step.
        let word = self.window().half(npu::NOTIFIES + 4 * u64::from(notify));
        let was = word.load(Ordering::Relaxed);
        word.store(1, Ordering::Release);
        self.fabric.mark(self.npu);
        was == 0
    }

    /// Returns the first of some notifies that is set.
    ///
    /// # Panics
    /// When there is no such notify.
    #[inline]
    #[must_use]
    pub fn first_set(&self, notifies: Range<u32>) -> Option<u32> {
        assert!(u64::from(notifies.end) <= npu::MAX_NOTIFIES, "notify {} does not exist", notifies.end);
        // Two notifies are one word, and as a rule all are clear.
        let pairs = notifies.start / 2..notifies.end.div_ceil(2);
        let words = self.window().word_slice(
            npu::NOTIFIES + 8 * u64::from(pairs.start),
            u64::from(pairs.end.saturating_sub(pairs.start)),
        );
        // ORDER: pairs with the device's release store of each.
        let any = words.iter().fold(0, |any, word| any | word.load(Ordering::Acquire));
        let is_set = |notify: &u32| {
            self.window().half(npu::NOTIFIES + 4 * u64::from(*notify)).load(Ordering::Acquire) != 0
        };
        if any == 0 { None } else { notifies.clone().find(is_set) }
    }

    /// Takes a notify that the device can record for the host; see [`Npu::host_notify_count`].
    ///
    /// # Errors
    /// [`DriverError::HostNotifiesFull`].
    pub fn alloc_host_notify(&self) -> Result<u32, DriverError> {
        self.books().host_notifies.take().ok_or(DriverError::HostNotifiesFull { npu: self.npu })
    }

    /// Gives a host notify back.
    ///
    /// # Errors
    /// [`DriverError::Handle`] when it was not taken.
    pub fn free_host_notify(&self, notify: u32) -> Result<(), DriverError> {
        let given = self.books().host_notifies.give_back(notify);
        given.ok_or(DriverError::Handle { what: "host notify", number: u64::from(notify) })
    }

    /// Returns how often the device has recorded a host notify since the window was created. It never goes back:
    /// compare with the count before the launch.
    ///
    /// # Panics
    /// When there is no such host notify.
    #[inline]
    #[must_use]
    pub fn host_notify_count(&self, notify: u32) -> u64 {
        assert!(u64::from(notify) < npu::HOST_NOTIFIES, "host notify {notify} does not exist");
        // ORDER: pairs with the device's release store: payload written before the record can be read after.
        self.window().word(npu::HOST_NOTIFY + 8 * u64::from(notify)).load(Ordering::Acquire)
    }

    /// Posts a launch to the kernel's mailbox.
    ///
    /// # Errors
    /// [`DriverError::LaunchesFull`] when the kernel has yet to answer as many launches as the mailbox holds.
    pub fn post_launch(&self, args: &LaunchArgs) -> Result<LaunchTicket, DriverError> {
        let mut launches = self.launches.lock();
        let number = *launches;
        // ORDER: pairs with the kernel's release store: it has read the slot that is overwritten next.
        let answered = self.window().word(npu::LAUNCH_HEAD).load(Ordering::Acquire);
        if number.wrapping_sub(answered) >= npu::LAUNCH_SLOTS {
            return Err(DriverError::LaunchesFull { npu: self.npu });
        }
        let slot = number % npu::LAUNCH_SLOTS;
        self.window().write(npu::LAUNCHES + slot * size_of::<LaunchArgs>() as u64, args.as_bytes());
        *launches += 1;
        // ORDER: pairs with the kernel's acquire load: the arguments are complete.
        self.window().word(npu::LAUNCH_TAIL).store(*launches, Ordering::Release);
        self.fabric.mark(self.npu);
        Ok(LaunchTicket(number))
    }

    /// Returns the kernel's answer to a launch, `None` while there is none. An answer is kept until
    /// `wire::npu::LAUNCH_SLOTS` more launches have been answered.
    #[inline]
    #[must_use]
    pub fn status(&self, ticket: LaunchTicket) -> Option<Status> {
        // ORDER: pairs with the kernel's release store of the head, which follows the status.
        let answered = self.window().word(npu::LAUNCH_HEAD).load(Ordering::Acquire);
        let slot = ticket.0 % npu::LAUNCH_SLOTS;
        let at = npu::STATUSES + slot * size_of::<Status>() as u64;
        (answered > ticket.0).then(|| transmute!(self.window().load_words::<8>(at)))
    }

    /// Returns whether the kernel has answered a launch.
    #[inline]
    #[must_use]
    pub fn has_answered(&self, ticket: LaunchTicket) -> bool {
        // ORDER: as in `status`.
        self.window().word(npu::LAUNCH_HEAD).load(Ordering::Acquire) > ticket.0
    }

    /// Returns the error that stopped the device.
    #[must_use]
    pub fn device_error(&self) -> Option<Cqe> {
        // ORDER: pairs with the device's release store of the flag, which follows the record.
        let failed = self.window().word(npu::DEVICE_ERROR_FLAG).load(Ordering::Acquire) != 0;
        failed.then(|| transmute!(self.window().load_words::<4>(npu::DEVICE_ERROR)))
    }

    /// Returns the newest trace events of the kernel, oldest first, at most `wire::npu::TRACE_DEPTH`. Meant for a
    /// kernel at rest: events that it writes meanwhile may appear half written.
    #[must_use]
    pub fn trace(&self) -> Vec<TraceEvent> {
        // ORDER: pairs with the kernel's release store of the tail, which follows the event.
        let tail = self.window().word(npu::TRACE_TAIL).load(Ordering::Acquire);
        let kept = tail.min(npu::TRACE_DEPTH);
        let event = |position: u64| {
            let mut event = TraceEvent::new_zeroed();
            let slot = position % npu::TRACE_DEPTH;
            self.window().read(npu::TRACE + slot * size_of::<TraceEvent>() as u64, event.as_mut_bytes());
            event
        };
        (tail - kept..tail).map(event).collect()
    }
}
