//! What operations refer to, copied out of shared memory once: decoded contexts, the program, and the tables of the
//! operation in hand.

use hal::SharedMemory;
use ring::SubmissionRing;
use templates::Plan;
use wire::launch::Launch;
use wire::program::Posted;
use wire::{DeviceAddr, ErrorCode};

use super::operation::Operation;
use crate::attached::Attached;
use crate::bindings::{LaunchBindings, PeerTables};
use crate::context::{ContextTable, OwnedContext};
use crate::kernel::Fault;
use crate::program::LoadedProgram;
use crate::request;

/// An operation whose context is known.
pub(super) struct Opened {
    pub(super) launch: Launch,
    context: usize,
    pub(super) plan: Result<Plan, Fault>,
}

/// What is kept of contexts and of the operation in hand.
#[derive(Debug)]
pub(super) struct Desk {
    contexts: ContextTable,
    program: LoadedProgram,
    attached: Attached,
    peers: PeerTables,
}

impl Desk {
    pub(super) const fn new() -> Self {
        Self {
            contexts: ContextTable::new(),
            program: LoadedProgram::new(),
            attached: Attached::new(),
            peers: PeerTables::new(),
        }
    }

    /// Copies the program, where one was posted; returns the number of operations.
    pub(super) fn load<M: SharedMemory>(&mut self, memory: &M, posted: &Posted) -> Result<usize, Fault> {
        match posted {
            Posted::Operation(_) => Ok(1),
            Posted::Replay(replay) => self.program.load(memory, replay),
        }
    }

    fn launch(&self, posted: &Posted, index: usize) -> Result<Launch, ErrorCode> {
        match posted {
            Posted::Operation(launch) => Ok(*launch),
            Posted::Replay(_) => self.program.launch(index),
        }
    }

    fn find<M: SharedMemory>(&mut self, memory: &M, launch: &Launch) -> Result<usize, Fault> {
        // The rings of a context are another build's.
        let ring = |queue, ring, depth| Ok(SubmissionRing::new(queue, DeviceAddr(ring), depth));
        self.contexts.find(memory, launch, ring).map(|(index, _)| index)
    }

    /// Returns the notify of its main thread at which an operation starts, counted from that thread's first.
    pub(super) fn start<M: SharedMemory>(
        &mut self,
        memory: &M,
        posted: &Posted,
        index: usize,
    ) -> Result<u32, Fault> {
        let launch = self.launch(posted, index)?;
        let context = self.find(memory, &launch)?;
        Ok(start_of(&launch, self.contexts.view(context)?))
    }

    /// Finds the context of an operation and plans it.
    pub(super) fn open<M: SharedMemory>(
        &mut self,
        memory: &M,
        posted: &Posted,
        index: usize,
    ) -> Result<Opened, Fault> {
        let launch = self.launch(posted, index)?;
        let index = self.find(memory, &launch)?;
        let Self { contexts, attached, peers, .. } = self;
        let context = contexts.get(index)?;
        if context.poisoned {
            return Err(ErrorCode::CONTEXT_STALE.into());
        }
        request::check_start(&launch, context)?;
        let ranks = usize::try_from(context.header().ranks).unwrap_or(usize::MAX);
        let plan = attached
            .load(memory, &launch, ranks)
            .and_then(|()| request::plan(&launch, context, attached))
            .and_then(|planned| peers.load(memory, &launch, ranks, planned.reach).map(|()| planned.plan));
        Ok(Opened { launch, context: index, plan })
    }

    /// Returns the context of an operation that has just been opened.
    pub(super) fn context(&self, opened: &Opened) -> Result<&OwnedContext, ErrorCode> {
        self.contexts.view(opened.context)
    }

    /// Returns the buffers of an operation that has just been opened.
    pub(super) fn bindings<'a>(&'a self, opened: &'a Opened) -> Result<LaunchBindings<'a>, ErrorCode> {
        let (context, launch) = (self.context(opened)?, &opened.launch);
        let own = [&launch.input, &launch.output];
        Ok(LaunchBindings::new(own, &self.peers, context.regions(), context.header().rank))
    }

    /// Returns an operation that has just been opened, with all that it refers to.
    ///
    /// # Errors
    /// Why it has no plan.
    pub(super) fn operation<'a>(&'a self, opened: &'a Opened) -> Result<Operation<'a>, Fault> {
        let (context, launch) = (self.context(opened)?, &opened.launch);
        let plan = opened.plan.as_ref().map_err(|fault| *fault)?;
        let tables = context.tables(&self.attached.tables(launch));
        Ok(Operation { launch, plan, tables, context })
    }

    /// Lets nothing of a communicator be served any more.
    pub(super) fn poison(&mut self, (instance, epoch): ([u64; 2], u32)) {
        self.contexts.poison(instance, epoch);
    }
}

/// The main thread's notify at which an operation starts, counted from the first.
pub(super) fn start_of(launch: &Launch, context: &OwnedContext) -> u32 {
    let first = context.threads().first().map_or(0, |main| main.notify_base);
    launch.start_notify.saturating_sub(first)
}
