//! The sink: one call for each task.

use task_graph::{Bindings, Caps, ChannelNotify, Rank, RegionId, Resources, Span, Task, TaskSink, ThreadId};
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
}

/// Makes the calls of one rank's tasks.
#[derive(Debug)]
pub struct CallSink<'a, P, B> {
    plane: &'a mut P,
    resources: Resources<'a>,
    bindings: &'a B,
    handles: Handles<'a>,
    launch: LaunchTime,
    reduces_all: bool,
    tasks: u32,
    steps: u16,
    kinds: [u32; 4],
    failure: Option<Failure>,
}

impl<'a, P: DataPlane, B: Bindings> CallSink<'a, P, B> {
    /// Makes a sink over a data plane. `reduces_all` says that its local reduction takes types and reductions that the
    /// copy engine of `resources` does not do.
    pub fn new(
        plane: &'a mut P,
        resources: Resources<'a>,
        bindings: &'a B,
        handles: Handles<'a>,
        launch: LaunchTime,
        reduces_all: bool,
    ) -> Self {
        let (tasks, steps, kinds, failure) = (0, 0, [0; 4], None);
        Self { plane, resources, bindings, handles, launch, reduces_all, tasks, steps, kinds, failure }
    }

    /// Returns the calls made for tasks: copies, reductions, transfers to and from peers, signals.
    #[must_use]
    pub fn kinds(&self) -> [u32; 4] {
        self.kinds
    }

    /// Returns the most steps of a chunk.
    #[must_use]
    pub fn steps(&self) -> u16 {
        self.steps
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
        match self.plane.call(call) {
            0 => Ok(()),
            result => Err(self.fail(result, call.number(), ThreadId::MAIN)),
        }
    }

    /// Returns the call that failed, once [`task`](TaskSink::task) has returned its code.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    #[inline]
    fn call(&mut self, thread: ThreadId, call: &Call<'_>) -> Result<(), ErrorCode> {
        match self.plane.call(call) {
            0 => {
                self.count(call);
                Ok(())
            }
            result => Err(self.fail(result, call.number(), thread)),
        }
    }

    #[inline]
    fn count(&mut self, call: &Call<'_>) {
        let [copies, reduces, transfers, signals] = &mut self.kinds;
        let kind = match call {
            Call::Local { transfer: Transfer { reduction: None, .. }, .. } => copies,
            Call::Local { .. } => reduces,
            Call::Write { .. } | Call::Read { .. } => transfers,
            _ => signals,
        };
        *kind = kind.saturating_add(1);
    }

    #[cold]
    fn fail(&mut self, result: i32, call: u8, thread: ThreadId) -> ErrorCode {
        let failure = Failure::new(result, call, thread.0, self.tasks);
        self.failure = Some(failure);
        failure.code
    }

    #[inline]
    fn thread(&self, thread: ThreadId) -> Result<ThreadHandle, ErrorCode> {
        let handle = self.handles.threads.get(usize::from(thread.0));
        handle.map(|handle| ThreadHandle(*handle)).ok_or(ErrorCode::PLAN_INTERNAL)
    }

    /// The channel to a peer, and the longest transfer it takes.
    #[inline]
    fn channel(&self, peer: Rank) -> Result<(ChannelHandle, u64), ErrorCode> {
        let (entry, queue) = self.resources.channel(peer)?;
        let index = usize::from(queue.0).checked_sub(self.handles.threads.len());
        let handle = index.and_then(|index| self.handles.channels.get(index));
        Ok((ChannelHandle(*handle.ok_or(ErrorCode::PLAN_INTERNAL)?), entry.max_len))
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
        if reduction.is_some_and(|how| !self.reduces_all && !self.resources.sdma_reduces(how)) {
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
            self.steps = self.steps.max(step.saturating_add(1));
        }
    }

    #[inline]
    fn task(&mut self, on: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        match *task {
            Task::LocalCopy { dst, src } => self.local(on, (dst, src), None)?,
            Task::LocalReduce { dst, src, reduction } => self.local(on, (dst, src), Some(reduction))?,
            Task::Write { peer, dst, src, reduction, notify } => {
                check_peer(dst.region, peer)?;
                let (thread, (channel, most)) = (self.thread(on)?, self.channel(peer)?);
                self.pieces((dst, src), most, reduction, |sink, transfer, last| {
                    // Only the last piece says that the data has landed.
                    let notify = notify.filter(|_| last).map(index_of);
                    sink.call(on, &Call::Write { thread, channel, transfer, notify })
                })?;
            }
            Task::Read { peer, dst, src, reduction } => {
                check_peer(src.region, peer)?;
                let (thread, (channel, most)) = (self.thread(on)?, self.channel(peer)?);
                self.pieces((dst, src), most, reduction, |sink, transfer, _| {
                    sink.call(on, &Call::Read { thread, channel, transfer })
                })?;
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
                let (thread, (channel, _)) = (self.thread(on)?, self.channel(peer)?);
                self.call(on, &Call::ChannelRecord { thread, channel, index: index_of(notify) })?;
            }
            Task::ChannelWait { peer, notify } => {
                let (thread, (channel, _)) = (self.thread(on)?, self.channel(peer)?);
                let (index, timeout) = (index_of(notify), self.launch.timeout);
                self.call(on, &Call::ChannelWait { thread, channel, index, timeout })?;
            }
            Task::WaitStart => self.thread_wait(on, self.launch.start)?,
            Task::RecordDone => {
                self.thread_record(on, ThreadHandle(self.handles.host), self.launch.done)?;
            }
            // Programs are not launched over the data plane.
            Task::RecordNext => return Err(ErrorCode::PLAN_INTERNAL),
        }
        self.tasks = self.tasks.saturating_add(1);
        Ok(())
    }
}

/// The channel notify's number at the data plane.
const fn index_of(notify: ChannelNotify) -> u32 {
    notify as u32
}

fn check_peer(region: RegionId, peer: Rank) -> Result<(), ErrorCode> {
    if region.peer() == Some(peer) { Ok(()) } else { Err(ErrorCode::PLAN_INTERNAL) }
}
