//! The cache of graphs through launcher, kernel and device: what hits, what misses, and that a replay does what an
//! expansion does.

#[path = "replay/addresses.rs"]
mod addresses;
#[path = "replay/builds.rs"]
mod builds;
#[path = "replay/policy.rs"]
mod policy;
#[path = "replay/rotation.rs"]
mod rotation;
#[path = "replay/sharing.rs"]
mod sharing;
#[path = "replay/steps.rs"]
mod steps;
