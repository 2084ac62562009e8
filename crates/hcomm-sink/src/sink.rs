//! The sink: one call for each task.

use task_graph::{
    Bindings, Caps, ChannelNotify, Link, Rank, RegionId, Resources, Span, Task, TaskSink, ThreadId,
};
use wire::npu::Protocol;
use wire::{DeviceAddr, ErrorCode, Phase, Reduction};

use crate::call::{Call, ChannelHandle, DataPlane, ThreadHandle, Transfer};
use crate::result::Failure;

/// What the data plane calls the threads and channels of a context.
#[derive(Clone, Copy, Debug)]
pub struct Handles<'a> {
    /// Of each thread of the context, in its order.
    pub threads: &'a [u64],
    /// Of each channel of the context, in its order.
    pub channels: &'a [u64],
    /// Of the host's thread.
    pub host: u64,
}

/// What a launch decides and no task carries.
#[derive(Clone, Copy, Debug)]
pub struct LaunchTime {
    /// Seconds a wait may last.
    pub timeout: u32,
    /// The main thread's notify that the host records.
    pub start: u32,
    /// The host thread's notify to record at the end.
    pub done: u32,
    /// Main thread of the operation behind this one, and its notify to record.
    pub next: Option<(ThreadHandle, u32)>,
}

/// What a launch has made so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tasks.
    pub tasks: u32,
    /// Most steps of a chunk.
    pub steps: u16,
    /// Calls made for tasks: copies, reductions, transfers to and from peers, signals.
    pub kinds: [u32; 4],
}

/// What the data plane is like, beyond what the context says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Its local reduction takes types and reductions that the copy engine does not do.
    pub reduces_all: bool,
    /// A queue pair may let a notify overtake the transfers before it, and a thread its reads: a fence goes between.
    pub needs_fences: bool,
}

/// Makes the calls of one rank's tasks.
#[derive(Debug)]
pub struct CallSink<'a, P, B> {
    plane: &'a mut P,
    resources: Resources<'a>,
    bindings: &'a B,
    handles: Handles<'a>,
    launch: LaunchTime,
    traits: Traits,
    tally: Tally,
    /// Channels with transfers that no fence is behind yet, bit per channel.
    unfenced: u128,
    failure: Option<Failure>,
}

impl<'a, P: DataPlane, B: Bindings> CallSink<'a, P, B> {
    /// Makes a sink over a data plane.
    pub fn new(
        plane: &'a mut P,
        resources: Resources<'a>,
        bindings: &'a B,
        handles: Handles<'a>,
        launch: LaunchTime,
        traits: Traits,
    ) -> Self {
        let (tally, unfenced, failure) = (Tally::default(), 0, None);
        Self { plane, resources, bindings, handles, launch, traits, tally, unfenced, failure }
    }

    /// Goes on counting where an earlier operation of the same launch ended.
    #[must_use]
    pub fn counting_on(self, tally: Tally) -> Self {
        Self { tally, ..self }
    }

    /// Returns what has been made.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Returns the data plane, for calls that belong to no task.
    pub fn plane(&mut self) -> &mut P {
        self.plane
    }

    /// Makes a call that belongs to no task, and whose failure is the launch's.
    ///
    /// # Errors
    /// What it failed with; [`failure`](Self::failure) then says more.
    pub fn control(&mut self, call: &Call<'_>) -> Result<(), ErrorCode> {
        self.make(ThreadId::MAIN, call)
    }

    /// Returns the call that failed, once [`task`](TaskSink::task) has returned its code.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    // Always inlined, as `DataPlane::call`: where a call is made its kind is known.
    #[inline(always)]
    fn make(&mut self, thread: ThreadId, call: &Call<'_>) -> Result<(), ErrorCode> {
        match self.plane.call(call) {
            0 => Ok(()),
            result => Err(self.fail(result, call.number(), thread)),
        }
    }

    #[inline(always)]
    fn call(&mut self, thread: ThreadId, call: &Call<'_>) -> Result<(), ErrorCode> {
        self.make(thread, call)?;
        let [copies, reduces, transfers, signals] = &mut self.tally.kinds;
        let kind = match call {
            Call::Local { transfer: Transfer { reduction: None, .. }, .. } => copies,
            Call::Local { .. } => reduces,
            Call::Write { .. } | Call::Read { .. } => transfers,
            _ => signals,
        };
        *kind = kind.saturating_add(1);
        Ok(())
    }

