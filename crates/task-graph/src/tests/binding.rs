//! Binding: a recorded graph with a launch's bases added is what would have been encoded with them.

use std::vec::Vec;

use proptest::prelude::*;
use wire::npu::{roce, sdma, ub};
use wire::{
    Command, Descriptor, Engine, ErrorCode, Labels, Operand, Phase, Sqe, Transfer, TransferKind, WorkRequest,
};

use super::rig::{
    BASE, HCCS, Places, ROCE, ROCE_QUEUE, SUM, UB, UB_QUEUE, graph, pack, record, span, wqe_tail,
};
use crate::{ChannelNotify, QueueIndex, RegionId, RegionKind, Span, Task, ThreadId, Unbound, Vectors};

fn kind() -> impl Strategy<Value = RegionKind> {
    prop_oneof![Just(RegionKind::Input), Just(RegionKind::Output), Just(RegionKind::Scratch)]
}

fn notify() -> impl Strategy<Value = ChannelNotify> {
    prop_oneof![Just(ChannelNotify::Ack), Just(ChannelNotify::Data), Just(ChannelNotify::Fin)]
}

/// Any task that the context of the rig can express.
pub(super) fn task() -> impl Strategy<Value = Task> {
    let peers = || prop_oneof![Just(HCCS), Just(ROCE), Just(UB)];
    let len = || prop_oneof![1..10_000_u64, Just(6 << 30)];
    let own = |(kind, offset, len)| span(RegionId::own(kind), offset, len);
    let local = (kind(), kind(), 0..1_u64 << 36, 0..1_u64 << 36, len(), any::<bool>()).prop_map(
        move |(to, from, dst, src, len, reduces)| {
            let (dst, src) = (own((to, dst, len)), own((from, src, len)));
            match SUM.filter(|_| reduces) {
                Some(reduction) => Task::LocalReduce { dst, src, reduction },
                None => Task::LocalCopy { dst, src },
            }
        },
    );
    let operands = (kind(), kind(), 0..1_u64 << 36, 0..1_u64 << 36, len());
    let remote = (peers(), operands, any::<bool>(), any::<bool>(), prop::option::of(notify())).prop_map(
        move |(peer, (near, far, at, there, len), reduces, writes, notify)| {
            let (near, far) = (own((near, at, len)), span(RegionId::of_peer(peer, far), there, len));
            let reduction = SUM.filter(|_| reduces);
            if writes {
                Task::Write { peer, dst: far, src: near, reduction, notify }
            } else {
                Task::Read { peer, dst: near, src: far, reduction }
            }
        },
    );
    prop_oneof![
        4 => local,
        8 => remote,
        1 => (0..3_u16, 0..6_u16).prop_map(|(thread, index)| Task::ThreadRecord { thread: ThreadId(thread), index }),
        1 => (0..6_u16).prop_map(|index| Task::ThreadWait { index }),
        2 => (peers(), notify()).prop_map(|(peer, notify)| Task::ChannelRecord { peer, notify }),
        2 => (peers(), notify()).prop_map(|(peer, notify)| Task::ChannelWait { peer, notify }),
        1 => Just(Task::WaitStart),
        1 => Just(Task::RecordDone),
        1 => Just(Task::RecordNext),
    ]
}

/// Encodes tasks straight to descriptors with addresses: no patterns, no bases, one queue per thread and pair.
#[derive(Default)]
struct Absolute {
    queues: [Vec<Descriptor>; 6],
    next: u64,
}

impl Absolute {
    fn labels(&mut self, peer: u16, timeout_ms: u32) -> Labels {
        self.next += 1;
        let task = BASE.task + self.next - 1;
        Labels { task, phase: Phase::Run, step: 7, peer, timeout_ms, complete: false }
    }

    fn sqe(&mut self, thread: u16, command: Command, peer: u16, complete: bool) {
        let labels = Labels { complete, ..self.labels(peer, BASE.timeout_ms) };
        self.queues[usize::from(thread)].push(command.emit(labels).into());
    }

