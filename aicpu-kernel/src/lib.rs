//! The kernel: takes launches, expands collectives, submits descriptors.
//!
//! A launch is answered in four steps: read the arguments, find the decoded resource context (decoding and checking
//! its bytes only the first time), get the task graph of one chunk (replayed from the cache, or expanded and kept),
//! copy the graph into the rings with this launch's addresses added. There is one submit path, and it never blocks:
//! where a ring is full, [`Kernel::poll`] returns and goes on at the next call.
//!
//! Every launch is answered by a status. The host's done notify is recorded by all but those that have no context (no
//! thread to record it on) and those given up half-way (their rings are not touched any more).
//!
//! The replay of a program is the same for several operations in turn: what can be refused of any of them is refused
//! before the first is submitted, and each but the last starts the next on the device.
//!
//! [`CallKernel`] is the same kernel where the public data plane takes the tasks: launches, contexts, plans and keys are
//! these, but there are no rings, and each task becomes a call at once. [`serve_custom`] does the same for an algorithm
//! that comes from outside.
//!
//! The kernel knows no hardware (that is `hal`), has no heap, no `unsafe` and no panic path. The image or the host
//! thread that owns it calls [`Kernel::poll`] for ever.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod attached;
mod bindings;
pub mod cache_key;
mod calls;
mod check;
mod context;
mod graphs;
mod job;
mod kernel;
mod plans;
mod port;
mod program;
mod request;
mod script;
mod sizes;
mod submit;
mod work;

pub use calls::{CallKernel, CustomOperator, TapePage, Tapes, serve_custom};
pub use context::{MAX_CONTEXTS, MAX_RANKS, MAX_THREADS};
pub use graphs::CacheUse;
pub use kernel::{Fault, Kernel};
pub use sizes::Sizes;
pub use task_graph::{Block, Page};

/// Blocks of 32 descriptors that a chunk is recorded into where nobody asks for another number: 16,384 descriptors.
pub const DEFAULT_BLOCKS: usize = 512;

/// Pages that the largest graph of [`DEFAULT_BLOCKS`] takes: 16,384 descriptors, all patterns, all queues.
pub const LARGEST_GRAPH_PAGES: usize =
    (DEFAULT_BLOCKS * task_graph::BLOCK_ENTRIES + task_graph::PATTERNS / 2 + task_graph::QUEUES / 4)
        .div_ceil(task_graph::PAGE_ENTRIES);
