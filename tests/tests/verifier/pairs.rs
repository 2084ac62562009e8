//! Queue pairs: work requests of one pair run in the order of emission.

use graph_verifier::Obligation;
use host_launcher::prove;
use templates::{Plan, Shape};
use wire::launch::Staging;
use wire::npu::Protocol;

use crate::shapes::{expand, proof, shapes};

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
                for shape in shapes(ranks, 1000) {
                    let threads = threads.min(shape.threads);
                    let shape = Shape { inline_reduce, threads, ..shape };
                    if Plan::new(&shape).is_err() {
                        continue;
                    }
                    let (_, operation) = expand(&shape);
                    let Err(refuted) = proof(&prove::machine(&shape, &protocol), &operation) else {
                        continue;
                    };
                    assert_eq!(refuted.obligation, Obligation::Race, "{shape:?}: {refuted}");
                    assert!(shape.staging == Staging::Direct && threads > 2, "{shape:?}: {refuted}");
                    refused += 1;
                }
            }
        }
    }
    assert_eq!(refused, 16);
}
