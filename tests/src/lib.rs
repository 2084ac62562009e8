//! Support of the end-to-end tests: worlds to run in, checked operations, and a reference executor of expanded tasks
//! that shares nothing with the device.

pub mod bench;
pub mod reference;
pub mod rings;
pub mod scene;
pub mod variants;
pub mod world;
pub mod written;
