//! What can be said of an algorithm without carrying it out.

use std::collections::HashMap;

use wire::ErrorCode;
use wire::launch::OpKind;

use crate::fault::StepId;
use crate::{Algorithm, Buffer, Fault, Place, Step, ThreadBlock};

/// Most ranks: as many as a kernel knows.
const MAX_RANKS: u32 = 128;
/// Most chunks: parts and slots are numbered by 16 bits.
const MAX_CHUNKS: u32 = 1 << 16;
/// Most thread blocks, chunks of outputs, and chunks that steps move, of all ranks: so much is simulated.
const MAX_TOTALS: [u64; 3] = [1 << 14, 1 << 20, 1 << 22];

/// Checks ranks, chunks, channels, and every step by itself.
///
/// # Errors
/// The first fault, in the order of the file.
pub(crate) fn check(algorithm: &Algorithm) -> Result<(), Fault> {
    let (ranks, chunks) = (algorithm.ranks(), algorithm.chunks);
    let head = |code, message: String| Err(Fault::new(code, 0, message));
    if !matches!(
        algorithm.op,
        OpKind::AllReduce | OpKind::AllGather | OpKind::ReduceScatter | OpKind::AllToAll
    ) {
        return head(ErrorCode::ALGORITHM_COLLECTIVE, format!("{} by a file", algorithm.op));
    }
    if ranks > MAX_RANKS {
        return head(ErrorCode::ALGORITHM_LIMIT, format!("{ranks} ranks; at most {MAX_RANKS}"));
    }
    if chunks > MAX_CHUNKS {
        return head(ErrorCode::ALGORITHM_LIMIT, format!("{chunks} chunks; at most {MAX_CHUNKS}"));
    }
    if ranks == 0 || chunks == 0 || (algorithm.op != OpKind::AllReduce && !chunks.is_multiple_of(ranks)) {
        let message = format!("{chunks} chunks on {ranks} ranks: {} wants a multiple", algorithm.op);
        return head(ErrorCode::ALGORITHM_VALUE, message);
    }
    if !algorithm.in_place && !algorithm.out_of_place {
        let message = "neither in place nor out of place: it can never be used".to_owned();
        return head(ErrorCode::ALGORITHM_VALUE, message);
    }
    let blocks = || algorithm.gpus.iter().flat_map(|gpu| &gpu.blocks);
    let moved = blocks().flat_map(|block| &block.steps).map(|step| u64::from(step.count)).sum();
    let totals = [blocks().count() as u64, u64::from(ranks) * u64::from(chunks), moved];
    for ((total, most), what) in totals.into_iter().zip(MAX_TOTALS).zip(["tbs", "chunks", "chunks moved"]) {
        if total > most {
            return head(ErrorCode::ALGORITHM_LIMIT, format!("{total} {what} of all gpus; at most {most}"));
        }
    }
    for (gpu, rank) in algorithm.gpus.iter().enumerate() {
        channels(algorithm, gpu)?;
        if rank.chunks[2] > MAX_CHUNKS {
            let message = format!("gpu {gpu}: {} scratch chunks; at most {MAX_CHUNKS}", rank.chunks[2]);
            return Err(Fault::new(ErrorCode::ALGORITHM_LIMIT, rank.at, message));
        }
        for (block, thread) in rank.blocks.iter().enumerate() {
            for (step, what) in thread.steps.iter().enumerate() {
                check_step(algorithm, StepId { gpu, block, step }, thread, what)?;
            }
        }
    }
    Ok(())
}

/// One block sends to a peer over a channel, and one receives.
fn channels(algorithm: &Algorithm, gpu: usize) -> Result<(), Fault> {
    let mut users = HashMap::new();
    for (block, thread) in algorithm.gpus[gpu].blocks.iter().enumerate() {
        let fault =
            |code, message| Err(Fault::new(code, thread.at, format!("gpu {gpu}, tb {block}: {message}")));
        for (verb, peer) in [("sends to", thread.send), ("receives from", thread.receive)] {
            let Some(peer) = peer else { continue };
            if peer >= algorithm.ranks() || peer as usize == gpu {
                let message =
                    format!("{verb} gpu {peer}: expected another of 0 to {}", algorithm.ranks() - 1);
                return fault(ErrorCode::ALGORITHM_VALUE, message);
            }
            if let Some(other) = users.insert((verb, peer, thread.channel), block) {
                let message =
                    format!("{verb} gpu {peer} over channel {}, as tb {other} does", thread.channel);
                return fault(ErrorCode::ALGORITHM_CHANNEL, message);
            }
        }
    }
    Ok(())
}

fn check_step(algorithm: &Algorithm, id: StepId, thread: &ThreadBlock, step: &Step) -> Result<(), Fault> {
    let fault = |message: String| Err(id.fault(algorithm, ErrorCode::ALGORITHM_STEP, message));
    if step.kind.sends() && thread.send.is_none() {
        return fault("its tb sends to nobody".to_owned());
    }
    if step.kind.receives() && thread.receive.is_none() {
        return fault("its tb receives from nobody".to_owned());
    }
    let [input, output] = algorithm.extents();
    let [own_input, own_output, scratch] = algorithm.gpus[id.gpu].chunks;
    let room = [input.min(own_input), output.min(own_output), scratch];
    for (used, name, place) in
        [(step.kind.reads(), "reads", step.src), (step.kind.writes(), "writes", step.dst)]
    {
        let has = room[place.buffer as usize];
        if used && place.chunk.checked_add(step.count).is_none_or(|end| end > has) {
            return fault(format!("{name} {} chunks at {place} of {has}", step.count));
        }
    }
    if step.count == 0 && step.kind != crate::Kind::Nop {
        return fault("moves 0 chunks".to_owned());
    }
    // Out of place, the user's input stays as it is.
    let overwrites = step.kind.writes() && step.dst.buffer == Buffer::Input;
    if overwrites && algorithm.out_of_place {
        return fault(format!("writes {}: out of place, the input may only be read", Place { ..step.dst }));
    }
    let Some((block, after)) = step.after else { return Ok(()) };
    let target = algorithm.gpus[id.gpu].blocks.get(block).and_then(|thread| thread.steps.get(after));
    match target {
        None => fault(format!("depends on step {after} of tb {block}, which there is not")),
        Some(target) if !target.awaited => {
            fault(format!("depends on step {after} of tb {block}, which has hasdep 0"))
        }
        Some(_) => Ok(()),
    }
}
