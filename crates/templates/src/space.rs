//! Space: how scratch is shared out, and how much of an operation fits.

use core::num::NonZero;

use task_graph::RegionKind;
use wire::ErrorCode;
use wire::launch::{Algorithm, OpKind, Staging};

use crate::family::{Family, family};
use crate::levels::{self, Levels};
use crate::plan::{CHUNK_ALIGN, Plan, PlanError, Shape};
use crate::tables::Tables;

/// How the scratch buffer of one rank is laid out for a full chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Where the algorithm works.
    pub(crate) work: RegionKind,
    /// First byte of the landing area in scratch, for links that cannot reduce while moving.
    pub(crate) landing: u64,
    /// Bytes between one slot, block or area and the next.
    pub(crate) area: u64,
}

/// Returns the scratch with which a shape runs in one chunk, bytes; its own scratch length does not matter. The count
/// of an operation with a vector is its largest block's.
#[must_use]
pub fn scratch_bytes(shape: &Shape, tables: &Tables<'_>) -> u64 {
    let whole = if shape.chunk == 0 { shape.count } else { shape.chunk.min(shape.count) };
    let levels = NonZero::new(shape.ranks).and_then(|ranks| Levels::of(shape, tables, ranks).ok());
    let area = if has_slice_slots(shape) {
        whole / u64::from(shape.ranks) + u64::from(shape.ranks)
    } else {
        levels.map_or(whole, |levels| area_of(shape, &levels, whole))
    };
    let bytes = area.saturating_mul(shape.dtype.size_bytes()).max(1).saturating_add(CHUNK_ALIGN - 1);
    (bytes / CHUNK_ALIGN * CHUNK_ALIGN).saturating_mul(scratch_areas(shape))
}

/// Returns whether the slots in scratch hold one slice each, instead of a whole chunk.
fn has_slice_slots(shape: &Shape) -> bool {
    family(shape.op, shape.algorithm) == Some(Family::Mesh) && shape.algorithm != Algorithm::MeshOneShot
}

/// Returns the number of scratch areas of one chunk (or one slice) each.
fn scratch_areas(shape: &Shape) -> u64 {
    let ranks = u64::from(shape.ranks);
    let staged = u64::from(shape.staging == Staging::Scratch);
    let lands = !shape.inline_reduce || levels::has_slots(shape);
    let landing = u64::from(shape.op.reduces() && lands);
    match (family(shape.op, shape.algorithm), shape.op) {
        // What is received comes from the root alone.
        (Some(Family::Exchange), OpKind::Broadcast | OpKind::Scatter) => staged,
        (Some(Family::Exchange | Family::Mesh), _) => staged * ranks,
        (_, OpKind::Barrier) => 0,
        _ => (staged + landing) * areas_of_work(shape),
    }
}

/// Areas that the work of a step algorithm takes: one, or one per block.
fn areas_of_work(shape: &Shape) -> u64 {
    match shape.op {
        OpKind::AllReduce | OpKind::Broadcast | OpKind::Reduce | OpKind::Barrier => 1,
        // The other ranks' blocks go from the input.
        _ if shape.algorithm == Algorithm::MeshChunk => 1,
        _ => u64::from(shape.ranks),
    }
}

/// Returns the elements by which the slots of a mesh may be longer than the slices they are for: all of the `tail` may be
/// one slice's.
fn slack(shape: &Shape, levels: &Levels, tail: u64) -> u64 {
    let slots = if levels.mesh > 1 { u64::from(levels.mesh) } else { 0 };
    if shape.op == OpKind::AllReduce { slots * tail } else { 0 }
}

/// Returns the elements of an area that holds a whole operation of `count` elements, or a chunk that is not all of it.
fn area_of(shape: &Shape, levels: &Levels, chunk: u64) -> u64 {
    let cuts = NonZero::<u64>::from(levels.cuts);
    let tail = if chunk == shape.count { chunk % cuts } else { cuts.get() - 1 };
    // A slot is at most a chunk long.
    let slots = chunk.saturating_mul(u64::from(levels.mesh));
    chunk.saturating_add(slack(shape, levels, tail)).min(slots)
}

/// Returns the elements per full chunk and rank: at least 1.
pub(crate) fn chunk_elements(shape: &Shape, levels: &Levels) -> Result<u64, PlanError> {
    let element = shape.dtype.size_bytes();
    let ranks = u64::from(shape.ranks);
    if shape.staging == Staging::Direct && !shape.works_directly() {
        return Err(PlanError { code: ErrorCode::PLAN_STAGING, need: 0, limit: 0 });
    }
    let areas = scratch_areas(shape);
    let area = shape.scratch_len.checked_div(areas).map(|bytes| bytes / CHUNK_ALIGN * CHUNK_ALIGN / element);
    let wanted = if shape.chunk == 0 { shape.count } else { shape.chunk };
    let fits = match area {
        None => shape.count,
        // Slots hold one slice each; the last chunk's tail may make its last slice longer by ranks − 1.
        Some(area) if has_slice_slots(shape) => area.saturating_sub(ranks - 1).saturating_mul(ranks),
        Some(area) if wanted >= shape.count && area_of(shape, levels, shape.count) <= area => shape.count,
        Some(area) => {
            let slots = NonZero::new(u64::from(levels.mesh)).unwrap_or(NonZero::<u64>::MIN);
            let longest = slack(shape, levels, u64::from(levels.cuts.get() - 1));
            if longest > 0 { area.saturating_sub(longest).max(area / slots) } else { area }
        }
    };
    if fits == 0 {
        // One element of each slice; where slots hold slices, the last may be the longest.
        let elements = if has_slice_slots(shape) { ranks } else { area_of(shape, levels, 1) };
        let need = areas * (elements * element).next_multiple_of(CHUNK_ALIGN);
        return Err(PlanError { code: ErrorCode::PLAN_SCRATCH, need, limit: shape.scratch_len });
    }
    Ok(fits.min(wanted).min(shape.count))
}

impl Plan {
    /// Returns where things lie in scratch.
    pub(crate) fn layout(&self) -> Layout {
        let shape = self.shape();
        let direct = shape.staging == Staging::Direct;
        // The whole scratch buffer is shared out, whatever the chunk: a place does not depend on the count.
        let areas = self.cut().map_or_else(|| scratch_areas(shape), |cut| u64::from(cut.slots));
        let areas = NonZero::new(areas);
        let area = areas.map_or(0, |areas| shape.scratch_len / areas / CHUNK_ALIGN * CHUNK_ALIGN);
        let work_areas = if direct { 0 } else { areas_of_work(shape) };
        Layout {
            work: if direct { RegionKind::Output } else { RegionKind::Scratch },
            landing: work_areas * area,
            area,
        }
    }
}
