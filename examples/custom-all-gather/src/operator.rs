//! The algorithm: every rank writes its input into the output of every other, round by round.

use aicpu_kernel::CustomOperator;
use task_graph::{ChannelNotify, Part, RegionId, RegionKind, Span, Task, TaskSink, ThreadId, WriteBatch};
use wire::ErrorCode;
use wire::launch::{Launch, OpKind};

/// An all-gather in direct staging.
pub struct AllGather;

impl CustomOperator for AllGather {
    fn emit<S: TaskSink>(
        &self,
        launch: &Launch,
        rank: u32,
        ranks: u32,
        sink: &mut S,
    ) -> Result<(), ErrorCode> {
        const MAIN: ThreadId = ThreadId::MAIN;
        if launch.op != OpKind::AllGather || launch.output.peers.0 == 0 {
            return Err(ErrorCode::PLAN_OP);
        }
        let bytes = launch.count.saturating_mul(launch.dtype.size_bytes());
        if bytes == 0 {
            return Ok(());
        }
        let mine = u64::from(rank).saturating_mul(bytes);
        let dst = Span { region: RegionId::OUTPUT, offset: mine, len: bytes };
        let src = Span { region: RegionId::INPUT, offset: 0, len: bytes };
        sink.task(MAIN, &Task::LocalCopy { dst, src })?;
        for distance in 1..ranks {
            // In each round everybody writes to somebody else, so no link is used twice.
            let (to, from) = ((rank + distance) % ranks, (rank + ranks - distance) % ranks);
            let (dst, src, then) = (RegionKind::Output, RegionKind::Input, Some(ChannelNotify::Data));
            let batch = WriteBatch { peer: to, dst, src, reduction: None, then };
            sink.exchange(MAIN, Some(from), &batch, &[Part { dst: mine, src: 0, len: bytes }])?;
        }
        Ok(())
    }
}
