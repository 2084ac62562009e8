//! Files that are right: published ones, and those of `examples/algorithms`.

use std::path::PathBuf;

use aicpu_algorithm_file::{AlgorithmFile, Needs, to_xml};
use wire::script::Script;

#[path = "../examples/algorithms.rs"]
#[expect(dead_code, reason = "the example's own main function")]
mod algorithms;

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Checks that scripts are what the kernel accepts; returns their entries over all ranks.
fn accepted(file: &AlgorithmFile) -> usize {
    let mut entries = 0;
    for in_place in [false, true] {
        for script in file.scripts(in_place).into_iter().flatten() {
            Script::new(&script.header, &script.entries).unwrap();
            entries += script.entries.len();
        }
    }
    entries
}

#[test]
fn the_published_ring_is_right_in_place_and_not() {
    let file = AlgorithmFile::parse(&read("tests/data/msccl/all-reduce-ring-simple.xml")).unwrap();
    let algorithm = file.algorithm();
    assert_eq!((algorithm.ranks(), algorithm.chunks, algorithm.parts()), (16, 384, 384));
    assert!(file.works(true) && file.works(false));
    assert!(accepted(&file) > 2 * 16 * 24 * 31);
    // A notify is used again once whoever sets it knows that it has been taken.
    let needs = file.needs();
    assert!(needs.main_notifies <= 16 && needs.sub_notifies < 40, "{needs:?}");
    // 24 channels land in a few slots of 384: no more than what is on its way at once.
    assert!(file.headers().all(|header| header.slots < 64), "{:?}", file.headers().next());
}

#[test]
fn the_published_all_to_all_is_right_out_of_place_only() {
    let file = AlgorithmFile::parse(&read("tests/data/msccl/alltoall-8n-0-9kb.xml")).unwrap();
    assert_eq!((file.works(false), file.works(true)), (true, false));
    let fault = file.scripts(true).unwrap_err();
    assert_eq!(fault.code, wire::ErrorCode::ALGORITHM_MISMATCH);
    // One thread per peer, and the copy on the main one; a slot for each of seven messages.
    assert_eq!(file.needs(), Needs { threads: 8, main_notifies: 14, sub_notifies: 2 });
    assert!(file.headers().all(|header| (header.parts, header.slots) == (1, 7)));
    accepted(&file);
}

#[test]
fn the_examples_are_what_their_generator_writes() {
    for (name, algorithm) in algorithms::files() {
        let text = read(&format!("examples/algorithms/{name}"));
        assert!(text == to_xml(&algorithm), "{name}: run the example `algorithms`");
        let file = AlgorithmFile::parse(&text).unwrap_or_else(|fault| panic!("{name}:{fault}"));
        assert_eq!(to_xml(file.algorithm()), text, "{name}: what is read is what was written");
        assert!(file.works(true) && file.works(false));
        accepted(&file);
    }
}

#[test]
fn generators_are_right_for_any_number_of_ranks() {
    for ranks in 2..=9 {
        AlgorithmFile::new(algorithms::ring_all_reduce(ranks)).unwrap();
        AlgorithmFile::new(algorithms::mesh_all_gather(ranks)).unwrap();
    }
    for (servers, devices) in [(2, 1), (2, 2), (3, 2), (2, 3), (4, 4), (5, 3)] {
        AlgorithmFile::new(algorithms::hierarchical_all_reduce(servers, devices)).unwrap();
    }
    // More peers than lanes: they share.
    let file = AlgorithmFile::new(algorithms::mesh_all_gather(70)).unwrap();
    assert_eq!(file.needs().threads, 64);
    accepted(&file);
}
