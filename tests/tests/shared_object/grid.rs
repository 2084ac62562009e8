//! What the kernel calls is what the templates write: on a miss, on a hit, with any buffers.

use aicpu_tests::variants::Variant;
use wire::launch::{Algorithm, CacheMode, CacheOutcome, OpKind};
use wire::npu::Protocol;
use wire::param::KernelParam;
use wire::{DataType, ErrorCode, ReduceOp};

use crate::rig::{Case, Loaded, Rig, TIMEOUT_S, epilogue};

/// Launches a case three times, with two sets of buffers, and compares each time.
fn check(kernel: &Loaded, case: &Case) {
    let mut rig = Rig::new(case.clone());
    for (launch, set) in [0, 0, 1].into_iter().enumerate() {
        rig.bind(set);
        rig.args.sequence += 1;
        let (status, lines) = rig.launch(kernel);
        assert_eq!(ErrorCode(status.code), ErrorCode::OK, "{case:?}: detail {:#x}", status.detail);
        assert_eq!(status.sequence, rig.args.sequence);
        assert_eq!(lines, rig.expected(TIMEOUT_S), "{case:?}, launch {launch}");
        let tasks = u32::try_from(lines.len() - 4).expect("small");
        assert_eq!(
            (status.sqes, status.kinds.iter().sum()),
            (tasks, tasks),
            "{case:?}: each task is counted"
        );
        let chunks = rig.case.plan().expect("a plan").chunks();
        let outcome = if chunks > 1 {
            CacheOutcome::Bypassed
        } else if launch == 0 {
            CacheOutcome::Miss
        } else {
            CacheOutcome::Hit
        };
        assert_eq!(status.cache, outcome as u8, "{case:?}, launch {launch}");
    }
}

/// Checks every case of the grid that has a plan; returns how many.
fn sweep(kernel: &Loaded, vary: impl Fn(Case) -> Case) -> u32 {
    let mut cases = 0;
    for Variant { op, algorithm, staging } in Variant::all() {
        for ranks in [1, 2, 3, 4, 5, 8, 13, 16] {
            let case = Case::new(op, algorithm, ranks).with(|operation| operation.staging = staging);
            let case = vary(case);
            // Rows that cross each other cannot be exchanged in one memory.
            let crosses = case.in_place && matches!(op, OpKind::SendReceive | OpKind::AllToAllV);
            if case.plan().is_ok() && !crosses {
                check(kernel, &case);
                cases += 1;
            }
        }
    }
    cases
}

#[test]
fn every_operation_algorithm_staging_and_rank_count() {
    let Some(kernel) = Loaded::kernel() else { return };
    assert!(sweep(&kernel, |case| case) > 100);
}

#[test]
fn the_first_and_the_last_rank_in_place() {
    let Some(kernel) = Loaded::kernel() else { return };
    assert!(sweep(&kernel, |case| Case { rank: 0, in_place: true, ..case }) > 60);
    assert!(sweep(&kernel, |case| Case { rank: case.ranks - 1, in_place: true, ..case }) > 60);
}

#[test]
fn every_type_and_reduction_over_every_link() {
    let Some(kernel) = Loaded::kernel() else { return };
    for &dtype in DataType::ALL.iter().filter(|dtype| dtype.can_reduce()) {
        for &reduce in ReduceOp::ALL {
            for protocol in [Protocol::Hccs, Protocol::Roce, Protocol::Ub] {
                for algorithm in [Algorithm::Ring, Algorithm::MeshTwoShot] {
                    let case = Case::new(OpKind::AllReduce, algorithm, 4).resized(77);
                    let case = case.with(|operation| (operation.dtype, operation.reduce) = (dtype, reduce));
                    check(&kernel, &Case { protocol, ..case });
                }
            }
        }
    }
    for &dtype in DataType::ALL {
        let case = Case::new(OpKind::AllGather, Algorithm::Nhr, 5);
        check(&kernel, &case.with(|operation| operation.dtype = dtype));
    }
}

#[test]
fn no_elements_one_element_and_many_chunks() {
    let Some(kernel) = Loaded::kernel() else { return };
    sweep(&kernel, |case| case.resized(0));
    sweep(&kernel, |case| case.resized(1));
    let many = |case: Case| Case { scratch: 2 * 256 * 128, ..case }.resized(100_000);
    let most = core::cell::Cell::new(0);
    sweep(&kernel, |case| {
        let many = many(case);
        most.set(most.get().max(many.plan().map_or(0, |plan| plan.chunks())));
        many
    });
    assert!(most.get() > 90, "{} chunks", most.get());
}

#[test]
fn transfers_longer_than_engine_and_link_take_are_cut() {
    let Some(kernel) = Loaded::kernel() else { return };
    assert!(sweep(&kernel, |case| Case { longest: 1000, ..case }.resized(3001)) > 100);
}

#[test]
fn without_the_cache_every_launch_is_expanded() {
    let Some(kernel) = Loaded::kernel() else { return };
    let mut rig = Rig::new(Case::new(OpKind::AllReduce, Algorithm::Ring, 8));
    rig.args.cache = CacheMode::Off as u8;
    for _ in 0..2 {
        let (status, lines) = rig.launch(&kernel);
        assert_eq!((status.code, status.cache), (0, CacheOutcome::Bypassed as u8));
        assert_eq!(lines, rig.expected(TIMEOUT_S));
    }
}

#[test]
fn recordings_give_way_and_come_back() {
    let Some(kernel) = Loaded::kernel() else { return };
    let mut rig = Rig::new(Case { scratch: 1 << 24, ..Case::new(OpKind::AllReduce, Algorithm::Ring, 16) });
    let mut outcomes = Vec::new();
    // Many more counts than there are slots and pages, the first again at the end.
    for count in (1..=300).chain([300, 299, 1]) {
        rig.case.operation.count = count;
        rig.args.count = count;
        rig.bind(count);
        let (status, lines) = rig.launch(&kernel);
        assert_eq!(lines, rig.expected(TIMEOUT_S), "{count} elements");
        outcomes.push(status.cache);
    }
    let [.., last, before, first] = outcomes[..] else { panic!("303 launches") };
    assert_eq!([last, before], [CacheOutcome::Hit as u8; 2]);
    assert_eq!(first, CacheOutcome::Miss as u8, "it has given way");
}

#[test]
fn what_only_the_ai_cpu_reduces_is_refused_unless_the_library_does() {
    let Some(kernel) = Loaded::kernel() else { return };
    let case = Case::new(OpKind::AllReduce, Algorithm::MeshOneShot, 4)
        .with(|operation| (operation.dtype, operation.reduce) = (DataType::Int64, ReduceOp::Prod));
    let mut rig = Rig::new(case.clone());
    assert_eq!(rig.launch(&kernel).0.code, 0);
    let mut rig = Rig::new(case);
    rig.param.flags &= !KernelParam::REDUCES_ALL;
    let (status, lines) = rig.launch(&kernel);
    assert_eq!((ErrorCode(status.code), status.detail), (ErrorCode::PLANE_REDUCE, 5 | 1 << 8));
    assert_eq!(lines, [rig.prologue(TIMEOUT_S), epilogue()].concat(), "only the host's notifies");
    // The communicator goes on.
    rig.args.dtype = DataType::Fp32 as u8;
    rig.args.reduce = ReduceOp::Sum as u8;
    assert_eq!(rig.launch(&kernel).0.code, 0);
}
