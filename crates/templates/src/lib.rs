//! Collective algorithms, written once over the task sink.
//!
//! [`Plan::new`] checks a [`Shape`] (what to do, where, with how much scratch) and cuts it into chunks;
//! [`Plan::emit`] writes the tasks of one chunk for one rank to any [`TaskSink`](task_graph::TaskSink). Templates are
//! pure: no hardware, no addresses, no allocation, the same shape always gives the same tasks. Every template is the
//! same skeleton of seven phases (`skeleton`). Step algorithms are passes over slices of a work area, which differ only in
//! their schedule (`schedule`, `steps`); exchanges hand blocks from rank to rank (`exchange`); the mesh reduces what all
//! sent in rank order (`mesh`). Counts per rank, servers and super pods come in [`Tables`].
//!
//! The order in which elements are reduced is a property of each algorithm (`a · b` is the later operand b reduced
//! into a; x_r is rank r's input; N ranks; slice j belongs to rank j):
//!
//! | algorithm | order for an element of slice j |
//! |---|---|
//! | ring | x_j · ( … · (x_{j+3} · (x_{j+2} · x_{j+1}))): once around, ending at the owner |
//! | halving-doubling | A(r) := A(r) · A(r ⊕ d) for d = N/2 … 1, starting from A(r) = x_r; ranks ≥ 2^k first folded into r − 2^k |
//! | NHR | the binary tree over the distance p from the owner: A(p) := A(p) · A(p + d) for d = 1, 2, 4 … and p a multiple of 2d |
//! | NB | as NHR, p counted behind the owner instead of ahead |
//! | tree (all-reduce, reduce) | as NHR for the whole, p counted from the root |
//! | ring (reduce) | x_r · (x_{r+1} · (x_{r+2} · …)) from the root r on: hand to hand, ending at the root |
//! | mesh one-shot, two-shot, pairwise, star | (x_0 · x_1) · x_2 …: rank order |
//! | strict | the upper half of the ranks folded onto the lower at the largest power of two below what remains, until one is left |
//!
//! Choosing an algorithm is not done here: the host does that.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod ahc;
mod areas;
mod chunk;
mod class;
mod composition;
mod exchange;
mod file;
mod group;
mod levels;
mod mesh;
mod mesh_level;
mod multi_ring;
mod pipeline;
mod plan;
mod schedule;
mod skeleton;
mod slices;
mod steps;
mod tables;

pub use class::SizeClass;
pub use file::script_scratch_bytes;
pub use plan::{Needs, Plan, PlanError, Shape, exists, scratch_bytes};
pub use tables::{Extents, Tables};
