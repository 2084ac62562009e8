//! Recorded launches: the tasks of a chunk as the template wrote them, in pages.
//!
//! Where no rings are filled there are no descriptors to keep; what a replay saves is the expansion. Operands are spans,
//! so a tape is replayed with the buffers of any launch that has its key.

use core::ops::DerefMut;

use graph_verifier::{Lengths, Local, Obligation, Structure};
use task_cache::{Directory, Key, defaults};
use task_graph::{Caps, Rank, Resources, Task, TaskSink, ThreadId};
use wire::{ErrorCode, Phase};

/// Tasks of one page.
const PAGE_TASKS: u32 = 32;
/// The page number that means: none.
const NONE: u32 = u32::MAX;

/// A piece of a tape.
#[derive(Clone, Debug)]
pub struct TapePage {
    next: u32,
    tasks: [(ThreadId, Task); PAGE_TASKS as usize],
}

impl TapePage {
    /// A page without tasks.
    pub const EMPTY: Self = Self { next: 0, tasks: [(ThreadId::MAIN, Task::WaitStart); PAGE_TASKS as usize] };
}

/// A recorded chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tape {
    first: u32,
    tasks: u32,
    steps: u16,
}

/// The tapes, and who has which page.
#[derive(Debug)]
pub struct Tapes<T> {
    pages: T,
    /// First page that nobody has; the others follow by their `next`.
    free: u32,
    directory: Directory<Tape, { defaults::LAUNCHES }>,
}

impl<T: DerefMut<Target = [TapePage]>> Tapes<T> {
    /// Makes tapes of these pages, which nobody has yet.
    pub fn new(mut pages: T) -> Self {
        let (mut free, mut directory) = (NONE, Directory::new());
        for (index, page) in (0..).zip(pages.iter_mut()) {
            (page.next, free) = (free, index);
        }
        let units = pages.len() as u64;
        directory.set_limits(defaults::limits(units, defaults::LAUNCHES));
        Self { pages, free, directory }
    }

    /// Returns the tape of a key, good until something is recorded.
    pub(crate) fn find(&mut self, key: &Key) -> Option<Tape> {
        Some(self.directory.lookup(key)?.payload)
    }

    /// Writes a tape to `sink`.
    pub(crate) fn play(&self, tape: Tape, sink: &mut impl TaskSink) -> Result<(), ErrorCode> {
        if let Some(last) = tape.steps.checked_sub(1) {
            sink.mark(Phase::Run, last);
        }
        let (mut at, mut left) = (tape.first, tape.tasks);
        while let Some(page) = self.page(at).filter(|_| left > 0) {
            let count = left.min(PAGE_TASKS);
            for (thread, task) in page.tasks.iter().take(count as usize) {
                sink.task(*thread, task)?;
            }
            (at, left) = (page.next, left - count);
        }
        if left == 0 { Ok(()) } else { Err(ErrorCode::PLAN_INTERNAL) }
    }

    /// Records what `emit` writes, `tasks` tasks, which goes to `sink` too. Where there is no room, or when `emit`
    /// fails, nothing is kept.
    pub(crate) fn record<S: TaskSink>(
        &mut self,
        (key, tasks): (&Key, u32),
        resources: Resources<'_>,
        sink: &mut S,
        emit: impl FnOnce(&mut Pass<'_, T, S>) -> Result<(), ErrorCode>,
    ) -> Result<(), ErrorCode> {
        let (pages, free) = (&mut self.pages, &mut self.free);
        let release = &mut |tape: Tape| give_back(pages, free, tape.first);
        let entry = self.directory.begin(key, tasks.div_ceil(PAGE_TASKS), release).ok();
        let Some(entry) = entry else { return emit(&mut Pass::on(sink, resources)) };
        let mut pass = Pass { tapes: Some(self), ..Pass::on(sink, resources) };
        let emitted = emit(&mut pass);
        let (tape, kept) = (pass.tape, pass.tapes.is_some() && emitted.is_ok());
        let published =
            kept && self.directory.verify(entry).is_ok() && self.directory.publish(entry, tape).is_ok();
        if !published {
            self.directory.abandon(entry);
            give_back(&mut self.pages, &mut self.free, tape.first);
        }
        emitted
    }

    /// Forgets what a communicator has recorded.
    pub(crate) fn clear(&mut self, instance: [u64; 2]) {
        let (pages, free) = (&mut self.pages, &mut self.free);
        self.directory.clear(instance, &mut |tape: Tape| give_back(pages, free, tape.first));
    }

    fn page(&self, index: u32) -> Option<&TapePage> {
        self.pages.get(usize::try_from(index).ok()?)
    }
}

/// Puts a chain of pages on the list of free ones.
fn give_back<T: DerefMut<Target = [TapePage]>>(pages: &mut T, free: &mut u32, first: u32) {
    let mut at = first;
    while let Some(page) = usize::try_from(at).ok().and_then(|at| pages.get_mut(at)) {
        let next = page.next;
        (page.next, *free) = (*free, at);
        at = next;
    }
}

/// What templates write to: passes tasks on, records them where that is wanted, or proves and counts them and passes
/// none on. One type for all three, so that the templates are compiled once.
pub(crate) struct Pass<'a, T, S> {
    resources: Resources<'a>,
    sink: Option<&'a mut S>,
    /// Where tasks are recorded, as long as there is room.
    tapes: Option<&'a mut Tapes<T>>,
    tape: Tape,
    /// Page that is being filled.
    last: u32,
    proof: Option<Proof<'a>>,
}

