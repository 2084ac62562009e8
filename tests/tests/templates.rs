//! The templates against a naive oracle, run by the reference executor: no device, no descriptors.

#[path = "templates/counts.rs"]
mod counts;
#[path = "templates/facts.rs"]
mod facts;
#[path = "templates/grid.rs"]
mod grid;
#[path = "templates/hierarchy.rs"]
mod hierarchy;
#[path = "templates/plans.rs"]
mod plans;
#[path = "templates/volumes.rs"]
mod volumes;