    #[cold]
    fn fail(&mut self, result: i32, call: u8, thread: ThreadId) -> ErrorCode {
        let failure = Failure::new(result, call, thread.0, self.tally.tasks);
        self.failure = Some(failure);
        failure.code
    }

    #[inline]
    fn thread(&self, thread: ThreadId) -> Result<ThreadHandle, ErrorCode> {
        let handle = self.handles.threads.get(usize::from(thread.0));
        handle.map(|handle| ThreadHandle(*handle)).ok_or(ErrorCode::PLAN_INTERNAL)
    }

    #[inline]
    fn channel(&self, peer: Rank) -> Result<Channel, ErrorCode> {
        let Link { channel: entry, queue } = self.resources.link(peer)?;
        let index = usize::from(queue.0).checked_sub(self.handles.threads.len());
        let index = index.ok_or(ErrorCode::PLAN_INTERNAL)?;
        let handle = *self.handles.channels.get(index).ok_or(ErrorCode::PLAN_INTERNAL)?;
        let fenced = self.traits.needs_fences && entry.protocol != Protocol::Hccs as u8;
        // An index that has no bit has no handle: a communicator has at most 128 ranks.
        let bit = if fenced { 1_u128.wrapping_shl(u32::try_from(index).unwrap_or(0)) } else { 0 };
        Ok(Channel { handle: ChannelHandle(handle), most: entry.max_len, bit })
    }

    /// Lets what follows on a channel come behind the transfers before it.
    #[inline]
    fn fence(&mut self, on: ThreadId, channel: &Channel) -> Result<(), ErrorCode> {
        if self.unfenced & channel.bit == 0 {
            return Ok(());
        }
        self.unfenced &= !channel.bit;
        self.make(on, &Call::ChannelFence { thread: self.thread(on)?, channel: channel.handle })
    }

    #[inline]
    fn address(&self, span: &Span) -> Result<DeviceAddr, ErrorCode> {
        let bound = self.bindings.bound(span.region).ok_or(ErrorCode::BINDING_MISSING)?;
        let end = span.offset.checked_add(span.len).ok_or(ErrorCode::BINDING_EXTENT)?;
        if end > bound.len {
            return Err(ErrorCode::BINDING_EXTENT);
        }
        bound.addr.checked_add(span.offset).ok_or(ErrorCode::BINDING_EXTENT)
    }

    /// Makes `call` of every piece that an engine of limit `most` takes in one; the last piece is told.
    #[inline]
    fn pieces(
        &mut self,
        (mut dst, mut src): (Span, Span),
        most: u64,
        reduction: Option<Reduction>,
        mut call: impl FnMut(&mut Self, Transfer, bool) -> Result<(), ErrorCode>,
    ) -> Result<(), ErrorCode> {
        if dst.len != src.len || src.len == 0 {
            return Err(ErrorCode::PLAN_INTERNAL);
        }
        loop {
            let last = src.len <= most;
            let (to, from) = if last { (dst, src) } else { (dst.split_off(most), src.split_off(most)) };
            let (to, from, len) = (self.address(&to)?, self.address(&from)?, from.len);
            call(self, Transfer { dst: to, src: from, len, reduction }, last)?;
            if last {
                return Ok(());
            }
        }
    }

    #[inline]
    fn local(
        &mut self,
        on: ThreadId,
        spans: (Span, Span),
        reduction: Option<Reduction>,
    ) -> Result<(), ErrorCode> {
        let thread = self.thread(on)?;
        if reduction.is_some_and(|how| !self.traits.reduces_all && !self.resources.sdma_reduces(how)) {
            return Err(ErrorCode::PLANE_REDUCE);
        }
        let most = self.resources.sdma_max_len();
        self.pieces(spans, most, reduction, |sink, transfer, _| {
            sink.call(on, &Call::Local { thread, transfer })
        })
    }

    #[inline]
    fn thread_wait(&mut self, on: ThreadId, index: u32) -> Result<(), ErrorCode> {
        let call = Call::ThreadWait { thread: self.thread(on)?, index, timeout: self.launch.timeout };
        self.call(on, &call)
    }

