//! Submission: the graph goes into the rings with this launch's bases added.
//!
//! Everything that fits is written first, then every ring that got entries is announced once, in the order in which
//! the template first touched it. A ring that is full does not hold up the others: the next turn goes on where this
//! one stopped. A post enters a thread's ring only after the work request that it lets run is in the queue pair's.

use core::ops::DerefMut;

use hal::Platform;
use heapless::Vec;
use ring::SubmissionRing;
use task_graph::{Cursor, PackedGraph, Page, Pages, Pattern, QUEUES, QueueIndex, QueueRun, Vectors};
use wire::{Descriptor, ErrorCode, Sqe};

/// What is left to submit of one queue.
#[derive(Clone, Copy, Debug)]
struct Feed {
    queue: QueueIndex,
    cursor: Cursor,
    written: u32,
}

/// What is left to submit of a graph.
#[derive(Debug)]
pub(crate) struct Submission {
    /// Of queue pairs, and of threads: each in the order in which the template first touched them.
    pairs: Vec<Feed, QUEUES>,
    threads: Vec<Feed, QUEUES>,
    /// Descriptors left of all.
    left: u32,
}

/// What one turn has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) sqes: u32,
    pub(crate) wqes: u32,
    pub(crate) doorbells: u32,
    /// Whether nothing is left.
    pub(crate) complete: bool,
}

impl Submission {
    pub(crate) const fn new() -> Self {
        Self { pairs: Vec::new(), threads: Vec::new(), left: 0 }
    }

    /// Returns whether nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Forgets what is left.
    pub(crate) fn abandon(&mut self) {
        self.pairs.clear();
        self.threads.clear();
        self.left = 0;
    }

    /// Starts over with a whole graph.
    pub(crate) fn start<T: DerefMut<Target = [Page]>>(
        &mut self,
        pages: &Pages<T>,
        graph: &PackedGraph,
        is_pair: impl Fn(QueueIndex) -> bool,
    ) {
        self.abandon();
        for QueueRun { queue, cursor } in pages.queues(graph) {
            let feeds = if is_pair(queue) { &mut self.pairs } else { &mut self.threads };
            // A graph touches at most QUEUES queues.
            let _ = feeds.push(Feed { queue, cursor, written: 0 });
        }
        self.left = graph.len();
    }

    /// Writes what fits and announces it.
    ///
    /// # Errors
    /// Those of the rings: shared memory is not what the context says, or was overwritten.
    pub(crate) fn turn<P: Platform, T: DerefMut<Target = [Page]>>(
        &mut self,
        platform: &mut P,
        (pages, graph): (&Pages<T>, &PackedGraph),
        vectors: &Vectors,
        rings: &mut [SubmissionRing],
    ) -> Result<Turn, ErrorCode> {
        let Self { pairs, threads, left } = self;
        for pair in pairs.iter_mut() {
            *left -= pair.fill(platform, pages, vectors, rings, |pair| pair.cursor.left())?;
        }
        let behind = pairs.iter().any(|pair| pair.cursor.left() > 0);
        let most = |thread: &Feed| {
            if behind { allowed(pairs, thread, (pages, graph)) } else { thread.cursor.left() }
        };
        for thread in threads.iter_mut() {
            *left -= thread.fill(platform, pages, vectors, rings, most)?;
        }
        let mut turn = Turn::default();
        for pair in pairs {
            // The device rings a queue pair's doorbell itself, when it comes to the post.
            turn.wqes += pair.ring(rings)?.publish(platform)?;
        }
        for thread in threads {
            let announced = thread.ring(rings)?.announce(platform)?;
            turn.sqes += announced.entries;
            turn.doorbells += announced.doorbells;
        }
        turn.complete = *left == 0;
        Ok(turn)
    }
}

impl Feed {
    fn ring<'a>(&self, rings: &'a mut [SubmissionRing]) -> Result<&'a mut SubmissionRing, ErrorCode> {
        rings.get_mut(usize::from(self.queue.0)).ok_or(ErrorCode::PLAN_INTERNAL)
    }

    /// Writes what fits of what `most` says may be written; returns how many.
    #[inline]
    fn fill<P: Platform, T: DerefMut<Target = [Page]>>(
        &mut self,
        platform: &mut P,
        pages: &Pages<T>,
        vectors: &Vectors,
        rings: &mut [SubmissionRing],
        most: impl Fn(&Self) -> u32,
    ) -> Result<u32, ErrorCode> {
        let ring = self.ring(rings)?;
        let before = self.written;
        while self.cursor.left() > 0 {
            let written = ring.fill(platform, most(self), |slots| {
                pages.take(&mut self.cursor, slots, |into, run| {
                    P::rebase(into, run.entries, run.patterns, vectors.bases());
                })
            })?;
            if written == 0 {
                break;
            }
            self.written += written;
        }
        Ok(self.written - before)
    }
}

/// How many descriptors of a thread may be written while some queue pair's ring is behind: those before the first post
/// whose work request is not in its ring yet.
fn allowed<T: DerefMut<Target = [Page]>>(
    pairs: &[Feed],
    thread: &Feed,
    (pages, graph): (&Pages<T>, &PackedGraph),
) -> u32 {
    let run = pages.run(&thread.cursor, thread.cursor.left());
    let blocked = |(entry, pattern): (&Descriptor, &u16)| {
        let Some(Pattern::Post { queue }) = pages.pattern(graph, *pattern) else { return false };
        let needed = Sqe::from(*entry).wqe_tail;
        pairs.iter().any(|pair| pair.queue == queue && pair.written < needed)
    };
    let free = run.entries.iter().zip(run.patterns).position(blocked).unwrap_or(run.entries.len());
    u32::try_from(free).unwrap_or(u32::MAX)
}
