//! One kernel, two builds: what the host build does and counts, and that the aarch64 image does the same.

#[path = "conformance/counts.rs"]
mod counts;
#[path = "conformance/descriptors.rs"]
mod descriptors;
