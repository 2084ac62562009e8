//! `aicpu-ts topo`: the matrix of link classes.

use host_launcher::error::{Error, Result};
use host_launcher::rank_table::RankTable;
use host_launcher::topology::Topology;
use serde_json::json;
use wire::ErrorCode;

use crate::args::WorldArgs;
use crate::output::Output;

/// Most ranks that a matrix is printed of: a line of 20 KiB for each.
const WIDEST: u32 = 1 << 12;

/// Reads the rank table, or makes one for `--ranks`.
pub(crate) fn world(args: &WorldArgs) -> Result<Topology> {
    let table = match (&args.rank_table, args.ranks) {
        (Some(path), _) => RankTable::read(path, args.topology.as_deref())?,
        (None, ranks) => RankTable::uniform(ranks.unwrap_or(1), args.devices_per_server)?,
    };
    Ok(Topology::new(&table))
}

pub(crate) fn topo(args: &WorldArgs, output: &mut Output) -> Result<()> {
    let topology = world(args)?;
    if output.is_json() {
        let pairs: serde_json::Map<_, _> = topology
            .pairs()
            .into_iter()
            .map(|(protocol, pairs)| (protocol.name().to_owned(), pairs.into()))
            .collect();
        let digest = format!("{:016x}", topology.digest());
        output.line(&json!({
            "ranks": topology.ranks(), "servers": topology.servers(), "pairs": pairs, "digest": digest,
        }));
    } else if topology.ranks() > WIDEST {
        let message = format!("a matrix of {} ranks; at most {WIDEST}", topology.ranks());
        return Err(Error::new(ErrorCode::RANKS_RANGE, message).remedy("use --json, which counts the pairs"));
    } else {
        output.text(&topology.matrix());
    }
    Ok(())
}
