//! Writes the algorithm files of `examples/algorithms`:
//!
//!     cargo run -p aicpu-algorithm-file --example algorithms -- examples/algorithms
//!
//! Each function is an algorithm for any number of ranks; a test compares the files with what they return.

use std::path::PathBuf;

use aicpu_algorithm_file::Buffer::{Input, Output, Scratch};
use aicpu_algorithm_file::{Algorithm, Builder, to_xml};
use wire::launch::OpKind;

/// Ring: every chunk goes around once to be reduced and once to be spread, one thread block per rank.
pub(crate) fn ring_all_reduce(ranks: u32) -> Algorithm {
    let mut ring = Builder::new("ring all-reduce", OpKind::AllReduce, ranks, ranks).places(true, true);
    for rank in 0..ranks {
        let mut block = ring.block(rank);
        block.to((rank + 1) % ranks).from((rank + ranks - 1) % ranks).send((Input, rank));
        let behind = |distance| (rank + ranks - distance) % ranks;
        for distance in 1..ranks - 1 {
            block.receive_reduce_send((Input, behind(distance)));
        }
        let whole = behind(ranks - 1);
        block.receive_reduce_copy_send((Input, whole), (Output, whole));
        for distance in 0..ranks - 2 {
            block.receive_copy_send((Output, behind(distance)));
        }
        block.receive((Output, behind(ranks - 2)));
    }
    ring.finish()
}

/// Mesh: every rank sends its block to every other, each over its own link.
pub(crate) fn mesh_all_gather(ranks: u32) -> Algorithm {
    let mut mesh = Builder::new("mesh all-gather", OpKind::AllGather, ranks, ranks).places(true, true);
    for rank in 0..ranks {
        mesh.block(rank).copy((Input, 0), (Output, rank));
        for peer in (0..ranks).filter(|&peer| peer != rank) {
            mesh.block(rank).to(peer).send((Input, 0));
            mesh.block(rank).from(peer).receive((Output, peer));
        }
    }
    mesh.finish()
}

/// Hierarchy: reduce-scatter among the devices of each server, ring all-reduce of what a device is left with among the
/// servers, all-gather among the devices again.
pub(crate) fn hierarchical_all_reduce(servers: u32, devices: u32) -> Algorithm {
    let ranks = servers * devices;
    let name = "hierarchical all-reduce";
    let mut all = Builder::new(name, OpKind::AllReduce, ranks, ranks).places(true, true);
    for rank in 0..ranks {
        let (server, device) = (rank / devices, rank % devices);
        let peers: Vec<u32> = (0..devices).filter(|&peer| peer != device).collect();
        // A device deals with as many chunks as there are servers.
        let first = |device| device * servers;
        let mut received = Vec::new();
        for (slot, &peer) in (0..).zip(&peers) {
            let mut block = all.block(rank);
            block.to(server * devices + peer).from(server * devices + peer);
            block.send((Input, first(peer))).times(servers);
            block.receive((Scratch, slot * servers)).times(servers).awaited();
            received.push(block.last());
        }
        let mut ring = all.block(rank);
        ring.copy((Input, first(device)), (Output, first(device))).times(servers);
        for (slot, &done) in (0..).zip(&received) {
            ring.after(done).reduce((Scratch, slot * servers), (Output, first(device))).times(servers);
        }
        let chunk = |behind: u32| (Output, first(device) + (server + 2 * servers - behind) % servers);
        ring.to((rank + devices) % ranks).from((rank + ranks - devices) % ranks);
        for step in 0..servers - 1 {
            ring.send(chunk(step)).receive_reduce_copy(chunk(step + 1), chunk(step + 1));
        }
        for step in 0..servers - 1 {
            ring.send(chunk(step + servers - 1)).receive(chunk(step));
        }
        let reduced = ring.awaited().last();
        for (&peer, &block) in peers.iter().zip(&received) {
            let mut block = all.resume(rank, block);
            block.after(reduced).send((Output, first(device))).times(servers);
            block.receive((Output, first(peer))).times(servers);
        }
    }
    all.finish()
}

/// The files, with what is in them.
pub(crate) fn files() -> [(&'static str, Algorithm); 3] {
    [
        ("all-reduce-ring-8.xml", ring_all_reduce(8)),
        ("all-gather-mesh-8.xml", mesh_all_gather(8)),
        ("all-reduce-hierarchical-2x4.xml", hierarchical_all_reduce(2, 4)),
    ]
}

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    for (name, algorithm) in files() {
        std::fs::write(folder.join(name), to_xml(&algorithm))?;
    }
    Ok(())
}