/// The verifier's local part over a plan that is not submitted yet, and what it writes.
struct Proof<'a> {
    local: Local<'a, Lengths>,
    counted: Counted,
}

/// What a plan writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) tasks: u32,
    /// Local reductions among them.
    pub(crate) reduces: u32,
}

impl Counted {
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            tasks: self.tasks.saturating_add(other.tasks),
            reduces: self.reduces.saturating_add(other.reduces),
        }
    }
}

impl<'a, T: DerefMut<Target = [TapePage]>, S> Pass<'a, T, S> {
    /// Passes tasks on.
    pub(crate) fn on(sink: &'a mut S, resources: Resources<'a>) -> Self {
        let tape = Tape { first: NONE, tasks: 0, steps: 0 };
        Self { resources, sink: Some(sink), tapes: None, tape, last: NONE, proof: None }
    }

    /// Proves the tasks of one chunk, none of which goes anywhere.
    pub(crate) fn proving(structure: &'a Structure<Lengths>, resources: Resources<'a>) -> Self {
        let tape = Tape { first: NONE, tasks: 0, steps: 0 };
        let proof = Proof { local: Local::new(structure), counted: Counted::default() };
        Self { resources, sink: None, tapes: None, tape, last: NONE, proof: Some(proof) }
    }

    /// Ends the proof and returns what has been counted.
    ///
    /// # Errors
    /// What the verifier's local part refuses of the whole.
    pub(crate) fn proved(self) -> Result<Counted, ErrorCode> {
        let Proof { local, counted } = self.proof.ok_or(ErrorCode::PLAN_INTERNAL)?;
        local.finish().map(|()| counted)
    }

    /// Notes a task; `None` when there is no page for it.
    fn note(&mut self, thread: ThreadId, task: &Task) -> Option<()> {
        let tapes = self.tapes.as_deref_mut()?;
        let slot = (self.tape.tasks % PAGE_TASKS) as usize; // CAST: u32 fits usize.
        if slot == 0 {
            let fresh = tapes.free;
            let page = tapes.pages.get_mut(usize::try_from(fresh).ok()?)?;
            (tapes.free, page.next) = (page.next, NONE);
            match tapes.pages.get_mut(usize::try_from(self.last).ok()?) {
                Some(last) => last.next = fresh,
                None => self.tape.first = fresh,
            }
            self.last = fresh;
        }
        let page = tapes.pages.get_mut(usize::try_from(self.last).ok()?)?;
        *page.tasks.get_mut(slot)? = (thread, *task);
        self.tape.tasks += 1;
        Some(())
    }
}

impl<T: DerefMut<Target = [TapePage]>, S: TaskSink> TaskSink for Pass<'_, T, S> {
    fn caps(&self, peer: Rank) -> Caps {
        self.resources.caps(peer)
    }

    fn mark(&mut self, phase: Phase, step: u16) {
        if phase == Phase::Run {
            self.tape.steps = self.tape.steps.max(step.saturating_add(1));
        }
        if let Some(sink) = &mut self.sink {
            sink.mark(phase, step);
        }
    }

    // Not inlined: a template writes tasks in dozens of places.
    #[inline(never)]
    fn task(&mut self, thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        if let Some(Proof { local, counted }) = &mut self.proof {
            counted.tasks = counted.tasks.saturating_add(1);
            let reduces = u32::from(matches!(task, Task::LocalReduce { .. }));
            counted.reduces = counted.reduces.saturating_add(reduces);
            local.check(thread, task).map_err(Obligation::code)?;
        }
        if self.tapes.is_some() && self.note(thread, task).is_none() {
            self.tapes = None;
        }
        self.sink.as_mut().map_or(Ok(()), |sink| sink.task(thread, task))
    }
}
