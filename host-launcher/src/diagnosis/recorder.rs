//! The flight recorder as people read it: one line an event.

use serde::Serialize;
use wire::{Recorded, TraceEvent, TraceKind};

use super::snapshot::Snapshot;

/// An event of a flight recorder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Rank whose kernel wrote it.
    pub rank: u32,
    /// Clock of that kernel, nanoseconds.
    pub time_ns: u64,
    /// Operation it belongs to.
    pub sequence: u32,
    /// What happened.
    pub event: &'static str,
    /// More about it.
    pub about: String,
}

/// Returns the newest `count` events of a rank, oldest first.
#[must_use]
pub fn newest(rank: &Snapshot, count: usize) -> Vec<Line> {
    let events = rank.events();
    let first = events.len().saturating_sub(count);
    events[first..].iter().filter_map(|event| line(rank.host.rank, event)).collect()
}

fn line(rank: u32, event: &TraceEvent) -> Option<Line> {
    let kind = TraceKind::try_from(event.kind).ok()?;
    let about = match event.recorded()? {
        Recorded::LaunchTaken { signature, comm } => {
            format!(
                "signature {:016x} epoch {} of communicator …{comm:08x}",
                signature.digest, signature.epoch
            )
        }
        Recorded::ContextDecoded { bytes } => format!("{bytes} bytes"),
        Recorded::Expanded => String::new(),
        Recorded::Doorbell { descriptors, doorbells } => {
            format!("rings full after {descriptors} descriptors, {doorbells} doorbells")
        }
        Recorded::Submitted { cache, sqes, wqes, doorbells, expand_ns, submit_ns } => {
            let cache = cache.map_or("cache unknown", wire::launch::CacheOutcome::name);
            format!(
                "{cache}, {sqes} entries and {wqes} work requests, {doorbells} doorbells, {expand_ns} ns \
                 expanding, {submit_ns} ns submitting"
            )
        }
        Recorded::Refused { code, detail } => format!("{code} (detail {detail:#x})"),
        Recorded::Completed { queue, task, code } if code.is_ok() => format!("task {task} of queue {queue}"),
        Recorded::Completed { queue, task, code } => format!("task {task} of queue {queue}: {code}"),
    };
    Some(Line { rank, time_ns: event.time_ns, sequence: event.sequence, event: kind.name(), about })
}
