//! Where the graph of a chunk comes from: recorded, packed, and given back.

use core::ops::DerefMut;

use task_graph::{Block, PackedGraph, Page, Pages, TaskGraph};
use wire::ErrorCode;

use crate::context::OwnedContext;
use crate::job::Job;

/// Everything graphs are made of and kept in.
#[derive(Debug)]
pub(crate) struct Graphs<S, T> {
    recorder: TaskGraph<S>,
    pages: Pages<T>,
    /// The graph that is being submitted.
    held: Option<PackedGraph>,
}

impl<S: DerefMut<Target = [Block]>, T: DerefMut<Target = [Page]>> Graphs<S, T> {
    pub(crate) const fn new(blocks: S, pages: T) -> Self {
        Self { recorder: TaskGraph::new(blocks), pages: Pages::new(pages), held: None }
    }

    /// Replaces the memory; nothing has been recorded yet.
    pub(crate) fn set_memory(&mut self, blocks: S, pages: T) {
        self.recorder.set_blocks(blocks);
        self.pages = Pages::new(pages);
    }

    pub(crate) fn pages(&self) -> &Pages<T> {
        &self.pages
    }

    /// Returns the graph that is being submitted.
    pub(crate) fn held(&self) -> Option<&PackedGraph> {
        self.held.as_ref()
    }

    /// Gets the graph of the job's next chunk; it is held until [`put_back`](Self::put_back).
    ///
    /// # Errors
    /// What the template, the recorder or the pages refuse; nothing is held then.
    pub(crate) fn obtain(&mut self, job: &Job, context: &mut OwnedContext) -> Result<PackedGraph, ErrorCode> {
        self.put_back();
        job.record(context, &mut self.recorder)?;
        let graph = self.pages.pack(&self.recorder)?;
        self.held = Some(graph);
        Ok(graph)
    }

    /// Gives the graph that was submitted back.
    pub(crate) fn put_back(&mut self) {
        if let Some(graph) = self.held.take() {
            self.pages.release(graph);
        }
    }
}