    #[inline]
    fn thread_record(&mut self, on: ThreadId, waiter: ThreadHandle, index: u32) -> Result<(), ErrorCode> {
        self.call(on, &Call::ThreadRecord { thread: self.thread(on)?, waiter, index })
    }
}

impl<P: DataPlane, B: Bindings> TaskSink for CallSink<'_, P, B> {
    #[inline]
    fn caps(&self, peer: Rank) -> Caps {
        self.resources.caps(peer)
    }

    fn mark(&mut self, phase: Phase, step: u16) {
        if phase == Phase::Run {
            self.tally.steps = self.tally.steps.max(step.saturating_add(1));
        }
    }

    #[inline]
    fn task(&mut self, on: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        match *task {
            Task::LocalCopy { dst, src } => self.local(on, (dst, src), None)?,
            Task::LocalReduce { dst, src, reduction } => self.local(on, (dst, src), Some(reduction))?,
            Task::Write { peer, dst, src, reduction, notify } => {
                check_peer(dst.region, peer)?;
                let (thread, channel) = (self.thread(on)?, self.channel(peer)?);
                self.pieces((dst, src), channel.most, reduction, |sink, transfer, last| {
                    // Only the last piece says that the data has landed.
                    let notify = notify.filter(|_| last).map(index_of);
                    if notify.is_some() {
                        sink.fence(on, &channel)?;
                    } else {
                        sink.unfenced |= channel.bit;
                    }
                    sink.call(on, &Call::Write { thread, channel: channel.handle, transfer, notify })
                })?;
            }
            Task::Read { peer, dst, src, reduction } => {
                check_peer(src.region, peer)?;
                let (thread, channel) = (self.thread(on)?, self.channel(peer)?);
                self.pieces((dst, src), channel.most, reduction, |sink, transfer, _| {
                    sink.call(on, &Call::Read { thread, channel: channel.handle, transfer })
                })?;
                if channel.bit != 0 {
                    // What comes next on this thread may look at what was read.
                    self.unfenced &= !channel.bit;
                    self.make(on, &Call::ChannelDrain { thread, channel: channel.handle })?;
                }
            }
            Task::ThreadRecord { thread: waiter, index } => {
                self.resources.thread_notify(waiter, index)?;
                self.thread_record(on, self.thread(waiter)?, u32::from(index))?;
            }
            Task::ThreadWait { index } => {
                self.resources.thread_notify(on, index)?;
                self.thread_wait(on, u32::from(index))?;
            }
            Task::ChannelRecord { peer, notify } => {
                let (thread, channel) = (self.thread(on)?, self.channel(peer)?);
                self.fence(on, &channel)?;
                let (channel, index) = (channel.handle, index_of(notify));
                self.call(on, &Call::ChannelRecord { thread, channel, index })?;
            }
            Task::ChannelWait { peer, notify } => {
                let (thread, channel) = (self.thread(on)?, self.channel(peer)?.handle);
                let (index, timeout) = (index_of(notify), self.launch.timeout);
                self.call(on, &Call::ChannelWait { thread, channel, index, timeout })?;
            }
            Task::WaitStart => self.thread_wait(on, self.launch.start)?,
            Task::RecordDone => {
                self.thread_record(on, ThreadHandle(self.handles.host), self.launch.done)?;
            }
            Task::RecordNext => {
                let (waiter, index) = self.launch.next.ok_or(ErrorCode::PLAN_INTERNAL)?;
                self.thread_record(on, waiter, index)?;
            }
        }
        self.tally.tasks = self.tally.tasks.saturating_add(1);
        Ok(())
    }
}

/// A channel of the data plane.
#[derive(Clone, Copy)]
struct Channel {
    handle: ChannelHandle,
    /// Longest transfer it takes, bytes.
    most: u64,
    /// Its bit among the unfenced ones; 0 where it keeps the order by itself.
    bit: u128,
}

/// The channel notify's number at the data plane.
const fn index_of(notify: ChannelNotify) -> u32 {
    notify as u32
}

fn check_peer(region: RegionId, peer: Rank) -> Result<(), ErrorCode> {
    if region.peer() == Some(peer) { Ok(()) } else { Err(ErrorCode::PLAN_INTERNAL) }
}
