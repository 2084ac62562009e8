//! Queue pairs: work requests of one pair run in the order of emission.

use graph_verifier::Obligation;
use host_launcher::prove::Case;
use wire::launch::Staging;
use wire::npu::Protocol;

use crate::shapes::{cases, exists, expand, proof};

/// Over links through queue pairs everything is proved, but for direct work that is spread over threads: two of them
/// post to one pair, and the later work request may let the earlier one run too soon. The launcher gives direct work
/// one thread.
#[test]
fn work_through_queue_pairs_is_proved_unless_threads_share_a_pair() {
    let mut refused = 0;
    for ranks in 2..=6 {
        for (protocol, inline_reduce) in
            [(Protocol::Roce, false), (Protocol::Ub, true), (Protocol::Ub, false)]
        {
            for threads in [1, 3, u16::MAX] {
                for case in cases(ranks, 1000) {
                    let threads = threads.min(case.threads);
                    let case = Case { inline_reduce, threads, ..case };
                    if !exists(&case) {
                        continue;
                    }
                    let (_, graph) = expand(&case);
                    let Err(refuted) = proof(&case.machine(&protocol), &graph) else { continue };
                    assert_eq!(refuted.obligation, Obligation::Race, "{case:?}: {refuted}");
                    let direct = case.operation.staging == Staging::Direct;
                    assert!(direct && threads > 2, "{case:?}: {refuted}");
                    refused += 1;
                }
            }
        }
    }
    assert_eq!(refused, 32);
}
