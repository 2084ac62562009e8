//! Binding a graph to a launch: one addition vector per pattern.

use wire::{Base, DeviceAddr, ErrorCode, Lane};

use crate::RegionId;
use crate::graph::QueueIndex;
use crate::pattern::{Interned, PATTERNS, Pattern};

/// Where a region lies for one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// First byte.
    pub addr: DeviceAddr,
    /// Bytes that may be touched.
    pub len: u64,
    /// Token of the registered region.
    pub token: u32,
}

/// The regions of one launch.
pub trait Bindings {
    /// Returns where `region` lies, `None` where this launch does not bind it.
    fn bound(&self, region: RegionId) -> Option<Bound>;
}

/// Launch-time values other than regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchBase {
    /// Added to every task id: operation sequence in the high half, descriptors of earlier chunks in the low half.
    pub task: u64,
    /// Timeout of every wait, milliseconds.
    pub timeout_ms: u32,
    /// Notify that the wait for the start waits for.
    pub start_notify: u32,
    /// Host notify that the last task records.
    pub done_notify: u32,
    /// Notify that starts the operation behind this one; 0 where nothing is behind it.
    pub next_notify: u32,
}

/// The addition vectors of one launch: one base per pattern.
#[derive(Debug)]
pub struct Vectors {
    list: [Base; PATTERNS],
}

impl Vectors {
    /// Makes vectors that add nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: [Base([0; 8]); PATTERNS] }
    }

    /// Returns the bases for writing.
    pub(crate) const fn bases_mut(&mut self) -> &mut [Base; PATTERNS] {
        &mut self.list
    }

    /// Returns the bases in the order of the patterns' numbers.
    #[inline(always)]
    #[must_use]
    pub const fn bases(&self) -> &[Base; PATTERNS] {
        &self.list
    }
}

impl Default for Vectors {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns what one launch adds to the descriptors of a pattern.
pub(crate) fn vector_of(
    interned: &Interned,
    bindings: &impl Bindings,
    base: &LaunchBase,
    unit: u64,
    wqe_tail: &impl Fn(QueueIndex) -> u32,
) -> Result<[u64; 8], (ErrorCode, RegionId)> {
    let mut lanes = [0; 8];
    let mut set = |lane: Lane, value: u64| {
        if let Some(slot) = lanes.get_mut(lane as usize) {
            *slot = value;
        }
    };
    set(Lane::Task, base.task);
    let (operands, launch) = match interned.pattern {
        Pattern::Sqe { src, dst } => ([src, dst], u64::from(base.timeout_ms)),
        Pattern::Wqe { local, remote } => ([local, remote], 0),
        Pattern::Post { queue } => ([None; 2], u64::from(base.timeout_ms) | u64::from(wqe_tail(queue)) << 32),
        Pattern::Start | Pattern::Done | Pattern::Next => ([None; 2], u64::from(base.timeout_ms)),
    };
    set(Lane::Launch, launch);
    match interned.pattern {
        Pattern::Start => set(Lane::Signal, u64::from(base.start_notify)),
        Pattern::Done => set(Lane::Signal, u64::from(base.done_notify)),
        Pattern::Next => set(Lane::Signal, u64::from(base.next_notify)),
        _ => {}
    }
    // The part of offsets and lengths that grows with the unit; all zero in a graph of one size.
    let grown = |slope: u16| u64::from(slope).wrapping_mul(unit);
    let slopes = interned.slopes;
    let (src, dst, len) = (grown(slopes.src), grown(slopes.dst), grown(slopes.len));
    set(Lane::Length, len);
    let mut tokens = 0;
    for (index, (region, extent)) in operands.into_iter().zip(interned.extents).enumerate() {
        let Some(region) = region else { continue };
        let (lane, offset) = if index == 0 { (Lane::Source, src) } else { (Lane::Destination, dst) };
        let bound = bindings.bound(region).ok_or((ErrorCode::BINDING_MISSING, region))?;
        if extent.wrapping_add(offset).wrapping_add(len) > bound.len {
            return Err((ErrorCode::BINDING_EXTENT, region));
        }
        set(lane, bound.addr.0.wrapping_add(offset));
        tokens |= u64::from(bound.token) << (32 * index);
    }
    set(Lane::Tokens, tokens);
    Ok(lanes)
}
