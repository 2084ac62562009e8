//! Trace events: what is put in comes out, and signatures differ where launches do.

use aicpu_wire::launch::{CacheOutcome, Launch};
use aicpu_wire::npu::Status;
use aicpu_wire::{ErrorCode, LaunchArgs, Recorded, Signature, TraceEvent, TraceKind};

use crate::samples::{Fault, cqe, launch_args, status};

#[test]
fn what_is_recorded_is_read_again() {
    let args = launch_args();
    let digest = Launch::parse(&args).expect("good arguments").digest();
    let taken = TraceEvent::launch_taken(7, &args, digest);
    let signature = Signature { epoch: 7, sequence: 42, digest };
    assert_eq!((taken.time_ns, taken.sequence, taken.kind), (7, 42, TraceKind::LaunchTaken as u8));
    assert_eq!(taken.recorded(), Some(Recorded::LaunchTaken { signature, comm: 0x89ab_cdef }));

    let submitted =
        TraceEvent::submitted(8, &Status { doorbells: 3, submit_ns: 5, expand_ns: 6, ..status() });
    let expected = Recorded::Submitted {
        cache: Some(CacheOutcome::Hit),
        sqes: 0x0102_0304,
        wqes: 0x0506_0708,
        doorbells: 3,
        expand_ns: 6,
        submit_ns: 5,
    };
    assert_eq!((submitted.sequence, submitted.recorded()), (42, Some(expected)));
    let Some(Recorded::Submitted { doorbells, expand_ns, submit_ns, .. }) =
        TraceEvent::submitted(8, &status()).recorded()
    else {
        panic!("an event of its kind")
    };
    assert_eq!(
        (doorbells, expand_ns, submit_ns),
        (u16::MAX, u32::MAX, u32::MAX),
        "too many are as many as fit"
    );

    let held = TraceEvent::held(9, &Status { doorbells: 2, ..status() });
    assert_eq!(
        held.recorded(),
        Some(Recorded::Doorbell { descriptors: 0x0102_0304 + 0x0506_0708, doorbells: 2 })
    );
    let refused = TraceEvent::refused(9, &status()).recorded();
    let code = ErrorCode::CONTEXT_FIELD;
    assert_eq!(refused, Some(Recorded::Refused { code, detail: 0x1112_1314_1516_1718 }));
    let completed = TraceEvent::completed(9, &cqe());
    let expected = Recorded::Completed { queue: 0x0102, task: 0x107, code: ErrorCode::DMA_BOUNDS };
    assert_eq!((completed.sequence, completed.recorded()), (0x2a, Some(expected)));
    assert_eq!(TraceEvent::default().recorded(), None, "a slot that was never written");
}

/// Changes of launch arguments, and whether ranks may differ in it.
const CHANGES: &[Fault<LaunchArgs, bool>] = &[
    ("operation", |args| args.op = 3, false),
    ("type", |args| args.dtype = 10, false),
    ("reduction", |args| args.reduce = 0, false),
    ("algorithm", |args| args.algorithm = 1, false),
    ("staging", |args| args.staging = 1, false),
    ("count", |args| args.count -= 1, false),
    ("chunk", |args| args.chunk = 0, false),
    ("piece", |args| args.piece = 0, false),
    ("levels", |args| args.levels = [1, 2, 0, 0], false),
    ("order of levels", |args| args.levels = [0, 1, 2, 0], false),
    ("sequence", |args| args.sequence += 1, true),
    ("instance", |args| args.instance[1] += 1, true),
    ("context", |args| args.context.0 += 8, true),
    ("input", |args| args.input.addr.0 += 64, true),
    ("output", |args| args.output.len += 64, true),
    ("notifies", |args| (args.start_notify, args.done_notify) = (4, 5), true),
    ("timeout", |args| args.timeout_ms += 1, true),
    ("cache", |args| args.cache = 1, true),
];

#[test]
fn digests_differ_in_what_ranks_must_agree_on_and_in_nothing_else() {
    let digest = |args: LaunchArgs| Launch::parse(&args.sealed()).expect("legal").digest();
    let reference = digest(launch_args());
    assert_ne!(reference, 0);
    for (name, change, may_differ) in CHANGES {
        let mut args = launch_args();
        change(&mut args);
        assert_ne!(args, launch_args(), "{name}");
        assert_eq!(digest(args) == reference, *may_differ, "{name}");
    }
}
