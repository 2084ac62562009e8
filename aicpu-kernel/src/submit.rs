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
    is_pair: bool,
}

/// What is left to submit of a graph.
#[derive(Debug)]
pub(crate) struct Submission {
    feeds: Vec<Feed, QUEUES>,
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
        Self { feeds: Vec::new() }
    }

    /// Returns whether nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        self.feeds.iter().all(|feed| feed.cursor.left() == 0)
    }

    /// Forgets what is left.
    pub(crate) fn abandon(&mut self) {
        self.feeds.clear();
    }

    /// Starts over with a whole graph.
    pub(crate) fn start<T: DerefMut<Target = [Page]>>(
        &mut self,
        pages: &Pages<T>,
        graph: &PackedGraph,
        is_pair: impl Fn(QueueIndex) -> bool,
    ) {
        self.feeds.clear();
        for QueueRun { queue, cursor } in pages.queues(graph) {
            let feed = Feed { queue, cursor, written: 0, is_pair: is_pair(queue) };
            // A graph touches at most QUEUES queues.
            let _ = self.feeds.push(feed);
        }
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
        let mut turn = Turn::default();
        for pairs in [true, false] {
            let gated = !pairs && self.feeds.iter().any(|feed| feed.is_pair && feed.cursor.left() > 0);
            for index in 0..self.feeds.len() {
                let Some(mut feed) = self.feeds.get(index).copied().filter(|feed| feed.is_pair == pairs)
                else {
                    continue;
                };
                let ring = rings.get_mut(usize::from(feed.queue.0)).ok_or(ErrorCode::PLAN_INTERNAL)?;
                while feed.cursor.left() > 0 {
                    let most = if gated { self.allowed(pages, graph, &feed) } else { feed.cursor.left() };
                    let written = ring.fill(platform, most, |slots| {
                        pages.take(&mut feed.cursor, slots, |into, run| {
                            P::rebase(into, run.entries, run.patterns, vectors.bases());
                        })
                    })?;
                    if written == 0 {
                        break;
                    }
                    feed.written += written;
                }
                if let Some(slot) = self.feeds.get_mut(index) {
                    *slot = feed;
                }
            }
        }
        self.announce(platform, rings, &mut turn)?;
        turn.complete = self.is_done();
        Ok(turn)
    }

    fn announce<P: Platform>(
        &mut self,
        platform: &mut P,
        rings: &mut [SubmissionRing],
        turn: &mut Turn,
    ) -> Result<(), ErrorCode> {
        for pairs in [true, false] {
            for feed in self.feeds.iter().filter(|feed| feed.is_pair == pairs) {
                let ring = rings.get_mut(usize::from(feed.queue.0)).ok_or(ErrorCode::PLAN_INTERNAL)?;
                if pairs {
                    // The device rings a queue pair's doorbell itself, when it comes to the post.
                    turn.wqes += ring.publish(platform)?;
                } else {
                    let announced = ring.announce(platform)?;
                    turn.sqes += announced.entries;
                    turn.doorbells += announced.doorbells;
                }
            }
        }
        Ok(())
    }

    /// How many descriptors of a thread may be written while some queue pair's ring is behind: those before the
    /// first post whose work request is not in its ring yet.
    fn allowed<T: DerefMut<Target = [Page]>>(
        &self,
        pages: &Pages<T>,
        graph: &PackedGraph,
        feed: &Feed,
    ) -> u32 {
        let run = pages.run(&feed.cursor, feed.cursor.left());
        let blocked = |(entry, pattern): (&Descriptor, &u16)| {
            let Some(Pattern::Post { queue }) = pages.pattern(graph, *pattern) else { return false };
            let needed = Sqe::from(*entry).wqe_tail;
            self.feeds.iter().any(|pair| pair.queue == queue && pair.written < needed)
        };
        let free = run.entries.iter().zip(run.patterns).position(blocked).unwrap_or(run.entries.len());
        u32::try_from(free).unwrap_or(u32::MAX)
    }
}
