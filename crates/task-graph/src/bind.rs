//! Binding a graph to a launch: one addition vector per pattern.

use wire::{Base, DeviceAddr, ErrorCode, Lane};

use crate::RegionId;
use crate::graph::QueueIndex;
use crate::pattern::{Interned, PATTERNS, Pattern, Slopes};

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

/// Why a graph cannot be bound to a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unbound {
    /// `BINDING_MISSING` or `BINDING_EXTENT`.
    pub code: ErrorCode,
    /// The region that is missing or too short.
    pub region: RegionId,
    /// The first task that needs it, or reaches beyond its end, by its number within the graph.
    pub task: u32,
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
#[inline(always)]
pub(crate) fn vector_of(
    interned: &Interned,
    bindings: &impl Bindings,
    base: &LaunchBase,
    unit: u64,
    wqe_tail: &impl Fn(QueueIndex) -> u32,
) -> Result<[u64; 8], (ErrorCode, RegionId)> {
    let timeout = u64::from(base.timeout_ms);
    let Some((regions, is_sqe)) = interned.operands() else {
        return Ok(signal_of(interned.pattern(), base, wqe_tail));
    };
    // The part of offsets and lengths that grows with the unit; all zero in a graph of one size.
    let grown = |slope: u16| u64::from(slope).wrapping_mul(unit);
    let Slopes { src, dst, len } = Slopes::from_word(interned.growth);
    let len = grown(len);
    let operand = |region: Option<RegionId>, extent: u64, offset: u64| {
        let Some(region) = region else { return Ok((0, 0)) };
        let Some(bound) = bindings.bound(region) else { return Err((ErrorCode::BINDING_MISSING, region)) };
        if extent.wrapping_add(offset).wrapping_add(len) > bound.len {
            return Err((ErrorCode::BINDING_EXTENT, region));
        }
        Ok((bound.addr.0.wrapping_add(offset), u64::from(bound.token)))
    };
    let ([first, second], [extent, other]) = (regions, interned.extents);
    let (source, token) = operand(first, extent, grown(src))?;
    let (destination, its_token) = operand(second, other, grown(dst))?;
    let launch = if is_sqe { timeout } else { 0 };
    Ok([0, base.task, source, destination, len, token | its_token << 32, 0, launch])
}

/// The same for a pattern without operands, all of them submission entries.
fn signal_of(pattern: Pattern, base: &LaunchBase, wqe_tail: &impl Fn(QueueIndex) -> u32) -> [u64; 8] {
    let (signal, position) = match pattern {
        Pattern::Start => (base.start_notify, 0),
        Pattern::Done => (base.done_notify, 0),
        Pattern::Next => (base.next_notify, 0),
        Pattern::Post { queue } => (0, wqe_tail(queue)),
        Pattern::Sqe { .. } | Pattern::Wqe { .. } => (0, 0),
    };
    let launch = u64::from(base.timeout_ms) | u64::from(position) << 32;
    [0, base.task, 0, 0, 0, 0, u64::from(signal), launch]
}

// The order in which `vector_of` writes lanes.
const _: () =
    assert!(Lane::Task as usize == 1 && Lane::Source as usize == 2 && Lane::Destination as usize == 3);
const _: () = assert!(Lane::Length as usize == 4 && Lane::Tokens as usize == 5 && Lane::Signal as usize == 6);
const _: () = assert!(Lane::Head as usize == 0 && Lane::Launch as usize == 7);
