//! Queue pairs: work requests of one pair run in the order of emission.

use host_launcher::prove::Case;
use wire::npu::Protocol;

use crate::shapes::{cases, exists, expand, proof};

/// Over links through queue pairs everything is proved, however many threads there are: no two threads of a rank post to
/// one pair, where the later work request could let the earlier one run too soon.
#[test]
fn work_through_queue_pairs_is_proved_with_any_number_of_threads() {
    let mut proved = 0;
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
                    if let Err(refuted) = proof(&case.machine(&protocol), &graph) {
                        panic!("{case:?}: {refuted}");
                    }
                    proved += 1;
                }
            }
        }
    }
    assert!(proved > 4000, "{proved}");
}
