//! The verifier's local part on everything that is recorded: nothing that fails it is published or submitted.

use graph_verifier::{Lengths, Structure};
use templates::Plan;
use wire::ErrorCode;
use wire::launch::OpKind;

use crate::request;

/// Returns what the tasks of a plan may name: its ranks, threads and notifies, and the bytes it is about.
///
/// # Errors
/// `LAUNCH_COUNT` when they do not fit 64 bits, which planning has excluded.
pub(crate) fn structure(plan: &Plan) -> Result<Structure<Lengths>, ErrorCode> {
    let shape = plan.shape();
    let element = shape.dtype.size_bytes();
    let [input, output] = request::bytes(shape.op, shape.count, element, shape.ranks)?;
    let lengths = [input, output, shape.scratch_len];
    let place = u64::from(shape.rank) * input.min(output);
    let places = match shape.op {
        OpKind::AllReduce => [0, 0],
        OpKind::AllGather => [place, 0],
        OpKind::ReduceScatter => [0, place],
    };
    Ok(Structure {
        rank: shape.rank,
        ranks: shape.ranks,
        threads: plan.threads(),
        // Two for the main thread and each sub thread, at either end.
        main_notifies: (plan.threads() - 1).saturating_mul(2),
        sub_notifies: 2,
        element,
        in_place: shape.in_place.then_some(places),
        extents: Lengths { own: lengths, peer: lengths },
    })
}
