//! What a launch asks for, checked against its context: sizes, aliasing, notifies, and the plan.

use templates::{Plan, PlanError, Shape};
use wire::context::ThreadEntry;
use wire::launch::{Launch, Staging, VectorRow};
use wire::{ErrorCode, Reduction};

use crate::attached::Attached;
use crate::context::OwnedContext;
use crate::kernel::Fault;
use crate::plans::{Planned, Reach};

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

/// Checks a launch against its context and plans it: the plan is the context's in use then. `attached` is what was
/// loaded for it.
///
/// # Errors
/// `LAUNCH_*` for buffers, root, vector and notifies, `PLAN_*` for what cannot be expanded, with the size needed as
/// detail.
pub(crate) fn plan<'a>(
    launch: &Launch,
    context: &'a mut OwnedContext,
    attached: &'a Attached,
) -> Result<&'a Planned, Fault> {
    // The start notify lies behind the main thread's first, which are the template's.
    let start = context.threads().first().map_or(0, |main| launch.start_notify - main.notify_base);
    let check_notifies = |plan: &Plan| match start < u32::from(plan.main_notifies()) {
        true => Err(Fault { code: ErrorCode::LAUNCH_NOTIFY, detail: u64::from(launch.start_notify) }),
        false => Ok(()),
    };
    let plans = context.plans();
    let known = plans.find(launch);
    // What is attached is not part of a shape.
    if launch.vector.0 == 0
        && let Some((at, known)) = known.and_then(|at| Some((at, plans.get(at)?)))
        && check_buffers(launch, &known.asked, known.own, &[])? == known.plan.shape().in_place
    {
        check_notifies(&known.plan)?;
        return context.plans().take(at).ok_or(ErrorCode::PLAN_INTERNAL.into());
    }
    let (asked, longest) = (shape(launch, context), context.longest_transfer());
    let attached = attached.tables(launch);
    let tables = context.tables(&attached);
    let refused = |error: PlanError| Fault { code: error.code, detail: error.need };
    let extents = asked.extents(&tables).map_err(refused)?;
    // The extents' own check has seen that these products fit.
    let bytes = |elements: [u64; 2]| elements.map(|count| count.saturating_mul(asked.dtype.size_bytes()));
    let own = bytes(extents.own);
    let in_place = check_buffers(launch, &asked, own, attached.vector)?;
    let plan = Plan::new(&Shape { in_place, ..asked }, &tables).map_err(refused)?;
    check_notifies(&plan)?;
    let reach = match (launch.staging, extents.only_root(&asked)) {
        // Work in scratch leaves the peers' user buffers alone.
        (Staging::Scratch, _) => Reach::default(),
        (Staging::Direct, only) => Reach { bytes: bytes(extents.peer), only },
    };
    let (chunks, unit, class) = (plan.chunks(), plan.unit_bytes(), plan.size_class(longest));
    let plans = context.plans();
    let planned = Planned { asked, plan, chunks, unit, class, own, reach, found: None };
    let at = plans.keep(planned, known);
    plans.take(at).ok_or(ErrorCode::PLAN_INTERNAL.into())
}

/// What a launch asks for in a context; that its buffers are in place is not known yet.
fn shape(launch: &Launch, context: &OwnedContext) -> Shape {
    let header = context.header();
    Shape {
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
        scratch_len: context.scratch_len(),
        threads: u16::try_from(context.threads().len()).unwrap_or(u16::MAX),
        inline_reduce: context.reduces_inline(Reduction { dtype: launch.dtype, op: launch.reduce }),
        in_place: false,
        chunk: launch.chunk,
        piece: launch.piece,
    }
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
    let alias = shape.lies_in_place(vector, (input.addr.0, input_len), (output.addr.0, output_len));
    alias.map_err(|code| Fault { code, detail: 0 })
}
