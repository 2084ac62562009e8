//! Rank tables, with a topology file behind a zero byte where there is one: refused with a code and a place, or a
//! topology whose channels are symmetric.
#![no_main]

use aicpu_fuzz::world;
use host_launcher::rank_table::{RankTable, Source};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (table, topology) = match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], Some(Source { bytes: &data[at + 1..], name: "topology" })),
        None => (data, None),
    };
    world::check(RankTable::parse(Source { bytes: table, name: "table" }, topology));
});
