//! Tasks and task graphs: what a collective is once it has been expanded.
//!
//! A template writes [`Task`]s to a [`TaskSink`]. Operands are [`Span`]s: a region, an offset, a length; never an
//! address. The [`Recorder`] is the sink of the kernel: it encodes each task as 64-byte descriptors with the base
//! addresses left out and notes which base goes where, which makes a [`TaskGraph`]. Binding the graph to a launch
//! yields one addition vector per pattern, and submitting is copying with that vector added.
//!
//! Other sinks here: [`Listing`] (text) and [`Counter`] (numbers only). Nothing here knows an algorithm, a ring or
//! the hardware.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

#[cfg(test)]
extern crate std;

mod affine;
mod bind;
mod counter;
mod encode;
mod graph;
mod listing;
mod packed;
mod pattern;
mod record;
mod region;
mod sink;
mod task;

pub use affine::{AffinePatterns, Sized};
pub use bind::{Bindings, Bound, LaunchBase, Unbound, Vectors};
pub use counter::{Counter, Counts};
pub use encode::{Link, Resources};
pub use graph::{BLOCK_ENTRIES, Block, Cursor, Kinds, QUEUES, QueueIndex, Run, TaskGraph};
pub use listing::Listing;
pub use packed::{PAGE_ENTRIES, PackedGraph, Page, Pages, QueueRun};
pub use pattern::{PATTERNS, Pattern};
pub use record::Recorder;
pub use region::{Rank, RegionId, RegionKind, Span};
pub use sink::{Caps, Part, TaskSink, WriteBatch};
pub use task::{ChannelNotify, Task, ThreadId};

#[cfg(test)]
mod tests;
