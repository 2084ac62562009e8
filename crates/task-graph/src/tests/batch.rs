//! A batch of writes is recorded as the same descriptors as its writes one by one.

use proptest::prelude::*;
use wire::npu::sdma;
use wire::{ErrorCode, Phase};

use super::rig::{Graph, HCCS, Places, ROCE, SUM, Tables, UB, contents, graph, pack, wqe_tail};
use crate::{
    Caps, ChannelNotify, Part, QueueIndex, Rank, Recorder, RegionKind, Task, TaskSink, ThreadId, Vectors,
    WriteBatch,
};

/// Hides the recorder's own way of taking batches.
struct OneByOne<'a>(Recorder<'a, std::boxed::Box<[crate::Block]>>);

impl TaskSink for OneByOne<'_> {
    fn caps(&self, peer: Rank) -> Caps {
        self.0.caps(peer)
    }
    fn mark(&mut self, phase: Phase, step: u16) {
        self.0.mark(phase, step);
    }
    fn task(&mut self, thread: ThreadId, task: &Task) -> Result<(), ErrorCode> {
        self.0.task(thread, task)
    }
}

fn batch(peer: Rank, reduces: bool) -> WriteBatch {
    WriteBatch {
        peer,
        dst: RegionKind::Scratch,
        src: RegionKind::Output,
        reduction: if reduces { SUM } else { None },
        then: Some(ChannelNotify::Data),
    }
}

fn both(peer: Rank, reduces: bool, parts: &[Part]) -> [Graph; 2] {
    let tables = Tables::new();
    let [mut one_by_one, mut at_once] = [graph(40), graph(40)];
    let mut sink = OneByOne(Recorder::new(&mut one_by_one, tables.resources()));
    sink.mark(Phase::Run, 3);
    sink.write_batch(ThreadId(1), &batch(peer, reduces), parts).expect("records");
    let mut sink = Recorder::new(&mut at_once, tables.resources());
    sink.mark(Phase::Run, 3);
    sink.write_batch(ThreadId(1), &batch(peer, reduces), parts).expect("records");
    [one_by_one, at_once]
}

fn part() -> impl Strategy<Value = Part> {
    let len = prop_oneof![Just(0), 1..5000_u64, sdma::MAX_LEN - 1..sdma::MAX_LEN + 5000];
    (0..1_u64 << 33, 0..1_u64 << 33, len).prop_map(|(dst, src, len)| Part { dst, src, len })
}

proptest! {
    #[test]
    fn a_batch_is_its_writes(
        peer in prop_oneof![Just(HCCS), Just(ROCE), Just(UB)],
        reduces in any::<bool>(),
        parts in prop::collection::vec(part(), 0..40),
    ) {
        let [one_by_one, at_once] = both(peer, reduces, &parts);
        prop_assert_eq!(one_by_one.queues(), at_once.queues());
        prop_assert_eq!(one_by_one.kinds(), at_once.kinds());
        for &queue in one_by_one.queues() {
            prop_assert_eq!(contents(&one_by_one, queue), contents(&at_once, queue));
        }
        // The extents are the same too: both bind, or neither does.
        let extent = parts.iter().filter(|part| part.len > 0).map(|part| part.len + part.dst.max(part.src)).max();
        for len in extent.into_iter().flat_map(|end| [end - 1, end]) {
            let places = Places { len, missing: None };
            let bind = |graph: &Graph| pack(graph).bind(&places, &super::rig::BASE, wqe_tail, &mut Vectors::new());
            prop_assert_eq!(bind(&one_by_one), bind(&at_once));
        }
    }
}

#[test]
fn a_batch_without_bytes_still_signals() {
    let [one_by_one, at_once] = both(HCCS, false, &[Part { dst: 0, src: 0, len: 0 }]);
    assert_eq!((one_by_one.len(), at_once.len()), (1, 1));
    let mut vectors = Vectors::new();
    pack(&at_once)
        .bind(&Places { len: 0, missing: None }, &super::rig::BASE, wqe_tail, &mut vectors)
        .expect("no operands");
    let seen = pack(&at_once).rebased(QueueIndex(1), &vectors);
    assert_eq!(wire::Sqe::from(seen[0]).opcode, wire::Sqe::RECORD_PEER);
}

proptest! {
    #[test]
    fn a_step_is_its_tasks(
        to in prop_oneof![Just(HCCS), Just(ROCE), Just(UB)],
        from in prop::option::of(prop_oneof![Just(HCCS), Just(ROCE), Just(UB)]),
        reduces in any::<bool>(),
        // Steps before it move where its descriptors lie in a block.
        before in 0..70_usize,
        parts in prop::collection::vec(part(), 0..4),
    ) {
        let tables = Tables::new();
        let [mut one_by_one, mut at_once] = [graph(40), graph(40)];
        let step = |sink: &mut dyn TaskSink| {
            sink.mark(Phase::Run, 3);
            for _ in 0..before {
                sink.task(ThreadId(1), &Task::ChannelWait { peer: HCCS, notify: ChannelNotify::Fin }).expect("fits");
            }
            sink.exchange(ThreadId(1), from, &batch(to, reduces), &parts).expect("records");
        };
        step(&mut OneByOne(Recorder::new(&mut one_by_one, tables.resources())));
        step(&mut Recorder::new(&mut at_once, tables.resources()));
        prop_assert_eq!(one_by_one.queues(), at_once.queues());
        prop_assert_eq!(one_by_one.kinds(), at_once.kinds());
        prop_assert_eq!(one_by_one.len(), at_once.len());
        for &queue in one_by_one.queues() {
            prop_assert_eq!(contents(&one_by_one, queue), contents(&at_once, queue));
        }
    }
}
