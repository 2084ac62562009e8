//! The kernel on plain memory: no device model, no threads; each test plays host and device itself.

mod descriptors;
mod fake;
mod random;
mod refusals;
mod resume;
mod rig;
mod rings;
