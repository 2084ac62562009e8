//! Topology files, behind a 2.0 rank table that is right.
#![no_main]

use aicpu_fuzz::world;
use host_launcher::rank_table::{RankTable, Source};
use libfuzzer_sys::fuzz_target;

const TABLE: &[u8] = include_bytes!("../../examples/rank-tables/v2.0_1x8.json");

fuzz_target!(|data: &[u8]| {
    let topology = Some(Source { bytes: data, name: "topology" });
    world::check(RankTable::parse(Source { bytes: TABLE, name: "table" }, topology));
});
