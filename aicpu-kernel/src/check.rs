//! The verifier's local part on everything that is recorded: nothing that fails it is published or submitted.

use graph_verifier::{Lengths, Structure};
use templates::{Plan, Tables};
use wire::ErrorCode;
use wire::launch::OpKind;

/// Returns what the tasks of a plan may name: its ranks, threads and notifies, and the bytes it is about.
///
/// # Errors
/// What [`Shape::extents`](templates::Shape::extents) refuses, which planning has excluded.
pub(crate) fn structure(plan: &Plan, tables: &Tables<'_>) -> Result<Structure<Lengths>, ErrorCode> {
    let shape = plan.shape();
    let element = shape.dtype.size_bytes();
    let extents = shape.extents(tables).map_err(|error| error.code)?;
    let bytes = |elements: u64| elements.saturating_mul(element);
    let lengths = |[input, output]: [u64; 2]| [bytes(input), bytes(output), shape.scratch_len];
    let row = usize::try_from(shape.rank).ok().and_then(|rank| tables.vector.get(rank));
    let row = row.copied().unwrap_or_default();
    let share = u64::from(shape.rank).saturating_mul(shape.count);
    // Where input and output begin in the memory that is both.
    let places = match shape.op {
        OpKind::AllGather | OpKind::Gather => [share, 0],
        OpKind::ReduceScatter | OpKind::Scatter => [0, share],
        OpKind::AllGatherV => [row.receive.first, 0],
        OpKind::ReduceScatterV => [0, row.send.first],
        _ => [0, 0],
    };
    Ok(Structure {
        rank: shape.rank,
        ranks: shape.ranks,
        threads: plan.threads(),
        main_notifies: plan.main_notifies(),
        sub_notifies: plan.sub_notifies(),
        element,
        in_place: shape.in_place.then_some(places.map(bytes)),
        extents: Lengths::new(lengths(extents.own), lengths(extents.peer)),
    })
}
