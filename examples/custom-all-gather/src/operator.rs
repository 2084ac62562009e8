//! The algorithm: every rank writes its input into the output of every other, round by round.

use task_graph::{ChannelNotify, Part, RegionId, RegionKind, Span, Task, TaskSink, ThreadId, WriteBatch};
use wire::ErrorCode;

/// Writes the tasks of rank `rank` of `ranks`, each of which has `bytes` bytes to give.
///
/// # Errors
/// What the sink refuses.
pub fn all_gather<S: TaskSink>(sink: &mut S, rank: u32, ranks: u32, bytes: u64) -> Result<(), ErrorCode> {
    const MAIN: ThreadId = ThreadId::MAIN;
    if bytes == 0 {
        return Ok(());
    }
    let mine = u64::from(rank) * bytes;
    let src = Span { region: RegionId::INPUT, offset: 0, len: bytes };
    sink.task(
        MAIN,
        &Task::LocalCopy { dst: Span { region: RegionId::OUTPUT, offset: mine, len: bytes }, src },
    )?;
    for distance in 1..ranks {
        // In each round everybody writes to somebody else, so no link is used twice.
        let (to, from) = ((rank + distance) % ranks, (rank + ranks - distance) % ranks);
        sink.task(MAIN, &Task::ChannelRecord { peer: from, notify: ChannelNotify::Ack })?;
        sink.task(MAIN, &Task::ChannelWait { peer: to, notify: ChannelNotify::Ack })?;
        let batch = WriteBatch {
            peer: to,
            dst: RegionId::of_peer(to, RegionKind::Output),
            src: RegionId::INPUT,
            reduction: None,
            then: ChannelNotify::Data,
        };
        sink.write_batch(MAIN, &batch, [Part { dst: mine, src: 0, len: bytes }].into_iter())?;
        sink.task(MAIN, &Task::ChannelWait { peer: from, notify: ChannelNotify::Data })?;
    }
    Ok(())
}
