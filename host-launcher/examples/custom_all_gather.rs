//! An algorithm of one's own, written in Rust: an all-gather in which blocks travel both ways around a ring.
//!
//!     cargo run --release -p host-launcher --example custom_all_gather
//!
//! What the function below says is checked before it runs: carried out symbolically, it must neither hang nor race, and
//! leave in every output what an all-gather says. Then kernels that know nothing of it expand it, for any count and type.

use std::sync::Arc;

use algorithm_file::Buffer::{Input, Output};
use algorithm_file::{Algorithm, AlgorithmFile, Builder};
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Communicator, Config, Operation};
use host_launcher::rank_table::RankTable;
use host_launcher::run::{Run, Setup};
use host_launcher::topology::Topology;
use wire::launch::{Algorithm as Name, OpKind};

/// Half of the blocks come from either side: half as many steps as a ring that goes one way.
pub(crate) fn two_way_ring(ranks: u32) -> Algorithm {
    let mut ring = Builder::new("two-way ring", OpKind::AllGather, ranks, ranks).places(true, true);
    for rank in 0..ranks {
        ring.block(rank).copy((Input, 0), (Output, rank));
        let (next, last) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        // Blocks go up by half of the ranks, rounded up, and down by the rest.
        let ways = [(next, last, ranks / 2, ranks - 1), (last, next, (ranks - 1) / 2, 1)];
        for (way, (to, from, hops, distance)) in (0..).zip(ways).filter(|(_, (_, _, hops, _))| *hops > 0) {
            let mut block = ring.block(rank);
            block.to(to).from(from).channel(way).send((Input, 0));
            for hop in 1..=hops {
                let arrived = (Output, (rank + hop * distance) % ranks);
                if hop < hops {
                    block.receive_copy_send(arrived)
                } else {
                    block.receive(arrived)
                };
            }
        }
    }
    ring.finish()
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let ranks = 5;
    let file = Some(Arc::new(AlgorithmFile::new(two_way_ring(ranks))?));
    let operation = Operation {
        op: OpKind::AllGather,
        count: 1_000_003,
        algorithm: Name::File,
        file,
        ..Operation::default()
    };
    let cluster =
        Cluster::start(Topology::new(&RankTable::uniform(ranks, ranks)?), 128 << 20, &Aicpu::Thread)?;
    let comm = Communicator::create(&cluster, Config::default())?;
    let chunk = comm.chunk_elements(&operation, false)?;
    let setup = Setup { chunk, seed: 1, in_place: false, buffers: 1, capture: 0 };
    let summary =
        Run::prepare(&cluster, comm, operation, &setup)?.repeat(3, "an example".to_owned(), |_| ())?;
    println!(
        "{} ranks, {} bytes each: every byte verified, {} times",
        ranks, summary.bytes, summary.repetitions
    );
    Ok(())
}
