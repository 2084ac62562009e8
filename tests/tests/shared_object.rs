//! The kernel as a shared object for this host, loaded into the test, which is its data plane.
//!
//! Needs `cargo xtask image --so`, whose directory `AICPU_SO_DIR` names; says so and passes without.

#[path = "shared_object/failures.rs"]
mod failures;
#[path = "shared_object/fences.rs"]
mod fences;
#[path = "shared_object/grid.rs"]
mod grid;
#[path = "shared_object/inspect.rs"]
mod inspect;
#[path = "shared_object/listing.rs"]
mod listing;
#[path = "shared_object/plane.rs"]
mod plane;
#[path = "shared_object/programs.rs"]
mod programs;
#[path = "shared_object/rig.rs"]
mod rig;
#[path = "shared_object/versions.rs"]
mod versions;
