//! Topology files, behind a 2.0 rank table that is right: three ranks of one server, of which two are joined by links alone,
//! and one of another.
#![no_main]

use aicpu_fuzz::world;
use host_launcher::rank_table::{RankTable, Source};
use libfuzzer_sys::fuzz_target;

/// Short, as it is read again each time.
const TABLE: &[u8] = include_bytes!("../table.json");

fuzz_target!(|data: &[u8]| {
    let topology = Some(Source { bytes: data, name: "topology" });
    world::check(RankTable::parse(Source { bytes: TABLE, name: "table" }, topology));
});
