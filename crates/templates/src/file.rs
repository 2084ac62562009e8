//! Algorithms from files: the tasks of a script, with its places and parts made into bytes.
//!
//! The elements at hand, of the whole or of every block, are cut into the script's parts, as equal as can be. A place in
//! a user's buffer is a block, in which the part that is moved has its own place; a place in scratch is a slot, which
//! holds any part. What the tasks do, in which order and on which thread, was decided when the script was made
//! (`aicpu-algorithm-file`), which also says in what order it reduces.

use core::num::NonZero;

use task_graph::{ChannelNotify, Rank, RegionKind, Span, Task, TaskSink, ThreadId};
use wire::launch::{OpKind, Staging};
use wire::script::{Action, Instruction, Memory, Place, Script, ScriptHeader, Told};
use wire::{ErrorCode, Phase};

use crate::plan::{CHUNK_ALIGN, PlanError, Shape};
use crate::skeleton::{Boundary, Emitted, Emitter};
use crate::tasks::{at, own};

/// How a script cuts elements and scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Parts of the whole, or of each block.
    pub(crate) parts: NonZero<u32>,
    /// Slots of the scratch buffer.
    pub(crate) slots: u32,
    /// Threads.
    pub(crate) threads: u16,
    /// Notifies of the main thread.
    pub(crate) main_notifies: u16,
    /// Notifies of each sub thread.
    pub(crate) sub_notifies: u16,
}

impl Cut {
    /// Checks that a script is for this shape.
    ///
    /// # Errors
    /// `PLAN_OP` without a script, `SCRIPT_MISMATCH` for another operation, rank, number of ranks or use of buffers.
    pub(crate) fn of(shape: &Shape, script: Option<Script<'_>>) -> Result<Self, PlanError> {
        let fail = |code, need, limit| PlanError { code, need, limit };
        let header = script.ok_or(fail(ErrorCode::PLAN_OP, 0, 0))?.header();
        let ScriptHeader {
            parts,
            slots,
            rank,
            ranks,
            threads,
            main_notifies,
            sub_notifies,
            op,
            in_place,
            ..
        } = *header;
        let parts = NonZero::new(parts).ok_or(fail(ErrorCode::SCRIPT_FORMAT, 0, 0))?;
        if u32::from(ranks) != shape.ranks {
            return Err(fail(ErrorCode::SCRIPT_MISMATCH, u64::from(ranks), u64::from(shape.ranks)));
        }
        let same = u32::from(rank) == shape.rank
            && OpKind::try_from(op) == Ok(shape.op)
            && ((in_place == 1) == shape.in_place || shape.count == 0);
        if !same {
            return Err(fail(ErrorCode::SCRIPT_MISMATCH, u64::from(rank), u64::from(shape.rank)));
        }
        if shape.threads < threads {
            return Err(fail(ErrorCode::PLAN_THREADS, u64::from(threads), u64::from(shape.threads)));
        }
        Ok(Self { parts, slots, threads, main_notifies, sub_notifies })
    }

    /// Returns the most elements of the whole, or of each block, that scratch has room for at once.
    ///
    /// # Errors
    /// `PLAN_STAGING` for work without scratch, `PLAN_SCRATCH` when not one element of each part fits.
    pub(crate) fn chunk_elements(self, shape: &Shape) -> Result<u64, PlanError> {
        if shape.staging == Staging::Direct {
            return Err(PlanError { code: ErrorCode::PLAN_STAGING, need: 0, limit: 0 });
        }
        let wanted = if shape.chunk == 0 { shape.count } else { shape.chunk.min(shape.count) };
        let Some(slot) = shape.scratch_len.checked_div(u64::from(self.slots)) else { return Ok(wanted) };
        let elements = slot / CHUNK_ALIGN * CHUNK_ALIGN / shape.dtype.size_bytes();
        if elements == 0 {
            let need = u64::from(self.slots) * CHUNK_ALIGN;
            return Err(PlanError { code: ErrorCode::PLAN_SCRATCH, need, limit: shape.scratch_len });
        }
        Ok(wanted.min(elements.saturating_mul(u64::from(self.parts.get()))))
    }
}

