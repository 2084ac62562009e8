//! What the device reads of the tables that the host writes: regions, channels, notifies.
//!
//! Nothing is remembered between two tasks: a region that was released, or a channel that was cut, is noticed by the
//! next task that names it. Every value read is data to check, never an index to trust.

use core::sync::atomic::{Ordering, fence};

use wire::npu::{self, Access, ChannelSlot, Protocol, RegionSlot};
use wire::{DeviceAddr, ErrorCode, Operand};
use zerocopy::transmute;

use super::{Refusal, Site};
use crate::fabric::{Fabric, Seat};
use crate::memory::{Slot, Span, Window};
use crate::simulation::Simulation;

/// Returns the bytes at one end of a transfer, after every check the region table allows.
#[inline]
pub(super) fn check_operand(
    window: &Window,
    operand: Operand,
    len: u64,
    need: Access,
) -> Result<Span<'_>, Refusal> {
    let refuse = |code| Refusal { code, address: operand.addr };
    // CAST: below the number of regions.
    #[expect(clippy::cast_possible_truncation, reason = "below the number of regions")]
    let slot = &window.regions()[RegionSlot::index(operand.token) as usize];
    let [addr, bytes, identity] = [0, 1, 2].map(|word: usize| slot[word].load(Ordering::Relaxed));
    // ORDER: pairs with the driver's stores of a slot: it clears the token before it changes anything else and sets it
    // after everything else. The same token before and after means that the fields in between belong to it.
    fence(Ordering::Acquire);
    let token = token_of(slot[2].load(Ordering::Acquire));
    if token == 0 || operand.token == 0 {
        return Err(refuse(ErrorCode::DMA_UNREGISTERED));
    }
    if token != operand.token || token_of(identity) != token {
        return Err(refuse(ErrorCode::DMA_TOKEN));
    }
    let inside = operand.addr.0.checked_sub(addr).and_then(|offset| offset.checked_add(len));
    if inside.is_none_or(|end| end > bytes) {
        return Err(refuse(ErrorCode::DMA_BOUNDS));
    }
    if !access_of(identity).contains(need) {
        return Err(refuse(ErrorCode::DMA_ACCESS));
    }
    window.span(operand.addr, len).ok_or_else(|| refuse(ErrorCode::DMA_BOUNDS))
}

// CAST: the low half of the word that holds token and access.
#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
#[inline]
const fn token_of(identity: u64) -> u32 {
    identity as u32
}

#[inline]
const fn access_of(identity: u64) -> Access {
    Access::from_bits_retain((identity >> 32) as u32)
}

/// A channel that is connected.
#[derive(Clone, Copy)]
pub(super) struct Channel<'a> {
    pub(super) peer_npu: u32,
    pub(super) peer: &'a Seat,
    pub(super) protocol: Protocol,
    pub(super) queue: u16,
    /// Its entry in the table; all but the first word, which has been read.
    slot: &'a Slot,
}

impl Channel<'_> {
    /// Returns what both the engine of its protocol and this link can do.
    #[inline]
    pub(super) fn limits(&self) -> Limits {
        let engine = match self.protocol {
            Protocol::Hccs => Limits::SDMA,
            Protocol::Roce => Limits::ROCE,
            Protocol::Ub => Limits::UB,
        };
        let [second, third] = [1, 2].map(|word: usize| self.slot[word].load(Ordering::Relaxed));
        let slot: ChannelSlot = transmute!([0, second, third, 0]);
        Limits {
            max_len: engine.max_len.min(slot.max_len),
            reduce_types: engine.reduce_types & slot.reduce_types,
            reduce_ops: engine.reduce_ops & slot.reduce_ops,
        }
    }
}

/// What one engine or link can move at most.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Longest transfer, bytes.
    pub(super) max_len: u64,
    /// Bit per data type that it reduces.
    pub(super) reduce_types: u32,
    /// Bit per reduction that it does.
    pub(super) reduce_ops: u32,
}

impl Limits {
    /// A copy engine on its own memory.
    pub(super) const SDMA: Self = Self {
        max_len: npu::sdma::MAX_LEN,
        reduce_types: npu::sdma::REDUCE_TYPES,
        reduce_ops: npu::sdma::REDUCE_OPS,
    };
    /// A processor core: reduces whatever has a reduction (the parser refused what has none).
    pub(super) const AICPU: Self =
        Self { max_len: npu::sdma::MAX_LEN, reduce_types: u32::MAX, reduce_ops: u32::MAX };
    const ROCE: Self = Self {
        max_len: npu::roce::MAX_LEN,
        reduce_types: npu::roce::REDUCE_TYPES,
        reduce_ops: npu::roce::REDUCE_OPS,
    };
    const UB: Self = Self {
        max_len: npu::ub::MAX_LEN,
        reduce_types: npu::ub::REDUCE_TYPES,
        reduce_ops: npu::ub::REDUCE_OPS,
    };
}

