//! The kernel as a shared object in a process whose data plane has the task cache: the library records and replays.
//!
//! A program of its own, because the calls are there for all of a process or for none of it.

#[path = "shared_object/library_cache.rs"]
mod library_cache;
#[path = "shared_object/plane.rs"]
mod plane;
#[path = "shared_object/rig.rs"]
#[expect(dead_code, reason = "shared with the test without the cache")]
mod rig;
