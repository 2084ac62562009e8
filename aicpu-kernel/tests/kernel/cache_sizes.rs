//! One graph for all sizes of a class: what it writes is what a fresh expansion of that size writes.

use proptest::prelude::*;
use wire::Descriptor;
use wire::launch::{Algorithm, CacheMode, CacheOutcome, OpKind, Staging};
use wire::npu::Protocol;

use crate::cache_bytes::{BLOCKS, Case, FIRST, PAGES, TYPES, Turn, adds_on_the_way, variants};
use crate::rig::Rig;

use CacheOutcome::{Bypassed, Hit, Miss};

/// What the cache did, and what each queue got.
type Launched = (CacheOutcome, Vec<(u16, Vec<Descriptor>)>);

/// Launches the case once per count, on one kernel; returns what the cache did and what the rings got, or the code.
fn launches(case: &Case, counts: &[u64], cache: CacheMode) -> Vec<Result<Launched, u16>> {
    let setup = case.setup();
    // Room for the largest graph of any algorithm.
    let mut rig = Rig::with_pages(&[setup], BLOCKS, PAGES + 448);
    let mut launch = |(sequence, &count): (u32, &u64)| {
        let args = Case { count, ..*case }.args(&mut rig, &Turn { sequence, ..FIRST }, cache);
        let status = rig.run(args);
        let descriptors = rig.drain(&setup);
        let outcome = CacheOutcome::try_from(status.cache).expect("a number the kernel has");
        if status.code == 0 { Ok((outcome, descriptors)) } else { Err(status.code) }
    };
    (1..).zip(counts).map(&mut launch).collect()
}

/// Checks every size against a fresh expansion; returns what the cache did, `None` for what is refused.
fn check(case: &Case, counts: &[u64]) -> Option<Vec<CacheOutcome>> {
    let (cached, fresh) = (launches(case, counts, CacheMode::On), launches(case, counts, CacheMode::Off));
    let mut outcomes = Vec::new();
    for ((cached, fresh), count) in cached.into_iter().zip(fresh).zip(counts) {
        match (cached, fresh) {
            (Ok((outcome, cached)), Ok((Bypassed, fresh))) => {
                assert_eq!(cached, fresh, "{count} elements, {outcome:?}, {case:?}");
                outcomes.push(outcome);
            }
            (cached, fresh) => {
                assert_eq!(cached.err(), fresh.err(), "{count} elements, {case:?}");
                return None;
            }
        }
    }
    Some(outcomes)
}

/// A serving load: a thousand sizes that never come back. Each of the eight tails is recorded exactly once and shared
/// once, whatever comes after.
#[test]
fn a_thousand_different_sizes_hit() {
    let case = Case {
        op: OpKind::AllReduce,
        algorithm: Algorithm::Nhr,
        staging: Staging::Scratch,
        dtype: wire::DataType::Fp16,
        reduce: wire::ReduceOp::Sum,
        in_place: false,
        protocol: Protocol::Hccs,
        rank: 5,
        ranks: 8,
        count: 0,
        piece: 0,
        longest: u64::MAX,
    };
    // 389 and 1,000 have no common divisor: every size from 1,000 to 1,999 comes once, in an order of no help.
    let counts: Vec<_> = (0..1000).map(|turn| 1000 + turn * 389 % 1000).collect();
    let outcomes = check(&case, &counts).expect("nothing is refused");
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Hit).count(), 1000 - 2 * 8);
}

fn links(op: OpKind, algorithm: Algorithm, staging: Staging, turn: u32) -> Protocol {
    match turn % if adds_on_the_way(op, algorithm, staging) { 1 } else { 3 } {
        0 => Protocol::Hccs,
        1 => Protocol::Roce,
        _ => Protocol::Ub,
    }
}

/// Operations whose sizes come in classes.
fn classed() -> impl Iterator<Item = (OpKind, Algorithm, Staging)> {
    variants().into_iter().filter(|(op, ..)| !op.has_vector() && *op != OpKind::Barrier)
}

/// The full product of variant, type and 2 to 16 ranks. The second size makes the graph for all, which the third and
/// all others hit.
#[test]
fn sizes_of_a_class_hit_one_graph_from_the_third_on() {
    let (mut shared, mut refused) = (0, 0);
    for (op, algorithm, staging) in classed() {
        for ranks in 2..=16_u32 {
            for (turn, (dtype, reduce)) in (0..).zip(TYPES) {
                let reduce = if op.reduces() { reduce } else { wire::ReduceOp::Sum };
                let case = Case {
                    op,
                    algorithm,
                    staging,
                    dtype,
                    reduce,
                    in_place: turn % 2 == 1,
                    protocol: links(op, algorithm, staging, turn),
                    rank: (turn * 7 + 3) % ranks,
                    ranks,
                    count: 0,
                    piece: 0,
                    longest: u64::MAX,
                };
                // Every algorithm cuts into a number of slices that divides this step: the ranks or a power of two, for
                // each of at most six rings, or for each peer.
                let more = match algorithm {
                    Algorithm::MeshChunk => ranks - 1,
                    Algorithm::MultiRing => 60,
                    _ => 1,
                };
                let step = u64::from(ranks) * 16 * u64::from(more);
                // No slice is empty.
                let first = 3 * u64::from(ranks) + 5 + step;
                let counts = [first, first + step, first + 2 * step, first + 4 * step, first];
                match check(&case, &counts) {
                    Some(outcomes) => {
                        assert_eq!(outcomes, [Miss, Miss, Hit, Hit, Hit], "{case:?}");
                        shared += 1;
                    }
                    None => refused += 1,
                }
            }
        }
    }
    assert!(shared > 4000 && refused < 1000, "{shared} {refused}");
}