/// Returns a connected channel of an NPU.
///
/// # Errors
/// `SQE_CHANNEL` when there is none of that number, `LINK_DOWN` when the link is cut.
#[inline(always)]
pub(super) fn channel(site: &Site, index: u16) -> Result<Channel<'_>, ErrorCode> {
    let Site { fabric, npu, window } = site;
    let slot = window.channels().get(usize::from(index)).ok_or(ErrorCode::SQE_CHANNEL)?;
    // ORDER: pairs with the driver's release store of the first word, which is its last when it connects.
    let ChannelSlot { peer_npu, connected, protocol, queue, .. } =
        transmute!([slot[0].load(Ordering::Acquire), 0, 0, 0]);
    let protocol = Protocol::try_from(protocol).map_err(|_| ErrorCode::SQE_CHANNEL)?;
    if connected != 1 {
        return Err(ErrorCode::SQE_CHANNEL);
    }
    let peer = fabric.seat(peer_npu).ok_or(ErrorCode::SQE_CHANNEL)?;
    if fabric.links().is_cut(*npu, peer_npu) {
        return Err(ErrorCode::LINK_DOWN);
    }
    Ok(Channel { peer_npu, peer, protocol, queue, slot })
}

/// Sets a notify of an NPU.
///
/// # Errors
/// `SQE_CHANNEL` when it has no such notify, `NOTIFY_TWICE` when it is set already.
#[inline(always)]
pub(super) fn record(fabric: &Fabric, npu: u32, seat: &Seat, notify: u32) -> Result<(), Refusal> {
    let word = seat.window.notifies().get(notify as usize).ok_or(ErrorCode::SQE_CHANNEL)?;
    if seat.loses(notify) {
        fabric.errant().note_missing(npu, notify);
        return Ok(());
    }
    // ORDER: pairs with the acquire load in `try_wait`: whatever was stored before the record is seen after the wait.
    // One notify has one recorder, so looking and setting need not be one step: two engines that share a notify by
    // mistake, and record it within the same nanoseconds, count as one.
    if word.load(Ordering::Relaxed) != 0 {
        return Err(recorded_twice(&seat.window, notify));
    }
    if let Some(simulation) = fabric.simulation() {
        return if send(simulation, npu, notify) {
            Ok(())
        } else {
            Err(recorded_twice(&seat.window, notify))
        };
    }
    word.store(1, Ordering::Release);
    Ok(())
}

#[cold]
fn recorded_twice(window: &Window, notify: u32) -> Refusal {
    let address = DeviceAddr(window.base().0 + npu::NOTIFIES + 4 * u64::from(notify));
    Refusal { code: ErrorCode::NOTIFY_TWICE, address }
}

/// Puts a signal on its way; returns false where one for the same notify is under way.
#[cold]
fn send(simulation: &Simulation, npu: u32, notify: u32) -> bool {
    let (now, mut air) = (simulation.clock().now_ns(), simulation.air());
    let first = !air.carries(npu, notify);
    if first {
        air.send(now, npu, notify, &mut simulation.dice());
    }
    first
}

/// Sets a notify when its signal arrives once more, which is a fault.
#[cold]
pub(super) fn arrive_again(fabric: &Fabric, npu: u32, notify: u32) {
    let word = fabric.seat(npu).and_then(|seat| seat.window.notifies().get(notify as usize));
    if word.is_some_and(|word| word.load(Ordering::Relaxed) == 0) {
        fabric.errant().note_stray(npu, notify);
    }
    arrive(fabric, npu, notify);
}

/// Sets a notify when its signal arrives; one that is set stays set.
pub(crate) fn arrive(fabric: &Fabric, npu: u32, notify: u32) {
    if let Some(seat) = fabric.seat(npu)
        && let Some(word) = seat.window.notifies().get(notify as usize)
    {
        // ORDER: as in `record`.
        word.store(1, Ordering::Release);
        seat.mark();
    }
}

/// Clears a notify of this NPU if it is set, and returns whether it was.
///
/// # Errors
/// `SQE_CHANNEL` when there is no such notify.
#[inline]
pub(super) fn try_wait(window: &Window, notify: u32) -> Result<bool, ErrorCode> {
    let word = window.notifies().get(notify as usize).ok_or(ErrorCode::SQE_CHANNEL)?;
    // ORDER: pairs with the release store in `record`.
    let set = word.load(Ordering::Acquire) != 0;
    if set {
        // ORDER: only this engine clears. A peer records again only after it has learnt, through a release of ours
        // that comes later, that this wait is over.
        word.store(0, Ordering::Relaxed);
    }
    Ok(set)
}
