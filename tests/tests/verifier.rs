//! The graph verifier: everything the templates emit is proved, and what is wrong is refused.

#[path = "verifier/facts.rs"]
mod facts;
#[path = "verifier/grid.rs"]
mod grid;
#[path = "verifier/harm.rs"]
mod harm;
#[path = "verifier/local.rs"]
mod local;
#[path = "verifier/mutants.rs"]
mod mutants;
#[path = "verifier/mutation.rs"]
mod mutation;
#[path = "verifier/naive.rs"]
mod naive;
#[path = "verifier/pairs.rs"]
mod pairs;
#[path = "verifier/schedules.rs"]
mod schedules;
#[path = "verifier/servers.rs"]
mod servers;
#[path = "verifier/shapes.rs"]
mod shapes;
#[path = "verifier/worlds.rs"]
mod worlds;

/// How much a campaign asks for, or that.
fn asked_for(otherwise: u32) -> u32 {
    let asked = std::env::var("AICPU_TS_CAMPAIGN").ok();
    asked.map_or(otherwise, |asked| asked.parse().expect("AICPU_TS_CAMPAIGN is a number"))
}
