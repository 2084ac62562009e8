//! What a launch asks for, checked against its context: sizes, aliasing, notifies, and the plan.

use templates::{Plan, Shape};
use wire::ErrorCode;
use wire::launch::{Launch, OpKind, Staging};

use crate::context::OwnedContext;
use crate::kernel::Fault;

/// Checks a launch against its context and plans it.
///
/// # Errors
/// `LAUNCH_*` for buffers and notifies, `PLAN_*` for what cannot be expanded, with the size needed as detail.
pub(crate) fn plan(launch: &Launch, context: &OwnedContext) -> Result<Plan, Fault> {
    let header = context.header();
    let ranks = u64::from(header.ranks);
    let in_place = check_buffers(launch, u64::from(header.rank), ranks)?;
    let main = context.threads().first().ok_or(ErrorCode::PLAN_THREADS)?;
    let own = main.notify_base..main.notify_base + main.notify_count;
    if !own.contains(&launch.start_notify) {
        return Err(Fault { code: ErrorCode::LAUNCH_NOTIFY, detail: u64::from(launch.start_notify) });
    }
    let scratch_len = context.regions().iter().map(|region| region.len).min().unwrap_or(0);
    let reduction = wire::Reduction { dtype: launch.dtype, op: launch.reduce };
    let shape = Shape {
        op: launch.op,
        algorithm: launch.algorithm,
        staging: launch.staging,
        rank: header.rank,
        ranks: header.ranks,
        count: launch.count,
        dtype: launch.dtype,
        reduce: launch.reduce,
        scratch_len,
        threads: u16::try_from(context.threads().len()).unwrap_or(u16::MAX),
        inline_reduce: context.reduces_inline(reduction),
        in_place,
        chunk: launch.chunk,
        piece: launch.piece,
    };
    Plan::new(&shape).map_err(|error| Fault { code: error.code, detail: error.need })
}

/// Checks that the buffers are large enough and do not overlap by accident; returns whether they are in place.
fn check_buffers(launch: &Launch, rank: u64, ranks: u64) -> Result<bool, Fault> {
    let too_many = Fault { code: ErrorCode::LAUNCH_COUNT, detail: launch.count };
    let share = launch.count.checked_mul(launch.dtype.size_bytes()).ok_or(too_many)?;
    let whole = share.checked_mul(ranks).ok_or(too_many)?;
    // Where in-place buffers stand to each other: the share of this rank lies at its place in the whole.
    let (input_len, output_len, shift) = match launch.op {
        OpKind::AllReduce => (share, share, 0),
        OpKind::AllGather => (share, whole, rank * share),
        OpKind::ReduceScatter => (whole, share, rank * share),
    };
    let (input, output) = (&launch.input, &launch.output);
    for (buffer, need) in [(input, input_len), (output, output_len)] {
        if buffer.len < need || (need > 0 && buffer.addr.0 == 0) {
            return Err(Fault { code: ErrorCode::LAUNCH_BUFFER, detail: need });
        }
    }
    let in_place = match launch.op {
        OpKind::AllGather => input.addr.0 == output.addr.0 + shift,
        OpKind::AllReduce | OpKind::ReduceScatter => output.addr.0 == input.addr.0 + shift,
    };
    let overlaps =
        input.addr.0 < output.addr.0 + output_len && output.addr.0 < input.addr.0 + input_len && share > 0;
    if overlaps && !in_place {
        return Err(Fault { code: ErrorCode::LAUNCH_OVERLAP, detail: 0 });
    }
    if launch.staging == Staging::Direct && ranks > 1 && (input.peers.0 == 0 || output.peers.0 == 0) {
        return Err(Fault { code: ErrorCode::BINDING_MISSING, detail: 0 });
    }
    Ok(in_place && share > 0)
}
