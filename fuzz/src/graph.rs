//! Graphs of real operations, and mistakes to make in them.

use graph_verifier::{Labelled, Machine, Operation as Graph, Submitter};
use host_launcher::communicator::Operation;
use host_launcher::prove::Case;
use host_launcher::traffic::Traffic;
use task_graph::{Caps, ChannelNotify, RegionId, RegionKind, Span, Task, ThreadId};
use templates::{Needs, Tables};
use wire::launch::{Algorithm, OpKind, Staging};
use wire::npu::Protocol;
use wire::{DataType, ReduceOp, Reduction};

use crate::Bytes;

/// Expands the operation that the input names, at every rank; `None` where there is no plan.
pub fn expanded(bytes: &mut Bytes<'_>) -> Option<(Machine, Graph)> {
    let op = bytes.one_of(OpKind::ALL);
    let algorithm = bytes.one_of(Algorithm::ALL);
    let staging = bytes.one_of(Staging::ALL);
    let ranks = 1 + bytes.below(6) as u32;
    let count = bytes.below(64);
    let flags = bytes.byte();
    let root = if op.is_rooted() { count as u32 % ranks } else { 0 };
    let traffic = Traffic::named(op.name());
    let vector = traffic.and_then(|traffic| traffic.vector(count, count, ranks)).map(Into::into);
    let has_count = vector.is_none() && op != OpKind::Barrier;
    let operation = Operation {
        op,
        count: if has_count { count } else { 0 },
        dtype: DataType::Int64,
        reduce: ReduceOp::Sum,
        algorithm,
        staging,
        root,
        vector,
        piece: 128,
        ..Operation::default()
    };
    let inline_reduce = flags & 1 != 0;
    let case = Case {
        operation,
        ranks,
        scratch_len: 2 * u64::from(ranks) * (count * 8).max(1).next_multiple_of(128),
        threads: Needs::of(algorithm, ranks).threads,
        inline_reduce,
        in_place: false,
    };
    let all = if inline_reduce { u32::MAX } else { 0 };
    let caps = Caps { reduce_types: all, reduce_ops: all, write_notify: true };
    let graph = case.graph_over(Tables::default(), |_, _| caps).ok()?;
    let links = [Protocol::Hccs, Protocol::Roce, Protocol::Ub][usize::from(flags >> 1) % 3];
    let mut machine = case.machine(&links);
    if flags & 0x80 != 0 {
        machine.rings.submitter = Submitter::InOrder { batch: 128 };
    }
    Some((machine, graph))
}

/// Does what the rest of the input says; returns whether anything was done.
pub fn edit(bytes: &mut Bytes<'_>, graph: &mut Graph) -> bool {
    let touched = !bytes.is_empty();
    while !bytes.is_empty() {
        let ranks = graph.ranks.len() as u64;
        let rank = bytes.below(ranks) as usize;
        let tasks = &mut graph.ranks[rank].tasks;
        let at = bytes.below(tasks.len() as u64 + 1) as usize;
        match (bytes.below(8), at < tasks.len()) {
            (0, true) => drop(tasks.remove(at)),
            (1, true) => tasks.insert(at, tasks[at]),
            (2, true) => {
                let other = bytes.below(tasks.len() as u64) as usize;
                tasks.swap(at, other);
            }
            (3, true) => tasks[at].thread = ThreadId(bytes.byte().into()),
            (4, true) => tasks[at].step = bytes.half(),
            (5, true) => change(bytes, &mut tasks[at].task),
            (6, _) => graph.ranks[rank].graph_ends.push(at),
            (_, true) => tasks[at].task = any(bytes),
            (_, false) => {
                let label = tasks.last().map(|last| (last.phase, last.step));
                let (phase, step) = label.unwrap_or((wire::Phase::Run, 0));
                let thread = ThreadId(bytes.below(4) as u16);
                tasks.push(Labelled { thread, phase, step, task: any(bytes) });
            }
        }
    }
    touched
}

/// Changes places and lengths, or the notify.
fn change(bytes: &mut Bytes<'_>, task: &mut Task) {
    match task {
        Task::LocalCopy { dst, src }
        | Task::LocalReduce { dst, src, .. }
        | Task::Write { dst, src, .. }
        | Task::Read { dst, src, .. } => {
            let len = bytes.word();
            let by = |span: &mut Span, offset: u64| {
                span.offset = span.offset.wrapping_add(offset);
                span.len = len;
            };
            by(dst, i64::from(bytes.byte().cast_signed()).cast_unsigned());
            by(src, bytes.word());
        }
        Task::ThreadRecord { index, .. } | Task::ThreadWait { index } => *index = bytes.half(),
        Task::ChannelRecord { notify, .. } | Task::ChannelWait { notify, .. } => *notify = any_notify(bytes),
        Task::WaitStart | Task::RecordDone | Task::RecordNext => {}
    }
}

fn any_notify(bytes: &mut Bytes<'_>) -> ChannelNotify {
    bytes.one_of(&[ChannelNotify::Ack, ChannelNotify::Data, ChannelNotify::Fin])
}

fn any(bytes: &mut Bytes<'_>) -> Task {
    let kind = bytes.below(10);
    let peer = u32::from(bytes.byte());
    let reduction = Reduction { dtype: DataType::Int64, op: bytes.one_of(ReduceOp::ALL) };
    let maybe = bytes.byte();
    let reduces = (maybe & 1 != 0).then_some(reduction);
    let len = 8 * u64::from(bytes.byte());
    let mut span = || {
        let kind = bytes.one_of(&[RegionKind::Input, RegionKind::Output, RegionKind::Scratch]);
        let region = if bytes.byte() & 1 == 0 { RegionId::own(kind) } else { RegionId::of_peer(peer, kind) };
        Span { region, offset: 8 * u64::from(bytes.byte()), len }
    };
    match kind {
        0 => Task::LocalCopy { dst: span(), src: span() },
        1 => Task::LocalReduce { dst: span(), src: span(), reduction },
        2 => {
            let (dst, src) = (span(), span());
            let notify = (maybe & 2 != 0).then(|| any_notify(bytes));
            Task::Write { peer, dst, src, reduction: reduces, notify }
        }
        3 => Task::Read { peer, dst: span(), src: span(), reduction: reduces },
        4 => Task::ThreadRecord { thread: ThreadId(peer as u16), index: bytes.byte().into() },
        5 => Task::ThreadWait { index: bytes.byte().into() },
        6 => Task::ChannelRecord { peer, notify: any_notify(bytes) },
        7 => Task::ChannelWait { peer, notify: any_notify(bytes) },
        8 => Task::WaitStart,
        _ => Task::RecordDone,
    }
}
