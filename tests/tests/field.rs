//! Faults that users of the field have reported, each provoked here and named by its public thread.
//!
//! What must hold of each: the failure is reported in time, the rank that it is due to is named first, and the process
//! can go on. Deadlines are short where the thread has half an hour. `codes` looks after the registry: every code has a
//! test.

#[path = "field/bits.rs"]
mod bits;
#[path = "field/codes.rs"]
mod codes;
#[path = "field/cores.rs"]
mod cores;
#[path = "field/crash.rs"]
mod crash;
#[path = "field/dumps.rs"]
mod dumps;
#[path = "field/exchange.rs"]
mod exchange;
#[path = "field/graphs.rs"]
mod graphs;
#[path = "field/hangs.rs"]
mod hangs;
#[path = "field/memory.rs"]
mod memory;
#[path = "field/mismatch.rs"]
mod mismatch;
#[path = "field/phases.rs"]
mod phases;
#[path = "field/readable.rs"]
mod readable;
#[path = "capture/rig.rs"]
mod rig;
#[path = "field/set_up.rs"]
mod set_up;
#[path = "field/tables.rs"]
mod tables;
