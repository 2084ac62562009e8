//! A sink that keeps of each task what takes time: kind, bytes, link, and which notify.

use task_graph::{Caps, ChannelNotify, Rank, Task, TaskSink, ThreadId};
use wire::npu::{self, Protocol};
use wire::{ErrorCode, Phase, Reduction};

use super::profile::link_index;

/// What one task is to the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Copies within the device.
    Copy {
        /// Bytes.
        len: u64,
    },
    /// Reduces within the device.
    Reduce {
        /// Bytes.
        len: u64,
        /// By the processor, because no engine can.
        processor: bool,
    },
    /// Writes to a peer, or reads from it.
    Move {
        /// The peer.
        peer: Rank,
        /// Link class, as in `Costs`.
        link: u8,
        /// Bytes.
        len: u64,
        /// Whether the link reduces on the way.
        reduces: bool,
        /// Which way.
        how: How,
    },
    /// Sets a notify of another thread of the rank.
    Set {
        /// The thread.
        thread: u16,
        /// Its notify.
        index: u16,
    },
    /// Waits for a notify of the thread.
    Wait {
        /// The notify.
        index: u16,
    },
    /// Sets a channel notify at a peer.
    Tell {
        /// The peer.
        peer: Rank,
        /// Link class.
        link: u8,
        /// The notify.
        notify: u8,
    },
    /// Waits for a channel notify that a peer sets.
    Hear {
        /// The peer.
        peer: Rank,
        /// The notify.
        notify: u8,
    },
}

/// Which way bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// To this rank.
    Read,
    /// From this rank.
    Write,
    /// From this rank, and this notify of the channel is set at the peer with the last byte.
    WriteAndTell(u8),
}

/// Tasks that a kernel records of one chunk at most; what takes more cannot be carried out, and is not modelled.
const MOST_TASKS: usize = aicpu_kernel::DEFAULT_BLOCKS * task_graph::BLOCK_ENTRIES;

/// The tasks of one rank, thread by thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tasks<'a> {
    links: &'a [Protocol],
    threads: Vec<Vec<Step>>,
    count: usize,
}

impl<'a> Tasks<'a> {
    /// Makes a sink for a rank that has these links to all ranks in rank order; its own entry does not matter.
    #[must_use]
    pub fn new(links: &'a [Protocol]) -> Self {
        Self { links, threads: Vec::new(), count: 0 }
    }

    /// Returns the tasks of each thread, in order.
    #[must_use]
    pub fn into_threads(self) -> Vec<Vec<Step>> {
        self.threads
    }

    fn protocol(&self, peer: Rank) -> Option<Protocol> {
        self.links.get(peer as usize).copied()
    }

    fn link(&self, peer: Rank) -> Result<u8, ErrorCode> {
        let protocol = self.protocol(peer).ok_or(ErrorCode::PLAN_INTERNAL)?;
        // CAST: there are three classes.
        Ok(u8::try_from(link_index(protocol)).unwrap_or(0))
    }
}

/// Returns what a link can do, as contexts say it.
pub(crate) fn caps(protocol: Protocol) -> Caps {
    let (reduce_types, reduce_ops) = match protocol {
        Protocol::Hccs => (npu::sdma::REDUCE_TYPES, npu::sdma::REDUCE_OPS),
        Protocol::Roce => (npu::roce::REDUCE_TYPES, npu::roce::REDUCE_OPS),
        Protocol::Ub => (npu::ub::REDUCE_TYPES, npu::ub::REDUCE_OPS),
    };
    Caps { reduce_types, reduce_ops, write_notify: protocol != Protocol::Roce }
}

fn needs_processor(reduction: Reduction) -> bool {
    let engine = npu::sdma::REDUCE_TYPES >> reduction.dtype as u32 & 1 == 1
        && npu::sdma::REDUCE_OPS >> reduction.op as u32 & 1 == 1;
    !engine
}

impl TaskSink for Tasks<'_> {
    fn caps(&self, peer: Rank) -> Caps {
        caps(self.protocol(peer).unwrap_or(Protocol::Roce))
    }

    fn mark(&mut self, _phase: Phase, _step: u16) {}

    fn task(&mut self, thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        let told = |notify: ChannelNotify| notify as u8;
        let step = match *task {
            Task::LocalCopy { src, .. } => Step::Copy { len: src.len },
            Task::LocalReduce { src, reduction, .. } => {
                Step::Reduce { len: src.len, processor: needs_processor(reduction) }
            }
            Task::Write { peer, src, reduction, notify, .. } => Step::Move {
                peer,
                link: self.link(peer)?,
                len: src.len,
                reduces: reduction.is_some(),
                how: notify.map_or(How::Write, |notify| How::WriteAndTell(told(notify))),
            },
            Task::Read { peer, src, reduction, .. } => Step::Move {
                peer,
                link: self.link(peer)?,
                len: src.len,
                reduces: reduction.is_some(),
                how: How::Read,
            },
            Task::ThreadRecord { thread, index } => Step::Set { thread: thread.0, index },
            Task::ThreadWait { index } => Step::Wait { index },
            Task::ChannelRecord { peer, notify } => {
                Step::Tell { peer, link: self.link(peer)?, notify: told(notify) }
            }
            Task::ChannelWait { peer, notify } => {
                self.link(peer)?;
                Step::Hear { peer, notify: told(notify) }
            }
            // The host's part is the same whatever the algorithm.
            Task::WaitStart | Task::RecordDone | Task::RecordNext => return Ok(()),
        };
        self.count += 1;
        if self.count > MOST_TASKS {
            return Err(ErrorCode::GRAPH_FULL);
        }
        let index = usize::from(thread.0);
        let named = if let Step::Set { thread, .. } = step { usize::from(thread) } else { 0 };
        let least = 1 + index.max(named);
        if self.threads.len() < least {
            self.threads.resize(least, Vec::new());
        }
        self.threads[index].push(step);
        Ok(())
    }
}