    fn request(&mut self, thread: u16, peer: u32, request: WorkRequest) {
        let (queue, label) = if peer == ROCE { (ROCE_QUEUE, 2) } else { (UB_QUEUE, 3) };
        let labels = self.labels(label, 0);
        let pair = &mut self.queues[usize::from(queue.0)];
        pair.push(request.emit(labels).into());
        let len = u32::try_from(pair.len()).expect("small");
        let post = Command::Post { channel: 50 + label, wqe_tail: wqe_tail(queue).wrapping_add(len) };
        self.sqe(thread, post, label, false);
    }

    fn operand(span: Span, skip: u64) -> Operand {
        let place = Places::place(span.region);
        Operand { addr: wire::DeviceAddr(place.addr.0 + span.offset + skip), token: place.token }
    }

    fn task(&mut self, thread: u16, task: Task) {
        let remote = |peer: u32, notify: ChannelNotify| 200 + 10 * peer + notify as u32;
        let label = |peer: u32| u16::try_from(peer).expect("small");
        let none = Sqe::NO_PEER;
        match task {
            Task::LocalCopy { dst, src } => {
                self.transfer(thread, TransferKind::Local, none, (dst, src), None, None)
            }
            Task::LocalReduce { dst, src, reduction } => {
                self.transfer(thread, TransferKind::Local, none, (dst, src), Some(reduction), None);
            }
            Task::Write { peer: HCCS, dst, src, reduction, notify } => {
                let notify = notify.map(|notify| remote(HCCS, notify));
                self.transfer(thread, TransferKind::Write { channel: 50 }, 0, (dst, src), reduction, notify);
            }
            Task::Read { peer: HCCS, dst, src, reduction } => {
                self.transfer(thread, TransferKind::Read { channel: 50 }, 0, (dst, src), reduction, None);
            }
            Task::Write { peer, dst, src, reduction, notify } => {
                let max = if peer == ROCE { roce::MAX_LEN } else { ub::MAX_LEN };
                let pieces = src.len.div_ceil(max);
                for piece in 0..pieces {
                    let (skip, len) = (piece * max, max.min(src.len - piece * max));
                    let (local, at) = (Self::operand(src, skip), Self::operand(dst, skip));
                    let notify = notify.filter(|_| piece + 1 == pieces).map(|notify| remote(peer, notify));
                    self.request(
                        thread,
                        peer,
                        WorkRequest::Write { local, remote: at, len, reduction, notify },
                    );
                }
            }
            Task::Read { peer, dst, src, reduction } => {
                let max = if peer == ROCE { roce::MAX_LEN } else { ub::MAX_LEN };
                for skip in (0..src.len).step_by(usize::try_from(max).expect("64 bits")) {
                    let (local, at) = (Self::operand(dst, skip), Self::operand(src, skip));
                    let len = max.min(src.len - skip);
                    self.request(thread, peer, WorkRequest::Read { local, remote: at, len, reduction });
                }
            }
            Task::ThreadRecord { thread: waiter, index } => {
                let notify = 10 * u32::from(waiter.0) + u32::from(index);
                self.sqe(thread, Command::Record { notify }, none, false);
            }
            Task::ThreadWait { index } => {
                let notify = 10 * u32::from(thread) + u32::from(index);
                self.sqe(thread, Command::Wait { notify }, none, false);
            }
            Task::ChannelRecord { peer: HCCS, notify } => {
                let notify = remote(HCCS, notify);
                self.sqe(thread, Command::RecordPeer { channel: 50, notify }, 0, false);
            }
            Task::ChannelRecord { peer, notify } => {
                self.request(thread, peer, WorkRequest::Record { notify: remote(peer, notify) });
            }
            Task::ChannelWait { peer, notify } => {
                let notify = 100 + 10 * peer + notify as u32;
                self.sqe(thread, Command::Wait { notify }, label(peer), false);
            }
            Task::WaitStart => self.sqe(thread, Command::Wait { notify: BASE.start_notify }, none, false),
            Task::RecordDone => {
                self.sqe(thread, Command::RecordHost { notify: BASE.done_notify }, none, true)
            }
            Task::RecordNext => self.sqe(thread, Command::Record { notify: BASE.next_notify }, none, false),
        }
    }

