//! What a graph holds, to the last entry, and that nothing outlives `clear`.

use std::vec::Vec;

use proptest::prelude::*;
use wire::ErrorCode;

use super::rig::{ROCE, ROCE_QUEUE, contents, graph, record};
use crate::graph::QueueIndex;
use crate::pattern::PatternTable;
use crate::{BLOCK_ENTRIES, ChannelNotify, Kinds, PATTERNS, Pattern, RegionId, RegionKind, Task};

const WAIT: Task = Task::ThreadWait { index: 0 };

#[test]
fn a_graph_is_full_one_entry_after_its_last() {
    let entries = |count| std::vec![(0, WAIT); count];
    assert_eq!(record(&mut graph(0), &entries(1)), Err(ErrorCode::GRAPH_FULL));
    for blocks in [1, 2, 5] {
        let exact = blocks * BLOCK_ENTRIES;
        for count in [0, 1, exact - 1, exact] {
            let mut graph = graph(blocks);
            record(&mut graph, &entries(count)).expect("fits");
            assert_eq!(graph.len() as usize, count);
        }
        let mut graph = graph(blocks);
        assert_eq!(record(&mut graph, &entries(exact + 1)), Err(ErrorCode::GRAPH_FULL));
        assert_eq!(graph.len() as usize, exact, "the entry too many left nothing behind");
        assert_eq!(contents(&graph, QueueIndex(0)).len(), exact);
        graph.clear();
        record(&mut graph, &entries(exact)).expect("fits again");
    }
}

#[test]
fn every_queue_takes_a_block_of_its_own() {
    let mut graph = graph(2);
    record(&mut graph, &[(0, WAIT), (1, WAIT)]).expect("one block each");
    assert_eq!(record(&mut graph, &[(2, WAIT)]), Err(ErrorCode::GRAPH_FULL));
    let post = Task::ChannelRecord { peer: ROCE, notify: ChannelNotify::Ack };
    assert_eq!(record(&mut graph, &[(0, post)]), Err(ErrorCode::GRAPH_FULL));
    assert!(contents(&graph, ROCE_QUEUE).is_empty());
    assert_eq!(graph.queues(), [QueueIndex(0), QueueIndex(1)]);
}

#[test]
fn one_pattern_too_many() {
    let mut table = PatternTable::new();
    let pattern = |peer| Pattern::Sqe { src: None, dst: Some(RegionId::of_peer(peer, RegionKind::Input)) };
    for round in 0..2 {
        // Number 0 is the pattern without bases, in every table.
        for peer in 1..512 {
            assert_eq!(table.intern(pattern(peer), [0, 0]).map(u32::from), Ok(peer), "round {round}");
        }
        assert_eq!(table.intern(pattern(512), [0, 0]), Err(ErrorCode::PATTERNS_FULL));
        assert_eq!(table.intern(pattern(300), [7, 9]), Ok(300), "a known one is still found");
        assert_eq!(table.intern(Pattern::NO_BASE, [0, 0]), Ok(0), "and so is the one without bases");
        assert_eq!(table.list().nth(300).map(|known| known.extents), Some([7, 9]));
        assert_eq!(table.list().count(), PATTERNS);
        table.clear();
    }
}

fn region() -> impl Strategy<Value = Option<RegionId>> {
    let kind = prop_oneof![Just(RegionKind::Input), Just(RegionKind::Output), Just(RegionKind::Scratch)];
    prop_oneof![
        Just(None),
        kind.clone().prop_map(|kind| Some(RegionId::own(kind))),
        (0..65_536_u32, kind).prop_map(|(peer, kind)| Some(RegionId::of_peer(peer, kind))),
    ]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    prop_oneof![
        8 => (region(), region()).prop_map(|(src, dst)| Pattern::Sqe { src, dst }),
        8 => (region(), region()).prop_map(|(local, remote)| Pattern::Wqe { local, remote }),
        4 => (0..256_u16).prop_map(|queue| Pattern::Post { queue: QueueIndex(queue) }),
        1 => Just(Pattern::Start),
        1 => Just(Pattern::Done),
        1 => Just(Pattern::Next),
    ]
}

proptest! {
    #[test]
    fn interning_gives_equal_patterns_equal_numbers_and_clear_forgets_all(
        rounds in prop::collection::vec(prop::collection::vec((pattern(), any::<[u32; 2]>()), 0..600), 1..4),
    ) {
        let mut table = PatternTable::new();
        for round in rounds {
            // The oracle: a list, searched from the front.
            let mut list: Vec<(Pattern, [u64; 2])> = Vec::from([(Pattern::NO_BASE, [0; 2])]);
            for (pattern, ends) in round {
                let ends = if pattern == Pattern::NO_BASE { [0; 2] } else { ends.map(u64::from) };
                let known = list.iter().position(|(known, _)| *known == pattern);
                let expected = match known {
                    None if list.len() == PATTERNS => Err(ErrorCode::PATTERNS_FULL),
                    None => {
                        list.push((pattern, ends));
                        Ok(list.len() - 1)
                    }
                    Some(index) => {
                        let extents = &mut list[index].1;
                        *extents = [extents[0].max(ends[0]), extents[1].max(ends[1])];
                        Ok(index)
                    }
                };
                prop_assert_eq!(table.intern(pattern, ends).map(usize::from), expected);
            }
            let seen: Vec<_> = table.list().map(|known| (known.pattern(), known.extents)).collect();
            prop_assert_eq!(seen, list);
            table.clear();
            prop_assert!(table.is_clear());
        }
    }

    #[test]
    fn a_cleared_graph_records_as_a_new_one(first in tasks(), second in tasks()) {
        let (mut used, mut fresh) = (graph(400), graph(400));
        record(&mut used, &first).expect("fits");
        used.clear();
        prop_assert_eq!((used.len(), used.steps(), used.kinds()), (0, 0, Kinds::default()));
        prop_assert!(used.is_empty() && used.queues().is_empty());
        record(&mut used, &second).expect("fits");
        record(&mut fresh, &second).expect("fits");
        prop_assert_eq!(used.queues(), fresh.queues());
        for &queue in fresh.queues() {
            prop_assert_eq!(contents(&used, queue), contents(&fresh, queue));
        }
        prop_assert_eq!((used.len(), used.kinds()), (fresh.len(), fresh.kinds()));
    }
}

pub(super) fn tasks() -> impl Strategy<Value = Vec<(u16, Task)>> {
    prop::collection::vec((0..3_u16, super::binding::task()), 0..200)
}
