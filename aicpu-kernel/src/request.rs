//! What a launch asks for, checked against its context: sizes, aliasing, notifies, and the plan.

use templates::{Plan, Shape};
use wire::ErrorCode;
use wire::context::ThreadEntry;
use wire::launch::{Launch, OpKind, Staging};

use crate::context::OwnedContext;
use crate::kernel::Fault;

/// Checks that the start notify belongs to the context's main thread: on any other the kernel may not wait.
///
/// # Errors
/// `LAUNCH_NOTIFY` and the notify.
pub(crate) fn check_start(launch: &Launch, context: &OwnedContext) -> Result<(), Fault> {
    let owns = |main: &ThreadEntry| {
        (main.notify_base..main.notify_base + main.notify_count).contains(&launch.start_notify)
    };
    if context.threads().first().is_some_and(owns) {
        Ok(())
    } else {
        Err(Fault { code: ErrorCode::LAUNCH_NOTIFY, detail: u64::from(launch.start_notify) })
    }
}

/// Returns the bytes of input and output that an operation touches at every rank.
///
/// # Errors
/// `LAUNCH_COUNT` when they do not fit 64 bits.
pub(crate) fn sizes(launch: &Launch, ranks: u32) -> Result<[u64; 2], Fault> {
    bytes(launch.op, launch.count, launch.dtype.size_bytes(), ranks)
        .map_err(|code| Fault { code, detail: launch.count })
}

/// Returns the bytes of input and output of `count` elements of `element` bytes.
///
/// # Errors
/// `LAUNCH_COUNT` when they do not fit 64 bits.
pub(crate) fn bytes(op: OpKind, count: u64, element: u64, ranks: u32) -> Result<[u64; 2], ErrorCode> {
    let share = count.checked_mul(element).ok_or(ErrorCode::LAUNCH_COUNT)?;
    let whole = share.checked_mul(u64::from(ranks)).ok_or(ErrorCode::LAUNCH_COUNT)?;
    Ok(match op {
        OpKind::AllReduce => [share, share],
        OpKind::AllGather => [share, whole],
        OpKind::ReduceScatter => [whole, share],
    })
}

/// Checks a launch against its context and plans it.
///
/// # Errors
/// `LAUNCH_*` for buffers and notifies, `PLAN_*` for what cannot be expanded, with the size needed as detail.
pub(crate) fn plan(launch: &Launch, context: &OwnedContext) -> Result<Plan, Fault> {
    let header = context.header();
    let in_place = check_buffers(launch, header.rank, header.ranks)?;
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
    let plan = Plan::new(&shape).map_err(|error| Fault { code: error.code, detail: error.need })?;
    // The main thread's first notifies are those with which sub threads report; the start notify lies behind them.
    let reports = 2 * (u32::from(plan.threads()) - 1);
    let start = context.threads().first().map_or(0, |main| launch.start_notify - main.notify_base);
    if start < reports {
        return Err(Fault { code: ErrorCode::LAUNCH_NOTIFY, detail: u64::from(launch.start_notify) });
    }
    Ok(plan)
}

/// Checks that the buffers are large enough and do not overlap by accident; returns whether they are in place.
fn check_buffers(launch: &Launch, rank: u32, ranks: u32) -> Result<bool, Fault> {
    let [input_len, output_len] = sizes(launch, ranks)?;
    let share = input_len.min(output_len);
    // Where in-place buffers stand to each other: the share of this rank lies at its place in the whole.
    let shift = if launch.op == OpKind::AllReduce { 0 } else { u64::from(rank) * share };
    let (input, output) = (&launch.input, &launch.output);
    for (buffer, need) in [(input, input_len), (output, output_len)] {
        if buffer.len < need || (need > 0 && buffer.addr.0 == 0) {
            return Err(Fault { code: ErrorCode::LAUNCH_BUFFER, detail: need });
        }
    }
    // No sum below wraps: each ends inside a buffer, whose end the launch's own check has seen.
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
