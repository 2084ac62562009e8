//! Where the graph of a chunk comes from: replayed from the cache, or recorded, packed, and kept where it may be.
//!
//! Either way it is a packed graph, which is bound and submitted in one and the same way. A recording is published
//! only once it is packed whole; whatever fails before leaves nothing that can hit. What the cache refuses runs all
//! the same, from pages that are reserved for one graph of the largest size.

use core::ops::DerefMut;

use graph_verifier::Obligation;
use task_cache::{Directory, FIELD_CAPACITY, Key, Limits, SlotId, Stats, Tally, defaults, field_bytes};
use task_graph::{AffinePatterns, Block, PackedGraph, Page, Pages, Sized, TaskGraph};
use templates::{Plan, Tables};
use wire::ErrorCode;
use wire::launch::{CacheMode, CacheOutcome};

use crate::LARGEST_GRAPH_PAGES;
use crate::attached::Attached;
use crate::cache_key::{self, Wanted};
use crate::context::OwnedContext;
use crate::job::Job;
use crate::plans::Found;
use crate::sizes::Sizes;

/// The graph that is being submitted or was last, and whose it is.
#[derive(Clone, Copy, Debug)]
struct Held {
    graph: PackedGraph,
    /// The cache's entry; `None` for a graph that is given back after submission.
    entry: Option<SlotId>,
}

/// What the graphs of a kernel take, and what its cache has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// Graphs that are kept, and their pages.
    pub kept: Tally,
    /// Pages taken: by graphs that are kept, and by the one that is being submitted.
    pub pages: u32,
    /// Counters.
    pub stats: Stats,
    /// Recordings that the verifier's local part refused.
    pub refused: u64,
}

/// Everything graphs are made of and kept in.
#[derive(Debug)]
pub(crate) struct Graphs<S, T> {
    recorder: TaskGraph<S>,
    pages: Pages<T>,
    directory: Directory<PackedGraph, { defaults::GRAPHS }>,
    sizes: Sizes,
    /// Where the patterns of a graph for all sizes are collected.
    split: AffinePatterns,
    held: Option<Held>,
    /// Recordings that the verifier's local part refused.
    refused: u64,
}

impl<S: DerefMut<Target = [Block]>, T: DerefMut<Target = [Page]>> Graphs<S, T> {
    pub(crate) const fn new(blocks: S, pages: T) -> Self {
        Self {
            recorder: TaskGraph::new(blocks),
            pages: Pages::new(pages),
            directory: Directory::new(),
            sizes: Sizes::new(),
            split: AffinePatterns::new(),
            held: None,
            refused: 0,
        }
    }

    /// Replaces the memory; nothing has been recorded yet.
    pub(crate) fn set_memory(&mut self, blocks: S, pages: T) {
        self.recorder.set_blocks(blocks);
        self.pages = Pages::new(pages);
    }

    /// Shares out the pages: one graph of the largest size can always be submitted, the cache has the rest, and one
    /// communicator at most three quarters of that. As the field does it, there are no shares, nothing gives way, and
    /// what is there is all there will be once it has reached the field's capacity.
    fn share_out(&mut self, mode: CacheMode) {
        let reserved = u32::try_from(LARGEST_GRAPH_PAGES).unwrap_or(u32::MAX);
        let units = u64::from(self.pages.capacity().saturating_sub(reserved));
        let ours = defaults::limits(units, defaults::GRAPHS);
        self.directory.set_limits(match mode {
            CacheMode::On | CacheMode::Off => ours,
            CacheMode::Hccl => {
                let bytes =
                    |graph: PackedGraph| field_bytes(graph.len() - graph.kinds().wqes, graph.kinds().wqes);
                let is_full = self.directory.payloads().map(bytes).sum::<u64>() >= FIELD_CAPACITY;
                let units = if is_full { self.directory.used().units } else { units };
                Limits { units, quota_units: units, quota_slots: u64::MAX, evict: false }
            }
        });
    }