/// Returns the scratch with which a script runs in one chunk, bytes; the shape's own scratch length does not matter.
#[must_use]
pub fn script_scratch_bytes(shape: &Shape, header: &ScriptHeader) -> u64 {
    let whole = if shape.chunk == 0 { shape.count } else { shape.chunk.min(shape.count) };
    let longest = whole.div_ceil(u64::from(header.parts.max(1))).saturating_mul(shape.dtype.size_bytes());
    let slot = longest.max(1).saturating_add(CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
    slot.saturating_mul(u64::from(header.slots))
}

/// Elements cut into parts that differ by one at most, the longer ones first.
#[derive(Clone, Copy)]
struct Parts {
    each: u64,
    longer: u64,
}

impl Parts {
    fn cut(count: u64, parts: NonZero<u32>) -> Self {
        let parts = NonZero::<u64>::from(parts);
        Self { each: count / parts, longer: count % parts }
    }

    /// First element and number of elements.
    fn get(self, part: u16) -> (u64, u64) {
        let part = u64::from(part);
        (part * self.each + part.min(self.longer), self.each + u64::from(part < self.longer))
    }
}

impl<S: TaskSink> Emitter<'_, S> {
    /// Syncs at the communication boundary: chunks of elements do not overlap.
    pub(crate) fn file_algorithm(&mut self, cut: Cut) -> Emitted {
        let script = self.tables.script.ok_or(ErrorCode::PLAN_OP)?;
        let parts = Parts::cut(self.chunk.count, cut.parts);
        self.sink.mark(Phase::PreSync, 0);
        self.start_subs(Boundary::Communication)?;
        self.sink.mark(Phase::Run, 0);
        let (mut step, mut last) = (0, 0);
        for entry in script.entries() {
            let instruction = entry.instruction().ok_or(ErrorCode::SCRIPT_ENTRY)?;
            if instruction.step != step {
                step = instruction.step;
                last = step.max(last);
                self.sink.mark(Phase::Run, step);
            }
            self.instruct(&instruction, parts)?;
        }
        self.sink.mark(Phase::PostSync, last);
        self.join_subs(Boundary::Communication)
    }

    #[inline]
    fn instruct(&mut self, instruction: &Instruction, parts: Parts) -> Emitted {
        let thread = ThreadId(u16::from(instruction.thread));
        match instruction.action {
            Action::Copy { dst, src, part } => {
                self.copy(thread, self.place(dst, parts, part), self.place(src, parts, part))
            }
            Action::Reduce { dst, src, part } => {
                self.reduce(thread, self.place(dst, parts, part), self.place(src, parts, part))
            }
            Action::Write { peer, slot, src, part, last } => {
                let (peer, src) = (Rank::from(peer), self.place(src, parts, part));
                let dst = at(peer, RegionKind::Scratch, self.slot(u32::from(slot), src.len));
                self.write(thread, peer, dst, src, None, last.then_some(ChannelNotify::Data))
            }
            Action::Tell { peer, what } => self.record(thread, Rank::from(peer), notify(what)),
            Action::Await { peer, what } => self.wait(thread, Rank::from(peer), notify(what)),
            Action::Signal { thread: told, notify } => {
                self.sink.task(thread, &Task::ThreadRecord { thread: ThreadId(told), index: notify })
            }
            Action::Wait { notify } => self.sink.task(thread, &Task::ThreadWait { index: notify }),
        }
    }

    /// The bytes of a part at a place.
    #[inline]
    fn place(&self, place: Place, parts: Parts, part: u16) -> Span {
        let (first, count) = parts.get(part);
        let len = count * self.element;
        let user = |kind| {
            let block = u64::from(place.index) * self.plan.shape().count;
            own(kind, ((block + self.chunk.first + first) * self.element, len))
        };
        match place.memory {
            Memory::Input => user(RegionKind::Input),
            Memory::Output => user(RegionKind::Output),
            Memory::Scratch => own(RegionKind::Scratch, self.slot(u32::from(place.index), len)),
        }
    }
}

fn notify(what: Told) -> ChannelNotify {
    match what {
        Told::Free => ChannelNotify::Ack,
        Told::Landed => ChannelNotify::Data,
        Told::Received => ChannelNotify::Fin,
    }
}