    fn transfer(
        &mut self,
        thread: u16,
        kind: TransferKind,
        label: u16,
        (dst, src): (Span, Span),
        reduction: Option<wire::Reduction>,
        notify: Option<u32>,
    ) {
        let pieces = src.len.div_ceil(sdma::MAX_LEN);
        for piece in 0..pieces {
            let skip = piece * sdma::MAX_LEN;
            let transfer = Transfer {
                kind,
                engine: Engine::Sdma,
                reduction,
                src: Self::operand(src, skip),
                dst: Self::operand(dst, skip),
                len: sdma::MAX_LEN.min(src.len - skip),
                notify: notify.filter(|_| piece + 1 == pieces),
            };
            self.sqe(thread, Command::Transfer(transfer), label, false);
        }
    }
}

proptest! {
    #[test]
    fn rebased_descriptors_equal_those_encoded_with_addresses(
        tasks in prop::collection::vec((0..3_u16, task()), 0..150),
    ) {
        let (mut graph, mut absolute, mut vectors) = (graph(400), Absolute::default(), Vectors::new());
        record(&mut graph, &tasks).expect("fits");
        let places = Places { len: u64::MAX, missing: None };
        let packed = pack(&graph);
        prop_assert_eq!(packed.bind(&places, &BASE, wqe_tail, &mut vectors), Ok(()));
        for (thread, task) in tasks {
            absolute.task(thread, task);
        }
        for (queue, expected) in (0..).map(QueueIndex).zip(&absolute.queues) {
            prop_assert_eq!(&packed.rebased(queue, &vectors), expected, "queue {:?}", queue);
        }
        prop_assert_eq!(u64::from(graph.len()), absolute.next);
    }
}

#[test]
fn a_region_that_is_not_bound_or_too_short_is_named() {
    let far = RegionId::of_peer(HCCS, RegionKind::Output);
    let write = |offset, len| Task::Write {
        peer: HCCS,
        dst: span(far, offset, len),
        src: span(RegionId::INPUT, 0, len),
        reduction: None,
        notify: None,
    };
    let mut vectors = Vectors::new();
    let mut graph = graph(4);
    // The first task is on the thread that comes last, and names nothing that can be missing.
    let first = (1, Task::ThreadWait { index: 0 });
    let tasks = [first, (1, write(90, 37)), (0, write(100, 28)), (0, write(0, 64))];
    record(&mut graph, &tasks).expect("records");
    let packed = pack(&graph);
    let mut bind = |len, missing| packed.bind(&Places { len, missing }, &BASE, wqe_tail, &mut vectors);
    let unbound = |code, region, task| Err(Unbound { code, region, task });
    assert_eq!(bind(128, None), Ok(()));
    assert_eq!(bind(127, None), unbound(ErrorCode::BINDING_EXTENT, far, 2));
    assert_eq!(bind(63, None), unbound(ErrorCode::BINDING_EXTENT, far, 1));
    assert_eq!(bind(128, Some(far)), unbound(ErrorCode::BINDING_MISSING, far, 1));
    assert_eq!(bind(128, Some(RegionId::INPUT)), unbound(ErrorCode::BINDING_MISSING, RegionId::INPUT, 1));
    assert_eq!(bind(128, Some(RegionId::OUTPUT)), Ok(()), "not used");
}

#[test]
fn a_span_that_wraps_fits_no_region() {
    let src = span(RegionId::INPUT, u64::MAX - 3, 4);
    let mut graph = graph(1);
    record(&mut graph, &[(0, Task::LocalCopy { dst: span(RegionId::OUTPUT, 0, 4), src })]).expect("records");
    let places = Places { len: u64::MAX - 1, missing: None };
    let bound = pack(&graph).bind(&places, &BASE, wqe_tail, &mut Vectors::new());
    let (code, region) = (ErrorCode::BINDING_EXTENT, RegionId::INPUT);
    assert_eq!(bound, Err(Unbound { code, region, task: 0 }));
}
