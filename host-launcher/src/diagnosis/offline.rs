//! Explains dumps of all ranks, when nothing runs any more: what [`aicpu-ts diagnose`](crate) prints.
//!
//! Ranks are aligned by the sequences of their operations, never by their clocks, which differ. Named are the first
//! operation that ranks were asked for differently, the ranks that left no dump, those that are behind, and the root.

use std::path::Path;

use serde::Serialize;
use wire::{ErrorCode, Recorded};

use super::recorder::{self, Line};
use super::snapshot::Snapshot;
use super::{Report, agreement, dump, judge};
use crate::error::{Error, Result};

/// What dumps show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// The root; `None` when every rank that left a dump is done with everything it launched.
    pub root: Option<Report>,
    /// Ranks that left no dump.
    pub missing: Vec<u32>,
    /// What each rank that left a dump did last.
    pub ranks: Vec<RankLine>,
    /// The newest events of the rank at the root, or of the first.
    pub recorder: Vec<Line>,
}

/// One rank at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankLine {
    /// Rank.
    pub rank: u32,
    /// Host and device.
    pub place: String,
    /// Operation launched last.
    pub launched: u32,
    /// Operation completed last, as far as host and flight recorder know.
    pub completed: Option<u32>,
    /// Whether it is behind the others.
    pub behind: bool,
    /// Operations in flight, in words.
    pub in_flight: Vec<String>,
}

/// How many events are shown.
const EVENTS: usize = 12;

/// Reads the dumps at `paths`; a folder stands for the dumps in it.
///
/// # Errors
/// `DUMP_READ` and `DUMP_FORMAT` of a file, `DUMP_READ` for a folder without dumps, and those of [`explain`].
pub fn diagnose(paths: &[impl AsRef<Path>]) -> Result<Findings> {
    let mut snapshots = Vec::new();
    for path in paths {
        let path = path.as_ref();
        if path.is_dir() {
            let files = files_in(path)?;
            for file in files {
                snapshots.push(dump::read(&file)?);
            }
        } else {
            snapshots.push(dump::read(path)?);
        }
    }
    explain(snapshots)
}

fn files_in(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let refuse = |what: String| Error::new(ErrorCode::DUMP_READ, what).at(crate::error::quote_path(folder));
    let entries = std::fs::read_dir(folder).map_err(|error| refuse(error.to_string()))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut files: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == dump::ENDING)).collect();
    files.sort();
    if files.is_empty() { Err(refuse(format!("no file ends in .{}", dump::ENDING))) } else { Ok(files) }
}

/// Explains snapshots of the ranks of one communicator, as many as there are.
///
/// # Errors
/// `DUMP_SET` for none, for two of one rank, and for those of different communicators.
pub fn explain(mut snapshots: Vec<Snapshot>) -> Result<Findings> {
    snapshots.sort_by_key(|snapshot| snapshot.host.rank);
    let refuse = |what: String| Err(Error::new(ErrorCode::DUMP_SET, what));
    let Some(first) = snapshots.first().map(|snapshot| snapshot.host.clone()) else {
        return refuse("there is no dump".to_owned());
    };
    for pair in snapshots.windows(2) {
        if let [a, b] = pair
            && a.host.rank == b.host.rank
        {
            return refuse(format!("two dumps are of rank {}", a.host.rank));
        }
    }
    let identity = |snapshot: &Snapshot| {
        let host = &snapshot.host;
        (host.instance, host.epoch, host.ranks)
    };
    if let Some(other) = snapshots.iter().find(|other| identity(other) != identity(&snapshots[0])) {
        let (host, name) = (&other.host, &first.comm);
        return refuse(format!(
            "rank {} is of communicator {:?} instance {:016x} epoch {}, rank {} of {name:?} instance {:016x} epoch {}",
            host.rank, host.comm, host.instance[0], host.epoch, first.rank, first.instance[0], first.epoch,
        ));
    }
    let has = |rank: u32| snapshots.iter().any(|snapshot| snapshot.host.rank == rank);
    let missing: Vec<u32> = (0..first.ranks).filter(|rank| !has(*rank)).collect();
    let newest = snapshots.iter().map(|snapshot| snapshot.host.launched).max().unwrap_or(0);
    let at_rest = |snapshot: &Snapshot| snapshot.is_done() && snapshot.host.launched == newest;
    let is_at_rest = agreement::mismatch(&snapshots).is_none()
        && snapshots.iter().all(|snapshot| {
            at_rest(snapshot) && snapshot.device_error().is_none() && snapshot.refusal().is_none()
        });
    let moves = |rank: u32, _| snapshots.iter().find(|own| own.host.rank == rank)?.host.moves;
    let root = (!is_at_rest).then(|| judge(&snapshots, &moves));
    let shown = root.as_ref().and_then(|root| root.culprit_rank).filter(|rank| has(*rank));
    let shown = snapshots.iter().find(|own| shown.is_none_or(|rank| own.host.rank == rank));
    let recorder = shown.map_or_else(Vec::new, |rank| recorder::newest(rank, EVENTS));
    let ranks = snapshots.iter().map(|snapshot| rank_line(snapshot, newest)).collect();
    Ok(Findings { root, missing, ranks, recorder })
}

fn rank_line(snapshot: &Snapshot, newest: u32) -> RankLine {
    let host = &snapshot.host;
    let recorded = || {
        snapshot.events().iter().rev().find_map(|event| match event.recorded()? {
            Recorded::Completed { code, .. } if code.is_ok() => Some(event.sequence),
            _ => None,
        })
    };
    // What was waited for is done, also where the kernel has not looked at its completions since.
    let waited_for = (host.in_flight.is_empty() && host.launched > 0).then_some(host.launched);
    let completed = waited_for.or_else(recorded);
    RankLine {
        rank: host.rank,
        place: host.place.clone(),
        launched: host.launched,
        completed,
        behind: host.launched < newest,
        in_flight: host.in_flight.iter().map(|own| format!("#{} {}", own.sequence, own.what)).collect(),
    }
}
