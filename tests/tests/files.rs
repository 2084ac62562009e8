//! Algorithms that were loaded as data, on both builds of the kernel: the published files, those of
//! `examples/algorithms`, and the one that an example writes in Rust.

#[path = "files/bytes.rs"]
mod bytes;
#[path = "../../host-launcher/examples/custom_all_gather.rs"]
#[expect(dead_code, reason = "the example's own main function")]
mod custom_all_gather;
#[path = "files/random.rs"]
mod random;
#[path = "files/refusals.rs"]
mod refusals;
