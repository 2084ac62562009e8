//! Programs: captured once, replayed by one launch, every byte of every rank compared after every replay.

#[path = "capture/bytes.rs"]
mod bytes;
#[path = "capture/failures.rs"]
mod failures;
#[path = "capture/rig.rs"]
mod rig;
