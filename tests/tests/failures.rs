//! What fails ends within its deadline, names its cause, and leaves a process that can go on.
//!
//! Every fault is put in from outside, at a place the test chooses, so that code, culprit, peer and task can be
//! asserted. Each test ends with `Scene::recovers`: the communicator refuses work, gives everything back, and a new
//! one on the same cluster computes what the oracle says.

#[path = "failures/causes.rs"]
mod causes;
#[path = "failures/cycles.rs"]
mod cycles;
#[path = "failures/image.rs"]
mod image;
#[path = "failures/lifetimes.rs"]
mod lifetimes;
#[path = "failures/order.rs"]
mod order;
#[path = "failures/shared.rs"]
mod shared;
#[path = "failures/slow.rs"]
mod slow;
