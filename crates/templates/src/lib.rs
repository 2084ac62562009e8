//! Collective algorithms, written once over the task sink.
//!
//! [`Plan::new`] checks a [`Shape`] (what to do, where, with how much scratch) and cuts it into chunks;
//! [`Plan::emit`] writes the tasks of one chunk for one rank to any [`TaskSink`](task_graph::TaskSink). Templates are
//! pure: no hardware, no addresses, no allocation, the same shape always gives the same tasks. Every template is the
//! same skeleton of seven phases (`skeleton`). Step algorithms are passes over slices of a work area, which differ only in
//! their schedule (`schedule`, `steps`); exchanges hand blocks from rank to rank (`exchange`); the mesh reduces what all
//! sent in rank order (`mesh`). Compositions run passes in several groups, level by level (`composition`, `ahc`), at once
//! (`pipeline`) or in several rings (`multi_ring`). Counts per rank, servers and super pods come in [`Tables`].
//!
//! The order in which elements are reduced is a property of each algorithm (`a · b` is the later operand b reduced
//! into a; x_r is rank r's input; N ranks; slice j belongs to rank j):
//!
//! | algorithm | order for an element of slice j |
//! |---|---|
//! | ring | x_j · ( … · (x_{j+3} · (x_{j+2} · x_{j+1}))): once around, ending at the owner |
//! | halving-doubling | A(r) := A(r) · A(r ⊕ d) for d = N/2 … 1, starting from A(r) = x_r; ranks ≥ 2^k first folded into r − 2^k |
//! | NHR | the binary tree over the distance p from the owner: A(p) := A(p) · A(p + d) for d = 1, 2, 4 … and p a multiple of 2d |
//! | NHR (all-reduce of 2^a · m ranks, m odd) | the same, but slice c · m + h belongs to rank h · 2^a + c', c' the a bits of c in reverse, so that the slices of the first a steps lie together |
//! | NB | as NHR, p counted behind the owner instead of ahead |
//! | tree (all-reduce, reduce) | as NHR for the whole, p counted from the root |
//! | ring (reduce) | x_r · (x_{r+1} · (x_{r+2} · …)) from the root r on: hand to hand, ending at the root |
//! | mesh one-shot, two-shot, pairwise, star | (x_0 · x_1) · x_2 …: rank order |
//! | strict | the upper half of the ranks folded onto the lower at the largest power of two below what remains, until one is left |
//! | file | as the file says: each `rrc`, `rrs`, `rrcs` reduces what was received with what the step names |
//!
//! | mesh chunk | part c of slice j, of N − 1: x_j · x_{j+1+c} · x_{j+c} … · x_{j+1}, then x_{j−1} … · x_{j+2+c}: backwards around, past j |
//! | multi-ring | part i of the whole (of a block): as ring, with the i-th stride that has no divisor in common with N, up to N/2, instead of 1; eight at most |
//! | two-level, three-level | level by level from the innermost on, each in the order of its own algorithm among the ranks that agree with the owner further inside; a mesh there begins with the owner and goes around: x_m · x_{m+1} · x_{m+2} … |
//! | pipeline | as two-level by mesh and ring |
//! | AHC | each server as the inner level, its rank that holds the part being the owner; then among the ranks that hold the part, in the order of the outer algorithm, slice by slice of a run of parts that the same ranks hold |
//!
//! Levels and who owns which slice are those of [`Tables`]: the digits of a rank are its numbers within the groups of
//! each level (`levels`), and the slices of an all-reduce lie in the order of digits, the innermost first. Of AHC,
//! place p of a server of g ranks holds the parts from ⌊p · P / g⌋ on, of P the least common multiple of all g; where
//! that is more than 1,024, P is the larger of 1,024 and the largest g squared (`ahc`). Of halving-doubling, g counts
//! the ranks of its core.
//!
//! Choosing an algorithm is not done here: the host does that.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod ahc;
mod alias;
mod chunk;
mod class;
mod composition;
mod copies;
mod division;
mod exchange;
mod family;
mod file;
mod group;
mod levels;
mod mesh;
mod mesh_level;
mod multi_ring;
mod overlap;
mod pipeline;
mod places;
mod plan;
mod schedule;
mod skeleton;
mod slices;
mod space;
mod steps;
mod tables;
mod tasks;

pub use class::SizeClass;
pub use family::{Needs, exists};
pub use file::script_scratch_bytes;
pub use plan::{Plan, PlanError, Shape};
pub use space::scratch_bytes;
pub use tables::{Extents, Tables};
