//! The cost model: published formulas to the tick, an independent simulation, and what is chosen.

mod asked;
mod choices;
mod formulas;
mod naive;
mod profiles;
mod simulation;

use host_launcher::rank_table::RankTable;
use host_launcher::select::profile::Profile;
use host_launcher::topology::Topology;

/// Ranks of so many servers with so many devices each.
fn topology(servers: u32, devices: u32) -> Topology {
    Topology::new(&RankTable::uniform(servers * devices, devices).unwrap())
}

/// A profile with constants that are easy to read in a formula.
fn profile(change: impl FnOnce(&mut Profile)) -> Profile {
    let mut profile = Profile::default();
    for link in [&mut profile.links.hccs, &mut profile.links.roce, &mut profile.links.ub] {
        link.latency_ns.value = 1000.0;
        link.signal_ns.value = 500.0;
        link.task_ns.value = 0.0;
        link.gigabytes_per_second.value = 50.0;
    }
    profile.links.roce.latency_ns.value = 4000.0;
    profile.links.roce.signal_ns.value = 2000.0;
    profile.links.roce.gigabytes_per_second.value = 20.0;
    profile.local.copy_gigabytes_per_second.value = 1000.0;
    profile.local.reduce_gigabytes_per_second.value = 500.0;
    profile.local.link_reduce_gigabytes_per_second.value = 500.0;
    profile.engine.task_ns.value = 0.0;
    profile.engine.least_task_ns.value = 0.0;
    profile.engine.notify_ns.value = 0.0;
    profile.engine.workers.value = 0.0;
    change(&mut profile);
    profile
}