    pub(crate) fn usage(&self) -> CacheUse {
        let (kept, stats) = (self.directory.used(), *self.directory.stats());
        CacheUse { kept, pages: self.pages.taken(), stats, refused: self.refused }
    }

    /// Gives back what a communicator recorded before this epoch: nothing of it can hit any more.
    pub(crate) fn forget_before(&mut self, instance: [u64; 2], epoch: u32) {
        self.put_back();
        let pages = &mut self.pages;
        self.directory.clear_epoch_below(instance, epoch, &mut |graph| pages.release(graph));
    }

    /// Returns the graph that is held, and the pages that it lies in.
    ///
    /// # Errors
    /// `PLAN_INTERNAL` when none is.
    pub(crate) fn held(&self) -> Result<(&Pages<T>, &PackedGraph), ErrorCode> {
        let held = self.held.as_ref().ok_or(ErrorCode::PLAN_INTERNAL)?;
        Ok((&self.pages, &held.graph))
    }

    /// Gets the graph of the job's next chunk, and holds it. Where it may be kept, the cache is asked first and told
    /// afterwards.
    ///
    /// # Errors
    /// What the template, the verifier's local part (counted), the recorder or the pages refuse; nothing is held then.
    pub(crate) fn obtain(
        &mut self,
        job: &Job,
        context: &mut OwnedContext,
        attached: &Attached,
    ) -> Result<CacheOutcome, ErrorCode> {
        let obtained = self.replay_or_record(job, context, attached);
        if let Err(code) = obtained
            && Obligation::of(code).is_some()
        {
            self.refused = self.refused.saturating_add(1);
        }
        obtained
    }

    fn replay_or_record(
        &mut self,
        job: &Job,
        context: &mut OwnedContext,
        attached: &Attached,
    ) -> Result<CacheOutcome, ErrorCode> {
        let planned = context.planned().filter(|_| job.is_planned());
        // A launch with something attached has a plan of its own, of which nothing is known yet.
        let found = planned.and_then(|planned| planned.found.as_ref());
        if let Some(Found { key, entry, .. }) = found.filter(|found| found.features == job.features())
            && job.launch.cache == CacheMode::On
            && self.directory.again(*entry, key)
        {
            self.hold(*entry);
            return Ok(CacheOutcome::Hit);
        }
        self.put_back();
        let attached = &attached.tables(&job.launch);
        let wanted = planned.and_then(|planned| {
            let (around, features) = (context.surroundings(), job.features());
            cache_key::of(&job.launch, &planned.plan, &around, attached, features, Some(&mut self.sizes))
        });
        if let Some(key) = wanted.map(|wanted| wanted.key)
            && let Some(hit) = self.directory.lookup(&key)
        {
            context.plans().note(Found { key, features: job.features(), entry: hit.id });
            self.hold(hit.id);
            return Ok(CacheOutcome::Hit);
        }
        self.share_out(job.launch.cache);
        let plan = planned.map(|planned| &planned.plan);
        job.record(plan, context, attached, &mut self.recorder)?;
        let held = match (wanted, plan) {
            (None, _) | (_, None) => Held { graph: self.pages.pack(&self.recorder)?, entry: None },
            (Some(Wanted { key, class: None }), _) => self.keep_exact(&key)?,
            (Some(Wanted { key, class: Some(class) }), Some(plan)) => {
                match self.pack_shared(job, plan, context) {
                    Ok(graph) => self.keep(&key, graph),
                    Err(_) => {
                        self.sizes.set_apart(class);
                        // The recorder has been used for the other count.
                        job.record(Some(plan), context, attached, &mut self.recorder)?;
                        Held { graph: self.pages.pack(&self.recorder)?, entry: None }
                    }
                }
            }
        };
        self.held = Some(held);
        if let (Some(Wanted { key, .. }), Some(entry)) = (wanted, held.entry) {
            context.plans().note(Found { key, features: job.features(), entry });
        }
        Ok(if wanted.is_some() { CacheOutcome::Miss } else { CacheOutcome::Bypassed })
    }

