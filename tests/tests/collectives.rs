//! Every operation through launcher, kernel and device, against the launcher's oracle, bit for bit.
//!
//! The grid is the full product of operation, algorithm, staging, ranks and count. Data types and reductions rotate
//! through it so that every algorithm meets every pair, in one server and across servers; the tests assert that they
//! did.

#[path = "collectives/grid.rs"]
mod grid;
#[path = "collectives/groups.rs"]
mod groups;
#[path = "collectives/hierarchy.rs"]
mod hierarchy;
#[path = "collectives/oracle.rs"]
mod oracle;
#[path = "collectives/random.rs"]
mod random;
#[path = "collectives/set_up.rs"]
mod set_up;
#[path = "collectives/streams.rs"]
mod streams;
#[path = "collectives/strict.rs"]
mod strict;
