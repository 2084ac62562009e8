//! Packing: everything is where it was, pages come and go without leaking, and what does not fit takes nothing.

use std::boxed::Box;
use std::vec::Vec;

use proptest::prelude::*;
use wire::ErrorCode;

use super::capacity::tasks;
use super::rig::{BASE, Graph, Places, contents, graph, record, wqe_tail};
use crate::{PAGE_ENTRIES, PackedGraph, Page, Pages, Pattern, Vectors};

type Pool = Pages<Box<[Page]>>;

fn pool(pages: usize) -> Pool {
    Pages::new(std::vec![Page::EMPTY; pages].into_boxed_slice())
}

/// What a packed graph holds, read the slow way.
fn unpacked(pool: &Pool, packed: &PackedGraph) -> Vec<(u16, Vec<(wire::Descriptor, Pattern)>)> {
    let mut queues = Vec::new();
    for run in pool.queues(packed) {
        let mut cursor = run.cursor;
        let mut seen = Vec::new();
        while cursor.left() > 0 {
            let mut into = [wire::Descriptor::default(); 1];
            let taken = pool.take(&mut cursor, &mut into, |into, run| {
                into.copy_from_slice(run.entries);
                seen.push((run.entries[0], pool.pattern(packed, run.patterns[0]).expect("packed")));
            });
            assert_eq!(taken, 1);
        }
        queues.push((run.queue.0, seen));
    }
    queues
}

fn recorded(graph: &Graph) -> Vec<(u16, Vec<(wire::Descriptor, Pattern)>)> {
    graph.queues().iter().map(|&queue| (queue.0, contents(graph, queue))).collect()
}

proptest! {
    #[test]
    fn a_packed_graph_is_the_recorded_one(lists in prop::collection::vec(tasks(), 1..5)) {
        let mut pool = pool(600);
        let mut kept: Vec<(Graph, PackedGraph)> = Vec::new();
        for (index, list) in lists.iter().enumerate() {
            let mut graph = graph(400);
            record(&mut graph, list).expect("fits");
            let packed = pool.pack(&graph).expect("fits");
            prop_assert_eq!(packed.pages(), Pool::needed(&graph));
            prop_assert_eq!((packed.len(), packed.steps(), packed.kinds()), (graph.len(), graph.steps(), graph.kinds()));
            kept.push((graph, packed));
            // Every second one goes back at once, so that later ones lie in used pages.
            if index % 2 == 1 {
                let (_, packed) = kept.remove(0);
                pool.release(packed);
            }
        }
        for (graph, packed) in &kept {
            prop_assert_eq!(unpacked(&pool, packed), recorded(graph));
        }
        for (_, packed) in kept {
            pool.release(packed);
        }
        prop_assert_eq!(pool.taken(), 0);
    }
}

#[test]
fn a_graph_that_does_not_fit_takes_nothing() {
    let mut graph = graph(100);
    let wait = crate::Task::ThreadWait { index: 0 };
    // One entry for the queues and one for the patterns go before the descriptors.
    record(&mut graph, &std::vec![(0, wait); PAGE_ENTRIES - 2]).expect("fits");
    assert_eq!(Pool::needed(&graph), 1);
    record(&mut graph, &[(0, wait)]).expect("fits");
    assert_eq!(Pool::needed(&graph), 2);
    let mut small = pool(1);
    assert_eq!(small.pack(&graph), Err(ErrorCode::PAGES_FULL));
    assert_eq!(small.taken(), 0);
    graph.clear();
    assert!(small.pack(&graph).expect("nothing fits anywhere").is_empty());
    assert_eq!(small.taken(), 1);
}

#[test]
fn patterns_survive_with_their_extents() {
    let mut graph = graph(10);
    let src = super::rig::span(crate::RegionId::INPUT, 96, 32);
    let dst = super::rig::span(crate::RegionId::OUTPUT, 960, 32);
    record(&mut graph, &[(0, crate::Task::LocalCopy { dst, src })]).expect("fits");
    let mut pool = pool(2);
    let packed = pool.pack(&graph).expect("fits");
    let bind = |len| {
        let places = Places { len, missing: None };
        pool.bind(&packed, &places, &BASE, 0, wqe_tail, &mut Vectors::new()).map_err(|unbound| unbound.code)
    };
    assert_eq!(bind(992), Ok(()));
    assert_eq!(bind(991), Err(ErrorCode::BINDING_EXTENT));
}
