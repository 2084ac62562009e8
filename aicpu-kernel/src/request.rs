//! What a launch asks for, checked against its context: sizes, aliasing, notifies, and the plan.

use templates::{Extents, Plan, PlanError, Shape, Tables};
use wire::ErrorCode;
use wire::context::ThreadEntry;
use wire::launch::{Launch, OpKind, Staging, VectorRow};

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

/// A plan, and what it needs of the peers' buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    extents: Extents,
}

impl Planned {
    /// Returns the bytes of a peer's input and output that are touched.
    pub(crate) fn needs(&self, peer: usize) -> [u64; 2] {
        let shape = self.plan.shape();
        if shape.staging == Staging::Scratch {
            // Work in scratch leaves the peers' user buffers alone.
            return [0; 2];
        }
        let elements = self.extents.of_peer(shape, u32::try_from(peer).unwrap_or(u32::MAX));
        // The extents' own check has seen that these products fit.
        elements.map(|elements| elements.saturating_mul(shape.dtype.size_bytes()))
    }
}

/// Checks a launch against its context and plans it. `attached` is what its address of rows or script holds.
///
/// # Errors
/// `LAUNCH_*` for buffers, root, vector and notifies, `PLAN_*` for what cannot be expanded, with the size needed as
/// detail.
pub(crate) fn plan(launch: &Launch, context: &OwnedContext, attached: &Tables<'_>) -> Result<Planned, Fault> {
    let header = context.header();
    let scratch_len = context.regions().iter().map(|region| region.len).min().unwrap_or(0);
    let reduction = wire::Reduction { dtype: launch.dtype, op: launch.reduce };
    let mut shape = Shape {
        op: launch.op,
        algorithm: launch.algorithm,
        levels: launch.levels,
        staging: launch.staging,
        rank: header.rank,
        ranks: header.ranks,
        root: launch.root,
        count: launch.count,
        dtype: launch.dtype,
        reduce: launch.reduce,
        scratch_len,
        threads: u16::try_from(context.threads().len()).unwrap_or(u16::MAX),
        inline_reduce: context.reduces_inline(reduction),
        in_place: false,
        chunk: launch.chunk,
        piece: launch.piece,
    };
    let tables = context.tables(attached);
    let refused = |error: PlanError| Fault { code: error.code, detail: error.need };
    let extents = shape.extents(&tables).map_err(refused)?;
    // The extents' own check has seen that these products fit.
    let own = extents.own.map(|elements| elements.saturating_mul(shape.dtype.size_bytes()));
    shape.in_place = check_buffers(launch, &shape, own, attached.vector)?;
    let plan = Plan::new(&shape, &tables).map_err(refused)?;
    // The main thread's first notifies are the template's; the start notify lies behind them.
    let start = context.threads().first().map_or(0, |main| launch.start_notify - main.notify_base);
    if start < u32::from(plan.main_notifies()) {
        return Err(Fault { code: ErrorCode::LAUNCH_NOTIFY, detail: u64::from(launch.start_notify) });
    }
    Ok(Planned { plan, extents })
}

/// Checks that the buffers are large enough and do not overlap by accident; returns whether they are in place.
fn check_buffers(
    launch: &Launch,
    shape: &Shape,
    [input_len, output_len]: [u64; 2],
    vector: &[VectorRow],
) -> Result<bool, Fault> {
    let (input, output) = (&launch.input, &launch.output);
    for (buffer, need) in [(input, input_len), (output, output_len)] {
        if buffer.len < need || (need > 0 && buffer.addr.0 == 0) {
            return Err(Fault { code: ErrorCode::LAUNCH_BUFFER, detail: need });
        }
    }
    if launch.staging == Staging::Direct && shape.ranks > 1 && (input.peers.0 == 0 || output.peers.0 == 0) {
        return Err(Fault { code: ErrorCode::BINDING_MISSING, detail: 0 });
    }
    // No sum below wraps: each ends inside a buffer, whose end the launch's own check has seen.
    let overlaps = input.addr.0 < output.addr.0 + output_len && output.addr.0 < input.addr.0 + input_len;
    if !overlaps || input_len.min(output_len) == 0 {
        return Ok(false);
    }
    // Where in-place buffers stand to each other: the share of this rank lies at its place in the whole.
    let row = usize::try_from(shape.rank).ok().and_then(|rank| vector.get(rank)).copied().unwrap_or_default();
    let place = |elements: u64| elements.saturating_mul(shape.dtype.size_bytes());
    let (in_input, in_output) = match shape.op {
        OpKind::AllGather | OpKind::Gather => (0, place(u64::from(shape.rank) * shape.count)),
        OpKind::ReduceScatter | OpKind::Scatter => (place(u64::from(shape.rank) * shape.count), 0),
        OpKind::AllGatherV => (0, place(row.receive.first)),
        OpKind::ReduceScatterV => (place(row.send.first), 0),
        _ => (0, 0),
    };
    // Blocks that stay where they are can be exchanged in place; others would be overwritten before they are sent.
    let stays = shape.op != OpKind::SendReceive
        && (shape.op != OpKind::AllToAllV || vector.iter().all(|row| row.send == row.receive));
    if input.addr.0 + in_input != output.addr.0 + in_output || !stays {
        return Err(Fault { code: ErrorCode::LAUNCH_OVERLAP, detail: 0 });
    }
    Ok(true)
}
