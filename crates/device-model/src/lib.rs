//! Software NPU: what the device does with the bytes and descriptors it is given.

pub mod reduce;
