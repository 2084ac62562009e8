//! The kernel on plain memory: no device model, no threads; each test plays host and device itself.

mod cache_bytes;
mod cache_crash;
mod cache_faults;
mod cache_key;
mod cache_lives;
mod cache_rings;
mod cache_sizes;
mod descriptors;
mod fake;
mod random;
mod refusals;
mod resume;
mod rig;
mod rings;
mod scripts;
