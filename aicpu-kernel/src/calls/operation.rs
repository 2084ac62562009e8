//! One operation: where its tasks come from, the proof of what is not replayed, and the calls.

use core::ops::DerefMut;

use hcomm_sink::{Call, CallSink, DataPlane};
use task_cache::Key;
use task_graph::Bindings;
use templates::{Plan, Shape, Tables};
use wire::launch::{CacheOutcome, Launch, Staging};
use wire::{ErrorCode, Reduction};

use super::tag::Tag;
use super::tape::{Counted, Pass, Tape, TapePage, Tapes};
use crate::context::OwnedContext;
use crate::kernel::Fault;
use crate::{cache_key, check};

/// An operation, and what it refers to.
pub(super) struct Operation<'a> {
    pub(super) launch: &'a Launch,
    pub(super) plan: &'a Plan,
    pub(super) tables: Tables<'a>,
    pub(super) context: &'a OwnedContext,
}

/// Where the tasks of an operation come from. What is not replayed has been proved.
pub(super) enum Source {
    /// The library has recorded them under this tag.
    Recorded(Tag),
    /// The library records them under this tag while they are submitted.
    Recording(Tag),
    /// This kernel has recorded them.
    Tape(Tape),
    /// This kernel records so many tasks under this key while they are submitted.
    Taping(Key, u32),
    /// They are expanded for this launch alone.
    Plan,
}

impl Operation<'_> {
    /// Refuses local reductions that neither the copy engine nor the data plane does.
    ///
    /// # Errors
    /// `PLANE_REDUCE`, with data type and reduction.
    pub(super) fn check_reductions<T, P, B>(&self, reduces_all: bool) -> Result<(), Fault>
    where
        T: DerefMut<Target = [TapePage]>,
        P: DataPlane,
        B: Bindings,
    {
        let Shape { dtype, reduce, .. } = *self.plan.shape();
        if reduces_all
            || self.context.resources()?.sdma_reduces(Reduction { dtype, op: reduce })
            || self.prove::<T, P, B>()?.reduces == 0
        {
            return Ok(());
        }
        Err(Fault { code: ErrorCode::PLANE_REDUCE, detail: dtype as u64 | (reduce as u64) << 8 })
    }

    /// Decides where the tasks come from; nothing is submitted.
    ///
    /// # Errors
    /// What the template or the verifier's local part refuses.
    pub(super) fn source<T, P, B>(
        &self,
        tapes: Option<&mut Tapes<T>>,
        sink: &mut CallSink<'_, P, B>,
    ) -> Result<Source, ErrorCode>
    where
        T: DerefMut<Target = [TapePage]>,
        P: DataPlane,
        B: Bindings,
    {
        let Self { launch, plan, tables, context } = self;
        let wanted = cache_key::of(launch, plan, &context.surroundings(), tables, 0, None);
        let source = match (wanted.map(|wanted| wanted.key), tapes) {
            // The library replays two buffers, and tells them apart by their addresses.
            (Some(key), _) if sink.plane().has_cache() && self.is_two_buffers() => {
                let tag = Tag::new(&key, launch.timeout_ms);
                match sink.plane().cache_lookup(tag.as_c_str()) {
                    Ok(true) => return Ok(Source::Recorded(tag)),
                    Ok(false) => Source::Recording(tag),
                    Err(_) => Source::Plan,
                }
            }
            (Some(key), Some(tapes)) => match tapes.find(&key) {
                Some(tape) => return Ok(Source::Tape(tape)),
                None => return Ok(Source::Taping(key, self.prove::<T, P, B>()?.tasks)),
            },
            _ => Source::Plan,
        };
        self.prove::<T, P, B>()?;
        Ok(source)
    }

    /// Submits the tasks; returns what the cache did.
    ///
    /// # Errors
    /// What the sink refuses, or `PLAN_INTERNAL`.
    pub(super) fn submit<T, P, B>(
        &self,
        source: &Source,
        tapes: Option<&mut Tapes<T>>,
        sink: &mut CallSink<'_, P, B>,
    ) -> Result<CacheOutcome, ErrorCode>
    where
        T: DerefMut<Target = [TapePage]>,
        P: DataPlane,
        B: Bindings,
    {
        let resources = self.context.resources()?;
        let (addrs, sizes) = (
            &[self.launch.input.addr, self.launch.output.addr],
            &[self.launch.input.len, self.launch.output.len],
        );
        match (source, tapes) {
            (Source::Recorded(tag), _) => {
                sink.control(&Call::CacheExecute { tag: tag.as_c_str(), addrs, sizes })?;
                return Ok(CacheOutcome::Hit);
            }
            (Source::Tape(tape), Some(tapes)) => {
                tapes.play(*tape, sink)?;
                return Ok(CacheOutcome::Hit);
            }
            (Source::Taping(key, tasks), Some(tapes)) => {
                tapes.record((key, *tasks), resources, sink, |pass| self.emit(pass))?;
                return Ok(CacheOutcome::Miss);
            }
            _ => {}
        }
        // Nothing in a cache fails an operation: without a recording the tasks are submitted as ever.
        let tag = match source {
            Source::Recording(tag) => Some(tag.as_c_str()),
            _ => None,
        };
        let tag = tag.filter(|tag| sink.plane().call(&Call::CacheStart { tag, addrs, sizes }) == 0);
        let emitted = self.emit(&mut Pass::<T, _>::on(sink, resources));
        let Some(tag) = tag else { return emitted.map(|()| CacheOutcome::Bypassed) };
        let ended = sink.plane().call(&Call::CacheEnd(tag));
        if emitted.is_err() || ended != 0 {
            // Half a recording must never be found. That a clear fails changes nothing: the communicator goes, or the
            // library has not got what it could not end.
            let _ = sink.plane().call(&Call::CacheClear(tag));
        }
        emitted.map(|()| CacheOutcome::Miss)
    }

    fn emit<T, S>(&self, pass: &mut Pass<'_, T, S>) -> Result<(), ErrorCode>
    where
        T: DerefMut<Target = [TapePage]>,
        S: task_graph::TaskSink,
    {
        (0..self.plan.chunks()).try_for_each(|chunk| self.plan.emit(chunk, &self.tables, pass))
    }

    /// Holds the verifier's local part against every task of every chunk, as the other builds do before they publish or
    /// submit; returns what there is.
    fn prove<T, P, B>(&self) -> Result<Counted, ErrorCode>
    where
        T: DerefMut<Target = [TapePage]>,
        P: DataPlane,
        B: Bindings,
    {
        let (structure, resources) = (check::structure(self.plan, &self.tables)?, self.context.resources()?);
        (0..self.plan.chunks()).try_fold(Counted::default(), |sum, chunk| {
            let mut pass = Pass::<T, CallSink<'_, P, B>>::proving(&structure, resources);
            self.plan.emit(chunk, &self.tables, &mut pass)?;
            Ok(sum.plus(pass.proved()?))
        })
    }

    /// Whether it touches the user's input and output here, no peer's, and not as one memory.
    fn is_two_buffers(&self) -> bool {
        self.plan.shape().staging == Staging::Scratch && !self.plan.shape().in_place
    }
}
