//! Support of the end-to-end tests: a reference executor of expanded tasks that shares nothing with the device.

pub mod reference;
