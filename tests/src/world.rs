//! The worlds that end-to-end tests run in: how many ranks, joined by what, served by which build of the kernel.

use std::path::{Path, PathBuf};

use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::image::Image;
use host_launcher::qemu::Options;
use host_launcher::rank_table::{RankTable, Source};
use host_launcher::topology::Topology;
use serde_json::Value;

/// Where the ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// All in one server: HCCS everywhere.
    OneServer,
    /// In two servers of a 1.x table, the first of them the larger one: RoCE between them.
    TwoServers,
    /// In two servers of a 2.0 table: UB between them.
    UnifiedBus,
    /// In servers of so many ranks, the last maybe smaller: RoCE between them.
    Servers(u32),
}

/// Returns the topology of `ranks` ranks: at least 2 for two servers, at most 16 for a 2.0 table.
///
/// # Panics
/// When the sample files of the repository are not what they were.
#[must_use]
pub fn topology(ranks: u32, place: Place) -> Topology {
    let table = match place {
        Place::OneServer => RankTable::uniform(ranks, ranks).expect("as many devices as ranks"),
        Place::TwoServers => RankTable::uniform(ranks, ranks.div_ceil(2)).expect("half as many devices"),
        Place::UnifiedBus => unified_bus(ranks),
        Place::Servers(size) => RankTable::uniform(ranks, size).expect("few devices"),
    };
    Topology::new(&table)
}

/// Cuts the sample of two servers with eight devices each down to `ranks` ranks.
fn unified_bus(ranks: u32) -> RankTable {
    let mut table: Value = serde_json::from_slice(&sample("v2.0_2x8.json")).expect("the sample is JSON");
    let first = u64::from(ranks.div_ceil(2));
    let second = u64::from(ranks) - first;
    let list = table["rank_list"].as_array_mut().expect("the sample has ranks");
    list.retain(|rank| {
        let (id, local) = (rank["rank_id"].as_u64(), rank["local_id"].as_u64());
        local.expect("a number") < if id.expect("a number") < 8 { first } else { second }
    });
    for (id, rank) in list.iter_mut().enumerate() {
        rank["rank_id"] = id.into();
    }
    table["rank_count"] = ranks.into();
    let (table, mesh) = (table.to_string(), sample("topo_mesh8.json"));
    let mesh = Source { bytes: &mesh, name: "topo_mesh8.json" };
    RankTable::parse(Source { bytes: table.as_bytes(), name: "table" }, Some(mesh)).expect("a good table")
}

fn sample(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/rank-tables").join(name);
    std::fs::read(path).expect("the sample is in the repository")
}

/// Starts a cluster whose kernels run in this process, `memory` bytes per NPU.
///
/// # Panics
/// When the system has no memory for it.
#[must_use]
pub fn threads(ranks: u32, place: Place, memory: u64) -> Cluster {
    Cluster::start(topology(ranks, place), memory, &Aicpu::Thread).expect("a cluster starts")
}

/// Returns what boots the aarch64 image, or says why it cannot be tested and returns `None`.
///
/// # Panics
/// When `AICPU_IMAGE_ELF` names something that is no image.
#[must_use]
pub fn image() -> Option<Aicpu> {
    let Some(path) = std::env::var_os("AICPU_IMAGE_ELF").map(PathBuf::from) else {
        eprintln!("skipped: AICPU_IMAGE_ELF names no image; run `cargo xtask test`");
        return None;
    };
    let options = Options::default();
    let found = std::process::Command::new(&options.program).arg("--version").output();
    if found.is_err() {
        eprintln!("skipped: {} is not installed; run `cargo xtask setup`", options.program.display());
        return None;
    }
    let image = Image::read(&path).expect("AICPU_IMAGE_ELF names an image");
    Some(Aicpu::Qemu { image, options })
}