/// Direct work goes piece by piece: sizes with other numbers of pieces have other graphs.
#[test]
fn sizes_with_other_numbers_of_pieces_have_other_graphs() {
    for algorithm in [Algorithm::MeshOneShot, Algorithm::MeshTwoShot] {
        for (ranks, rank) in [(2, 0), (3, 2), (5, 1)] {
            let case = Case {
                op: OpKind::AllReduce,
                algorithm,
                staging: Staging::Direct,
                dtype: wire::DataType::Fp32,
                reduce: wire::ReduceOp::Sum,
                in_place: false,
                protocol: Protocol::Hccs,
                rank,
                ranks,
                count: 0,
                piece: 128,
                longest: u64::MAX,
            };
            // 50 sizes without a tail, in an order of no help: up to 10 pieces of 32 elements.
            let units = if algorithm == Algorithm::MeshOneShot { 320 / u64::from(ranks) } else { 320 };
            let counts: Vec<_> = (0..50).map(|turn| u64::from(ranks) * (1 + turn * 77 % units)).collect();
            let outcomes = check(&case, &counts).expect("nothing is refused");
            let hits = outcomes.iter().filter(|outcome| **outcome == Hit).count();
            // Two graphs for each number of pieces, where it comes twice.
            assert!((25..40).contains(&hits), "{algorithm}, {ranks} ranks: {hits}");
        }
    }
}

/// What an engine may split is no class: it is split at other places at another size.
#[test]
fn sizes_that_an_engine_splits_have_graphs_of_their_own() {
    for protocol in [Protocol::Hccs, Protocol::Roce, Protocol::Ub] {
        let case = Case {
            op: OpKind::AllReduce,
            algorithm: Algorithm::Ring,
            staging: Staging::Scratch,
            dtype: wire::DataType::Fp32,
            reduce: wire::ReduceOp::Sum,
            in_place: false,
            protocol,
            rank: 3,
            ranks: 4,
            count: 0,
            piece: 0,
            // 1024 elements.
            longest: 4096,
        };
        let outcomes = check(&case, &[1024, 1020, 1016, 1028, 2048, 1028, 1032, 1012]);
        assert_eq!(outcomes.expect("nothing is refused"), [Miss, Miss, Hit, Miss, Miss, Hit, Miss, Hit]);
    }
}

proptest! {
    #[test]
    fn any_sizes_in_turn_write_what_a_fresh_expansion_writes(
        (op, algorithm, staging) in prop::sample::select(variants()),
        (dtype, reduce) in prop::sample::select(TYPES.to_vec()),
        in_place in any::<bool>(),
        protocol in prop::sample::select(vec![Protocol::Hccs, Protocol::Roce, Protocol::Ub]),
        (ranks, rank, piece) in (1..=16_u32, 0..16_u32, 0..5_u64),
        counts in prop::collection::vec(0..700_u64, 2..12),
        longest in prop_oneof![Just(1 << 40), 1..40_u64],
    ) {
        let reduce = if op.reduces() { reduce } else { wire::ReduceOp::Sum };
        let case = Case {
            op, algorithm, staging, dtype, reduce, in_place, protocol,
            rank: rank % ranks, ranks, count: 0, piece: piece * 128, longest: longest * 256,
        };
        check(&case, &counts);
    }
}

/// What a kept descriptor takes: its page's share of 4 KiB, the patterns and queues of its graph, and its entry in the
/// directory. The field's cache takes 112 bytes for a submission entry and 144 for a work request.
#[test]
fn a_kept_descriptor_takes_at_most_80_bytes() {
    let entry = size_of::<task_cache::Directory<task_graph::PackedGraph, 256>>() / 256;
    let (mut graphs, mut least, mut most) = (0, u64::MAX, 0);
    for (op, algorithm, staging) in variants() {
        for (ranks, protocol) in
            [(8, Protocol::Hccs), (16, links(op, algorithm, staging, 1)), (16, Protocol::Hccs)]
        {
            let (rank, count, piece) = (3, 4000, 512);
            let (dtype, reduce) = (wire::DataType::Fp32, wire::ReduceOp::Sum);
            let longest = u64::MAX;
            let case = Case {
                op,
                algorithm,
                staging,
                dtype,
                reduce,
                in_place: false,
                protocol,
                rank,
                ranks,
                count,
                piece,
                longest,
            };
            let setup = case.setup();
            let mut rig = Rig::with_pages(&[setup], 2 * BLOCKS, PAGES + 448);
            let args = case.args(&mut rig, &FIRST, CacheMode::On);
            let status = rig.run(args);
            let kept = rig.kernel.cache_use().kept;
            let descriptors = u64::from(status.sqes + status.wqes);
            // Below that, what is left of the last page weighs.
            if status.code != 0 || kept.slots == 0 || descriptors < 640 {
                continue;
            }
            let bytes = kept.units * size_of::<aicpu_kernel::Page>() as u64 + entry as u64;
            assert!(bytes <= 80 * descriptors, "{case:?}: {bytes} bytes for {descriptors}");
            (graphs, least, most) =
                (graphs + 1, least.min(bytes * 100 / descriptors), most.max(bytes * 100 / descriptors));
        }
    }
    assert!(graphs >= 8, "{graphs}");
    println!("{graphs} graphs, {least} to {most} hundredths of a byte a descriptor, {entry} bytes an entry");
}