    /// Holds the graph of an entry that was just found.
    fn hold(&mut self, entry: SlotId) {
        if self.held.is_some_and(|held| held.entry == Some(entry)) {
            return;
        }
        self.put_back();
        // An entry that was just found can be pinned.
        let graph = self.directory.pin(entry).ok();
        self.held = graph.map(|graph| Held { graph, entry: Some(entry) });
    }

    /// Packs the recorded graph where the cache makes room for it, or in reserved pages.
    fn keep_exact(&mut self, key: &Key) -> Result<Held, ErrorCode> {
        let entry = self.begin(key, Pages::<T>::needed(&self.recorder));
        let packed = self.pages.pack(&self.recorder);
        let entry = entry.filter(|&entry| match packed {
            Ok(graph) => self.publish(entry, graph),
            Err(_) => !self.directory.abandon(entry),
        });
        Ok(Held { graph: packed?, entry })
    }

    /// Packs the graph that serves all sizes of the class of `plan`, which is the one recorded. No operation with a vector,
    /// and no script, has a class.
    fn pack_shared(
        &mut self,
        job: &Job,
        plan: &Plan,
        context: &OwnedContext,
    ) -> Result<PackedGraph, ErrorCode> {
        let neighbour = plan
            .neighbour(context.longest_transfer(), &context.tables(&Tables::default()))
            .ok_or(ErrorCode::PLAN_INTERNAL)?;
        let one = Sized { graph: self.pages.pack(&self.recorder)?, unit: plan.unit_bytes() };
        let other = job
            .record(Some(&neighbour), context, &Tables::default(), &mut self.recorder)
            .and_then(|()| self.pages.pack(&self.recorder))
            .map(|graph| Sized { graph, unit: neighbour.unit_bytes() });
        let shared = other.and_then(|other| {
            let shared = self.pages.pack_affine(&one, &other, &mut self.split);
            self.pages.release(other.graph);
            shared
        });
        self.pages.release(one.graph);
        shared
    }

    /// Publishes a graph that is packed already, if the cache will have it.
    fn keep(&mut self, key: &Key, graph: PackedGraph) -> Held {
        let entry = self.begin(key, graph.pages());
        Held { graph, entry: entry.filter(|&entry| self.publish(entry, graph)) }
    }

    /// Makes room for a graph of `needed` pages; `None` when the cache will not have it, which it counts.
    fn begin(&mut self, key: &Key, needed: u32) -> Option<SlotId> {
        let pages = &mut self.pages;
        self.directory.begin(key, needed, &mut |graph| pages.release(graph)).ok()
    }

    /// Publishes a graph that is packed whole, and pins it; returns whether the cache has it now.
    fn publish(&mut self, entry: SlotId, graph: PackedGraph) -> bool {
        let published = self.directory.verify(entry).is_ok() && self.directory.publish(entry, graph).is_ok();
        if !published {
            self.directory.abandon(entry);
        }
        published && self.directory.pin(entry).is_ok()
    }

    /// Gives the graph that was submitted back to the pool. One of the cache's stays held until another is asked for: most
    /// often that is the same.
    pub(crate) fn finish(&mut self) {
        if self.held.is_some_and(|held| held.entry.is_none()) {
            self.put_back();
        }
    }

    /// Gives the graph that is held back, to the cache or to the pool.
    pub(crate) fn put_back(&mut self) {
        let Some(held) = self.held.take() else { return };
        match held.entry {
            None => self.pages.release(held.graph),
            Some(entry) => {
                let pages = &mut self.pages;
                // It was pinned when it was taken.
                let _ = self.directory.unpin(entry, &mut |graph| pages.release(graph));
            }
        }
    }
}
