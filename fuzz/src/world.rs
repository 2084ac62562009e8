//! What must hold of a rank table, accepted or not.

use host_launcher::rank_table::RankTable;
use host_launcher::topology::Topology;

/// Ranks of which every pair is looked at.
const SMALL: u32 = 64;

/// Checks a table that was read.
pub fn check(table: host_launcher::Result<RankTable>) {
    let table = match table {
        Ok(table) => table,
        Err(error) => {
            assert!(error.code().info().is_some() && error.place().is_some() && !error.message().is_empty());
            return;
        }
    };
    let topology = Topology::new(&table);
    let ranks = topology.ranks();
    assert_eq!(ranks as usize, table.ranks().len());
    assert!(ranks > 0 && topology.servers() as usize == table.servers().len());
    for rank in 0..ranks.min(SMALL) {
        for channel in topology.channels(rank) {
            assert!(channel.peer < ranks && channel.peer != rank);
            assert_eq!(topology.link(rank, channel.peer), Some(channel.protocol));
            assert_eq!(topology.link(channel.peer, rank), Some(channel.protocol), "links have two ends");
        }
    }
}
